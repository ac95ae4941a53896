"""What a person is asked to agree to: the step, its tool, and all that it will be called with."""

from __future__ import annotations

from typing import Final

from sagactl.cli.views.layout import Fact, list_facts
from sagactl.cli.views.scene import Scene
from sagactl.cli.views.text import brief, plural
from sagactl.core.people import approval_until_ms
from sagactl.core.saga import StepClass
from sagactl.core.state import Awaited

CALLS_MAX: Final = 12
"""Calls of a step with `foreach` that are named one by one."""

_CLASSES: Final = {StepClass.PIVOT: ", the pivot: there is no way back behind it"}


def describe_approvals(scene: Scene) -> list[list[str]]:
    """Return a block for each step that waits for a person."""
    return [list_facts(list_approval(scene, step_id), scene.style) for step_id in scene.state.awaiting]


def list_approval(scene: Scene, step_id: str) -> list[Fact]:
    """Return what there is to know before one answers for a step, safe."""
    show, step, awaited = scene.style.show, scene.saga.by_id[step_id], scene.state.awaiting[step_id]
    approval = step.approval
    return [
        ("approve", show(step_id + _CLASSES.get(step.klass, ""))),
        ("about", show(step.description or "")),
        ("tool", show(step.action.tool)),
        ("with", [show(line) for line in _list_calls(scene, step_id)]),
        ("by", show(", ".join(approval.by)) if approval is not None else ""),
        ("until", _say_until(scene, awaited)),
        ("digest", awaited.digest[:12]),
    ]


def _say_until(scene: Scene, awaited: Awaited) -> str:
    until_ms = approval_until_ms(scene.state, awaited, scene.now_ms)
    if until_ms is None:
        return ""
    due, is_held = scene.show_due(until_ms), scene.state.paused or scene.state.stuck is not None
    if until_ms > scene.now_ms:
        return f"{due}{' if the run goes on now' if is_held else ''}, then it counts as denied"
    who = "the run, once it goes on," if is_held else "a resume"
    return f"{due}, and nobody has answered: {who} carries out that it is denied"


def _list_calls(scene: Scene, step_id: str) -> list[str]:
    step = scene.state.steps[step_id]
    lines = [brief(each, joint="=") or "nothing" for each in step.arguments[:CALLS_MAX]]
    if step.items is not None:
        lines = [f"[{index}] {line}" for index, line in enumerate(lines)]
    left = len(step.arguments) - CALLS_MAX
    return [*lines, f"and {plural(left, 'call')} more"] if left > 0 else lines
