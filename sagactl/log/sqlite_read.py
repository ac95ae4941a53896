"""The queries that read: rows of the database as the values of the protocol.

Each is one short look: nothing is held open between two of them, so a follower of a long log never keeps a checkpoint
from its work.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator, Sequence
from dataclasses import fields
from functools import partial
from typing import Any, Final

from sagactl.core.canonical import Json
from sagactl.core.records import Cause, Direction, Holder, Operation, Request, RunStatus
from sagactl.errors import DamagedLogError, NotFoundError
from sagactl.log.base import Captured, DeadLetter, RunFilter, RunRow, StoredRecord, Tombstone
from sagactl.log.chain import Link, damaged, follow, genesis_hash
from sagactl.log.codec import decode_failure, decode_request
from sagactl.log.definitions import check_definition, definition_lost
from sagactl.log.pruning import run_pruned
from sagactl.log.rows import FOUND_MAX, is_unicode, no_run, shorten_id
from sagactl.log.sqlite_reading import Store

PAGE_RECORDS: Final = 1_000
LAST_CHARACTER: Final = "\U0010ffff"
UNFINISHED: Final = (RunStatus.RUNNING, RunStatus.WAITING, RunStatus.ROLLING_BACK)

SELECT_ROW: Final = (
    "SELECT runs.run_id, saga, definition, status, direction, cause, failure, failed_step, waiting_for,"
    " waiting_until_ms, key, input_digest, created_at_ms, updated_at_ms, ended_at_ms, steps_total, steps_done,"
    " dead_letters, seq, head, host, pid, started, boot_id"
    " FROM runs LEFT JOIN leases ON leases.run_id = runs.run_id"
)


def read_row(connection: sqlite3.Connection, run_id: str) -> RunRow:
    """Return the row of one run; raises NotFoundError."""
    found = None
    if is_unicode(run_id):
        found = connection.execute(f"{SELECT_ROW} WHERE runs.run_id = ?", (run_id,)).fetchone()
    if found is None:
        raise missing_run(connection, run_id)
    return make_row(found)


def missing_run(connection: sqlite3.Connection, run_id: str) -> NotFoundError:
    """Return the error for a run that isn't there: it was pruned, or never was."""
    found = None
    if is_unicode(run_id):
        columns = ", ".join(each.name for each in fields(Tombstone))
        found = connection.execute(f"SELECT {columns} FROM tombstones WHERE run_id = ?", (run_id,)).fetchone()
    return no_run(run_id) if found is None else run_pruned(make_tombstone(found))


def make_tombstone(row: Sequence[Any]) -> Tombstone:
    """Return a tombstone from its columns; raises DamagedLogError."""
    values = [*row[:3], word_of(RunStatus, row[3]), *row[4:]]
    return Tombstone(*values)


def find_rows(connection: sqlite3.Connection, prefix: str) -> list[RunRow]:
    """Return the runs whose id begins with *prefix*."""
    if not is_unicode(prefix):
        return []
    found = connection.execute(
        f"{SELECT_ROW} WHERE runs.run_id >= ? AND runs.run_id < ? ORDER BY runs.number DESC LIMIT ?",
        (prefix, prefix + LAST_CHARACTER, FOUND_MAX),
    )
    return [make_row(row) for row in found.fetchall()]


def shorten_ids(connection: sqlite3.Connection, run_ids: Sequence[str], length_min: int) -> dict[str, str]:
    """Return for each id the shortest prefix that means it."""
    return {run_id: shorten_id(run_id, _find_neighbours(connection, run_id), length_min) for run_id in run_ids}


def _find_neighbours(connection: sqlite3.Connection, run_id: str) -> list[str]:
    query = "SELECT (SELECT max(run_id) FROM runs WHERE run_id < ?), (SELECT min(run_id) FROM runs WHERE run_id > ?)"
    found = connection.execute(query, (run_id, run_id)).fetchone()
    return [neighbour for neighbour in found if neighbour is not None]


def list_rows(connection: sqlite3.Connection, which: RunFilter) -> tuple[list[RunRow], int]:
    """Return the rows that fit, and how many there are without the limit."""
    condition, values = _write_condition(which)
    (total,) = connection.execute(f"SELECT count(*) FROM runs WHERE {condition}", values).fetchone()
    limit = which.limit if which.limit > 0 else -1
    found = connection.execute(
        f"{SELECT_ROW} WHERE runs.number IN (SELECT number FROM runs WHERE {condition} ORDER BY number DESC LIMIT ?)"
        " ORDER BY runs.number DESC",
        (*values, limit),
    )
    return [make_row(row) for row in found.fetchall()], total


def _write_condition(which: RunFilter) -> tuple[str, list[object]]:
    parts = ["1"]
    values: list[object] = []
    if which.saga is not None:
        parts.append("saga = ?")
        values.append(which.saga if is_unicode(which.saga) else None)
    if which.statuses:
        parts.append(f"status IN ({', '.join('?' * len(which.statuses))})")
        values += [status.value for status in which.statuses]
    for comparison, bound in ((">=", which.since_ms), ("<=", which.until_ms)):
        if bound is not None:
            parts.append(f"created_at_ms {comparison} ?")
            values.append(bound)
    return " AND ".join(parts), values


def list_unfinished(connection: sqlite3.Connection) -> list[str]:
    """Return the runs that are not at rest, oldest first."""
    marks = ", ".join("?" * len(UNFINISHED))
    found = connection.execute(f"SELECT run_id FROM runs WHERE status IN ({marks}) ORDER BY number", UNFINISHED)
    return [run_id for (run_id,) in found.fetchall()]


def read_records(store: Store, run_id: str, after_seq: int) -> Iterator[StoredRecord]:
    """Yield the records after *after_seq*, page by page, up to where the run is when reading begins, or further."""
    row = store.read(lambda connection: read_row(connection, run_id))
    seq, head = store.read(lambda connection: _read_start(connection, run_id, after_seq))
    while page := store.read(partial(read_links, run_id=run_id, after_seq=seq)):
        for stored in follow(run_id, seq, head, page):
            if stored.seq == row.seq and stored.hash != row.head:
                raise damaged(run_id, stored.seq, "it is not the record that the run's row tells of")
            seq, head = stored.seq, stored.hash
            yield stored
    if seq < row.seq:
        store.read(lambda connection: read_row(connection, run_id))  # it may have been pruned meanwhile
        raise damaged(run_id, seq + 1, f"records {seq + 1} to {row.seq} are missing")


def _read_start(connection: sqlite3.Connection, run_id: str, after_seq: int) -> tuple[int, str]:
    """Return sequence and hash of the record that comes before the first one to be read."""
    if after_seq <= 0:
        return 0, genesis_hash(run_id)
    found = connection.execute(
        "SELECT seq, hash FROM records WHERE run_id = ? AND seq <= ? ORDER BY seq DESC LIMIT 1", (run_id, after_seq)
    ).fetchone()
    if found is None:
        return 0, genesis_hash(run_id)
    return found[0], found[1]


def read_links(connection: sqlite3.Connection, run_id: str, after_seq: int) -> list[Link]:
    """Return a page of records as they lie in the table."""
    found = connection.execute(
        "SELECT run_id, seq, at_ms, type, step, item, attempt, body, hash FROM records"
        " WHERE run_id = ? AND seq > ? ORDER BY seq LIMIT ?",
        (run_id, after_seq, PAGE_RECORDS),
    )
    return list(map(Link._make, found.fetchall()))


def read_definition_body(connection: sqlite3.Connection, definition: str) -> dict[str, Json]:
    """Return a definition; raises DamagedLogError where it is not what was written."""
    found = connection.execute("SELECT body FROM definitions WHERE digest = ?", (definition,)).fetchone()
    body = None if found is None else check_definition(definition, found[0])
    if body is None:
        raise definition_lost(definition)
    return body


def list_requests(connection: sqlite3.Connection, run_ids: Sequence[str]) -> list[tuple[str, Request]]:
    """Return the open requests to *run_ids*, oldest first."""
    wanted = frozenset(run_ids)
    found = connection.execute("SELECT run_id, body FROM requests WHERE is_answered = 0 ORDER BY number")
    return [(run_id, decode_request(body)) for run_id, body in found.fetchall() if run_id in wanted]


def list_dead_letters(connection: sqlite3.Connection, run_id: str | None, *, is_open: bool) -> list[DeadLetter]:
    """Return dead letters, oldest first."""
    condition = "closed_at_ms IS NULL" if is_open else "1"
    values: tuple[str, ...] = ()
    if run_id is not None:
        if not is_unicode(run_id):
            return []
        condition, values = f"{condition} AND letters.run_id = ?", (run_id,)
    found = connection.execute(
        "SELECT letters.run_id, runs.saga, letters.seq, step, item, letters.direction, reason, letters.failure,"
        " opened_at_ms, closed_at_ms FROM dead_letters AS letters JOIN runs ON runs.run_id = letters.run_id"
        f" WHERE {condition} ORDER BY letters.number",
        values,
    )
    return [make_letter(row) for row in found.fetchall()]


def make_letter(row: Sequence[Any]) -> DeadLetter:
    """Build a dead letter from its row."""
    run_id, saga, seq, step, item, direction, reason, failure, opened_at_ms, closed_at_ms = row
    operation = Operation(step, item, word_of(Direction, direction))
    return DeadLetter(run_id, saga, seq, operation, reason, decode_failure(failure), opened_at_ms, closed_at_ms)


def list_captured(connection: sqlite3.Connection, run_id: str) -> list[Captured]:
    """Return what the calls of a run printed, in order."""
    if not is_unicode(run_id):
        return []
    found = connection.execute(
        "SELECT step, item, direction, attempt, text FROM captured WHERE run_id = ? ORDER BY number", (run_id,)
    )
    return [
        Captured(Operation(step, item, word_of(Direction, direction)), attempt, text)
        for step, item, direction, attempt, text in found.fetchall()
    ]


def make_row(row: Sequence[Any]) -> RunRow:
    """Return the row of a run from its columns; raises DamagedLogError."""
    cause, failure = row[5], row[6]
    values = [
        *row[:3],
        word_of(RunStatus, row[3]),
        word_of(Direction, row[4]),
        None if cause is None else word_of(Cause, cause),
        decode_failure(failure),
        *row[7:20],
        None if row[20] is None else Holder(*row[20:24]),
    ]
    return RunRow(*values)


def word_of(words: Any, text: object) -> Any:
    """Return the member of *words* that *text* names; raises DamagedLogError."""
    try:
        return words(text)
    except ValueError:
        raise DamagedLogError(f"{text!r} is no {words.__name__}", hint="sagactl verify") from None
