"""Messages on their way out: what waits, for which channel, and what may be sent now.

The log keeps messages and, for each channel that was ever tried, how far delivery has come. `claim_next` decides which
message a channel gets next; it is pure, and both logs call it within one transaction. Whoever claims a message has it
to himself until `due_ms`; if he dies, it is due again then, or at once where that is certain, with the same id. So a
message may arrive twice, and is never lost.

Order: what says that an alert is over goes out after the alert did, channel by channel, and not at all where the alert
didn't. A channel that is told of stuck runs isn't told first of the dead letter that made one stuck.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from enum import StrEnum
from typing import Final, NamedTuple, Protocol

from sagactl.core.alerting import Reason
from sagactl.core.records import Holder, Record
from sagactl.dataclass import dataclass

DELIVERY_ATTEMPTS_MAX: Final = 24
"""How often a message is sent to a channel at most: with the delays between them for about twelve hours."""

MESSAGE_AGE_MS_MAX: Final = 7 * 86_400_000
"""Older messages are given up: who adds a channel isn't flooded with the past."""

LEASE_MS: Final = 60_000
"""How long a message belongs to whoever claimed it; a send takes far less."""

PENDING_MAX: Final = 1_000
"""How many messages are looked at for the next one to send."""

Channels = Mapping[str, frozenset[Reason]]
"""The channels by name, each with the reasons that it is told of."""


class DeliveryState(StrEnum):
    """How far a message has come at a channel; the last three are final."""

    SENDING = "sending"
    WAITING = "waiting"
    DELIVERED = "delivered"
    GIVEN_UP = "given_up"
    NOT_NEEDED = "not_needed"


ENDED_STATES: Final = frozenset({DeliveryState.DELIVERED, DeliveryState.GIVEN_UP, DeliveryState.NOT_NEEDED})


@dataclass(frozen=True, slots=True)
class Delivery:
    """A message at a channel: at `due_ms` it may be claimed again, unless its state is final."""

    channel: str
    state: DeliveryState
    attempts: int
    due_ms: int
    delivered_at_ms: int | None = None
    error: str | None = None
    claimant: Holder | None = None
    """Which process sends it, while it is claimed and where that is known."""


@dataclass(frozen=True, slots=True)
class Message:
    """A message of the outbox; it says that an alert is raised, or that one is over."""

    number: int
    run_id: str
    saga: str
    seq: int
    reason: Reason
    step: str
    """What an approval, or a call that can't be ended, is about; empty for other reasons."""
    opened_seq: int
    created_at_ms: int
    is_open: bool
    finished_at_ms: int | None
    deliveries: tuple[Delivery, ...] = ()

    @property
    def id(self) -> str:
        """Return the id under which it is sent, as often as it is."""
        return message_id(self.run_id, self.seq, self.reason, self.step)

    @property
    def alert_id(self) -> str:
        """Return the id of the message that raised the alert."""
        return message_id(self.run_id, self.opened_seq, self.reason, self.step)

    @property
    def is_resolution(self) -> bool:
        """Tell whether it says that an alert is over."""
        return self.opened_seq != self.seq

    def at(self, channel: str) -> Delivery | None:
        """Return how far it has come at *channel*, None where nobody tried yet."""
        return next((each for each in self.deliveries if each.channel == channel), None)

    def has_ended_at(self, channel: str) -> bool:
        """Tell whether *channel* is done with it."""
        found = self.at(channel)
        return found is not None and found.state in ENDED_STATES


def is_unheard(message: Message) -> bool:
    """Tell whether an alert still stands, and was given up at a channel without any other having taken it."""
    states = {each.state for each in message.deliveries}
    given_up = DeliveryState.GIVEN_UP in states and DeliveryState.DELIVERED not in states
    return message.is_open and given_up and not message.is_resolution


def message_id(run_id: str, seq: int, reason: Reason, step: str) -> str:
    """Return the id of a message: the same however often it is sent."""
    return f"alert_{run_id}_{seq}_{reason}" + (f"_{step.replace(' ', '_')}" if step else "")


class Step(NamedTuple):
    """What becomes of one message at one channel now."""

    message: Message
    delivery: Delivery
    is_claimed: bool


class Plan(NamedTuple):
    """What `claim_next` found: deliveries to be written down, the claimed one last, and messages that are done with."""

    steps: list[Step]
    finished: list[Message]

    @property
    def claimed(self) -> Message | None:
        """Return the message that may be sent now."""
        return self.steps[-1].message if self.steps and self.steps[-1].is_claimed else None


class _Look(NamedTuple):
    """How one channel looks at the outbox now; `stuck` are the runs of which it is to be told that they are stuck."""

    channel: str
    reasons: frozenset[Reason]
    stuck: set[str]
    now_ms: int


def claim_next(
    pending: Sequence[Message], raised: Iterable[Message], channels: Channels, channel: str, now_ms: int
) -> Plan:
    """Decide what *channel* is sent next.

    *pending* are the unfinished messages, oldest first; *raised* all messages that may have raised what they resolve.
    """
    by_id = {message.id: message for message in [*raised, *pending]}
    stuck = {message.run_id for message in pending if message.reason is Reason.STUCK and not message.is_resolution}
    look = _Look(channel, channels[channel], stuck if Reason.STUCK in channels[channel] else set(), now_ms)
    plan = Plan([], [])
    for message in pending:
        delivery = _next_delivery(look, message, by_id.get(message.alert_id))
        after = message if delivery is None else _with(message, delivery)
        if delivery is not None:
            by_id[message.id] = after
            plan.steps.append(Step(after, delivery, is_claimed=delivery.state is DeliveryState.SENDING))
        if is_finished(after, channels):
            plan.finished.append(after)
        if plan.claimed is not None:
            break
    return plan


def _with(message: Message, delivery: Delivery) -> Message:
    others = [each for each in message.deliveries if each.channel != delivery.channel]
    return replace(message, deliveries=tuple(sorted([*others, delivery], key=lambda each: each.channel)))


def is_finished(message: Message, channels: Channels) -> bool:
    """Tell whether no channel that is told of such messages has anything left to do."""
    wanted = [message.at(name) for name, reasons in channels.items() if message.reason in reasons]
    return all(each is not None and each.state in ENDED_STATES for each in wanted)


def _next_delivery(look: _Look, message: Message, alert: Message | None) -> Delivery | None:
    """Return what becomes of *message* at a channel now, or None where nothing does; *alert* is what it belongs to."""
    found = message.at(look.channel) or Delivery(look.channel, DeliveryState.WAITING, 0, 0)
    if message.reason not in look.reasons or found.state in ENDED_STATES or found.due_ms > look.now_ms:
        return None
    objection = _object(found, look.now_ms - message.created_at_ms)
    if objection is not None:
        return replace(found, state=DeliveryState.GIVEN_UP, error=objection)
    if message.is_resolution and alert is not None and _is_coming(alert, look.channel):
        return None
    if found.attempts == 0 and _is_needless(look, message, alert):
        return replace(found, state=DeliveryState.NOT_NEEDED)
    return Delivery(look.channel, DeliveryState.SENDING, found.attempts + 1, look.now_ms + LEASE_MS)


def _is_coming(alert: Message, channel: str) -> bool:
    """Tell whether a channel may still be sent *alert*; one that was set up after it was done with isn't."""
    return alert.finished_at_ms is None and not alert.has_ended_at(channel)


def _object(found: Delivery, age_ms: int) -> str | None:
    if age_ms > MESSAGE_AGE_MS_MAX:
        return "it is too old"
    return "no attempt was answered" if found.attempts >= DELIVERY_ATTEMPTS_MAX else None


def _is_needless(look: _Look, message: Message, alert: Message | None) -> bool:
    if message.is_resolution:
        told = None if alert is None else alert.at(look.channel)
        return told is None or told.state is not DeliveryState.DELIVERED
    return message.reason is Reason.DEAD_LETTER and message.run_id in look.stuck


def next_due(pending: Sequence[Message], channels: Channels, channel: str) -> int | None:
    """Return when *channel* may get one of *pending*, 0 for at once, or None where it gets none of them.

    What no channel is told of is due as well: to be done with.
    """
    wanted = frozenset[Reason]().union(*channels.values())
    if any(message.reason not in wanted for message in pending):
        return 0
    reasons = channels[channel]
    open_ids = {message.id for message in pending if not message.has_ended_at(channel)}
    due = [
        0 if (found := message.at(channel)) is None else found.due_ms
        for message in pending
        if message.reason in reasons and message.id in open_ids
        # What says that an alert is over waits for the alert.
        if not (message.is_resolution and message.alert_id in open_ids)
    ]
    return min(due, default=None)


@dataclass(frozen=True, slots=True)
class EventPage:
    """Records of one run that a target has not seen, in order, each with its number and hash."""

    run_id: str
    saga: str
    records: tuple[tuple[int, Record, str], ...]
    attempts: int
    """How often the first of them was tried before."""


@dataclass(frozen=True, slots=True)
class Seen:
    """A target has seen a run up to `seq`, and may be sent more at `due_ms`; 0 where all that was claimed arrived."""

    run_id: str
    seq: int
    due_ms: int = 0
    attempts: int = 0
    error: str | None = None


@dataclass(frozen=True, slots=True)
class Cursor:
    """How far a target has seen a run: `seq` is the last record that was delivered, `head` the last there is."""

    target: str
    run_id: str
    saga: str
    seq: int
    head: int
    attempts: int = 0
    due_ms: int = 0
    error: str | None = None
    claimant: Holder | None = None
    """Which process publishes it, while it is claimed and where that is known."""


@dataclass(frozen=True, slots=True)
class Sent:
    """What came of one try: `error` is None where it arrived; then `due_ms` is None as well."""

    lane: str
    id: str
    run_id: str
    error: str | None = None
    due_ms: int | None = None


class Outbox(Protocol):
    """The part of a log that goes out; every method that writes is one durable transaction."""

    def messages(self, *, run_id: str | None = None, is_pending: bool = True) -> list[Message]:
        """Return messages, oldest first; unless asked for all, only those that some channel may still be sent."""
        ...

    def claim(self, channels: Channels, channel: str, now_ms: int) -> Message | None:
        """Return the next message for *channel*, which nobody else gets for `LEASE_MS`, or None."""
        ...

    def settle(self, number: int, delivery: Delivery, channels: Channels, now_ms: int) -> None:
        """Write down what came of sending the message *number*; a delivered one stays delivered."""
        ...

    def next_due_ms(self, channels: Channels, channel: str) -> int | None:
        """Return when *channel* may have something to do, or None while it has nothing."""
        ...

    def claim_events(
        self, target: str, now_ms: int, *, records_max: int, run_ids: Sequence[str] | None
    ) -> list[EventPage]:
        """Return what *target* has not seen, of *run_ids* if given; nobody else gets those runs for `LEASE_MS`."""
        ...

    def interrupted(self, target: str) -> list[str]:
        """Return runs that somebody has claimed for *target* and not finished: he is at it, failed, or was killed."""
        ...

    def settle_events(self, target: str, seen: Sequence[Seen]) -> None:
        """Write down how far *target* has seen the runs that were claimed."""
        ...

    def cursors(self, target: str) -> list[Cursor]:
        """Return the runs of which *target* has not seen everything."""
        ...
