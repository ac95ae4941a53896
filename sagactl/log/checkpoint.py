"""When the WAL is copied back into the database, and by whom.

SQLite would run a checkpoint by itself after a commit that leaves the WAL long, while other processes may be writing;
that is what the race described in `gate` needs. So automatic checkpoints are off, and only this module runs one: by
the connection that has just committed, before it leaves the gate. Nobody else of ours can be writing then.

Two more moments remain. When the last connection to a database closes, SQLite runs a checkpoint and deletes the WAL;
it does so under an exclusive lock on the database, which it gets only when no other connection has the file open, so
nothing can be written meanwhile; and we close inside the gate as well. A foreign program that writes to the log (the
sqlite3 shell) does as it likes; reading the log with one is harmless while it only reads.

When it is time is told by the size of the WAL's file. A checkpoint leaves the file as long as it is, and writing
begins anew at its front: overwriting costs a sync far less than growing (the file system has no new size to keep). So
as long as the file doesn't grow past the size it had then, the WAL holds no more than that, and when it grows the next
checkpoint is due. A file that has become much longer, because a reader stayed for long, is cut.

A checkpoint needs the readers' leave: one that is in the middle of reading keeps the WAL from beginning anew. Ours read
page by page and hold nothing between. A checkpoint that readers hinder isn't waited for, but tried again when the WAL
has grown by as much; past the second size each try waits a moment. One that fails loses nothing, the commit stands in
the WAL; the next commit that needs space will say so.
"""

from __future__ import annotations

import sqlite3
from pathlib import Path
from typing import Final

CHECKPOINT_BYTES: Final = 4 * 1024 * 1024
CUT_FACTOR: Final = 2
"""How many times longer than that a file must be to be cut."""

LOOK_COMMITS: Final = 8
"""How many commits go by until the file's size is looked at; they write a few times the payload limit at worst."""

WAL_BYTES_MAX: Final = 16 * CHECKPOINT_BYTES
FORCED_WAIT_MS: Final = 250


class Checkpointer:
    """Keeps the WAL of the log at *path* short; every call is made inside the gate, with no transaction open."""

    def __init__(
        self,
        path: Path,
        *,
        checkpoint_bytes: int = CHECKPOINT_BYTES,
        wal_bytes_max: int = WAL_BYTES_MAX,
        look_commits: int = LOOK_COMMITS,
    ) -> None:
        self._wal = path.with_name(path.name + "-wal")
        self._checkpoint_bytes = checkpoint_bytes
        self._wal_bytes_max = wal_bytes_max
        self._look_commits = look_commits
        self._commits = 0
        self.due_bytes = max(checkpoint_bytes, self.wal_bytes())
        """When the WAL's file is longer, a checkpoint is due."""

    def after_commit(self, connection: sqlite3.Connection) -> None:
        """Run a checkpoint if it is due; looked after at each `LOOK_COMMITS`th commit, for looking costs time too."""
        self._commits = (self._commits + 1) % self._look_commits
        if self._commits:
            return
        size = self.wal_bytes()
        if size <= self.due_bytes:
            return
        is_done = checkpoint(
            connection,
            cut=size > CUT_FACTOR * self._checkpoint_bytes,
            wait_ms=FORCED_WAIT_MS if size > self._wal_bytes_max else 0,
        )
        size = self.wal_bytes()
        self.due_bytes = max(size, self._checkpoint_bytes) if is_done else size + self._checkpoint_bytes

    def wal_bytes(self) -> int:
        """Return the size of the WAL's file."""
        try:
            return self._wal.stat().st_size
        except OSError:
            return 0


def checkpoint(connection: sqlite3.Connection, *, cut: bool, wait_ms: int) -> bool:
    """Copy the whole WAL into the database and let it begin anew; False where readers, or an error, hindered it."""
    mode = "TRUNCATE" if cut else "RESTART"
    try:
        (before_ms,) = connection.execute("PRAGMA busy_timeout").fetchone()
        connection.execute(f"PRAGMA busy_timeout = {wait_ms}").fetchall()
        try:
            busy, _, _ = connection.execute(f"PRAGMA wal_checkpoint({mode})").fetchone()
        finally:
            connection.execute(f"PRAGMA busy_timeout = {before_ms}").fetchall()
    except (sqlite3.Error, UnicodeDecodeError):
        return False
    return bool(busy == 0)
