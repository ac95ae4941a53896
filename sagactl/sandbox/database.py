"""The file of the sandbox: opened anew for each use, durable, safe with many threads and processes.

A rollback journal, not a WAL: several processes write here, and SQLite builds before 3.51.3 can damage a WAL when one
of them writes while another checkpoints. With `synchronous=EXTRA` a commit that returned survives a power cut, and a
process that is killed in the middle of one leaves a journal that the next to open the file rolls back.
"""

from __future__ import annotations

import contextlib
import os
import sqlite3
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from sagactl.errors import StorageError

SANDBOX_FILE: Final = "sandbox.db"
BUSY_SECONDS: Final = 30.0

_SCHEMA_VERSION: Final = 1
_SCHEMA: Final = (
    """CREATE TABLE objects (
        system TEXT NOT NULL, kind TEXT NOT NULL, id TEXT NOT NULL, forward_key TEXT NOT NULL, body TEXT NOT NULL,
        PRIMARY KEY (system, kind, id))""",
    "CREATE INDEX objects_by_key ON objects (system, kind, forward_key)",
    """CREATE TABLE answers (
        system TEXT NOT NULL, key TEXT NOT NULL, request TEXT NOT NULL, answer TEXT NOT NULL,
        PRIMARY KEY (system, key))""",
    """CREATE TABLE tombstones (
        system TEXT NOT NULL, forward_key TEXT NOT NULL, key TEXT NOT NULL,
        PRIMARY KEY (system, forward_key))""",
    """CREATE TABLE counts (
        name TEXT NOT NULL PRIMARY KEY, value INTEGER NOT NULL)""",
    """CREATE TABLE ledger (
        seq INTEGER PRIMARY KEY AUTOINCREMENT, at TEXT NOT NULL, system TEXT NOT NULL, effect TEXT NOT NULL,
        key TEXT NOT NULL, forward_key TEXT NOT NULL, detail TEXT NOT NULL)""",
)
TABLES: Final = ("objects", "answers", "tombstones", "counts", "ledger")


def sandbox_path(project: Path) -> Path:
    """Return where the sandbox of a project lies."""
    return project / ".sagactl" / SANDBOX_FILE


@contextlib.contextmanager
def transaction(path: Path) -> Iterator[sqlite3.Connection]:
    """Open the sandbox, made if need be, and commit what the block does; what the block raises undoes it all."""
    create_file(path)
    with contextlib.closing(_connect(path)) as connection:
        connection.execute("BEGIN IMMEDIATE")
        try:
            _migrate(connection, path)
            yield connection
        except BaseException:
            connection.execute("ROLLBACK")
            raise
        connection.execute("COMMIT")


def create_file(path: Path) -> None:
    """Make an empty file that only its owner can read, in a folder of the same kind; a link is refused."""
    path.parent.mkdir(mode=0o700, exist_ok=True)
    if path.is_symlink():
        raise StorageError(f"{path} is a symbolic link", code="sandbox", hint="remove it, and it is made anew")
    with contextlib.suppress(FileExistsError):
        os.close(os.open(path, os.O_CREAT | os.O_EXCL | os.O_RDWR | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600))


def count_up(connection: sqlite3.Connection, name: str) -> int:
    """Raise a count by one and return it."""
    connection.execute("INSERT OR IGNORE INTO counts VALUES (?, 0)", (name,))
    connection.execute("UPDATE counts SET value = value + 1 WHERE name = ?", (name,))
    (value,) = connection.execute("SELECT value FROM counts WHERE name = ?", (name,)).fetchone()
    return int(value)


def _connect(path: Path) -> sqlite3.Connection:
    connection = sqlite3.connect(path, timeout=BUSY_SECONDS, isolation_level=None)
    connection.execute("PRAGMA synchronous=EXTRA")
    connection.execute("PRAGMA fullfsync=ON")
    return connection


def _migrate(connection: sqlite3.Connection, path: Path) -> None:
    (version,) = connection.execute("PRAGMA user_version").fetchone()
    if version > _SCHEMA_VERSION:
        raise StorageError(f"{path} was made by a newer sagactl", code="sandbox", hint="sagactl sandbox reset")
    if version < _SCHEMA_VERSION:
        for statement in _SCHEMA:
            connection.execute(statement)
        connection.execute(f"PRAGMA user_version={_SCHEMA_VERSION}")
