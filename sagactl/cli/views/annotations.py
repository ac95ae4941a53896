"""What a runner of CI shows beside the lines of a saga file: why a run isn't what it was to be."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from sagactl.cli.views import commands
from sagactl.cli.views.letters import explain, say_what
from sagactl.cli.views.report import render_report
from sagactl.cli.views.text import plural, safe
from sagactl.cli.views.words import failed_place, name_failure, name_place
from sagactl.core.left import find_left
from sagactl.core.records import Cause, Operation, RunStatus
from sagactl.dataclass import dataclass

if TYPE_CHECKING:
    from sagactl.cli.views.error import ProblemFacts
    from sagactl.cli.views.scene import Scene
    from sagactl.engine.ending import Ending
    from sagactl.errors import SagactlError

ANNOTATIONS_MAX: Final = 10
"""Annotations of a kind: a runner shows no more of one step."""

LEFT_NAMED_MAX: Final = 12
_ASKED: Final = frozenset({Cause.REQUESTED, Cause.CANCELLED})


@dataclass(frozen=True, slots=True)
class Annotation:
    """A remark for a line of a file, or for the whole where there is none; `level` is `error` or `warning`."""

    level: str
    title: str
    message: str
    file: str | None = None
    line: int | None = None
    column: int | None = None
    end_column: int | None = None


def annotate_run(scene: Scene, ending: Ending | None) -> list[Annotation]:
    """Return what is to be said of a run: nothing of one that succeeded, or that was rolled back as asked."""
    match scene.summary.status:
        case RunStatus.SUCCEEDED:
            return _annotate_success(scene)
        case RunStatus.ROLLED_BACK:
            return [*_annotate_failure(scene, ending), *_annotate_left(scene)]
        case RunStatus.STUCK:
            letters = [_annotate_letter(scene, operation) for operation in scene.state.dead]
            told = {scene.state.operations[operation].failure for operation in scene.state.dead}
            first = [] if scene.state.failure in told else _annotate_failure(scene, ending)
            return bound([*first, *letters])
        case RunStatus.TERMINATED:
            return [Annotation("error", *_split_headline(scene, ending)), *_annotate_left(scene)]
        case _:
            return [Annotation("warning", *_split_headline(scene, ending))]


def say_headline(scene: Scene, ending: Ending | None) -> str:
    """Return the first line of the report."""
    return render_report(scene, ending).split("\n", 1)[0]


def _split_headline(scene: Scene, ending: Ending | None) -> tuple[str, str]:
    """Return the first line of the report without its mark, and the first command that goes on from there."""
    first, *others = render_report(scene, ending).splitlines()
    hints = [line.removeprefix("hint: ") for line in others if line.startswith("hint: ")]
    return first.split(" ", 1)[-1], hints[0] if hints else commands.type_show(scene.short_id)


def _annotate_success(scene: Scene) -> list[Annotation]:
    ended = scene.state.ended
    if ended is None or ended.output_failure is None:
        return []
    return [Annotation("warning", f"{scene.title} has no output", safe(name_failure(ended.output_failure)))]


def _annotate_failure(scene: Scene, ending: Ending | None) -> list[Annotation]:
    step = scene.state.failed_step
    if step is not None and scene.state.failure is not None:
        title = f"{failed_place(scene.state)} failed"
        return [_place(scene, step, Annotation("error", title, safe(name_failure(scene.state.failure))))]
    if scene.summary.cause in _ASKED:
        return []
    title, hint = _split_headline(scene, ending)
    why = safe(name_failure(scene.state.failure))
    return [Annotation("error", title, why or hint)]


def _annotate_letter(scene: Scene, operation: Operation) -> Annotation:
    op = scene.state.operations[operation]
    show = commands.type_letter("show", scene.short_id, operation)
    why = safe(name_failure(op.failure))
    message = ". ".join(part for part in (why, explain(scene, op), show) if part)
    return _place(scene, operation.step, Annotation("error", say_what(op), message))


def _annotate_left(scene: Scene) -> list[Annotation]:
    left = find_left(scene.saga, scene.state)
    if not left:
        return []
    verb = "is" if len(left) == 1 else "are"
    named = [safe(f"{name_place(each.step, each.item)}: {each.reason}") for each in left[:LEFT_NAMED_MAX]]
    more = len(left) - LEFT_NAMED_MAX
    text = "\n".join([*named, f"and {more:,} more"] if more > 0 else named)
    return [Annotation("warning", f"{plural(len(left), 'thing')} {verb} left behind by {scene.title}", text)]


def _place(scene: Scene, step_id: str, annotation: Annotation) -> Annotation:
    from dataclasses import replace

    return replace(annotation, file=scene.saga.source, line=scene.saga.by_id[step_id].line)


def annotate_problem(problem: ProblemFacts) -> Annotation:
    """Return what is to be said of a problem in a saga file."""
    has_place = problem.line > 0
    return Annotation(
        problem.severity,
        safe(problem.code),
        safe(problem.message) + (f"\n{safe(problem.hint)}" if problem.hint else ""),
        problem.file,
        problem.line if has_place else None,
        problem.column if has_place else None,
        problem.end_column if has_place else None,
    )


def annotate_error(error: SagactlError) -> Annotation:
    """Return what is to be said where sagactl itself could not do it."""
    hint = f"\nhint: {safe(error.hint)}" if error.hint else ""
    return Annotation("error", f"sagactl: {safe(error.code)}", safe(error.message) + hint)


def bound(annotations: list[Annotation]) -> list[Annotation]:
    """Return as many of each level as are shown; the last one says how many more there are."""
    found = []
    for level in ("error", "warning"):
        mine = [each for each in annotations if each.level == level]
        more = len(mine) - ANNOTATIONS_MAX + 1
        found += mine if more <= 1 else [*mine[: ANNOTATIONS_MAX - 1], Annotation(level, f"and {more:,} more", "")]
    return found
