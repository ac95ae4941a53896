"""SQL: statements in PostgreSQL or SQLite, each call one transaction with a note of it; so nothing happens twice.

    sql.execute   runs statements; `undo` has those that take them back, for sql.undo
    sql.undo      takes a call back; where it never happened, nothing is done, and it can't happen any more
    sql.query     reads rows, for a step that is `read_only`
    sql.forget    deletes notes older than so many days, 30 at least: for those who keep the table small

    - id: reserve
      tool: sql.execute
      with:
        database: "${{ secrets.shop }}"
        statements:
          - run: UPDATE stock SET free = free - $1 WHERE sku = $2 AND free >= $1
            values: [2, "${{ input.sku }}"]
            rows: 1                       # exactly one row, else nothing is done and the call is rejected
          - {run: INSERT INTO orders (sku) VALUES ($1) RETURNING id, values: ["${{ input.sku }}"]}
        undo:
          - {run: DELETE FROM orders WHERE id = $1, values: [{result: 1, column: id}], rows: 1}
          - {run: UPDATE stock SET free = free + $1 WHERE sku = $2, values: [2, "${{ input.sku }}"], rows: 1}

**Which database.** `sqlite:shop.db`, a file that is there, seen from the project; `postgresql://…`, which holds a
password, so it is a secret; or a name such as `shop`: then the variable SAGACTL_SQL_SHOP has one of the two. A file
that a saga itself names lies within the project, whatever links say (`outside`); one of the environment lies anywhere.
What is in `.sagactl`, and a log of sagactl wherever it is, no statement reaches (`reserved`).

**Values** stand for `$1`, `$2`, … and are bound by the database, never written into a statement. In `undo` a value may
be what the action returned: `{result: 1, column: id}` is the column `id` in the first row of the second result, as
results are counted from 0. It is read from the note, so an undo works when the answer was lost. Decimals come back as
text, with their digits; bytes as hexadecimal digits.

**The notes** stand in a table of the database itself, `saga_barrier` (key, direction, made_by, made_at, answer), made
on first use where the role may. What a call does and its note are one transaction. A repeated call finds the note and
gives its answer again; an undo of what never happened leaves one, and a call that arrives after it is refused
(`too_late`). Who prunes the table by sql.forget keeps 30 days: a call in doubt for longer is never blindly repeated
(`key_retention`), and an undo that misses the note of what happened is rejected, `note_gone`, and not taken for an undo
of nothing.

**What comes of it.** Rejected, with the database's own code (`sqlstate_23505`, `sqlite_constraint_unique`):
constraints, wrong statements, no permission, rows that aren't as many as they must be. Unavailable, since it was rolled
back: a deadlock, a serialization failure, a lock or the call's time that ran out, a line that broke before the commit.
A line that breaks while it commits leaves doubt, and the probe looks for the note. An undo that can't reach its
database, or isn't allowed to, is unavailable: it waits until somebody has mended that.

A statement can't begin or end a transaction. In PostgreSQL it can do whatever else its role may: give it a small one.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from decimal import Decimal
from typing import Annotated, Any, Final, Literal, NotRequired, TypedDict

from sagactl import CallContext, Done, NotDone, Rejected, Secret, Unavailable, tool

from ._barrier import (
    KEPT_DAYS_MIN,
    Database,
    Note,
    Role,
    Value,
    check_note_missing,
    forget_notes,
    make_note,
    note_answer,
    read_note,
)

ROWS_MAX: Final = 1_000
ANSWER_BYTES_MAX: Final = 262_144
STATEMENTS_MAX: Final = 100
STATEMENT_LENGTH_MAX: Final = 100_000
RETENTION: Final = f"{KEPT_DAYS_MIN}d"

TO_BE_MENDED: Final = frozenset(
    {"bad_address", "no_barrier", "no_connection_named", "no_database", "no_permission", "sqlstate_42501"}
)
"""What stands in the way of an undo only until somebody mends it, so that it waits for that."""

NAME: Final = re.compile(r"[a-z][a-z0-9_]{0,62}", re.ASCII)

Text = Annotated[str, {"minLength": 1, "maxLength": STATEMENT_LENGTH_MAX}]
Rows = Annotated[int, {"minimum": 0}]


class Statement(TypedDict):
    """A statement, what is bound in it, and how many rows it must touch or return."""

    run: Text
    values: NotRequired[list[str | int | Decimal | bool | None]]
    rows: NotRequired[Rows]


class Taken(TypedDict):
    """A value that the action returned: a column, by its name, in the first row of a result counted from 0."""

    result: Annotated[int, {"minimum": 0}]
    column: str


class UndoStatement(TypedDict):
    """A statement of an undo."""

    run: Text
    values: NotRequired[list[str | int | Decimal | bool | Taken | None]]
    rows: NotRequired[Rows]


class Result(TypedDict):
    """What a statement came to: the rows that it touched, and those that it returned."""

    rows: int
    returned: list[dict[str, Any]]


class Executed(TypedDict):
    """Statements that were executed and committed."""

    applied: Literal[True]
    results: list[Result]


class Undone(TypedDict):
    """What an undo found and did."""

    status: Literal["undone", "never_applied"]
    results: list[Result]


class Found(TypedDict):
    """Rows that were read."""

    rows: list[dict[str, Any]]


class Forgotten(TypedDict):
    """How many notes were deleted."""

    forgotten: int


Statements = Annotated[list[Statement], {"minItems": 1, "maxItems": STATEMENTS_MAX}]
UndoStatements = Annotated[list[UndoStatement], {"minItems": 1, "maxItems": STATEMENTS_MAX}]
MaybeUndo = Annotated[list[UndoStatement] | None, {"minItems": 1, "maxItems": STATEMENTS_MAX}]


@tool(
    "sql.execute",
    compensation="sql.undo",
    compensation_with={
        "database": "${{ args.database }}",
        "statements": "${{ args.undo }}",
        "applied": "${{ output.applied }}",
    },
    probe="sql.find",
    key_retention=RETENTION,
)
def execute(context: CallContext, database: Secret, statements: Statements, undo: MaybeUndo = None) -> Executed:
    """Run statements in one transaction with a note of the call; a repeated call gives the answer of the first.

    Args:
        context: The call.
        database: A secret with its address, `sqlite:FILE`, or the name of a connection in the environment.
        statements: What is run, all or nothing.
        undo: What takes it back, recorded here for the undo.
    """
    del undo  # the compensation gets it
    key = context.idempotency_key
    with _transaction(context, database) as participant:
        if make_note(participant, key, Role.ACTION, Role.ACTION):
            answer: Executed = {"applied": True, "results": _run(participant, statements, lambda value: value)}
            _write(participant, key, Role.ACTION, answer)
            return answer
        note = _read_standing(participant, key)
    if note is None:
        raise Rejected("this call was undone before it came", code="too_late")
    repeated: Executed = note.answer
    return repeated


@tool("sql.undo", null_safe=True, late_safe=True, key_retention=RETENTION)
def undo_call(
    context: CallContext, database: Secret, statements: UndoStatements, applied: bool | None = None
) -> Undone:
    """Take back what a call did, once; a call that never happened is kept from happening later.

    Args:
        context: The call.
        database: As the action has it.
        statements: What takes it back.
        applied: Whether the action is known to have happened; then its note must be there.
    """
    key = context.forward_key
    with _transaction(context, database) as participant:
        is_null = make_note(participant, key, Role.ACTION, Role.UNDO)
        if is_null:
            check_note_missing(context, applied=bool(applied))
        if make_note(participant, key, Role.UNDO, Role.UNDO):
            action = read_note(participant, key, Role.ACTION)
            results = None if action is None else action.answer
            answer: Undone = {"status": "never_applied", "results": []}
            if not is_null:
                done = _run(participant, statements, lambda value: _take(value, results))
                answer = {"status": "undone", "results": done}
            _write(participant, key, Role.UNDO, answer)
            return answer
        note = read_note(participant, key, Role.UNDO)
    repeated: Undone = {"status": "never_applied", "results": []} if note is None else note.answer
    return repeated


@tool("sql.find", read_only=True)
def find(context: CallContext, database: Secret) -> Done | NotDone:
    """Find out whether a call is in the database; where one is under way there, its end is waited for."""
    try:
        with _transaction(context, database) as participant:
            note = _look(participant, context.forward_key)
    except _NothingThereError:
        return NotDone()
    return Done(note.answer)


@tool("sql.query", read_only=True)
def query(
    context: CallContext, database: Secret, run: Text, values: list[str | int | Decimal | bool | None] | None = None
) -> Found:
    """Read rows, in a transaction that can't write.

    Args:
        context: The call.
        database: As for sql.execute.
        run: What is asked.
        values: What is bound in it.
    """
    with _transaction(context, database, reads_only=True) as participant:
        found = participant.read(run, values or [])
    _check_size(found)
    return {"rows": found}


@tool("sql.forget")
def forget(
    context: CallContext, database: Secret, older_than_days: Annotated[int, {"minimum": KEPT_DAYS_MIN}]
) -> Forgotten:
    """Delete the notes of calls that are older than so many days: a rollback of their runs is then rejected."""
    key = context.idempotency_key
    with _transaction(context, database) as participant:
        if make_note(participant, key, Role.ACTION, Role.ACTION):
            answer: Forgotten = {"forgotten": forget_notes(participant, older_than_days)}
            note_answer(participant, key, Role.ACTION, answer)
            return answer
        note = read_note(participant, key, Role.ACTION)
    repeated: Forgotten = {"forgotten": 0} if note is None else note.answer
    return repeated


class _NothingThereError(Exception):
    """The action isn't there; raised within the transaction, so that the note which was tried isn't kept."""


def _look(participant: Database, key: str) -> Note:
    if not make_note(participant, key, Role.ACTION, Role.PROBE):
        note = _read_standing(participant, key)
        if note is not None:
            return note
    raise _NothingThereError


def _read_standing(participant: Database, key: str) -> Note | None:
    """Return the note of an action that happened and wasn't undone."""
    note = read_note(participant, key, Role.ACTION)
    is_standing = note is not None and note.made_by == Role.ACTION and read_note(participant, key, Role.UNDO) is None
    return note if is_standing else None


@contextmanager
def _transaction(context: CallContext, database: str, *, reads_only: bool = False) -> Iterator[Database]:
    try:
        with _opened(context, database, reads_only=reads_only) as opened:
            yield opened
    except Rejected as error:
        if context.direction == "compensation" and error.code in TO_BE_MENDED:
            raise Unavailable(error.message, code=error.code) from None
        raise


@contextmanager
def _opened(context: CallContext, database: str, *, reads_only: bool) -> Iterator[Database]:
    address = _find_address(database)
    if address.startswith("sqlite:"):
        from ._sqlite_database import sqlite_transaction

        path, is_given = address.removeprefix("sqlite:"), address == database
        with sqlite_transaction(
            context, path, rows_max=ROWS_MAX, reads_only=reads_only, within_project=is_given
        ) as file:
            yield file
    elif address.startswith(("postgresql://", "postgres://")):
        from ._postgres import postgres_transaction

        with postgres_transaction(context, address, rows_max=ROWS_MAX, reads_only=reads_only) as server:
            yield server
    else:  # it isn't quoted: it may be a secret
        raise Rejected("a database is sqlite:FILE, postgresql://… or the name of a connection", code="bad_address")


def _find_address(database: str) -> str:
    if not NAME.fullmatch(database):
        return database
    variable = f"SAGACTL_SQL_{database.upper()}"
    if not os.environ.get(variable):
        raise Rejected(f"there is no connection {database}: {variable} isn't set", code="no_connection_named")
    return os.environ[variable]


def _run(participant: Database, statements: Sequence[Any], fill: Callable[[Any], Value]) -> list[Result]:
    results: list[Result] = []
    for number, statement in enumerate(statements, start=1):
        done = participant.run_given(statement["run"], [fill(value) for value in statement.get("values", ())])
        wanted = statement.get("rows")
        if wanted is not None and done.rows != wanted:
            what = f"statement {number} concerns {done.rows} rows and not {wanted}"
            raise Rejected(f"{what}: nothing was changed", code="wrong_rows")
        _check_size(done.returned)
        results.append({"rows": done.rows, "returned": done.returned})
    return results


def _take(value: Any, answer: Any) -> Value:
    """Return a value of an undo, which may be what the action returned."""
    if not isinstance(value, dict):
        plain: Value = value
        return plain
    try:
        taken: Value = answer["results"][value["result"]]["returned"][0][value["column"]]
    except (IndexError, KeyError, TypeError):
        what = f"{value['column']} of result {value['result']}"
        raise Rejected(f"the action returned no {what}", code="not_returned") from None
    return taken


def _write(participant: Database, key: str, direction: Role, answer: Executed | Undone) -> None:
    if len(json.dumps(answer)) > ANSWER_BYTES_MAX:
        raise Rejected(f"the answer has more than {ANSWER_BYTES_MAX:,} bytes", code="too_much")
    note_answer(participant, key, direction, answer)


def _check_size(rows: list[dict[str, Any]]) -> None:
    if len(rows) > ROWS_MAX:
        raise Rejected(f"more than {ROWS_MAX:,} rows came", code="too_many_rows")
    if len(json.dumps(rows)) > ANSWER_BYTES_MAX:
        raise Rejected(f"the answer has more than {ANSWER_BYTES_MAX:,} bytes", code="too_much")
