"""A barrier in the participant's own database: notes of calls, written in the transaction of what the calls do.

A note has the key of an action, a direction, and who made it. The action makes its own note; the undo makes its own
and, where it is missing, the action's too. Notes are never made twice, so of two calls that compete for one the second
waits until the first has ended, and then knows:

    the action's note is there, made by the action   the call is a repeated one: the answer in the note is given again
    the action's note is there, made by the undo     the call is late: it is refused
    the undo had to make the action's note           the action never happened: there is nothing to undo
    the undo's note is there                         the undo is a repeated one
"""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from enum import StrEnum
from typing import Any, Final, Protocol

from sagactl import CallContext, Rejected

TABLE: Final = "saga_barrier"
TABLE_SQL: Final = (
    f"CREATE TABLE IF NOT EXISTS {TABLE} (key TEXT NOT NULL, direction TEXT NOT NULL, made_by TEXT NOT NULL,"
    " made_at TEXT NOT NULL, answer TEXT, PRIMARY KEY (key, direction))"
)

KEPT_DAYS_MIN: Final = 30
"""How long notes stay at least; what the tools promise as `key_retention`."""

Value = str | int | float | Decimal | bool | None


class Role(StrEnum):
    """A direction of a note, and who makes it."""

    ACTION = "action"
    UNDO = "undo"
    PROBE = "probe"


@dataclass(frozen=True)
class Result:
    """What one statement came to: how many rows it touched, and what it returned."""

    rows: int
    returned: list[dict[str, Any]]


class Database(Protocol):
    """A database within a transaction; whatever is raised rolls it back."""

    def run(self, statement: str, values: Sequence[Value] = ()) -> Result:
        """Run one statement of ours."""
        ...

    def read(self, statement: str, values: Sequence[Value]) -> list[dict[str, Any]]:
        """Return the rows of one statement of a saga that only reads, one more than are wanted at most."""
        ...

    def run_given(self, statement: str, values: Sequence[Value]) -> Result:
        """Run one statement of a saga, which can't end the transaction."""
        ...


@dataclass(frozen=True)
class Note:
    """What is noted of a call."""

    made_by: str
    answer: Any


def make_note(database: Database, key: str, direction: Role, made_by: Role) -> bool:
    """Make a note where there is none, and tell whether it was made; waits for another call that is making it."""
    made = database.run(
        f"INSERT INTO {TABLE} (key, direction, made_by, made_at) VALUES ($1, $2, $3, $4) ON CONFLICT DO NOTHING",  # noqa: S608
        (key, direction.value, made_by.value, _write_time(datetime.now(UTC))),
    )
    return made.rows == 1


def read_note(database: Database, key: str, direction: Role) -> Note | None:
    """Return a note that is there."""
    found = database.run(
        f"SELECT made_by, answer FROM {TABLE} WHERE key = $1 AND direction = $2",  # noqa: S608
        (key, direction.value),
    ).returned
    if not found:
        return None
    answer = found[0]["answer"]
    return Note(found[0]["made_by"], None if answer is None else json.loads(answer))


def note_answer(database: Database, key: str, direction: Role, answer: object) -> None:
    """Write what the call answers into its note."""
    text = json.dumps(answer)
    database.run(
        f"UPDATE {TABLE} SET answer = $1 WHERE key = $2 AND direction = $3",  # noqa: S608
        (text, key, direction.value),
    )


def forget_notes(database: Database, days: int) -> int:
    """Delete the notes of calls that are older than so many days; return how many."""
    before = _write_time(datetime.now(UTC) - timedelta(days=days))
    return database.run(f"DELETE FROM {TABLE} WHERE made_at < $1", (before,)).rows  # noqa: S608


def check_note_missing(context: CallContext, *, applied: bool) -> None:
    """Refuse to believe that an action never happened, where it did or may have, and its note is gone."""
    is_old = datetime.now(UTC) - context.begun_at > timedelta(days=KEPT_DAYS_MIN)
    if applied or is_old:
        known = "it was applied" if applied else f"it began more than {KEPT_DAYS_MIN} days ago"
        raise Rejected(f"there is no note of the action in {TABLE}, and {known}", code="note_gone")


def _write_time(moment: datetime) -> str:
    return moment.strftime("%Y-%m-%dT%H:%M:%SZ")


def name_cells(names: Sequence[str], rows: Sequence[Sequence[object]]) -> list[dict[str, Any]]:
    """Return rows by the names of their columns, each cell as JSON."""
    if len(set(names)) < len(names):
        raise Rejected(f"columns have the same name: {', '.join(names)}", code="bad_statement")
    return [dict(zip(names, map(_to_json, row), strict=True)) for row in rows]


def _to_json(value: object) -> Any:
    match value:
        case None | bool() | int() | str():
            found: Any = value
        case float():
            found = value if math.isfinite(value) else str(value)
        case date():
            found = value.isoformat()
        case bytes() | bytearray() | memoryview():
            found = bytes(value).hex()
        case list() | tuple():
            found = [_to_json(each) for each in value]
        case dict():
            found = {str(name): _to_json(each) for name, each in value.items()}
        case _:  # a decimal too, so that it has the digits that it has there
            found = str(value)
    return found
