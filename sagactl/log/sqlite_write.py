"""The statements that write: each function is the work of one transaction that its caller has begun."""

from __future__ import annotations

import sqlite3
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Final, NamedTuple

from sagactl.core.canonical import digest
from sagactl.core.records import Holder, Record, Request
from sagactl.dataclass import dataclass
from sagactl.log.base import Batch, Captured, Creation, Lease, NewRun, RunRow
from sagactl.log.chain import encode_all, genesis_hash, link
from sagactl.log.codec import Encoded, encode_failure, encode_request
from sagactl.log.effects import WITH_EFFECTS, CloseLetters, OpenLetter, row_effect
from sagactl.log.leases import Granted, LeaseClock, Standing, grant, judge
from sagactl.log.rows import (
    busy,
    claimed_record,
    created_record,
    cut_captured,
    first_row,
    key_taken,
    run_exists,
)
from sagactl.log.sqlite_alerts import write_alerts
from sagactl.log.sqlite_prune import refuse_pruned
from sagactl.log.sqlite_read import missing_run
from sagactl.log.sqlite_store import Mark

if TYPE_CHECKING:
    from sagactl.core.definition import Snapshot
    from sagactl.core.summary import Summary

_INSERT_RECORD: Final = "INSERT INTO records VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)"
_SET_ROW: Final = (
    "SET direction = ?, cause = ?, failure = ?, failed_step = ?, waiting_for = ?,"
    " waiting_until_ms = ?, updated_at_ms = ?, ended_at_ms = ?, steps_total = ?, steps_done = ?, dead_letters = ?,"
    " seq = ?, head = ?"
)
_WHERE_HELD: Final = (
    " WHERE run_id = ? AND seq = ? AND head = ? AND EXISTS"
    " (SELECT 1 FROM leases WHERE leases.run_id = runs.run_id AND fence = ? AND host IS NOT NULL)"
)
_UPDATE_ROW: Final = f"UPDATE runs {_SET_ROW}{_WHERE_HELD}"
# Apart, for a statement that names an indexed column writes its indexes anew even where the value stays.
_UPDATE_ROW_AND_STATUS: Final = f"UPDATE runs {_SET_ROW}, status = ?{_WHERE_HELD}"
_FIND_HELD: Final = (
    "SELECT runs.seq, runs.head, runs.status, leases.fence FROM runs JOIN leases ON leases.run_id = runs.run_id"
    " WHERE runs.run_id = ? AND leases.host IS NOT NULL"
)
_FIND_KEY: Final = (
    "SELECT run_id, input_digest FROM runs WHERE saga = ? AND key = ?"
    " AND (key_is_explicit = 1 OR status <> 'rolled_back')"
)


@dataclass(frozen=True, slots=True)
class EncodedBatch:
    """A batch with its records as columns; encoding is done before the transaction."""

    batch: Batch
    columns: tuple[Encoded, ...]


class Head(NamedTuple):
    """Where a run stands in the log: its last record, and the status that its row has."""

    seq: int
    hash: str
    status: str


def encode_batch(batch: Batch) -> EncodedBatch:
    """Encode the records of *batch*; raises NotJsonError."""
    return EncodedBatch(batch, encode_all(batch.records))


def append_batches(
    connection: sqlite3.Connection, batches: Sequence[EncodedBatch], known: Mapping[str, Head]
) -> tuple[list[Head | None], Mark | None]:
    """Append what is not refused; return for each batch where its run stands then, None where the lease was lost.

    *known* is where runs stood after their last commit: a guess that saves a look, and is checked by what it saves.
    """
    last: Mark | None = None
    heads: list[Head | None] = []
    for encoded in batches:
        run_id = encoded.batch.lease.run_id
        head = _append_batch(connection, encoded, known.get(run_id))
        heads.append(head)
        if head is not None and encoded.columns:
            last = Mark(run_id, head.seq, head.hash)
    return heads, last


def _append_batch(connection: sqlite3.Connection, encoded: EncodedBatch, known: Head | None) -> Head | None:
    batch = encoded.batch
    after = _append_records(connection, encoded, known) if known is not None and encoded.columns else None
    if after is None:
        found = find_head(connection, batch.lease)
        if found is None or found.seq != batch.after_seq:
            return None
        after = _append_records(connection, encoded, found) if encoded.columns else found
        assert after is not None, "nobody else writes within this transaction"
    if batch.definition is not None:
        _bind(connection, batch.lease.run_id, batch.definition)
    if batch.captured:
        _keep_captured(connection, batch.lease.run_id, batch.captured)
    for request_id in batch.answered:
        connection.execute(
            "UPDATE requests SET is_answered = 1 WHERE run_id = ? AND id = ?", (batch.lease.run_id, request_id)
        )
    if batch.releases:
        release_leases(connection, [batch.lease])
    return after


def _keep_definition(connection: sqlite3.Connection, definition: Snapshot) -> None:
    connection.execute("INSERT OR IGNORE INTO definitions VALUES (?, ?)", (definition.digest, definition.text))


def _bind(connection: sqlite3.Connection, run_id: str, definition: Snapshot) -> None:
    """Let the run's row name the definition that the records of this batch bind it to (E16)."""
    _keep_definition(connection, definition)
    connection.execute("UPDATE runs SET definition = ? WHERE run_id = ?", (definition.digest, run_id))


def find_head(connection: sqlite3.Connection, lease: Lease) -> Head | None:
    """Return where the run of *lease* stands, or None where the lease is lost."""
    found = connection.execute(_FIND_HELD, (lease.run_id,)).fetchone()
    return None if found is None or found[3] != lease.fence else Head(*found[:3])


def _append_records(connection: sqlite3.Connection, encoded: EncodedBatch, before: Head) -> Head | None:
    """Append the records after *before*; return None, and do nothing, where the run doesn't stand there under us."""
    batch = encoded.batch
    if before.seq != batch.after_seq:
        return None
    run_id = batch.lease.run_id
    links = link(run_id, before.seq, before.hash, encoded.columns)
    after = Head(links[-1].seq, links[-1].hash, batch.summary.status.value)
    has_new_status = after.status != before.status
    values = _row_values(batch.summary, links[-1].at_ms, after)
    changed = connection.execute(
        _UPDATE_ROW_AND_STATUS if has_new_status else _UPDATE_ROW,
        (*values, *([after.status] if has_new_status else []), run_id, before.seq, before.hash, batch.lease.fence),
    )
    if changed.rowcount != 1:
        return None
    connection.executemany(_INSERT_RECORD, links)
    for record, placed in zip(batch.records, links, strict=True):
        if type(record) in WITH_EFFECTS:
            _apply_effect(connection, run_id, record, placed.seq)
            write_alerts(connection, run_id, record, placed.seq)
    return after


def _row_values(summary: Summary, at_ms: int, after: Head) -> tuple[object, ...]:
    waiting = summary.waiting_for
    return (
        summary.direction.value,
        None if summary.cause is None else summary.cause.value,
        None if summary.failure is None else encode_failure(summary.failure),
        summary.failed_step,
        None if waiting is None else waiting.what,
        None if waiting is None else waiting.until_ms,
        at_ms,
        summary.ended_at_ms,
        summary.steps_total,
        summary.steps_done,
        summary.dead_letters,
        after.seq,
        after.hash,
    )


def _apply_effect(connection: sqlite3.Connection, run_id: str, record: Record, seq: int) -> None:
    match row_effect(record):
        case OpenLetter(operation, reason, failure, at_ms):
            connection.execute(
                "INSERT OR IGNORE INTO dead_letters"
                " (run_id, seq, step, item, direction, reason, failure, opened_at_ms)"
                " VALUES (?, ?, ?, ?, ?, ?, ?, ?)",
                (run_id, seq, *operation, reason, encode_failure(failure), at_ms),
            )
        case CloseLetters(None, at_ms):
            connection.execute(
                "UPDATE dead_letters SET closed_at_ms = ? WHERE run_id = ? AND closed_at_ms IS NULL",
                (at_ms, run_id),
            )
        case CloseLetters(operation, at_ms):
            assert operation is not None
            connection.execute(
                "UPDATE dead_letters SET closed_at_ms = ? WHERE run_id = ? AND closed_at_ms IS NULL"
                " AND step = ? AND item IS ? AND direction = ?",
                (at_ms, run_id, *operation),
            )


def _keep_captured(connection: sqlite3.Connection, run_id: str, captured: Sequence[Captured]) -> None:
    found = connection.execute(
        "SELECT total_bytes FROM captured WHERE run_id = ? ORDER BY number DESC LIMIT 1", (run_id,)
    ).fetchone()
    total = 0 if found is None else found[0]
    for each in captured:
        text, size = cut_captured(each.text, total)
        if size == 0:
            continue
        total += size
        connection.execute(
            "INSERT INTO captured (run_id, step, item, direction, attempt, text, total_bytes)"
            " VALUES (?, ?, ?, ?, ?, ?, ?)",
            (run_id, *each.operation, each.attempt, text, total),
        )


def create_run(
    connection: sqlite3.Connection, new: NewRun, holder: Holder | None, clock: LeaseClock
) -> tuple[Creation, Mark | None]:
    """Create a run, or find the one that has its key; raises RefusedError."""
    if new.key is not None:
        found = connection.execute(_FIND_KEY, (new.saga, new.key)).fetchone()
        if found is not None:
            if found[1] != digest(new.input):
                raise key_taken(new, found[0])
            return Creation(found[0], is_new=False, lease=None), None
    refuse_pruned(connection, new)
    if connection.execute("SELECT 1 FROM runs WHERE run_id = ?", (new.run_id,)).fetchone() is not None:
        raise run_exists(new.run_id)
    _keep_definition(connection, new.definition)
    at_ms = clock.wall_ms()
    records: list[Record] = [created_record(new, at_ms)]
    if holder is not None:
        records.append(claimed_record(at_ms, 1, holder, calls_ended=True))
    links = link(new.run_id, 0, genesis_hash(new.run_id), encode_all(records))
    _insert_run(connection, first_row(new, at_ms, links[-1].seq, links[-1].hash), new)
    connection.executemany(_INSERT_RECORD, links)
    if holder is not None:
        _write_lease(connection, new.run_id, 1, holder, grant(clock))
    lease = None if holder is None else Lease(new.run_id, 1, holder)
    creation = Creation(new.run_id, is_new=True, lease=lease, records=tuple(records))
    return creation, Mark(new.run_id, links[-1].seq, links[-1].hash)


def _insert_run(connection: sqlite3.Connection, row: RunRow, new: NewRun) -> None:
    connection.execute(
        "INSERT INTO runs (run_id, saga, definition, status, direction, key, key_is_explicit, input_digest,"
        " created_at_ms, updated_at_ms, steps_total, steps_done, dead_letters, seq, head)"
        " VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, 0, 0, ?, ?)",
        (
            row.run_id,
            row.saga,
            row.definition,
            row.status.value,
            row.direction.value,
            row.key,
            int(new.key_is_explicit),
            row.input_digest,
            row.created_at_ms,
            row.updated_at_ms,
            row.steps_total,
            row.seq,
            row.head,
        ),
    )


def claim_run(
    connection: sqlite3.Connection, run_id: str, holder: Holder, clock: LeaseClock
) -> tuple[Lease, Mark | None]:
    """Take a run over with the next fence; raises BusyError, NotFoundError."""
    found = connection.execute("SELECT seq, head, updated_at_ms FROM runs WHERE run_id = ?", (run_id,)).fetchone()
    if found is None:
        raise missing_run(connection, run_id)
    fence, calls_ended = _next_fence(connection, run_id, clock)
    at_ms = max(clock.wall_ms(), found[2])  # a clock that was set back: the run's time goes on from its last record
    record = claimed_record(at_ms, fence, holder, calls_ended=calls_ended)
    (placed,) = link(run_id, found[0], found[1], encode_all([record]))
    connection.execute(_INSERT_RECORD, placed)
    write_alerts(connection, run_id, record, placed.seq)
    connection.execute(
        "UPDATE runs SET seq = ?, head = ?, updated_at_ms = ? WHERE run_id = ?",
        (placed.seq, placed.hash, at_ms, run_id),
    )
    _write_lease(connection, run_id, fence, holder, grant(clock))
    return Lease(run_id, fence, holder), Mark(run_id, placed.seq, placed.hash)


def _next_fence(connection: sqlite3.Connection, run_id: str, clock: LeaseClock) -> tuple[int, bool]:
    """Return the next fence, and whether the calls of the last driver have ended for certain."""
    found = connection.execute(
        "SELECT fence, host, pid, started, boot_id, granted_boot_id, granted_boot_ms, granted_wall_ms"
        " FROM leases WHERE run_id = ?",
        (run_id,),
    ).fetchone()
    if found is None:
        return 1, True
    fence, host = found[:2]
    if host is None:
        return fence + 1, True
    holder = Holder(*found[1:5])
    standing = judge(clock, holder, Granted(*found[5:]))
    if standing is Standing.GOOD:
        raise busy(run_id, holder)
    return fence + 1, standing is Standing.VOID


def _write_lease(connection: sqlite3.Connection, run_id: str, fence: int, holder: Holder, granted: Granted) -> None:
    connection.execute(
        "INSERT OR REPLACE INTO leases VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)",
        (
            run_id,
            fence,
            holder.host,
            holder.pid,
            holder.started,
            holder.boot_id,
            granted.boot_id,
            granted.boot_ms,
            granted.wall_ms,
        ),
    )


def renew_leases(
    connection: sqlite3.Connection, leases: Sequence[Lease], clock: LeaseClock
) -> tuple[list[Lease], Mark | None]:
    """Prolong the leases that hold; return the others."""
    granted = grant(clock)
    lost = []
    for lease in leases:
        changed = connection.execute(
            "UPDATE leases SET granted_boot_id = ?, granted_boot_ms = ?, granted_wall_ms = ?"
            " WHERE run_id = ? AND fence = ? AND host IS NOT NULL",
            (granted.boot_id, granted.boot_ms, granted.wall_ms, lease.run_id, lease.fence),
        )
        if changed.rowcount == 0:
            lost.append(lease)
    return lost, None


def release_leases(connection: sqlite3.Connection, leases: Sequence[Lease]) -> tuple[None, Mark | None]:
    """Give leases back; the fences stay."""
    for lease in leases:
        connection.execute(
            "UPDATE leases SET host = NULL, pid = NULL, started = NULL, boot_id = NULL, granted_boot_id = NULL,"
            " granted_boot_ms = NULL, granted_wall_ms = NULL WHERE run_id = ? AND fence = ?",
            (lease.run_id, lease.fence),
        )
    return None, None


def ask_run(
    connection: sqlite3.Connection, run_id: str, request: Request, clock: LeaseClock
) -> tuple[None, Mark | None]:
    """Write down a request, once; raises NotFoundError."""
    if connection.execute("SELECT 1 FROM runs WHERE run_id = ?", (run_id,)).fetchone() is None:
        raise missing_run(connection, run_id)
    connection.execute(
        "INSERT OR IGNORE INTO requests (run_id, id, asked_at_ms, body) VALUES (?, ?, ?, ?)",
        (run_id, request.id, clock.wall_ms(), encode_request(request)),
    )
    return None, None
