"""The outbox of a log without a disk: the same plan of claims over lists."""

from __future__ import annotations

import threading
from bisect import bisect_left
from collections.abc import Callable, Sequence
from dataclasses import replace
from itertools import islice

from sagactl.core.alerting import AlertBook
from sagactl.core.outbox import (
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
from sagactl.log.base import RunRow, StoredRecord


class MemoryOutbox:
    """The outbox of one `MemoryLog`, under that log's lock; see the protocol."""

    def __init__(
        self,
        lock: threading.Lock,
        rows: Callable[[], list[RunRow]],
        read: Callable[[str, int], list[StoredRecord]],
    ) -> None:
        self._lock = lock
        self._rows = rows
        self._read = read
        self._messages: list[Message] = []
        self._cursors: dict[tuple[str, str], Cursor] = {}

    def note(self, row: RunRow, book: AlertBook) -> None:
        """Take over what *book* says of the run of *row*; its log holds the lock."""
        known = {message.id: place for place, message in enumerate(self._messages)}
        for each in book.rows:
            message = Message(
                number=self._last_number() + 1,
                run_id=row.run_id,
                saga=row.saga,
                seq=each.seq,
                reason=each.reason,
                step=each.step,
                opened_seq=each.opened_seq,
                created_at_ms=each.created_at_ms,
                is_open=each.is_open,
                finished_at_ms=None,
            )
            place = known.get(message.id)
            if place is None:
                self._messages.append(message)
            else:
                self._messages[place] = replace(self._messages[place], is_open=each.is_open)

    def forget(self, run_id: str) -> None:
        """Forget what belongs to a run that is pruned; its log holds the lock."""
        self._messages = [message for message in self._messages if message.run_id != run_id]
        self._cursors = {place: cursor for place, cursor in self._cursors.items() if place[1] != run_id}

    def _find(self, number: int) -> int:
        return bisect_left(self._messages, number, key=lambda message: message.number)

    def _last_number(self) -> int:
        """Return the number of the newest message; they grow, with gaps where runs were pruned."""
        return self._messages[-1].number if self._messages else 0

    def messages(self, *, run_id: str | None = None, is_pending: bool = True) -> list[Message]:
        """Return messages, oldest first."""
        with self._lock:
            return [
                message
                for message in self._messages
                if run_id in {None, message.run_id} and not (is_pending and message.finished_at_ms is not None)
            ]

    def _pending(self, channel: str) -> list[Message]:
        """Return the oldest messages that *channel* is not done with."""
        found = (message for message in self._messages if message.finished_at_ms is None)
        return list(islice((each for each in found if not each.has_ended_at(channel)), PENDING_MAX))

    def claim(self, channels: Channels, channel: str, now_ms: int) -> Message | None:
        """Return the next message for *channel*, or None."""
        with self._lock:
            plan = claim_next(self._pending(channel), self._messages, channels, channel, now_ms)
            for step in plan.steps:
                self._messages[self._find(step.message.number)] = step.message
            old = [each for each in self._messages if each.created_at_ms < now_ms - 2 * MESSAGE_AGE_MS_MAX]
            for message in (*plan.finished, *(each for each in old if each.finished_at_ms is None)):
                self._finish(message.number, now_ms)
            return plan.claimed

    def _finish(self, number: int, now_ms: int) -> None:
        place = self._find(number)
        self._messages[place] = replace(self._messages[place], finished_at_ms=now_ms)

    def settle(self, number: int, delivery: Delivery, channels: Channels, now_ms: int) -> None:
        """Write down what came of sending a message."""
        with self._lock:
            place = self._find(number)
            if place == len(self._messages) or self._messages[place].number != number:
                return  # its run was pruned meanwhile
            message = self._messages[place]
            before = message.at(delivery.channel)
            if before is not None and before.state is DeliveryState.DELIVERED:
                return
            others = [each for each in message.deliveries if each.channel != delivery.channel]
            deliveries = tuple(sorted([*others, delivery], key=lambda each: each.channel))
            self._messages[place] = replace(message, deliveries=deliveries)
            if is_finished(self._messages[place], channels):
                self._finish(number, now_ms)

    def next_due_ms(self, channels: Channels, channel: str) -> int | None:
        """Return when *channel* may have something to do."""
        with self._lock:
            return next_due(self._pending(channel), channels, channel)

    def claim_events(
        self, target: str, now_ms: int, *, records_max: int, run_ids: Sequence[str] | None
    ) -> list[EventPage]:
        """Return what *target* has not seen."""
        pages: list[EventPage] = []
        with self._lock:
            for row in self._rows():
                cursor = self._cursor(target, row)
                left = records_max - sum(len(page.records) for page in pages)
                is_asked_for = run_ids is None or row.run_id in run_ids
                if is_asked_for and left > 0 and cursor.seq < row.seq and cursor.due_ms <= now_ms:
                    claimed = replace(cursor, attempts=cursor.attempts + 1, due_ms=now_ms + LEASE_MS, error=None)
                    self._cursors[target, row.run_id] = claimed
                    stored = self._read(row.run_id, cursor.seq)[:left]
                    records = tuple((each.seq, each.record, each.hash) for each in stored)
                    pages.append(EventPage(row.run_id, row.saga, records, cursor.attempts))
        return pages

    def _cursor(self, target: str, row: RunRow) -> Cursor:
        found = self._cursors.get((target, row.run_id)) or Cursor(target, row.run_id, row.saga, 0, 0)
        return replace(found, head=row.seq)

    def interrupted(self, target: str) -> list[str]:
        """Return runs that somebody has claimed and not finished."""
        with self._lock:
            return [run_id for (name, run_id), each in self._cursors.items() if name == target and each.due_ms > 0]

    def settle_events(self, target: str, seen: Sequence[Seen]) -> None:
        """Write down how far *target* has seen runs."""
        with self._lock:
            for each in seen:
                found = self._cursors[target, each.run_id]
                if found.seq <= each.seq:
                    self._cursors[target, each.run_id] = replace(
                        found, seq=each.seq, attempts=each.attempts, due_ms=each.due_ms, error=each.error
                    )

    def cursors(self, target: str) -> list[Cursor]:
        """Return the runs of which *target* has not seen everything."""
        with self._lock:
            found = [self._cursor(target, row) for row in self._rows()]
            return [cursor for cursor in found if cursor.seq < cursor.head]
