"""Asking the guards of tools before an intent, on a thread of their own (rules E16, E17, E22).

A guard may take its time: it asks a server, which may be slow, or gone. So it is asked as a call is made: on a worker,
with a slot kept for it, while other runs go on and signals and requests are heard. Once it has answered, the run's turn
is taken anew, with whatever has come in meanwhile and with the time as it is then; what that turn doesn't use, or no
longer asks for, is forgotten.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final, TypeAlias

from sagactl.core.calls import Candidate
from sagactl.core.pinned import Guard, Misfit
from sagactl.core.records import Operation
from sagactl.core.saga import ToolFacts
from sagactl.dataclass import dataclass
from sagactl.engine.clock import Clock

FRESH_SECONDS: Final = 5.0
"""How long an answer of a guard may be believed."""

Purpose: TypeAlias = tuple[Operation, bool, int, int, int]
"""What a guard is asked for: a call or probe of an operation, by its number."""


@dataclass(slots=True, eq=False)
class Question:
    """What a guard is asked, and what it said once `answered_at` is set."""

    run_id: str
    pinned: ToolFacts
    guard: Guard
    purposes: frozenset[Purpose]
    is_begun: bool = False
    misfit: Misfit | None = None
    error: BaseException | None = None
    answered_at: float | None = None

    def ask(self, clock: Clock, answered: Callable[[Question], None]) -> None:
        """Ask, on this thread, note what is said, and call *answered*; never raises."""
        try:
            self.misfit = self.guard(self.pinned)
        except BaseException as error:  # for the thread that drives the run: a bug lets go of that run alone
            self.error = error
        self.answered_at = clock.monotonic()
        answered(self)

    def covers(self, purposes: frozenset[Purpose], now: float) -> bool:
        """Tell whether the answer is there, fresh, and meant for all of *purposes*."""
        return self.answered_at is not None and now - self.answered_at <= FRESH_SECONDS and purposes <= self.purposes


def name_purpose(candidate: Candidate) -> Purpose:
    """Return what a guard is asked for that is asked about the tool of *candidate*."""
    op = candidate.op
    return op.operation, candidate.is_probe, op.attempts, op.asking, op.probes


def list_pending(questions: Mapping[str, Question]) -> list[str]:
    """Return the tools whose guards have not answered."""
    return [tool for tool, question in questions.items() if question.answered_at is None]
