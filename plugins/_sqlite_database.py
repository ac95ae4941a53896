"""A SQLite file as a participant: one transaction, in which a saga's statements and the notes of the barrier stand."""

from __future__ import annotations

import contextlib
import sqlite3
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from decimal import Decimal
from typing import Any, Final, NoReturn

from sagactl import CallContext, Rejected, Unavailable

from ._barrier import TABLE_SQL, Result, Value, name_cells
from ._sqlite import PRIMARY, open_file, within_transaction

PASSING: Final = frozenset(
    {
        *(sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED, sqlite3.SQLITE_INTERRUPT, sqlite3.SQLITE_NOMEM),
        *(sqlite3.SQLITE_FULL, sqlite3.SQLITE_IOERR, sqlite3.SQLITE_PROTOCOL, sqlite3.SQLITE_CANTOPEN),
    }
)
"""Results that say nothing against the statement: another time it may work."""


@dataclass(frozen=True)
class SqliteDatabase:
    """A file within a transaction."""

    connection: sqlite3.Connection
    rows_max: int

    def run(self, statement: str, values: Sequence[Value] = ()) -> Result:
        """Run one statement."""
        # `$1` is a named parameter to SQLite, so the same text means the same here and in PostgreSQL
        try:
            cursor = self.connection.execute(statement, {str(n): _bind(each) for n, each in enumerate(values, start=1)})
            rows = cursor.fetchmany(self.rows_max + 1)
            names = [column[0] for column in cursor.description or ()]
            cursor.close()
        except (sqlite3.Error, sqlite3.Warning, OverflowError) as error:
            refuse(error)
        # of what only reads SQLite counts no rows
        return Result(len(rows) if cursor.rowcount < 0 and names else max(cursor.rowcount, 0), name_cells(names, rows))

    def read(self, statement: str, values: Sequence[Value]) -> list[dict[str, Any]]:
        """Read the rows of one statement, and no more than are wanted."""
        return self.run_given(statement, values).returned

    def run_given(self, statement: str, values: Sequence[Value]) -> Result:
        """Run one statement of a saga."""
        with within_transaction(self.connection) as refused:
            try:
                return self.run(statement, values)
            except Rejected:
                if refused:
                    raise Rejected(f"a statement has {refused[0]}", code="bad_statement") from None
                raise


def _bind(value: Value) -> str | int | float | None:
    return float(value) if isinstance(value, Decimal) else value


@contextlib.contextmanager
def sqlite_transaction(
    context: CallContext, path: str, *, rows_max: int, reads_only: bool = False, within_project: bool = True
) -> Iterator[SqliteDatabase]:
    """Begin as a writer at once, and commit at the end; whatever is raised before leaves nothing behind."""
    with open_file(context, path, "ro" if reads_only else "rw", within_project=within_project) as connection:
        try:
            connection.execute("PRAGMA foreign_keys = ON")
            connection.execute("PRAGMA synchronous = FULL")
            connection.execute("BEGIN" if reads_only else "BEGIN IMMEDIATE")
            if not reads_only:
                connection.execute(TABLE_SQL)
        except sqlite3.Error as error:
            refuse(error)
        try:
            yield SqliteDatabase(connection, rows_max)
        except BaseException:
            connection.rollback()
            raise
        _commit(connection)


def _commit(connection: sqlite3.Connection) -> None:
    try:
        connection.execute("COMMIT")
    except sqlite3.Error as error:
        if not connection.in_transaction:
            raise  # nobody knows what is in the file: the probe finds out
        connection.rollback()  # it was refused as a whole: a constraint that is checked at the end, or a reader
        refuse(error)


def refuse(error: BaseException) -> NoReturn:
    """Say what a failure comes to, after which nothing of the transaction stays."""
    code = getattr(error, "sqlite_errorcode", sqlite3.SQLITE_ERROR)
    name = getattr(error, "sqlite_errorname", "SQLITE_ERROR").lower()
    if code & PRIMARY in PASSING:
        raise Unavailable(str(error), code="busy" if code & PRIMARY == sqlite3.SQLITE_BUSY else name) from None
    raise Rejected(str(error), code=name) from None
