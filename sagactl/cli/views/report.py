"""The last word on a run: what became of it, what is left behind, why, and what to type next.

It is what `run`, `resume`, `rollback` and `dlq` print on stdout when they let go of a run.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from sagactl.cli.views import commands
from sagactl.cli.views.approvals import describe_approvals
from sagactl.cli.views.changed_tool import list_changes
from sagactl.cli.views.layout import Fact, headline, join_blocks, list_facts, list_hints
from sagactl.cli.views.letters import describe_letters
from sagactl.cli.views.outcome import (
    LEFT_MAX,
    RETRIED_MAX,
    count_left,
    list_error,
    list_last_failure,
    list_left,
    list_outputs,
)
from sagactl.cli.views.scene import Scene
from sagactl.cli.views.style import Hue, Mark
from sagactl.cli.views.tally import say_progress
from sagactl.cli.views.text import join_some
from sagactl.cli.views.times import show_duration
from sagactl.cli.views.waiting import hint_going_on, hint_missing, hint_people, say_waiting
from sagactl.cli.views.words import (
    STATUS_MARKS,
    failed_place,
    name_again,
    name_operation,
    name_place,
    plain,
    say_settled,
)
from sagactl.core.left import Left, find_left
from sagactl.core.records import AT_REST, Cause, Direction, Request, RunStatus, Verb
from sagactl.core.summary import StepRow, StepStatus, Summary, step_rows
from sagactl.engine.ending import Ending, Why

NAMED_MAX: Final = 3
"""Operations that a headline names."""

_WAITS: Final = frozenset({Why.WAITING, Why.MISSING_TOOL, Why.MISSING_SECRET})


def render_report(scene: Scene, ending: Ending | None = None) -> str:
    """Return the report on a run as it stands; *ending* says why a driver let go of one that isn't at rest."""
    summary = scene.summary
    if summary.status in AT_REST:
        return _REPORTS[summary.status](scene, summary)
    if ending is not None and ending.why is Why.INTERRUPTED:
        return _report_interrupted(scene, summary, ending)
    if ending is not None and ending.why is Why.LEASE_LOST:
        return _report_lost(scene)
    if summary.waiting_for is not None or (ending is not None and ending.why in _WAITS):
        return _report_waiting(scene, summary)
    return _report_going_on(scene, summary)


_RECORDED: Final = {Verb.APPROVE: "approved", Verb.DENY: "denied", Verb.RETRY: "to be called again"}


def render_recorded(scene: Scene, request: Request) -> str:
    """Return what is said of a request that was recorded, and the run not carried on (`--no-resume`)."""
    summary = scene.summary
    said = _RECORDED.get(request.verb) or say_settled(request)
    place = "" if request.operation is None else f"{name_operation(request.operation)} "
    words = f"{scene.title}: {scene.style.show(place + said)}; not resumed"
    is_open = summary.status not in AT_REST
    hints = hint_going_on(scene) if is_open and scene.state.people_since_ms is None else hint_people(scene, summary)
    return join_blocks(
        headline(Mark.WAITING if is_open else STATUS_MARKS[summary.status], words, scene.style),
        list_facts([("so far", say_progress(scene.saga, scene.state)), *list_error(scene)], scene.style),
        list_hints(hints if is_open else _hint_letters(scene), scene.style),
    )


def _report_succeeded(scene: Scene, summary: Summary) -> str:
    took = show_duration((summary.ended_at_ms or scene.now_ms) - scene.created.at_ms)
    return join_blocks(
        headline(Mark.DONE, f"{scene.title} succeeded in {took}", scene.style),
        list_facts([("steps", _count_steps(scene)), *list_outputs(scene)], scene.style),
        list_hints([commands.type_log(scene.short_id)], scene.style),
    )


def _count_steps(scene: Scene) -> str:
    rows = step_rows(scene.saga, scene.state)
    skipped = len({row.id for row in rows if row.status is StepStatus.SKIPPED})
    parts = [f"{len(scene.saga.steps) - skipped:,} done"]
    if skipped:
        parts.append(f"{skipped:,} skipped")
    retried = [f"{name_place(row.id, row.item)} took {row.attempts} attempts" for row in rows if row.attempts > 1]
    parts += retried[:RETRIED_MAX]
    if len(retried) > RETRIED_MAX:
        parts.append(f"{len(retried) - RETRIED_MAX:,} more took several")
    return ", ".join(parts)


_BACK_WORDS: Final = {
    Cause.CANCELLED: "was cancelled and rolled back",
    Cause.REQUESTED: "was rolled back as asked",
    Cause.TIMEOUT: "ran out of time and was rolled back",
    Cause.DENIED: "was denied and rolled back",
}


def _report_rolled_back(scene: Scene, summary: Summary) -> str:
    left = find_left(scene.saga, scene.state)
    step = summary.failed_step
    fallback = f"failed at {failed_place(scene.state)} and was rolled back" if step else "was rolled back"
    words = _BACK_WORDS.get(summary.cause or Cause.STEP_FAILED, fallback)
    ending = f"; {count_left(left)}" if left else ""
    is_asked = summary.cause in {Cause.REQUESTED, Cause.CANCELLED} and not left
    mark = Mark.UNDONE if is_asked else Mark.FAILED
    return join_blocks(
        headline(mark, f"{scene.title} {words}{ending}", scene.style),
        list_facts(list_left(scene, left), scene.style, hue=Hue.BAD) if left else [],
        list_facts(
            [
                *list_error(scene, names_step=summary.cause is not Cause.STEP_FAILED),
                *([] if left else list_left(scene, left)),
                *_list_times(scene, summary),
            ],
            scene.style,
        ),
        list_hints([commands.type_log(scene.short_id, step)], scene.style),
    )


def _list_times(scene: Scene, summary: Summary) -> list[Fact]:
    if summary.ended_at_ms is None:
        return []
    return [("took", show_duration(summary.ended_at_ms - scene.created.at_ms))]


def _report_stuck(scene: Scene, summary: Summary) -> str:
    left = find_left(scene.saga, scene.state)
    undone = _list_undone(scene)
    return join_blocks(
        headline(Mark.STUCK, f"{scene.title} is stuck{_say_stuck(scene, summary, left)}", scene.style),
        list_facts(list_left(scene, left), scene.style, hue=Hue.BAD) if left else [],
        list_facts([*list_error(scene), *undone, *_list_done(scene, summary)], scene.style),
        *describe_letters(scene),
        list_hints([*_hint_letters(scene), *commands.type_rollback(scene.state, scene.short_id)], scene.style),
    )


def _say_stuck(scene: Scene, summary: Summary, left: list[Left]) -> str:
    doubtful = [each for each in scene.state.dead if scene.state.operations[each].cause is Cause.IN_DOUBT]
    if summary.direction is Direction.COMPENSATION and doubtful:
        names = join_some([name_operation(each).removeprefix("undo of ") for each in doubtful], NAMED_MAX)
        return f": its rollback goes on when you have said whether {names} happened"
    if left:
        return f": {count_left(left)}"
    names = join_some([name_operation(operation) for operation in scene.state.dead], NAMED_MAX)
    if summary.cause is Cause.IN_DOUBT:
        return f": {names} {'is' if len(scene.state.dead) == 1 else 'are'} in doubt"
    # What failed may have happened all the same: each letter says whether anybody knows.
    return f"{' behind its pivot' if summary.cause is Cause.FORWARD_STUCK else ''}: {names} failed"


def _list_undone(scene: Scene) -> list[Fact]:
    rows = [row for row in step_rows(scene.saga, scene.state) if row.status is StepStatus.COMPENSATED]
    return [("undone", _join_places(rows))]


def _list_done(scene: Scene, summary: Summary) -> list[Fact]:
    if summary.direction is Direction.COMPENSATION:
        return []
    rows = [row for row in step_rows(scene.saga, scene.state) if row.status is StepStatus.SUCCEEDED]
    return [("done", _join_places(rows))]


def _join_places(rows: list[StepRow]) -> str:
    return join_some([name_place(row.id, row.item) for row in rows], LEFT_MAX)


def _hint_letters(scene: Scene) -> list[str]:
    first = next(iter(scene.state.dead), None)
    shown = [] if first is None else [commands.type_letter("show", scene.short_id, first)]
    return [*shown, commands.type_log(scene.short_id)]


def _report_terminated(scene: Scene, summary: Summary) -> str:
    left = find_left(scene.saga, scene.state)
    words = "was terminated" if summary.cause is Cause.TERMINATED else "ended, part of it abandoned"
    return join_blocks(
        headline(Mark.FAILED, f"{scene.title} {words}; {count_left(left) if left else 'nothing is left'}", scene.style),
        list_facts(list_left(scene, left), scene.style, hue=Hue.BAD) if left else [],
        list_facts([*list_error(scene), *_list_undone(scene), *_list_times(scene, summary)], scene.style),
        list_hints(
            [commands.type_log(scene.short_id), *commands.type_rollback(scene.state, scene.short_id)], scene.style
        ),
    )


def _report_waiting(scene: Scene, summary: Summary) -> str:
    going = "is rolling back and waiting" if summary.direction is Direction.COMPENSATION else "is waiting"
    words = say_waiting(scene, summary)
    return join_blocks(
        headline(Mark.WAITING, f"{scene.title} {going}" + (f"; {words}" if words else ""), scene.style),
        list_facts(
            [
                *list_changes(scene, summary),
                ("so far", say_progress(scene.saga, scene.state)),
                *list_last_failure(scene, summary),
            ],
            scene.style,
        ),
        *describe_approvals(scene),
        list_hints([*hint_missing(scene, summary), *hint_people(scene, summary), *hint_going_on(scene)], scene.style),
    )


def _report_interrupted(scene: Scene, summary: Summary, ending: Ending) -> str:
    doubtful = [scene.style.show(name_again(each)) for each in ending.left_in_doubt]
    doubt = f"in doubt: {', '.join(doubtful)}" if doubtful else "nothing in doubt"
    going = "interrupted while rolling back" if summary.direction is Direction.COMPENSATION else "interrupted"
    words = f"{scene.title} {going}; {say_progress(scene.saga, scene.state)}, {doubt}"
    return join_blocks(
        headline(Mark.WAITING, words, scene.style),
        list_facts(list_error(scene), scene.style),
        list_hints(hint_going_on(scene), scene.style),
    )


def _report_lost(scene: Scene) -> str:
    who = "took it over" if scene.holder is None else "drives it now"  # or has come to its end by now
    words = f"{scene.title}: another process {who}; {say_progress(scene.saga, scene.state)} so far"
    names = join_some([name_operation(each) for each in scene.state.in_flight], NAMED_MAX)
    late = f"{names} was under way here: what it did may have come after that, so look whether it is there"
    return join_blocks(
        headline(Mark.WAITING, words, scene.style),
        list_facts([("late", scene.style.show(late) if names else "")], scene.style),
        list_hints([commands.type_show(scene.short_id)], scene.style),
    )


def _report_going_on(scene: Scene, summary: Summary) -> str:
    mark = STATUS_MARKS[summary.status]
    words = f"{scene.title} is {plain(summary.status)}; {say_progress(scene.saga, scene.state)}"
    return join_blocks(
        headline(mark, words, scene.style),
        list_facts(list_error(scene), scene.style),
        list_hints(hint_going_on(scene), scene.style),
    )


_REPORTS: Final[dict[RunStatus, Callable[[Scene, Summary], str]]] = {
    RunStatus.SUCCEEDED: _report_succeeded,
    RunStatus.ROLLED_BACK: _report_rolled_back,
    RunStatus.STUCK: _report_stuck,
    RunStatus.TERMINATED: _report_terminated,
}
