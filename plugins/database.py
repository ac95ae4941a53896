"""Databases: schema changes of a SQLite file, each applied and reverted in one transaction with a note of it.

    database.migrate    runs the statements of a change, and notes the operation's key in the same transaction
    database.revert     undoes it by the statements of its reversal; the schema must then be what it was, to the letter
    database.check      asks a question, read-only, and compares the answer: a smoke test

The notes stand in a table of the database itself, `saga_changes`, so a change and its note are there together or not
at all. They make calls safe to repeat: a change that is noted isn't made again, a reversal of what never happened only
leaves a note, and a change that arrives after its reversal finds that note and is refused.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import sqlite3
from collections.abc import Iterator
from typing import Final, Literal, TypedDict

from sagactl import CallContext, Done, NotDone, Rejected, Unavailable, tool

from ._sqlite import open_file, within_transaction

NOTES: Final = "saga_changes"
State = Literal["applied", "reverted"]


class Change(TypedDict):
    """A change that is in the database."""

    schema_before: str
    schema_after: str


class Undone(TypedDict):
    """What an undo found and did."""

    status: Literal["reverted", "already_reverted", "never_applied"]


class Answer(TypedDict):
    """What a question was answered: rows of columns."""

    rows: list[list[str | int | float | None]]


@tool(
    "database.migrate",
    compensation="database.revert",
    compensation_with={"database": "${{ args.database }}", "statements": "${{ args.revert }}"},
    probe="database.find_change",
)
def migrate(context: CallContext, database: str, statements: str, revert: str = "") -> Change:
    """Change a database by SQL statements; `revert` undoes them, and is recorded here for that."""
    del revert  # the compensation gets it
    with _transaction(context, database) as connection:
        state = _read_state(connection, context.idempotency_key)
        if state == "reverted":
            raise Rejected("this change was reverted before it came", code="too_late")
        if state is None:
            before = _digest_schema(connection)
            _execute(connection, statements)
            change: Change = {"schema_before": before, "schema_after": _digest_schema(connection)}
            _note(connection, context.idempotency_key, "applied", change)
        return _read_change(connection, context.idempotency_key)


@tool("database.revert", null_safe=True, late_safe=True)
def revert_change(context: CallContext, database: str, statements: str) -> Undone:
    """Undo a change; the schema must be what it was before, otherwise nothing is done and a person must look."""
    with _transaction(context, database) as connection:
        state = _read_state(connection, context.forward_key)
        if state is None:
            _note(connection, context.forward_key, "reverted", None)  # refuses the change if it arrives after this
            return {"status": "never_applied"}
        if state == "reverted":
            return {"status": "already_reverted"}
        change = _read_change(connection, context.forward_key)
        if _digest_schema(connection) != change["schema_after"]:
            raise Rejected("somebody has changed the schema since", code="schema_moved_on")
        _execute(connection, statements)
        if _digest_schema(connection) != change["schema_before"]:
            raise Rejected("the reversal doesn't lead back to the schema that there was", code="not_a_reversal")
        _note(connection, context.forward_key, "reverted", change)
    return {"status": "reverted"}


@tool("database.find_change", read_only=True)
def find_change(context: CallContext, database: str) -> Done | NotDone:
    """Find out whether a change is in the database."""
    with open_file(context, database, "ro") as connection:
        if _read_state(connection, context.forward_key) == "applied":
            return Done(_read_change(connection, context.forward_key))
    return NotDone()


@tool("database.check", read_only=True)
def check(context: CallContext, database: str, question: str, rows: list[list[str | int | float | None]]) -> Answer:
    """Ask a question and compare the answer with what it must be; nothing can be written."""
    with open_file(context, database, "ro") as connection:
        try:
            found = [list(row) for row in connection.execute(question).fetchmany(len(rows) + 1)]
        except (sqlite3.Error, sqlite3.Warning) as error:
            raise Rejected(f"the question can't be answered: {error}", code="bad_question") from None
    if found != rows:
        raise Rejected(f"the answer is {json.dumps(found, default=str)}", code="check_failed")
    return {"rows": rows}


@contextlib.contextmanager
def _transaction(context: CallContext, database: str) -> Iterator[sqlite3.Connection]:
    """Begin as a writer at once, and commit at the end; whatever is raised before leaves nothing behind."""
    with open_file(context, database, "rw") as connection:
        try:
            connection.execute("BEGIN IMMEDIATE")
        except sqlite3.OperationalError as error:
            raise Unavailable(f"the database is busy: {error}", code="busy") from None
        connection.execute(
            f"CREATE TABLE IF NOT EXISTS {NOTES} (key TEXT PRIMARY KEY, state TEXT NOT NULL, change TEXT)"
        )
        try:
            yield connection
        except BaseException:
            connection.rollback()
            raise
        connection.execute("COMMIT")  # where this raises nobody knows: the probe finds out


def _execute(connection: sqlite3.Connection, statements: str) -> None:
    """Execute statements one by one; `executescript` would commit before it begins."""
    with within_transaction(connection) as refused:
        try:
            for statement in _split(statements):
                connection.execute(statement)
        except (sqlite3.Error, sqlite3.Warning) as error:
            why = f"it has {refused[0]}" if refused else str(error)
            raise Rejected(f"the change can't be made: {why}", code="bad_change") from None


def _split(statements: str) -> Iterator[str]:
    """Yield one statement after the other; a semicolon may also stand in a text or a trigger."""
    statement = ""
    for piece in statements.split(";"):
        statement += piece + ";"
        if sqlite3.complete_statement(statement):
            yield statement
            statement = ""
    if statement.strip("; \n\t\r"):
        yield statement


def _digest_schema(connection: sqlite3.Connection) -> str:
    rows = connection.execute(
        "SELECT type, name, tbl_name, sql FROM sqlite_master WHERE tbl_name != ? ORDER BY type, name", (NOTES,)
    ).fetchall()
    return hashlib.sha256(json.dumps(rows).encode()).hexdigest()


def _read_state(connection: sqlite3.Connection, key: str) -> State | None:
    if not connection.execute("SELECT 1 FROM sqlite_master WHERE name = ?", (NOTES,)).fetchone():
        return None
    row = connection.execute(f"SELECT state FROM {NOTES} WHERE key = ?", (key,)).fetchone()  # noqa: S608 - a constant
    return None if row is None else row[0]


def _read_change(connection: sqlite3.Connection, key: str) -> Change:
    row = connection.execute(f"SELECT change FROM {NOTES} WHERE key = ?", (key,)).fetchone()  # noqa: S608 - as above
    change: Change = json.loads(row[0])
    return change


def _note(connection: sqlite3.Connection, key: str, state: State, change: Change | None) -> None:
    values = (key, state, None if change is None else json.dumps(change))
    connection.execute(f"INSERT OR REPLACE INTO {NOTES} VALUES (?, ?, ?)", values)  # noqa: S608 - as above
