"""Which record tells a person something, and which says that it is over: one pure function over records.

An alert is a message that exists if and only if its record does: the log writes it in the record's own transaction, and
`verify` computes it again. Its id is made of run, record, reason and step alone, so whoever is told twice after a crash
can tell that it was one alert.

A run has at most one open alert for a reason, but for approvals and for calls that can't be ended: each of these waits
for a person of its own. A thousand items that end in dead letters are one alert and not a thousand: what it says is
read from the log when it is sent. It is over when its reason is gone, and then a second message says so, but for
notices, which only tell what has happened.
"""

from __future__ import annotations

from dataclasses import field, replace
from enum import StrEnum
from typing import Final, TypeAlias, assert_never

from sagactl.core.records import (
    Cause,
    Decision,
    DecisionKind,
    Disposition,
    DriverClaimed,
    Ended,
    Operation,
    Operator,
    Outcome,
    Probe,
    Record,
    StepDecided,
    Verb,
)
from sagactl.dataclass import dataclass

LATE: Final = "timeout"
"""The type of the failure of a call that returned after its deadline: it has ended after all."""


class Reason(StrEnum):
    """Why a person is told."""

    STUCK = "stuck"
    DEAD_LETTER = "dead_letter"
    KEEPS_FAILING = "keeps_failing"
    RUN_TIMEOUT = "run_timeout"
    REQUEST_VOID = "request_void"
    APPROVAL = "approval"
    CANNOT_END = "cannot_end"


NOTICES: Final = frozenset({Reason.REQUEST_VOID})
"""Reasons that are never over: nobody waits for a message that says so."""


@dataclass(frozen=True, slots=True)
class Raise:
    """An alert is raised, unless the run has an open one for the reason and, where that is given, the step."""

    reason: Reason
    step: str = ""


@dataclass(frozen=True, slots=True)
class Resolve:
    """Open alerts for these reasons are over; with `needs_no_letters` only if no dead letter of the run is open.

    With a `step` only those that are about it.
    """

    reasons: frozenset[Reason]
    needs_no_letters: bool = False
    step: str | None = None

    def ends(self, reason: Reason, step: str) -> bool:
        """Tell whether an alert is over by this, as far as dead letters have no say."""
        return reason in self.reasons and self.step in {None, step}


AlertEffect: TypeAlias = Raise | Resolve

_ALL: Final = Resolve(frozenset(Reason))
_TURNED: Final = Resolve(frozenset(Reason) - {Reason.CANNOT_END})
_LEFT: Final = Resolve(frozenset({Reason.CANNOT_END}))
_AWAKE: Final = Resolve(frozenset({Reason.STUCK}))
_RECOVERED: Final = Resolve(frozenset({Reason.KEEPS_FAILING}))
_ANSWERED: Final = Resolve(frozenset({Reason.DEAD_LETTER, Reason.KEEPS_FAILING}), needs_no_letters=True)


def alert_effects(record: Record) -> tuple[AlertEffect, ...]:
    """Return what *record* does to the alerts of its run, after what it does to the dead letters."""
    match record:
        case Decision():
            return _of_decision(record)
        case Ended():
            return (_ALL,)
        case Operator():
            return _of_request(record)
        case StepDecided() if record.approval is not None:
            return (Raise(Reason.APPROVAL, record.step),)
        case DriverClaimed() | Outcome() | Probe():
            return _of_call(record)
        case _:
            return ()


def _of_decision(record: Decision) -> tuple[AlertEffect, ...]:
    if record.kind is DecisionKind.ROLLBACK:
        return (_TURNED,)
    if record.cause is Cause.CANNOT_END:
        return () if record.operation is None else (Raise(Reason.CANNOT_END, name_call(record.operation)),)
    if record.kind is DecisionKind.EXPIRED and record.step is not None:
        return (_answer_approval(record.step),)
    if record.kind is DecisionKind.ALERT:
        return (Raise(Reason.RUN_TIMEOUT if record.operation is None else Reason.KEEPS_FAILING),)
    if record.kind is DecisionKind.RECOVERED:
        return (_RECOVERED,)
    reason = {DecisionKind.STUCK: Reason.STUCK, DecisionKind.DEAD_LETTER: Reason.DEAD_LETTER}.get(record.kind)
    return () if reason is None else (Raise(reason),)


def _of_call(record: DriverClaimed | Outcome | Probe) -> tuple[AlertEffect, ...]:
    if isinstance(record, DriverClaimed):  # calls of a former driver are over: its process is gone, or they don't count
        return (_LEFT,) if record.fence > 1 else ()
    if record.failure is None or record.failure.type != LATE:
        return ()
    return (Resolve(frozenset({Reason.CANNOT_END}), step=name_call(record.operation)),)


def _of_request(record: Operator) -> tuple[AlertEffect, ...]:
    if record.disposition is not Disposition.ACCEPTED:
        return (Raise(Reason.REQUEST_VOID),) if record.disposition is Disposition.VOID else ()
    request = record.request
    if request.verb in {Verb.PAUSE, Verb.UNPAUSE, Verb.REBIND}:
        return ()
    if request.verb in {Verb.RETRY, Verb.RESOLVE}:
        return (_AWAKE, _ANSWERED)
    if request.verb in {Verb.APPROVE, Verb.DENY} and request.operation is not None:
        return (_AWAKE, _answer_approval(request.operation.step))
    return (_AWAKE,)


def name_call(operation: Operation) -> str:
    """Return what an alert about a call is known by: `stock[0]`, or `undo of stock[0]`."""
    return str(operation).replace("compensation of ", "undo of ", 1)


def _answer_approval(step: str) -> Resolve:
    return Resolve(frozenset({Reason.APPROVAL}), step=step)


@dataclass(frozen=True, slots=True)
class AlertRow:
    """A message of the outbox as the records make it; `opened_seq` is another record's where it says that one is over.

    `is_open` holds for a message that raised an alert that is not over.
    """

    seq: int
    reason: Reason
    step: str
    opened_seq: int
    created_at_ms: int
    is_open: bool


@dataclass(slots=True)
class AlertBook:
    """The messages of one run by its records, in order."""

    rows: list[AlertRow] = field(default_factory=list)

    def take(self, seq: int, record: Record, *, has_letters: bool) -> None:
        """Take the next record in; *has_letters* tells whether a dead letter is open after it."""
        for effect in alert_effects(record):
            match effect:
                case Raise(reason, step):
                    if not any(row.is_open and (row.reason, row.step) == (reason, step) for row in self.rows):
                        self.rows.append(AlertRow(seq, reason, step, seq, record.at_ms, is_open=True))
                case Resolve():
                    if not (effect.needs_no_letters and has_letters):
                        self._resolve(seq, effect, record.at_ms)
                case _:
                    assert_never(effect)

    def _resolve(self, seq: int, effect: Resolve, at_ms: int) -> None:
        for place, row in enumerate(list(self.rows)):
            if row.is_open and effect.ends(row.reason, row.step):
                self.rows[place] = replace(row, is_open=False)
                if row.reason not in NOTICES:
                    self.rows.append(AlertRow(seq, row.reason, row.step, row.seq, at_ms, is_open=False))
