"""Which of all experiments are made: by step, by name, or a number of them."""

from __future__ import annotations

import random
from collections.abc import Collection, Sequence
from typing import Final

from sagactl.chaos.enumerating import list_pairs
from sagactl.chaos.experiment import Experiment
from sagactl.dataclass import dataclass
from sagactl.errors import NotFoundError

SUCCEEDS: Final = "reference/succeeds"
IS_UNDONE: Final = "reference/is-undone"
REFERENCES: Final = frozenset({SUCCEEDS, IS_UNDONE})
"""The runs without a fault: they are part of any series, so naming one chooses nothing beside them."""

EXPERIMENTS_MAX: Final = 5_000
"""How many are made unless --limit says otherwise; the report says how many there are beside them."""


@dataclass(frozen=True, slots=True)
class Choice:
    """What is asked for; with a *seed* the ones within the limit are drawn, otherwise they are the first."""

    steps: tuple[str, ...] = ()
    names: tuple[str, ...] = ()
    pairs: bool = False
    limit: int = EXPERIMENTS_MAX
    seed: int | None = None


def choose(singles: Sequence[Experiment], choice: Choice, known_steps: Collection[str]) -> tuple[list[Experiment], int]:
    """Return the experiments to make, in order, and how many are left out; raises NotFoundError for unknown names."""
    unknown = [step for step in choice.steps if step not in known_steps]
    if unknown:
        hint = f"steps: {', '.join(known_steps)}"
        raise NotFoundError(f"the saga has no step {unknown[0]}", code="no-such-step", hint=hint)
    if choice.names:
        found = _find_named(singles, choice.names)
        return found, 0
    everything = [*singles, *(list_pairs(singles) if choice.pairs else ())]
    wanted = [each for each in everything if not choice.steps or _step_of(each) in choice.steps]
    made = wanted[: choice.limit]
    if choice.seed is not None and len(wanted) > choice.limit:
        drawn = set(random.Random(choice.seed).sample(range(len(wanted)), choice.limit))  # noqa: S311 - no secret
        made = [each for number, each in enumerate(wanted) if number in drawn]
    return made, len(everything) - len(made)


def _step_of(experiment: Experiment) -> str | None:
    return None if experiment.place is None else experiment.place.step


def _find_named(singles: Sequence[Experiment], names: Sequence[str]) -> list[Experiment]:
    everything = {each.name: each for each in singles}
    if any("+" in name for name in names):
        everything |= {each.name: each for each in list_pairs(singles)}
    unknown = [name for name in names if name not in everything and name not in REFERENCES]
    if unknown:
        message = f"no experiment {unknown[0]}"
        raise NotFoundError(message, code="no-such-experiment", hint="with --list all of them are shown")
    return [everything[name] for name in dict.fromkeys(names) if name not in REFERENCES]
