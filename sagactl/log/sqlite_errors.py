"""What SQLite reports, in the words of sagactl: every error of the storage is a StorageError (rule E18)."""

from __future__ import annotations

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
    sqlite3.SQLITE_FULL: ("disk-full", "free some space on its disk, then resume the run"),
    sqlite3.SQLITE_READONLY: ("read-only", "see to the permissions of the file and its folder"),
    sqlite3.SQLITE_PERM: ("read-only", "see to the permissions of the file and its folder"),
    sqlite3.SQLITE_CANTOPEN: ("storage", "see to the permissions of the file and its folder"),
}
LOCKED_HINT: Final = "another process writes to the log; end it, or try again when it is done"


def storage_error(error: sqlite3.Error, path: Path, what: str) -> StorageError:
    """Return the error to raise for *error*, which happened while *what* was done to the log at *path*."""
    number = getattr(error, "sqlite_errorcode", None)
    primary = None if number is None else number & _PRIMARY
    if primary in _BUSY:
        return locked_error(path)
    if primary in _DAMAGED or any(word in str(error) for word in _MISSING):
        return DamagedLogError(f"{path} is damaged or no database: {error}", hint="put a copy of the log in its place")
    code, hint = _CODES.get(primary or 0, ("storage", "see to the log's disk, then resume the run"))
    return StorageError(f"can't {what} the log {path}: {error}", code=code, hint=hint)


def locked_error(path: Path) -> StorageError:
    """Return the error for a log that others keep locked for longer than we wait."""
    return StorageError(f"the log {path} is locked by another process", code="locked", hint=LOCKED_HINT)
