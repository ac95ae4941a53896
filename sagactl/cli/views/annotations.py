"""What a runner of CI shows beside the lines of a saga file: why a run isn't what it was to be."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from sagactl.cli.views import commands
from sagactl.cli.views.letters import explain, say_what
from sagactl.cli.views.report import render_report
from sagactl.cli.views.text import safe
from sagactl.cli.views.words import failed_place, name_failure
from sagactl.core.left import find_left
from sagactl.core.records import Cause, Operation, RunStatus
from sagactl.dataclass import dataclass

if TYPE_CHECKING:
    from collections.abc import Container, Sequence

    from sagactl.cli.views.scene import Scene
    from sagactl.core.left import Left
    from sagactl.engine.ending import Ending
    from sagactl.errors import SagactlError
    from sagactl.usecases.errors import ProblemFacts

ANNOTATIONS_MAX: Final = 10
"""Annotations of a kind: a runner shows no more of one step."""

LEFT_NAMED_MAX: Final = 12
"""Items of one step that are named as left behind."""

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
            return bound([*_annotate_failure(scene, ending), *_annotate_left(scene)])
        case RunStatus.STUCK:
            letters = [_annotate_letter(scene, operation) for operation in scene.state.dead]
            told = {scene.state.operations[operation].failure for operation in scene.state.dead}
            first = [] if scene.state.failure in told else _annotate_failure(scene, ending)
            told_steps = {operation.step for operation in scene.state.dead}
            return bound([*first, *letters, *_annotate_left(scene, but=told_steps)])
        case RunStatus.TERMINATED:
            return bound([Annotation("error", *_split_headline(scene, ending)), *_annotate_left(scene)])
        case _:
            waiting = Annotation("warning", *_split_headline(scene, ending))
            step = next(iter(scene.state.awaiting), None)
            return [waiting if step is None else _place(scene, step, waiting)]


def say_headline(scene: Scene, ending: Ending | None) -> str:
    """Return the first line of the report."""
    return render_report(scene, ending).split("\n", 1)[0]


def _split_headline(scene: Scene, ending: Ending | None) -> tuple[str, str]:
    """Return the first line of the report without its mark, and the first command that goes on from there."""
    first, *others = render_report(scene, ending).splitlines()
    hints = [line.removeprefix("hint: ") for line in others if line.startswith("hint: ")]
    return first.split(" ", 1)[-1], hints[0] if hints else scene.style.complete(commands.type_show(scene.short_id))


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
    show = scene.style.complete(commands.type_letter("show", scene.short_id, operation))
    why = safe(name_failure(op.failure))
    message = ". ".join(part for part in (why, explain(scene, op), show) if part)
    return _place(scene, operation.step, Annotation("error", say_what(op), message))


def _annotate_left(scene: Scene, *, but: Container[str] = ()) -> list[Annotation]:
    """Return a remark for each step that leaves something behind, at its line."""
    by_step: dict[str, list[Left]] = {}
    for each in find_left(scene.saga, scene.state):
        if each.step not in but:
            by_step.setdefault(each.step, []).append(each)
    return [_place(scene, step, _describe_left(scene, step, left)) for step, left in by_step.items()]


def _describe_left(scene: Scene, step: str, left: Sequence[Left]) -> Annotation:
    title = f"{step} is left behind by {scene.title}"
    if left[0].item is None:
        return Annotation("warning", title, safe(left[0].reason))
    named = [safe(f"{each.place}: {each.reason}") for each in left[:LEFT_NAMED_MAX]]
    more = len(left) - LEFT_NAMED_MAX
    return Annotation("warning", title, "\n".join([*named, f"and {more:,} more"] if more > 0 else named))


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


def annotate_warning(text: str, file: str | None) -> Annotation:
    """Return what is to be said of a file as a whole."""
    return Annotation("warning", "sagactl", safe(text), file)


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
