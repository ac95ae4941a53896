"""What a record does to the table of dead letters: one pure function, used for writing and for verifying.

A dead letter is a row that exists if and only if its record does (L6). It opens with the decision that gives an
operation up, and closes when a person's answer is accepted, when the run turns back (the undo has its own letters), or
when the run ends. An operation has one open letter at most.
"""

from __future__ import annotations

from typing import Final, TypeAlias

from sagactl.core.records import (
    Decision,
    DecisionKind,
    Disposition,
    Ended,
    Failure,
    Operation,
    Operator,
    Outcome,
    Probe,
    Record,
    StepDecided,
    Verb,
)
from sagactl.dataclass import dataclass


@dataclass(frozen=True, slots=True)
class OpenLetter:
    """A letter opens, unless the operation has an open one."""

    operation: Operation
    reason: str
    failure: Failure | None
    at_ms: int


@dataclass(frozen=True, slots=True)
class CloseLetters:
    """The open letter of an operation closes; of all, where `operation` is None."""

    operation: Operation | None
    at_ms: int


RowEffect: TypeAlias = OpenLetter | CloseLetters

WITH_EFFECTS: Final = frozenset({Decision, Ended, Operator, Outcome, Probe, StepDecided})
"""The types of records of a batch that can have one, or an effect on alerts (see `core.alerting`)."""


def row_effect(record: Record) -> RowEffect | None:
    """Return what *record* does to the dead letters of its run."""
    match record:
        case Decision(kind=DecisionKind.DEAD_LETTER, operation=Operation() as operation):
            reason = "exhausted" if record.cause is None else record.cause.value
            return OpenLetter(operation, reason, record.failure, record.at_ms)
        case Decision(kind=DecisionKind.ROLLBACK) | Ended():
            return CloseLetters(None, record.at_ms)
        case Operator(disposition=Disposition.ACCEPTED) if record.request.verb in {Verb.RETRY, Verb.RESOLVE}:
            return None if record.request.operation is None else CloseLetters(record.request.operation, record.at_ms)
        case _:
            return None
