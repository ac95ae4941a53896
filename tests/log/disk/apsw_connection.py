"""A connection of apsw in the shape of Python's `sqlite3`, so that the log's own code runs over a file system of ours.

`sqlite3` can't be given a VFS; apsw can, and brings an SQLite of its own. What the log issues (its statements, its
pragmas, its transactions) is the product's code, unchanged: this is its seam `connect`. What differs is the library's
release, so the same cuts are made once more from what `strace` saw of the system's SQLite (see `straced`).
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator, Sequence
from contextlib import suppress
from typing import Any

import apsw


class Cursor:
    """What `execute` returns: rows that were read at once, for the log never leaves a cursor open."""

    def __init__(self, rows: list[tuple[Any, ...]], changes: int, names: Sequence[str]) -> None:
        self.description = [(name, *[None] * 6) for name in names] or None
        self.rowcount = changes
        self._rows = iter(rows)

    def __iter__(self) -> Iterator[tuple[Any, ...]]:
        return self._rows

    def fetchone(self) -> tuple[Any, ...] | None:
        return next(self._rows, None)

    def fetchall(self) -> list[tuple[Any, ...]]:
        return list(self._rows)

    def close(self) -> None:
        self._rows = iter(())


class Connection:
    """As much of `sqlite3.Connection` as the log uses."""

    isolation_level = None

    def __init__(self, address: str, timeout_seconds: float) -> None:
        flags = apsw.SQLITE_OPEN_READWRITE | apsw.SQLITE_OPEN_URI
        with translated():
            self._connection = apsw.Connection(address, flags=flags)
            self._connection.set_busy_timeout(int(timeout_seconds * 1000))
        self._names: list[str] = []
        self._connection.exec_trace = self._note_names

    def _note_names(self, cursor: apsw.Cursor, sql: str, values: object) -> bool:
        self._names = [name for name, _ in cursor.get_description()]
        return True

    @property
    def in_transaction(self) -> bool:
        return bool(self._connection.in_transaction)

    def execute(self, sql: str, values: Sequence[Any] = ()) -> Cursor:
        with translated():
            rows = self._connection.execute(sql, tuple(values)).fetchall()
            return Cursor(rows, self._connection.changes(), self._names)

    def executemany(self, sql: str, rows: Sequence[Sequence[Any]]) -> Cursor:
        with translated():
            found = self._connection.executemany(sql, rows).fetchall()
            return Cursor(found, self._connection.changes(), self._names)

    def close(self) -> None:
        with suppress(apsw.Error):  # SQLite tells no error of closing; apsw tells those that the VFS has raised
            self._connection.close()


class translated:  # noqa: N801 - reads as a statement
    """Turn errors of apsw into those of `sqlite3`, with their numbers."""

    def __enter__(self) -> None:
        return None

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        if isinstance(error, apsw.Error):
            found = sqlite3.OperationalError(str(error))
            found.sqlite_errorcode = getattr(error, "extendedresult", 0) or getattr(error, "result", 1)
            raise found from error
