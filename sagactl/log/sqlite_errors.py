"""What SQLite reports, in the words of sagactl: every error of the storage is a StorageError (rule E18)."""

from __future__ import annotations

import os
import sqlite3
from pathlib import Path
from typing import Final

from sagactl.errors import DamagedLogError, StorageError

_PRIMARY: Final = 0xFF
_BUSY: Final = frozenset({sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED})
_DAMAGED: Final = frozenset({sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB})
_MISSING: Final = ("no such column", "no such table", "has no column named")
"""What SQLite says of a schema that isn't the one of its number: our statements are fixed, so its text was changed."""
_CODES: Final = {
    sqlite3.SQLITE_FULL: ("disk-full", "free some space on its disk, then type the same again"),
    sqlite3.SQLITE_READONLY: (
        "read-only",
        "see to the permissions of the file and its folder, and to how it is mounted",
    ),
    sqlite3.SQLITE_PERM: (
        "read-only",
        "see to the permissions of the file and its folder, and to how it is mounted",
    ),
    sqlite3.SQLITE_CANTOPEN: ("storage", "see to the permissions of the file and its folder"),
}
_VAGUE: Final = frozenset({sqlite3.SQLITE_IOERR, sqlite3.SQLITE_CANTOPEN})
_CAUSES: Final = {sqlite3.SQLITE_FULL: "the disk is full", sqlite3.SQLITE_READONLY: "the disk can't be written to"}
NEEDED_BYTES: Final = 64 * 1024
"""A log that is opened needs about as much for its index of the WAL."""

LOCKED_HINT: Final = "another process writes to the log; end it, or try again when it is done"


SQLITE_ERRORS: Final = (sqlite3.Error, UnicodeDecodeError)
"""What a statement may raise: Python fails to read what SQLite says of a schema whose text is damaged."""


def storage_error(error: sqlite3.Error | UnicodeDecodeError, path: Path, what: str) -> StorageError:
    """Return the error to raise for *error*, which happened while *what* was done to the log at *path*."""
    if isinstance(error, UnicodeDecodeError):
        hint = "put a copy of the log in its place"
        return DamagedLogError(f"{path} is damaged: it has text that is none", hint=hint)
    number = getattr(error, "sqlite_errorcode", None)
    primary = None if number is None else number & _PRIMARY
    if primary in _BUSY:
        return locked_error(path)
    if primary in _DAMAGED or any(word in str(error) for word in _MISSING):
        return DamagedLogError(f"{path} is damaged or no database: {error}", hint="put a copy of the log in its place")
    cause = _find_cause(path) if primary in _VAGUE else None
    code, hint = _CODES.get(cause or primary or 0, ("storage", "see to the log's disk, then type the same again"))
    why = "" if cause is None else f": {_CAUSES[cause]}"
    return StorageError(f"can't {what} the log {path}: {error}{why}", code=code, hint=hint)


def _find_cause(path: Path) -> int | None:
    """Return what an I/O error comes from where the disk says so; SQLite doesn't always see it."""
    try:
        disk = os.statvfs(path.parent)
    except OSError:
        return None
    if disk.f_flag & os.ST_RDONLY:
        return sqlite3.SQLITE_READONLY
    return sqlite3.SQLITE_FULL if disk.f_bavail * disk.f_frsize < NEEDED_BYTES else None


def locked_error(path: Path) -> StorageError:
    """Return the error for a log that others keep locked for longer than we wait."""
    return StorageError(f"the log {path} is locked by another process", code="locked", hint=LOCKED_HINT)
