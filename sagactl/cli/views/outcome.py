"""What became of a run as facts, which the report and `show` both tell: its output, its errors, what is left behind."""

from __future__ import annotations

from typing import Final

from sagactl.cli.views.layout import Fact
from sagactl.cli.views.scene import Scene
from sagactl.cli.views.text import brief, pad, plural, width_of
from sagactl.cli.views.words import failed_place, name_failure, name_place, place_of, say_settled
from sagactl.core.canonical import Json
from sagactl.core.left import Left, count_undone
from sagactl.core.records import Direction, Request, RunStatus
from sagactl.core.summary import Summary, step_rows

OUTPUTS_MAX: Final = 12
"""Outputs of a run that are named one by one."""

KEY_COLUMNS_MAX: Final = 24
LEFT_MAX: Final = 12
RETRIED_MAX: Final = 5


def list_outputs(scene: Scene) -> list[Fact]:
    """Return the run's output as facts, one line for each of its first members."""
    ended = scene.state.ended
    if ended is None:
        return []
    if ended.output_failure is not None:
        return [("warning", scene.style.show(f"there is no output: {name_failure(ended.output_failure)}"))]
    if not isinstance(ended.output, dict):
        return [("output", scene.style.show(brief(ended.output)))]
    lines = [scene.style.show(line) for line in _list_members(ended.output)]
    if len(ended.output) > OUTPUTS_MAX:
        lines.append(f"and {len(ended.output) - OUTPUTS_MAX:,} more")
    return [("output", lines)]


def _list_members(output: dict[str, Json]) -> list[str]:
    members = list(output.items())[:OUTPUTS_MAX]
    key_columns = min(KEY_COLUMNS_MAX, max((width_of(key) for key, _ in members), default=0))
    return [f"{pad(key, key_columns)}  {brief(value)}".rstrip() for key, value in members]


def list_left(scene: Scene, left: list[Left]) -> list[Fact]:
    """Return what is left behind as facts, by name, or that nothing is."""
    undone = count_undone(scene.state)
    if not left:
        return [
            ("left", f"nothing; {undone:,} of {undone:,} undone" if undone else "nothing; there was nothing to undo")
        ]
    lines = [scene.style.show(_describe_left(each)) for each in left[:LEFT_MAX]]
    if len(left) > LEFT_MAX:
        lines.append(f"and {len(left) - LEFT_MAX:,} more")
    return [("left", lines)]


def _describe_left(left: Left) -> str:
    found = brief(left.output)
    return f"{left.place}: {left.reason}" + (f" ({found})" if found else "")


def count_left(left: list[Left]) -> str:
    """Return how many things are left behind, as a clause."""
    return f"{plural(len(left), 'thing')} {'is' if len(left) == 1 else 'are'} left behind"


def list_error(scene: Scene, *, names_step: bool = True) -> list[Fact]:
    """Return the first error and where in the saga file its step stands."""
    state = scene.state
    if state.failure is None:
        return []
    if state.failed_step is None:
        return [("because", scene.style.show(state.failure.message or state.failure.type))]
    tool = scene.saga.by_id[state.failed_step].action.tool
    where = place_of(scene.saga, state.failed_step)
    at = f"{where}   tool {tool}" if where else f"step {state.failed_step}, tool {tool}"
    place = f"{failed_place(state)}: " if names_step else ""
    text = place + name_failure(state.failure)
    if _is_history(scene):
        settled = _find_settlement(scene, state.failed_step)
        return [("was", scene.style.show(text if settled is None else f"{text}; {say_settled(settled)}"))]
    return [("error", scene.style.show(text)), ("at", scene.style.show(at))]


def _is_history(scene: Scene) -> bool:
    """Tell whether the first error, which stays (S11), is none any more: the run goes forward, or has come to its end.

    It was settled by a person, or a person had the call made again.
    """
    state = scene.state
    is_turned = state.direction is Direction.COMPENSATION or state.failing is not None
    return not (is_turned or state.dead or state.stuck is not None or scene.summary.status is RunStatus.TERMINATED)


def _find_settlement(scene: Scene, step_id: str) -> Request | None:
    """Return how a person settled the error of a step."""
    found = (op.settled for operation, op in scene.state.operations.items() if operation.step == step_id)
    return next((each for each in found if each is not None), None)


def list_last_failure(scene: Scene, summary: Summary) -> list[Fact]:
    """Return why an operation that is to be tried again failed last."""
    if summary.failure is not None:
        return list_error(scene)
    rows = [row for row in step_rows(scene.saga, scene.state) if row.failure is not None or row.undo_failure]
    lines = [
        f"{name_place(row.id, row.item)}: {name_failure(row.undo_failure or row.failure)}" for row in rows[:RETRIED_MAX]
    ]
    return [("last", [scene.style.show(line) for line in lines])] if lines else []
