"""What each decision about a dead letter would lead to, in a line, as the core itself has worked it out (rule E23)."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Final

from sagactl.cli.views.text import join_some, plural
from sagactl.cli.views.words import name_place, plain
from sagactl.core.records import Direction, Resolution, RunStatus

if TYPE_CHECKING:
    from sagactl.cli.views.commands import Choice
    from sagactl.cli.views.scene import Scene
    from sagactl.core.foresight import Foreseen, Foresight

NAMED_MAX: Final = 5
"""Steps that are named; the others are counted."""

_BACK: Final = frozenset({RunStatus.ROLLED_BACK, RunStatus.ROLLING_BACK, RunStatus.TERMINATED})


def say_consequence(scene: Scene, choice: Choice, foresight: Foresight) -> str:
    """Return what the decision leads to if every call succeeds, unsafe as yet; empty where nobody can know."""
    if not foresight.is_accepted:
        detail = None if foresight.answer is None else foresight.answer.detail
        return f"refused for now: {detail}" if detail else ""
    undone = [each for each in foresight.calls if each.operation.direction is Direction.COMPENSATION]
    if undone or foresight.status in _BACK:
        return _say_back(foresight, undone)
    return _say_forward(scene, choice, foresight)


def _say_back(foresight: Foresight, undone: list[Foreseen]) -> str:
    places = _places(each for each in undone if not each.is_probe and each.objection is None)
    parts = [f"rolls back {plural(len(places), 'step')}: {_name(places)}" if places else "calls nothing more"]
    stuck = _places(each for each in undone if each.objection is not None)
    if stuck:
        parts.append(f"a person must still decide: {_name(stuck)}")
    elif foresight.status is RunStatus.STUCK:
        parts.append("a person must still decide about the rest")
    elif foresight.status in _BACK:
        parts.append(f"ends {plain(foresight.status)}")
    if foresight.left:
        parts.append(f"left behind: {_name([name_place(each.step, each.item) for each in foresight.left])}")
    return "; ".join(parts)


def _say_forward(scene: Scene, choice: Choice, foresight: Foresight) -> str:
    summary, is_settled = scene.summary, choice.request.resolution in {Resolution.DONE, Resolution.SKIP}
    to_go = summary.steps_total - summary.steps_done - is_settled
    if foresight.status is RunStatus.STUCK and not is_settled:
        return "a person must still decide"
    # With the output that a person gives it, what comes next may be another call, so only its amount is told.
    next_calls = _places(foresight.calls) if choice.request.resolution is not Resolution.DONE else []
    begins = f" with {_name(next_calls)}" if next_calls else ""
    return f"goes on{begins}; {to_go:,} of {plural(summary.steps_total, 'step')} to go" if to_go > 0 else "succeeds"


def _places(calls: Iterable[Foreseen]) -> list[str]:
    return list(dict.fromkeys(each.operation.place for each in calls))


def _name(places: list[str]) -> str:
    return join_some(places, NAMED_MAX)
