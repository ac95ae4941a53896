"""One lane for each channel, and one for events: each sends what is due, in its own time, whatever the others do."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Final, Protocol

from sagactl.alerts.compose import Look, describe, describe_unread, tame, write_text, write_title
from sagactl.alerts.events import Mask, Publish
from sagactl.alerts.sending import SendError, delay_ms
from sagactl.alerts.settings import Channel, Kind, Resolve
from sagactl.core.canonical import Json, canonical
from sagactl.core.outbox import (
    DELIVERY_ATTEMPTS_MAX,
    LEASE_MS,
    Channels,
    Delivery,
    DeliveryState,
    EventPage,
    Message,
    Outbox,
    Seen,
    Sent,
)
from sagactl.documents import write_time
from sagactl.errors import SagactlError

EVENTS_AT_ONCE_MAX: Final = 200
REST_MS_MAX: Final = 60_000
"""How long a channel rests at most before another message is tried: one that is down fails once, not for each."""


class Lane(Protocol):
    """Something that sends what is due."""

    name: str

    def note(self, run_id: str) -> None:
        """Take note that a run has something for this lane."""
        ...

    def work(self, tell: Callable[[Sent], None], is_over: Callable[[], bool]) -> int | None:
        """Send what is due until *is_over*; return when there may be more, in UTC milliseconds, or None.

        Raises SagactlError where the log can't be used.
        """
        ...

    def let_go(self) -> None:
        """Let others send what is being sent here: the program ends, and with it whoever sends."""
        ...


class AlertLane:
    """Sends alerts to one channel."""

    def __init__(
        self,
        channel: Channel,
        channels: Channels,
        outbox: Outbox,
        *,
        look: Callable[[str, int], Look],
        mask: Mask,
        resolve: Resolve,
        project: str,
        now_ms: Callable[[], int],
    ) -> None:
        self.name = channel.name
        self._channel = channel
        self._channels = channels
        self._outbox = outbox
        self._look = look
        self._mask = mask
        self._resolve = resolve
        self._project = project
        self._now_ms = now_ms
        self._failures = 0
        self._rests_until_ms = 0
        self._under_way: Message | None = None

    def note(self, run_id: str) -> None:
        """Take note: the outbox says which messages wait."""

    def work(self, tell: Callable[[Sent], None], is_over: Callable[[], bool]) -> int | None:
        """Send what is due; see `Lane`."""
        while not is_over() and self._rests_until_ms <= self._now_ms():
            message = self._outbox.claim(self._channels, self.name, self._now_ms())
            if message is None:
                break
            self._send(message, tell)
        due_ms = self._outbox.next_due_ms(self._channels, self.name)
        return None if due_ms is None else max(due_ms, self._rests_until_ms)

    def _send(self, message: Message, tell: Callable[[Sent], None]) -> None:
        claimed = message.at(self.name)
        assert claimed is not None, "a claim is a delivery"
        self._under_way = message
        try:
            self._say_safely(message)
        except SendError as error:
            self._failures += 1
            delivery = _after_failure(claimed, error, self._now_ms())
            self._rests_until_ms = self._now_ms() + min(REST_MS_MAX, delay_ms(self._failures, error.retry_after_ms))
        else:
            self._failures, self._rests_until_ms = 0, 0
            delivery = Delivery(self.name, DeliveryState.DELIVERED, claimed.attempts, 0, self._now_ms())
        self._outbox.settle(message.number, delivery, self._channels, self._now_ms())
        self._under_way = None
        due_ms = delivery.due_ms if delivery.state is DeliveryState.WAITING else None
        tell(Sent(self.name, message.id, message.run_id, delivery.error, due_ms))

    def let_go(self) -> None:
        """Let others send what is being sent here; see `Lane`."""
        message = self._under_way
        claimed = None if message is None else message.at(self.name)
        if message is not None and claimed is not None:
            given = replace(
                claimed, state=DeliveryState.WAITING, due_ms=self._now_ms(), error="the program ended first"
            )
            self._outbox.settle(message.number, given, self._channels, self._now_ms())

    def _say_safely(self, message: Message) -> None:
        """Say it; a bug met there is a failed try like any other, so that no message keeps the others waiting."""
        try:
            self._say(message)
        except Exception as error:
            raise _as_send_error(error) from None

    def _say(self, message: Message) -> None:
        document = self._compose(message)
        if self._channel.kind is Kind.WEBHOOK:
            from sagactl.alerts.webhook import post

            state = "resolved" if message.is_resolution else "raised"
            body: dict[str, Json] = {
                "type": f"sagactl.alert.{state}",
                "timestamp": write_time(message.created_at_ms),
                "data": document,
            }
            assert self._channel.secret is not None, "a webhook has a secret"
            url, secret = self._resolve(self._channel.url), self._resolve(self._channel.secret)
            post(url, canonical(body).encode(), message_id=message.id, secret=secret)
            return
        from sagactl.alerts.chat import notify

        title, text = write_title(document), write_text(document)
        notify(self._resolve(self._channel.url), title, text, is_resolution=message.is_resolution)

    def _compose(self, message: Message) -> dict[str, Json]:
        """Return what is said: the one place where what leaves by a channel is masked and tamed."""
        try:
            document = describe(message, self._look(message.run_id, message.seq), self._project)
        except SagactlError as error:
            document = describe_unread(message, error.message, self._project)
        tamed = tame(self._mask(document))
        assert isinstance(tamed, dict), "a document stays one"
        return tamed


def _as_send_error(error: Exception) -> SendError:
    """Return *error*, or what a bug comes to for whoever reads the outbox."""
    if isinstance(error, SendError):
        return error
    import logging

    logging.getLogger("sagactl").debug("something can't be sent", exc_info=error)
    return SendError(f"a bug of sagactl or of a library: {type(error).__name__}")


def _after_failure(claimed: Delivery, error: SendError, now_ms: int) -> Delivery:
    text = str(error)
    if error.is_final or claimed.attempts >= DELIVERY_ATTEMPTS_MAX:
        return replace(claimed, state=DeliveryState.GIVEN_UP, due_ms=0, error=text)
    due_ms = now_ms + delay_ms(claimed.attempts, error.retry_after_ms)
    return replace(claimed, state=DeliveryState.WAITING, due_ms=due_ms, error=text)


class EventLane:
    """Publishes the records of runs to one target; of all runs, or only of those that were noted."""

    name = "events"

    def __init__(
        self, key: str, outbox: Outbox, publish: Publish, *, is_for_all: bool, now_ms: Callable[[], int]
    ) -> None:
        self._key = key
        self._outbox = outbox
        self._publish = publish
        self._is_for_all = is_for_all
        self._now_ms = now_ms
        self._lock = threading.Lock()
        self._noted: dict[str, None] = {}
        self._has_looked = is_for_all
        """What other processes left half-way was noted."""
        self._failures = 0
        self._rests_until_ms = 0

    def note(self, run_id: str) -> None:
        """Take note that a run has new records."""
        with self._lock:
            self._noted[run_id] = None

    def work(self, tell: Callable[[Sent], None], is_over: Callable[[], bool]) -> int | None:
        """Publish what is due; see `Lane`."""
        if self._rests_until_ms > self._now_ms():
            return self._rests_until_ms
        with self._lock:
            noted, self._noted = self._noted, {}
        left = noted
        try:
            due = self._publish_all(noted, tell, is_over)
            left = dict.fromkeys(due)
        finally:
            with self._lock:
                self._noted = {**left, **self._noted}
        return min(due.values(), default=None)

    def _publish_all(
        self, noted: dict[str, None], tell: Callable[[Sent], None], is_over: Callable[[], bool]
    ) -> dict[str, int]:
        """Publish what is due of all runs, or of *noted* ones; return which wait, and until when."""
        if not self._has_looked:
            noted |= dict.fromkeys(self._outbox.interrupted(self._key))
            self._has_looked = True
        due: dict[str, int] = {}
        while not due and not is_over():
            pages = self._outbox.claim_events(
                self._key,
                self._now_ms(),
                records_max=EVENTS_AT_ONCE_MAX,
                run_ids=None if self._is_for_all else list(noted),
            )
            if not pages:
                break
            due.update(self._publish_pages(pages, tell, is_over))
        else:
            due = {**dict.fromkeys(noted, self._rests_until_ms), **due}
        if self._is_for_all:
            due = {each.run_id: each.due_ms for each in self._outbox.cursors(self._key)}
        return due

    def let_go(self) -> None:
        """Keep the runs that are being published for as long as their leases run: they must stay in order."""

    def _publish_pages(
        self, pages: Sequence[EventPage], tell: Callable[[Sent], None], is_over: Callable[[], bool]
    ) -> dict[str, int]:
        """Publish pages as far as it goes; return which runs wait, and until when."""
        until_ms = self._now_ms() + LEASE_MS // 2  # before somebody else may take the runs up
        seen: list[Seen] = []
        trouble: SendError | None = None
        for page in pages:
            if trouble is not None or is_over() or self._now_ms() > until_ms:
                due_ms = self._now_ms() + (0 if trouble is None else delay_ms(1))
                seen.append(Seen(page.run_id, page.records[0][0] - 1, due_ms, page.attempts))
                continue
            found, trouble = self._publish_page(page, tell, until_ms)
            seen.append(found)
        self._outbox.settle_events(self._key, seen)
        self._failures = 0 if trouble is None else self._failures + 1
        rest_ms = 0 if trouble is None else min(REST_MS_MAX, delay_ms(self._failures, trouble.retry_after_ms))
        self._rests_until_ms = self._now_ms() + rest_ms
        return {each.run_id: each.due_ms for each in seen if each.due_ms > self._now_ms()}

    def _publish_page(
        self, page: EventPage, tell: Callable[[Sent], None], until_ms: int
    ) -> tuple[Seen, SendError | None]:
        first = page.records[0][0]
        seq = first - 1
        try:
            for reached in self._publish(page):  # a file takes all of them at once
                for each in range(seq + 1, reached + 1):
                    tell(Sent(self.name, f"event_{page.run_id}_{each}", page.run_id))
                seq = reached
                if self._now_ms() > until_ms:
                    break
        except Exception as raised:
            error = _as_send_error(raised)
            attempts = page.attempts + 1 if seq < first else 1
            due_ms = self._now_ms() + delay_ms(attempts, error.retry_after_ms)
            tell(Sent(self.name, f"event_{page.run_id}_{seq + 1}", page.run_id, str(error), due_ms))
            return Seen(page.run_id, seq, due_ms, attempts, str(error)), error
        return Seen(page.run_id, seq), None
