"""A connection to SQLite that fails when a test says so."""

from __future__ import annotations

import sqlite3
from dataclasses import dataclass, field
from typing import Any


@dataclass
class Faults:
    """What is to go wrong, statement by statement; used up as it happens.

    `before` raises instead of running a statement that begins so, `after` runs it and raises all the same.
    """

    before: dict[str, int] = field(default_factory=dict)
    after: dict[str, int] = field(default_factory=dict)
    connections: int = 0
    refuse_connections: bool = False

    def connect(self, uri: str, timeout_seconds: float) -> sqlite3.Connection:
        """Connect as the log does, with these faults."""
        if self.refuse_connections:
            raise _error(sqlite3.SQLITE_CANTOPEN)
        self.connections += 1
        connection = sqlite3.connect(
            uri,
            uri=True,
            timeout=timeout_seconds,
            isolation_level=None,
            check_same_thread=False,
            factory=_FaultyConnection,
        )
        connection.faults = self
        return connection

    def take(self, faults: dict[str, int], sql: str) -> int | None:
        """Return the error number for *sql*, once."""
        for start in faults:
            if sql.startswith(start):
                return faults.pop(start)
        return None


class _FaultyConnection(sqlite3.Connection):
    faults: Faults

    def execute(self, sql: str, *arguments: Any) -> sqlite3.Cursor:
        return self._run(super().execute, sql, *arguments)

    def executemany(self, sql: str, *arguments: Any) -> sqlite3.Cursor:
        return self._run(super().executemany, sql, *arguments)

    def _run(self, run: Any, sql: str, *arguments: Any) -> sqlite3.Cursor:
        number = self.faults.take(self.faults.before, sql)
        if number is not None:
            raise _error(number)
        cursor: sqlite3.Cursor = run(sql, *arguments)
        number = self.faults.take(self.faults.after, sql)
        if number is not None:
            raise _error(number)
        return cursor


def _error(number: int) -> sqlite3.OperationalError:
    error = sqlite3.OperationalError(f"injected {number}")
    error.sqlite_errorcode = number
    return error
