"""What was seen of an experiment: the run as its log says, the world, and the tools' own trail."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field
from enum import StrEnum
from typing import Final

from sagactl.chaos.traits import Growth
from sagactl.core.records import Cause, Operation, ProbeAnswer, RunStatus
from sagactl.core.transitions import Phase
from sagactl.dataclass import dataclass


class Sight(StrEnum):
    """What a line of the trail says."""

    CALL = "call"
    RETURN = "return"
    LATE = "late"
    PROBE = "probe"
    FIRED = "fired"
    ASKED = "asked"
    LINE = "line"
    GROWTH = "growth"


@dataclass(frozen=True, slots=True)
class Seen:
    """A line of the trail, which outlives the process: what happened to an operation.

    `word` is an outcome, a probe's answer or a line of code; `digest` that of an output, or of the names of what was
    changed in place.
    """

    sight: Sight
    operation: Operation | None = None
    word: str = ""
    digest: str = ""
    growth: Growth = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class OperationEnd:
    """Where an operation stood when the run came to rest."""

    phase: Phase
    doubt: bool = False
    attempts: int = 0
    failure: str = ""
    cause: Cause | None = None
    digest: str = ""


class Close(StrEnum):
    """How an experiment came to its end."""

    REST = "rest"
    HELD_UP = "held_up"
    TIMEOUT = "timeout"
    CRASHED = "crashed"
    NOT_REACHED = "not_reached"


@dataclass(frozen=True, slots=True)
class Observed:
    """All that a verdict is made of."""

    close: Close
    detail: str = ""
    status: RunStatus | None = None
    cause: Cause | None = None
    failure: str = ""
    operations: Mapping[Operation, OperationEnd] = field(default_factory=dict)
    left: frozenset[tuple[str, int | None]] = frozenset()
    """What the run itself says that it has left behind."""
    pivot_passed: bool = False
    growth: Growth = field(default_factory=dict)
    is_restored: bool = True
    """The world is as it was before the run, to the letter."""
    changed: str = ""
    """Otherwise the first thing that isn't."""
    trail: tuple[Seen, ...] = ()
    fired: frozenset[int] = frozenset()
    telling: tuple[Operation, ...] = ()
    """Operations whose tools have printed a secret."""
    lives: int = 1

    def count(self, sight: Sight, operation: Operation, word: str = "") -> int:
        """Return how many lines of the trail say so."""
        return sum(
            seen.sight is sight and seen.operation == operation and word in {"", seen.word} for seen in self.trail
        )

    def has_happened(self, operation: Operation) -> bool:
        """Tell whether a tool said that *operation* was carried out, to whomever."""
        return any(self.count(sight, operation, "succeeded") for sight in (Sight.RETURN, Sight.LATE))


UNDONE_PHASES: Final = frozenset({Phase.SUCCEEDED, Phase.FAILED})
STUCK_PHASES: Final = frozenset({Phase.EXHAUSTED, Phase.DEAD})


def lied(seen: Seen, *, happened: bool, could_have_begun: bool) -> bool:
    """Tell whether a probe's answer contradicts what the trail knows."""
    if seen.word == ProbeAnswer.NOT_DONE:
        return happened
    return seen.word == ProbeAnswer.DONE and not could_have_begun
