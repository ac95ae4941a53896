"""The statements that write: each function is the work of one transaction that its caller has begun."""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence
from typing import Final

from sagactl.core.canonical import canonical, digest
from sagactl.core.dataclass import dataclass
from sagactl.core.records import Holder, Record, Request
from sagactl.log.base import Batch, Captured, Creation, Lease, NewRun, RunRow
from sagactl.log.chain import Link, encode_all, genesis_hash, link
from sagactl.log.codec import Encoded, encode_failure, encode_request
from sagactl.log.effects import CloseLetters, OpenLetter, row_effect
from sagactl.log.leases import Granted, LeaseClock, Standing, grant, judge
from sagactl.log.rows import (
    busy,
    claimed_record,
    created_record,
    cut_captured,
    first_row,
    key_taken,
    no_run,
    run_exists,
)
from sagactl.log.sqlite_store import Mark

_INSERT_RECORD: Final = "INSERT INTO records VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)"
_UPDATE_RUN: Final = (
    "UPDATE runs SET direction = ?, cause = ?, failure = ?, failed_step = ?, waiting_for = ?,"
    " waiting_until_ms = ?, updated_at_ms = ?, ended_at_ms = ?, steps_total = ?, steps_done = ?, dead_letters = ?,"
    " seq = ?, head = ? WHERE run_id = ?"
)
# Apart, for a statement that names an indexed column writes its indexes anew even where the value stays.
_UPDATE_STATUS: Final = "UPDATE runs SET status = ? WHERE run_id = ?"
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


def encode_batch(batch: Batch) -> EncodedBatch:
    """Encode the records of *batch*; raises NotJsonError."""
    return EncodedBatch(batch, encode_all(batch.records))


def append_batches(
    connection: sqlite3.Connection, batches: Sequence[EncodedBatch]
) -> tuple[list[list[Lease]], Mark | None]:
    """Append what is not refused; return for each batch the lease that was lost, and the mark of the last one."""
    last: Mark | None = None
    refused: list[list[Lease]] = []
    for encoded in batches:
        mark = _append_batch(connection, encoded.batch, encoded.columns)
        refused.append([encoded.batch.lease] if mark is None else [])
        if mark is not None and encoded.columns:
            last = mark
    return refused, last


def _append_batch(connection: sqlite3.Connection, batch: Batch, columns: tuple[Encoded, ...]) -> Mark | None:
    lease = batch.lease
    found = connection.execute(_FIND_HELD, (lease.run_id,)).fetchone()
    if found is None or found[0] != batch.after_seq or found[3] != lease.fence:
        return None
    seq, head, status, _ = found
    links = link(lease.run_id, seq, head, columns)
    if links:
        seq, head = links[-1].seq, links[-1].hash
        connection.executemany(_INSERT_RECORD, links)
        _update_run(connection, batch, links[-1].at_ms, seq, head)
        if batch.summary.status != status:
            connection.execute(_UPDATE_STATUS, (batch.summary.status.value, lease.run_id))
        _apply_effects(connection, lease.run_id, batch.records, links)
    if batch.captured:
        _keep_captured(connection, lease.run_id, batch.captured)
    for request_id in batch.answered:
        connection.execute(
            "UPDATE requests SET is_answered = 1 WHERE run_id = ? AND id = ?", (lease.run_id, request_id)
        )
    return Mark(lease.run_id, seq, head)


def _update_run(connection: sqlite3.Connection, batch: Batch, at_ms: int, seq: int, head: str) -> None:
    summary = batch.summary
    waiting = summary.waiting_for
    connection.execute(
        _UPDATE_RUN,
        (
            summary.direction.value,
            None if summary.cause is None else summary.cause.value,
            encode_failure(summary.failure),
            summary.failed_step,
            None if waiting is None else waiting.what,
            None if waiting is None else waiting.until_ms,
            at_ms,
            summary.ended_at_ms,
            summary.steps_total,
            summary.steps_done,
            summary.dead_letters,
            seq,
            head,
            batch.lease.run_id,
        ),
    )


def _apply_effects(
    connection: sqlite3.Connection, run_id: str, records: Sequence[Record], links: Sequence[Link]
) -> None:
    for record, placed in zip(records, links, strict=True):
        match row_effect(record):
            case OpenLetter(operation, reason, failure, at_ms):
                connection.execute(
                    "INSERT OR IGNORE INTO dead_letters"
                    " (run_id, seq, step, item, direction, reason, failure, opened_at_ms)"
                    " VALUES (?, ?, ?, ?, ?, ?, ?, ?)",
                    (run_id, placed.seq, *operation, reason, encode_failure(failure), at_ms),
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
            case None:
                pass


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
    if connection.execute("SELECT 1 FROM runs WHERE run_id = ?", (new.run_id,)).fetchone() is not None:
        raise run_exists(new.run_id)
    definition = digest(new.definition)
    connection.execute("INSERT OR IGNORE INTO definitions VALUES (?, ?)", (definition, canonical(new.definition)))
    at_ms = clock.wall_ms()
    records: list[Record] = [created_record(new, definition, at_ms)]
    if holder is not None:
        records.append(claimed_record(at_ms, 1, holder, calls_ended=True))
    links = link(new.run_id, 0, genesis_hash(new.run_id), encode_all(records))
    _insert_run(connection, first_row(new, definition, at_ms, links[-1].seq, links[-1].hash), new)
    connection.executemany(_INSERT_RECORD, links)
    if holder is not None:
        _write_lease(connection, new.run_id, 1, holder, grant(clock))
    lease = None if holder is None else Lease(new.run_id, 1, holder)
    return Creation(new.run_id, is_new=True, lease=lease), Mark(new.run_id, links[-1].seq, links[-1].hash)


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
    found = connection.execute("SELECT seq, head FROM runs WHERE run_id = ?", (run_id,)).fetchone()
    if found is None:
        raise no_run(run_id)
    fence, calls_ended = _next_fence(connection, run_id, clock)
    at_ms = clock.wall_ms()
    record = claimed_record(at_ms, fence, holder, calls_ended=calls_ended)
    (placed,) = link(run_id, found[0], found[1], encode_all([record]))
    connection.execute(_INSERT_RECORD, placed)
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
        raise no_run(run_id)
    connection.execute(
        "INSERT OR IGNORE INTO requests (run_id, id, asked_at_ms, body) VALUES (?, ?, ?, ?)",
        (run_id, request.id, clock.wall_ms(), encode_request(request)),
    )
    return None, None
