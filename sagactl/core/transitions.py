"""The life of an operation, as data.

An operation is all the calls of one step, item and direction. Its phase changes only by the events below, and only
where the table has a cell; a pair without a cell is an illegal record, refused both on writing and on reading (L5).
Where a cell names several phases, the policy of the step (`policy.judge`) picks one, and the table still bounds it. One
record is no event of a single operation: the decision to roll back settles all that is open on the way forward, at
once (see `backward`).

Two things are told by the phase and the flag `doubt` together, because they are independent: whether anything is still
to be done (the phase), and whether the world may hold an effect that the log doesn't know (the flag, sticky by E4).
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from typing import Final


class IllegalRecordError(ValueError):
    """A record that can't follow the ones before it."""


def require(holds: bool, message: str) -> None:
    """Raise IllegalRecordError with *message* unless what a record asks for *holds*."""
    if not holds:
        raise IllegalRecordError(message)


class Phase(StrEnum):
    """Where an operation stands."""

    READY = "ready"
    CALLING = "calling"
    RETRYING = "retrying"
    PENDING = "pending"
    IN_DOUBT = "in_doubt"
    PROBING = "probing"
    SUCCEEDED = "succeeded"
    FAILED = "failed"
    EXHAUSTED = "exhausted"
    DEAD = "dead"
    CLOSED = "closed"


class Event(StrEnum):
    """What can happen to an operation."""

    INTENT = "intent"
    SUCCEEDED = "succeeded"
    REJECTED = "rejected"
    UNAVAILABLE = "unavailable"
    UNKNOWN = "unknown"
    PENDING = "pending"
    LOST = "lost"
    PROBE_ASKED = "probe_asked"
    PROBE_DONE = "probe_done"
    PROBE_NOT_DONE = "probe_not_done"
    PROBE_CANNOT_TELL = "probe_cannot_tell"
    TIMER = "timer"
    EXPIRED = "expired"
    REFUSED = "refused"
    DENIED = "denied"
    DEAD_LETTER = "dead_letter"
    RETRIED = "retried"
    RESOLVED_DONE = "resolved_done"
    RESOLVED_NOT_DONE = "resolved_not_done"
    SKIPPED = "skipped"
    ABANDONED = "abandoned"


_P = Phase
_GIVEN_UP: Final = (_P.FAILED, _P.EXHAUSTED)
_OPEN: Final = (_P.RETRYING, _P.IN_DOUBT, *_GIVEN_UP)

TRANSITIONS: Final[Mapping[Phase, Mapping[Event, tuple[Phase, ...]]]] = {
    _P.READY: {
        Event.INTENT: (_P.CALLING,),
        Event.REFUSED: _GIVEN_UP,
        Event.DENIED: _GIVEN_UP,
        Event.EXPIRED: (_P.IN_DOUBT, *_GIVEN_UP),
    },
    _P.CALLING: {
        Event.SUCCEEDED: (_P.SUCCEEDED,),
        Event.REJECTED: (_P.IN_DOUBT, *_GIVEN_UP),
        Event.UNAVAILABLE: _OPEN,
        Event.UNKNOWN: _OPEN,
        Event.LOST: _OPEN,
        Event.PENDING: (_P.PENDING, _P.FAILED),
    },
    _P.RETRYING: {
        Event.TIMER: (_P.RETRYING,),
        Event.INTENT: (_P.CALLING,),
        Event.EXPIRED: (_P.IN_DOUBT, *_GIVEN_UP),
    },
    _P.PENDING: {
        Event.TIMER: (_P.PENDING,),
        Event.INTENT: (_P.CALLING,),
        Event.EXPIRED: (_P.IN_DOUBT, *_GIVEN_UP),
    },
    _P.IN_DOUBT: {
        Event.TIMER: (_P.IN_DOUBT,),
        Event.PROBE_ASKED: (_P.PROBING,),
    },
    _P.PROBING: {
        Event.PROBE_DONE: (_P.SUCCEEDED,),
        Event.PROBE_NOT_DONE: (_P.RETRYING, *_GIVEN_UP),
        Event.PROBE_CANNOT_TELL: (_P.IN_DOUBT, *_GIVEN_UP),
        Event.LOST: (_P.IN_DOUBT, *_GIVEN_UP),
    },
    _P.SUCCEEDED: {},
    _P.FAILED: {
        Event.TIMER: (_P.FAILED,),
        Event.PROBE_ASKED: (_P.PROBING,),
    },
    _P.EXHAUSTED: {
        Event.DEAD_LETTER: (_P.DEAD,),
    },
    _P.DEAD: {
        Event.RETRIED: (_P.READY, _P.IN_DOUBT),
        Event.RESOLVED_DONE: (_P.SUCCEEDED,),
        Event.RESOLVED_NOT_DONE: (_P.READY, _P.FAILED),
        Event.SKIPPED: (_P.CLOSED,),
        Event.ABANDONED: (_P.CLOSED,),
    },
    _P.CLOSED: {},
}

SETTLED_PHASES: Final = frozenset({Phase.SUCCEEDED, Phase.FAILED, Phase.CLOSED})
"""Nothing more is to be done in this direction."""

WAITING_PHASES: Final = frozenset(
    {Phase.READY, Phase.RETRYING, Phase.PENDING, Phase.IN_DOUBT, Phase.FAILED, Phase.SUCCEEDED, Phase.CLOSED}
)
"""Phases in which a timer can make the operation go on: what a person let try again, and settled actions before their
undo, may have to wait until an old call can't land any more (E9)."""


def next_phases(phase: Phase, event: Event) -> tuple[Phase, ...]:
    """Return where *event* may lead from *phase*; raises IllegalRecordError where it can't happen."""
    allowed = TRANSITIONS[phase].get(event)
    if allowed is None:
        raise IllegalRecordError(f"{event} can't happen to an operation that is {phase}")
    return allowed
