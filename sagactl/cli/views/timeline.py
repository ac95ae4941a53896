"""What the records of a run say that its state doesn't keep: when operations ended, and how they failed first."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import field
from typing import Final

from sagactl.cli.views.words import name_holder
from sagactl.core.evolve import evolve
from sagactl.core.records import (
    Decision,
    DecisionKind,
    Direction,
    DriverClaimed,
    Failure,
    Operation,
    Outcome,
    OutcomeKind,
    Record,
)
from sagactl.core.saga import Saga
from sagactl.core.state import RunState
from sagactl.core.transitions import SETTLED_PHASES, Phase
from sagactl.dataclass import dataclass

UNDOS_TOGETHER_MIN: Final = 5
"""The undos of so many items of one step stand on one line."""

DRIVER_LOST: Final = Failure("driver_lost", "the driver ended before the answer was recorded")
_OVER_PHASES: Final = SETTLED_PHASES | {Phase.EXHAUSTED, Phase.DEAD}
_BAD_PHASES: Final = frozenset({Phase.FAILED, Phase.EXHAUSTED, Phase.DEAD})


@dataclass(slots=True)
class Watched:
    """A run as somebody sees it go by: its state, made from the records here, and what else they said.

    It belongs to whoever watches. A driver's own state changes while it is looked at; this one only when it is fed.
    """

    run_id: str
    short_id: str
    saga: Saga
    state: RunState = field(default_factory=RunState)
    ended_ms: dict[Operation, int] = field(default_factory=dict)
    """When operations were settled."""
    first_failures: dict[Operation, Failure] = field(default_factory=dict)
    plan: dict[Operation, None] = field(default_factory=dict)
    """Actions that a rollback looks at, in the order of the undo."""
    undo_keys: list[Operation | str] = field(default_factory=list)
    """The same for the eye: a step that has many items in the plan comes once, by its name."""
    undos_by_step: dict[str, int] = field(default_factory=dict)
    """How many actions of a step the plan has."""
    undos_total: int = 0
    """How many actions of the plan have a compensation."""
    bad_items: dict[str, dict[Operation, None]] = field(default_factory=dict)
    """Items of a `foreach` that failed or are stuck, by step."""
    step_ended_ms: dict[str, int] = field(default_factory=dict)
    """When something last happened to a `foreach` step on the way forward."""
    undone_items: dict[str, int] = field(default_factory=dict)
    """How many items of a step a compensation has undone."""
    driver: str = ""
    """Which process drives the run, or drove it last."""
    last_ms: int = 0
    is_let_go: bool = False
    """Nobody drives the run any more, as far as it is known here."""

    def feed(self, first_seq: int, records: Iterable[Record]) -> None:
        """Take records in, the first of which is *first_seq*; those that are known already are passed over."""
        for seq, record in enumerate(records, first_seq):
            if seq == self.state.seq + 1:
                self._note_before(record)
                evolve(self.saga, self.state, record)
                self._note_after(record)
                self.last_ms = record.at_ms
                self.is_let_go = False

    def _note_before(self, record: Record) -> None:
        if isinstance(record, DriverClaimed):
            for operation in self.state.in_flight:
                self.first_failures.setdefault(operation, DRIVER_LOST)

    def _note_after(self, record: Record) -> None:
        operation = getattr(record, "operation", None)
        match record:
            case DriverClaimed(holder=holder):
                self.driver = name_holder(holder)
            case Outcome(kind=kind, failure=failure) if failure is not None and kind is not OutcomeKind.PENDING:
                self.first_failures.setdefault(record.operation, failure)
            case Decision(kind=DecisionKind.ROLLBACK, plan=plan):
                self._note_plan(plan)
            case _:
                pass
        if isinstance(operation, Operation):
            self._note_operation(operation, record.at_ms)

    def _note_plan(self, plan: Iterable[Operation]) -> None:
        self.plan |= dict.fromkeys(plan)
        self.undos_by_step = dict(Counter(action.step for action in self.plan))
        keys = (action if self.undos_by_step[action.step] < UNDOS_TOGETHER_MIN else action.step for action in self.plan)
        self.undo_keys = list(dict.fromkeys(keys))
        by_id = self.saga.by_id
        self.undos_total = sum(
            count for step, count in self.undos_by_step.items() if by_id[step].compensation is not None
        )

    def _note_operation(self, operation: Operation, at_ms: int) -> None:
        found = self.state.operations.get(operation)
        if found is None:
            return
        if found.phase not in _OVER_PHASES:
            self.ended_ms.pop(operation, None)
        elif operation not in self.ended_ms:
            self.ended_ms[operation] = at_ms
            if operation.direction is Direction.COMPENSATION and found.phase is Phase.SUCCEEDED:
                self.undone_items[operation.step] = self.undone_items.get(operation.step, 0) + 1
        if operation.item is not None and operation.direction is Direction.ACTION:
            self.step_ended_ms[operation.step] = at_ms
            bad = self.bad_items.setdefault(operation.step, {})
            if found.phase in _BAD_PHASES:
                bad[operation] = None
            else:
                bad.pop(operation, None)
