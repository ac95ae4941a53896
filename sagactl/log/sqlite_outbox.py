"""The outbox of a log in SQLite, for whoever delivers: `sqlite_alerts` writes the messages, with their records.

A claim looks first without a transaction, so that a deliverer with nothing to do costs a read.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, Final, NamedTuple, TypeVar

from sagactl.core.alerting import AlertRow, Reason
from sagactl.core.outbox import (
    ENDED_STATES,
    LEASE_MS,
    MESSAGE_AGE_MS_MAX,
    PENDING_MAX,
    Channels,
    Cursor,
    Delivery,
    DeliveryState,
    EventPage,
    Message,
    Seen,
    claim_next,
    is_finished,
    next_due,
)
from sagactl.core.records import Holder
from sagactl.errors import DamagedLogError
from sagactl.log.chain import Link, follow, genesis_hash
from sagactl.log.claimants import free_claims, read_claimant, read_claimants, spell_claimant
from sagactl.log.holder import this_process
from sagactl.log.rows import is_unicode
from sagactl.log.sqlite_read import word_of
from sagactl.log.sqlite_reading import Store
from sagactl.log.sqlite_store import Mark, Work

T = TypeVar("T")

_MESSAGE: Final = (
    "SELECT outbox.number, outbox.run_id, runs.saga, outbox.seq, reason, step, opened_seq, outbox.created_at_ms,"
    " is_open, finished_at_ms FROM outbox JOIN runs ON runs.run_id = outbox.run_id"
)


DAMAGED_MS: Final = 3_600_000
"""How long a run whose records are damaged is left alone before its events are tried again."""


class SqliteOutbox:
    """The outbox of one database; see the protocol."""

    def __init__(self, store: Store, write: Callable[[Work[Any]], Any], is_dead: Callable[[Holder], bool]) -> None:
        self._store = store
        self._write = write
        self._is_dead = is_dead

    def messages(self, *, run_id: str | None = None, is_pending: bool = True) -> list[Message]:
        """Return messages, oldest first."""
        if run_id is not None and not is_unicode(run_id):
            return []
        condition = "finished_at_ms IS NULL" if is_pending else "1"
        values = () if run_id is None else (run_id,)
        query = f"{_MESSAGE} WHERE {condition}{'' if run_id is None else ' AND outbox.run_id = ?'}"
        return self._store.read(
            lambda connection: _read_messages(connection, f"{query} ORDER BY outbox.number", values)
        )

    def claim(self, channels: Channels, channel: str, now_ms: int) -> Message | None:
        """Return the next message for *channel*, or None."""
        due_ms = self.next_due_ms(channels, channel)
        if due_ms is None or due_ms > now_ms:
            return None
        claimed: Message | None = self._write(lambda connection: _claim(connection, channels, channel, now_ms))
        return claimed

    def settle(self, number: int, delivery: Delivery, channels: Channels, now_ms: int) -> None:
        """Write down what came of sending a message."""
        self._write(lambda connection: _settle(connection, number, delivery, channels, now_ms))

    def next_due_ms(self, channels: Channels, channel: str) -> int | None:
        """Return when *channel* may have something to do."""
        self._free_dead()
        pending = self._store.read(lambda connection: _read_pending(connection, channel))
        return next_due(pending, channels, channel)

    def claim_events(
        self, target: str, now_ms: int, *, records_max: int, run_ids: Sequence[str] | None
    ) -> list[EventPage]:
        """Return what *target* has not seen."""
        self._free_dead()
        behind = self._store.read(lambda connection: _read_behind(connection, target, now_ms, run_ids))
        if not behind:
            return []
        claimed: list[_Claim] = self._write(partial(_claim_runs, target, behind, now_ms, records_max))
        return [page for claim in claimed if (page := self._decode(target, claim, now_ms)) is not None]

    def _decode(self, target: str, claim: _Claim, now_ms: int) -> EventPage | None:
        """Return the records of a claim, decoded while nobody waits for the log; damage keeps that run from going out.

        The other runs go on: what is damaged is looked at again much later, and `cursors` tells of it.
        """
        try:
            stored = list(follow(claim.run_id, claim.after_seq, claim.head, claim.links))
        except DamagedLogError as error:
            due_ms = now_ms + DAMAGED_MS
            self.settle_events(target, [Seen(claim.run_id, claim.after_seq, due_ms, claim.attempts, error.message)])
            return None
        records = tuple((each.seq, each.record, each.hash) for each in stored)
        return EventPage(claim.run_id, claim.saga, records, claim.attempts)

    def _free_dead(self) -> None:
        """Take over what processes have claimed that are certainly dead."""
        claimants = self._store.read(read_claimants)
        dead = [each for each in claimants if (holder := read_claimant(each)) is not None and self._is_dead(holder)]
        if dead:
            self._write(partial(free_claims, dead))

    def interrupted(self, target: str) -> list[str]:
        """Return runs that somebody has claimed and not finished."""
        query = "SELECT run_id FROM cursors WHERE target = ? AND due_ms > 0 ORDER BY due_ms LIMIT ?"
        return self._store.read(
            lambda connection: [run_id for (run_id,) in connection.execute(query, (target, _RUNS_MAX)).fetchall()]
        )

    def settle_events(self, target: str, seen: Sequence[Seen]) -> None:
        """Write down how far *target* has seen runs."""
        self._write(partial(_move_cursors, target, seen))

    def cursors(self, target: str) -> list[Cursor]:
        """Return the runs of which *target* has not seen everything."""
        return self._store.read(lambda connection: _read_cursors(connection, target))


def read_alerts(connection: sqlite3.Connection, run_id: str) -> tuple[AlertRow, ...]:
    """Return a run's messages as its records must have made them."""
    query = "SELECT seq, reason, step, opened_seq, created_at_ms, is_open FROM outbox WHERE run_id = ? ORDER BY number"
    return tuple(
        AlertRow(seq, word_of(Reason, reason), step, opened_seq, created_at_ms, bool(is_open))
        for seq, reason, step, opened_seq, created_at_ms, is_open in connection.execute(query, (run_id,)).fetchall()
    )


def _read_pending(connection: sqlite3.Connection, channel: str) -> list[Message]:
    """Return the oldest messages that *channel* is not done with: what waits for others keeps nothing from it."""
    query = (
        f"{_MESSAGE} WHERE finished_at_ms IS NULL AND NOT EXISTS (SELECT 1 FROM deliveries"
        " WHERE deliveries.number = outbox.number AND channel = ? AND state IN (?, ?, ?))"
        f" ORDER BY outbox.number LIMIT {PENDING_MAX}"
    )
    return _read_messages(connection, query, (channel, *sorted(ENDED_STATES)))


def _read_messages(connection: sqlite3.Connection, query: str, values: Sequence[object]) -> list[Message]:
    found = connection.execute(query, values).fetchall()
    deliveries: dict[int, list[Delivery]] = {}
    for start in range(0, len(found), 500):
        numbers = [row[0] for row in found[start : start + 500]]
        rows = connection.execute(
            "SELECT number, channel, state, attempts, due_ms, delivered_at_ms, error, claimant FROM deliveries"
            f" WHERE number IN ({', '.join('?' * len(numbers))}) ORDER BY number, channel",
            numbers,
        )
        for number, *row in rows.fetchall():
            deliveries.setdefault(number, []).append(_make_delivery(row))
    return [_make_message(row, tuple(deliveries.get(row[0], ()))) for row in found]


def _make_delivery(row: Sequence[Any]) -> Delivery:
    channel, state, attempts, due_ms, delivered_at_ms, error, claimant = row
    found = word_of(DeliveryState, state)
    return Delivery(channel, found, attempts, due_ms, delivered_at_ms, error, read_claimant(claimant))


def _make_message(row: Sequence[Any], deliveries: tuple[Delivery, ...]) -> Message:
    number, run_id, saga, seq, reason, step, opened_seq, created_at_ms, is_open, finished_at_ms = row
    return Message(
        number,
        run_id,
        saga,
        seq,
        word_of(Reason, reason),
        step,
        opened_seq,
        created_at_ms,
        bool(is_open),
        finished_at_ms,
        deliveries,
    )


def _claim(
    connection: sqlite3.Connection, channels: Channels, channel: str, now_ms: int
) -> tuple[Message | None, Mark | None]:
    pending = _read_pending(connection, channel)
    raised = _read_raised(connection, pending)
    plan = claim_next(pending, raised, channels, channel, now_ms)
    for step in plan.steps:
        _write_delivery(connection, step.message.number, step.delivery)
    for message in plan.finished:
        connection.execute("UPDATE outbox SET finished_at_ms = ? WHERE number = ?", (now_ms, message.number))
    # What a channel left behind that is no more in the settings.
    connection.execute(
        "UPDATE outbox SET finished_at_ms = ?1 WHERE finished_at_ms IS NULL AND created_at_ms < ?1 - ?2",
        (now_ms, 2 * MESSAGE_AGE_MS_MAX),
    )
    return plan.claimed, None


def _read_raised(connection: sqlite3.Connection, pending: Sequence[Message]) -> list[Message]:
    """Return the finished messages that raised what *pending* ones resolve."""
    known = {message.id for message in pending}
    query = f"{_MESSAGE} WHERE outbox.run_id = ? AND outbox.seq = ? AND reason = ? AND step = ?"
    keys = [
        (message.run_id, message.opened_seq, message.reason.value, message.step)
        for message in pending
        if message.is_resolution and message.alert_id not in known
    ]
    return [raised for key in keys for raised in _read_messages(connection, query, key)]


def _write_delivery(connection: sqlite3.Connection, number: int, delivery: Delivery) -> None:
    connection.execute(
        "INSERT OR REPLACE INTO deliveries VALUES (?, ?, ?, ?, ?, ?, ?, ?)",
        (
            number,
            delivery.channel,
            delivery.state.value,
            delivery.attempts,
            delivery.due_ms,
            delivery.delivered_at_ms,
            delivery.error,
            spell_claimant(this_process()) if delivery.state is DeliveryState.SENDING else None,
        ),
    )


def _settle(
    connection: sqlite3.Connection, number: int, delivery: Delivery, channels: Channels, now_ms: int
) -> tuple[None, Mark | None]:
    found = _read_messages(connection, f"{_MESSAGE} WHERE outbox.number = ?", (number,))
    if not found:
        return None, None  # its run was deleted meanwhile
    before = found[0].at(delivery.channel)
    if before is not None and before.state is DeliveryState.DELIVERED:
        return None, None
    _write_delivery(connection, number, delivery)
    (after,) = _read_messages(connection, f"{_MESSAGE} WHERE outbox.number = ?", (number,))
    if is_finished(after, channels):
        connection.execute("UPDATE outbox SET finished_at_ms = ? WHERE number = ?", (now_ms, number))
    return None, None


_BEHIND: Final = (
    " FROM runs LEFT JOIN cursors ON cursors.run_id = runs.run_id AND cursors.target = ?"
    " WHERE runs.seq > ifnull(cursors.seq, 0)"
)
_RUNS_MAX: Final = 100
"""How many runs are claimed in one transaction at most."""


def _read_behind(connection: sqlite3.Connection, target: str, now_ms: int, run_ids: Sequence[str] | None) -> list[str]:
    if run_ids is None:
        query = f"SELECT runs.run_id{_BEHIND} AND ifnull(due_ms, 0) <= ? ORDER BY runs.number LIMIT {_RUNS_MAX}"
        return [run_id for (run_id,) in connection.execute(query, (target, now_ms)).fetchall()]
    query = f"SELECT 1{_BEHIND} AND ifnull(due_ms, 0) <= ? AND runs.run_id = ?"
    return [run_id for run_id in run_ids if connection.execute(query, (target, now_ms, run_id)).fetchone() is not None]


class _Claim(NamedTuple):
    """Records of a run as they lie in the table, to be published after the one with `head`."""

    run_id: str
    saga: str
    after_seq: int
    head: str
    links: list[Link]
    attempts: int


def _claim_runs(
    target: str, run_ids: Sequence[str], now_ms: int, records_max: int, connection: sqlite3.Connection
) -> tuple[list[_Claim], Mark | None]:
    claims: list[_Claim] = []
    left = records_max
    for run_id in run_ids[:_RUNS_MAX]:
        claim = _claim_run(target, run_id, now_ms, left, connection) if left > 0 else None
        if claim is not None:
            claims.append(claim)
            left -= len(claim.links)
    return claims, None


def _claim_run(
    target: str, run_id: str, now_ms: int, records_max: int, connection: sqlite3.Connection
) -> _Claim | None:
    found = connection.execute(
        "SELECT saga, cursors.seq, attempts, due_ms FROM runs LEFT JOIN cursors"
        " ON cursors.run_id = runs.run_id AND cursors.target = ? WHERE runs.run_id = ?",
        (target, run_id),
    ).fetchone()
    if found is None or (found[3] or 0) > now_ms:
        return None
    after_seq, attempts = found[1] or 0, found[2] or 0
    rows = connection.execute(
        "SELECT run_id, seq, at_ms, type, step, item, attempt, body, hash FROM records"
        " WHERE run_id = ? AND seq >= ? ORDER BY seq LIMIT ?",
        (run_id, after_seq, records_max + 1),
    )
    links = list(map(Link._make, rows.fetchall()))
    head = links.pop(0).hash if after_seq > 0 and links and links[0].seq == after_seq else genesis_hash(run_id)
    if not links:
        return None
    connection.execute(
        "INSERT OR REPLACE INTO cursors VALUES (?, ?, ?, ?, ?, NULL, ?)",
        (run_id, target, after_seq, attempts + 1, now_ms + LEASE_MS, spell_claimant(this_process())),
    )
    return _Claim(run_id, found[0], after_seq, head, links[:records_max], attempts)


def _move_cursors(target: str, seen: Sequence[Seen], connection: sqlite3.Connection) -> tuple[None, Mark | None]:
    """Move cursors forward; one that another deliverer has moved further meanwhile stays where it is."""
    for each in seen:
        connection.execute(
            "UPDATE cursors SET seq = ?1, attempts = ?2, due_ms = ?3, error = ?4, claimant = NULL"
            " WHERE run_id = ?5 AND target = ?6 AND seq <= ?1",
            (each.seq, each.attempts, each.due_ms, each.error, each.run_id, target),
        )
    return None, None


def _read_cursors(connection: sqlite3.Connection, target: str) -> list[Cursor]:
    found = connection.execute(
        "SELECT runs.run_id, saga, ifnull(cursors.seq, 0), runs.seq, ifnull(attempts, 0), ifnull(due_ms, 0), error,"
        f" claimant{_BEHIND} ORDER BY runs.number",
        (target,),
    )
    return [_make_cursor(target, row) for row in found.fetchall()]


def _make_cursor(target: str, row: Sequence[Any]) -> Cursor:
    run_id, saga, seq, head, attempts, due_ms, error, claimant = row
    return Cursor(target, run_id, saga, seq, head, attempts, due_ms, error, read_claimant(claimant))
