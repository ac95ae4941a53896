"""When the WAL is copied back into the database, and by whom.

SQLite would run a checkpoint by itself after a commit that leaves the WAL long, while other processes may be writing;
that is what the race described in `gate` needs. So automatic checkpoints are off, and only this module runs one: by
the connection that has just committed, before it leaves the gate. Nobody else of ours can be writing then.

Two more moments remain. When the last connection to a database closes, SQLite runs a checkpoint and deletes the WAL;
it does so under an exclusive lock on the database, which it gets only when no other connection has the file open, so
nothing can be written meanwhile; and we close inside the gate as well. A foreign program that writes to the log (the
sqlite3 shell) does as it likes; reading the log with one is harmless while it only reads.

A checkpoint needs the readers' leave to shorten the WAL: one that is in the middle of reading keeps it long. Ours read
page by page and hold nothing between. From the first size on a checkpoint is tried without waiting, and again each
time the WAL has grown by as much; from the second size on each try waits a moment for the readers. A checkpoint that
fails loses nothing, the commit stands in the WAL; the next commit that needs space will say so.
"""

from __future__ import annotations

import sqlite3
from pathlib import Path
from typing import Final

CHECKPOINT_BYTES: Final = 4 * 1024 * 1024
WAL_BYTES_MAX: Final = 16 * CHECKPOINT_BYTES
FORCED_WAIT_MS: Final = 250


class Checkpointer:
    """Keeps the WAL of the log at *path* short; every call is made inside the gate, with no transaction open."""

    def __init__(
        self, path: Path, *, checkpoint_bytes: int = CHECKPOINT_BYTES, wal_bytes_max: int = WAL_BYTES_MAX
    ) -> None:
        self._wal = path.with_name(path.name + "-wal")
        self._checkpoint_bytes = checkpoint_bytes
        self._wal_bytes_max = wal_bytes_max
        self._due_bytes = checkpoint_bytes

    def after_commit(self, connection: sqlite3.Connection) -> None:
        """Run a checkpoint if the WAL has become long."""
        size = self.wal_bytes()
        if size < self._due_bytes:
            return
        wait_ms = FORCED_WAIT_MS if size >= self._wal_bytes_max else 0
        checkpoint(connection, wait_ms=wait_ms)
        self._due_bytes = self.wal_bytes() + self._checkpoint_bytes

    def wal_bytes(self) -> int:
        """Return the size of the WAL."""
        try:
            return self._wal.stat().st_size
        except OSError:
            return 0


def checkpoint(connection: sqlite3.Connection, *, wait_ms: int) -> bool:
    """Copy the whole WAL into the database and cut it; False where readers, or an error, left some of it."""
    try:
        (before_ms,) = connection.execute("PRAGMA busy_timeout").fetchone()
        connection.execute(f"PRAGMA busy_timeout = {wait_ms}").fetchall()
        try:
            busy, _, _ = connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()
        finally:
            connection.execute(f"PRAGMA busy_timeout = {before_ms}").fetchall()
    except sqlite3.Error:
        return False
    return bool(busy == 0)
