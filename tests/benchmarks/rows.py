"""What a benchmark gives: rows of a table, in which only ratios are goals."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Final

REPETITIONS: Final = 15


@dataclass(frozen=True, slots=True)
class Row:
    """One line of the table: what was *measured* in *unit*, against the *floor* in the same unit.

    `goal` is what the ratio, or without a floor the measured value, may be at most; with `is_at_least`, at least.
    """

    name: str
    measured: float
    unit: str
    floor: float | None = None
    goal: float | None = None
    is_at_least: bool = False

    @property
    def ratio(self) -> float | None:
        """Return how many floors were measured."""
        return None if not self.floor else self.measured / self.floor

    @property
    def is_met(self) -> bool | None:
        """Tell whether the goal is reached; None where there is none."""
        if self.goal is None:
            return None
        judged = self.measured if self.ratio is None else self.ratio
        return judged >= self.goal if self.is_at_least else judged <= self.goal


def take_turns(contenders: Mapping[str, Callable[[], float]], repetitions: int = REPETITIONS) -> dict[str, float]:
    """Measure all contenders in turn, again and again, and return the median of each.

    Who takes turns meets the same noise; a first turn that isn't counted warms what can be warmed.
    """
    found: dict[str, list[float]] = {name: [] for name in contenders}
    for turn in range(repetitions + 1):
        for name, measure in contenders.items():
            value = measure()
            if turn > 0:
                found[name].append(value)
    return {name: statistics.median(values) for name, values in found.items()}
