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
from sagactl.cli.views.scene import Scene
from sagactl.cli.views.style import Hue, Mark
from sagactl.cli.views.tally import say_progress
from sagactl.cli.views.text import brief, pad, plural, width_of
from sagactl.cli.views.times import show_duration
from sagactl.cli.views.words import (
    STATUS_MARKS,
    failed_place,
    name_again,
    name_failure,
    name_holder,
    name_operation,
    place_of,
    plain,
    say_settled,
)
from sagactl.core.canonical import Json
from sagactl.core.left import Left, count_undone, find_left
from sagactl.core.pinned import is_of_machine, is_of_pins
from sagactl.core.records import AT_REST, Cause, Direction, Request, RunStatus, Verb
from sagactl.core.state import next_timer
from sagactl.core.summary import StepRow, StepStatus, Summary, step_rows
from sagactl.engine.ending import Ending, Why

OUTPUTS_MAX: Final = 12
"""Outputs of a run that the report names one by one."""

KEY_COLUMNS_MAX: Final = 24
LEFT_MAX: Final = 12
NAMED_MAX: Final = 3
"""Operations that a headline names."""

RETRIED_MAX: Final = 5
_WAITS: Final = frozenset({Why.WAITING, Why.MISSING_TOOL, Why.MISSING_SECRET})
_HINTS: Final = {Cause.MISSING_TOOL: "sagactl tools", Cause.MISSING_SECRET: "sagactl help secrets"}


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
    hints = _hint_going_on(scene) if is_open and scene.state.people_since_ms is None else hint_people(scene, summary)
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
    retried = [f"{_place(row)} took {row.attempts} attempts" for row in rows if row.attempts > 1]
    parts += retried[:RETRIED_MAX]
    if len(retried) > RETRIED_MAX:
        parts.append(f"{len(retried) - RETRIED_MAX:,} more took several")
    return ", ".join(parts)


def _place(row: StepRow) -> str:
    return row.id if row.item is None else f"{row.id}[{row.item}]"


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
    ending = f"; {_count_left(left)}" if left else ""
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


def _count_left(left: list[Left]) -> str:
    return f"{plural(len(left), 'thing')} {'is' if len(left) == 1 else 'are'} left behind"


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
        names = _join_names([name_operation(each).removeprefix("undo of ") for each in doubtful])
        return f": its rollback goes on when you have said whether {names} happened"
    if left:
        return f": {_count_left(left)}"
    names = _join_names([name_operation(operation) for operation in scene.state.dead])
    verb = "is" if len(scene.state.dead) == 1 else "are"
    where = " behind its pivot" if summary.cause is Cause.FORWARD_STUCK else ""
    return f"{where}: {names} {verb} {'in doubt' if summary.cause is Cause.IN_DOUBT else 'not done'}"


def _join_names(names: list[str]) -> str:
    more = len(names) - NAMED_MAX
    return ", ".join(names[:NAMED_MAX]) + (f" and {more:,} more" if more > 0 else "")


def _list_undone(scene: Scene) -> list[Fact]:
    rows = [row for row in step_rows(scene.saga, scene.state) if row.status is StepStatus.COMPENSATED]
    return [("undone", _join_places(rows))]


def _list_done(scene: Scene, summary: Summary) -> list[Fact]:
    if summary.direction is Direction.COMPENSATION:
        return []
    rows = [row for row in step_rows(scene.saga, scene.state) if row.status is StepStatus.SUCCEEDED]
    return [("done", _join_places(rows))]


def _join_places(rows: list[StepRow]) -> str:
    names = [_place(row) for row in rows]
    return ", ".join(names[:LEFT_MAX]) + (f" and {len(names) - LEFT_MAX:,} more" if len(names) > LEFT_MAX else "")


def _hint_letters(scene: Scene) -> list[str]:
    first = next(iter(scene.state.dead), None)
    shown = [] if first is None else [commands.type_letter("show", scene.short_id, first)]
    return [*shown, commands.type_log(scene.short_id)]


def _report_terminated(scene: Scene, summary: Summary) -> str:
    left = find_left(scene.saga, scene.state)
    words = "was terminated" if summary.cause is Cause.TERMINATED else "ended, part of it abandoned"
    return join_blocks(
        headline(
            Mark.FAILED, f"{scene.title} {words}; {_count_left(left) if left else 'nothing is left'}", scene.style
        ),
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
                *_list_last_failure(scene, summary),
            ],
            scene.style,
        ),
        *describe_approvals(scene),
        list_hints([*hint_missing(scene, summary), *hint_people(scene, summary), *_hint_going_on(scene)], scene.style),
    )


def hint_people(scene: Scene, summary: Summary) -> list[str]:
    """Return what a person types who is waited for."""
    if summary.waiting_for is not None and summary.waiting_for.what == "paused":
        return [commands.type_unpause(scene.short_id)]
    awaited = scene.state.awaiting
    open_ = [name for name, each in awaited.items() if each.until_ms is None or each.until_ms > scene.now_ms]
    if awaited and not open_:
        return [commands.type_resume(scene.short_id)]  # nobody can answer any more: it carries out that they are denied
    return [line for step_id in open_ for line in commands.type_answers(scene.short_id, step_id)]


def say_waiting(scene: Scene, summary: Summary) -> str:
    """Return what the run waits for, safe: `deposit goes on at 14:02:24, in 12.0s`; empty where it doesn't."""
    waiting = summary.waiting_for
    if waiting is None:
        return ""
    if waiting.what == "approval":
        return scene.style.show(f"{waiting.detail} waits for an approval") + _say_limit(scene, waiting.until_ms)
    detail = name_again(waiting.detail or plain(waiting.what))
    detail = scene.style.show(_say_hanging(scene, detail) if waiting.what == Cause.CANNOT_END else detail)
    if waiting.until_ms is None:
        return detail
    due = scene.show_due(waiting.until_ms)
    return f"{detail}, until {due}" if waiting.what != "timer" else _say_timer(scene, detail, waiting.until_ms, due)


def _say_timer(scene: Scene, detail: str, until_ms: int, due: str) -> str:
    if until_ms <= scene.now_ms:
        return f"{detail} was due at {due}"
    left = "" if scene.is_kept else f", in {show_duration(until_ms - scene.now_ms)}"
    words = f"{detail} goes on at {due}{left}"
    return f"{words}: until then a call of a lost driver may still land" if _may_land(scene) else words


def _may_land(scene: Scene) -> bool:
    """Tell whether what goes on next waits for the end of an old call (E9), and for no delay of its own."""
    timer = next_timer(scene.state)
    return timer is not None and scene.state.operations[timer[1]].late_until_ms > scene.now_ms


def _say_limit(scene: Scene, until_ms: int | None) -> str:
    if until_ms is None:
        return ""
    due = scene.show_due(until_ms)
    if until_ms > scene.now_ms:
        return f", until {due}"
    return f", which nobody has given until {due}: it counts as denied"


def _say_hanging(scene: Scene, detail: str) -> str:
    """Say of calls that can't be ended what ends them, or that their process is gone and a resume waits for nothing."""
    if scene.holder is not None and scene.is_hanging:
        return f"{detail}: end {name_holder(scene.holder)}, which drives the run, then resume"
    names = [name_operation(operation) for operation in scene.state.in_flight]
    named = ", ".join(names[:LEFT_MAX]) + (f" and {len(names) - LEFT_MAX:,} more" if len(names) > LEFT_MAX else "")
    return f"for a resume: the process that called {named} ended before it had an answer"


def hint_hanging(scene: Scene) -> list[str]:
    """Return what a person types where a call can't be ended: only the end of its process ends it."""
    kill = [commands.type_kill(scene.holder.pid)] if scene.is_here and scene.holder is not None else []
    return [*kill, commands.type_resume(scene.short_id)]


def hint_missing(scene: Scene, summary: Summary) -> list[str]:
    """Return what helps where a tool or a secret is missing: a changed tool may be taken as it is now."""
    waiting = summary.waiting_for
    if waiting is not None and waiting.what == Cause.MISSING_TOOL and is_of_pins(waiting.detail or ""):
        return ["sagactl tools pin"]  # another definition has the same pins
    if waiting is not None and waiting.what == Cause.MISSING_TOOL and is_of_machine(waiting.detail or ""):
        return ["sagactl doctor"]
    hints = [hint for cause, hint in _HINTS.items() if waiting is not None and waiting.what == cause]
    if waiting is not None and waiting.what == Cause.MISSING_TOOL and scene.saga.source:
        hints.append(scene.style.show(commands.type_rebind(scene.short_id, scene.saga.source)))
    return hints


def _list_last_failure(scene: Scene, summary: Summary) -> list[Fact]:
    """Return why an operation that is to be tried again failed last."""
    if summary.failure is not None:
        return list_error(scene)
    rows = [row for row in step_rows(scene.saga, scene.state) if row.failure is not None or row.undo_failure]
    lines = [f"{_place(row)}: {name_failure(row.undo_failure or row.failure)}" for row in rows[:RETRIED_MAX]]
    return [("last", [scene.style.show(line) for line in lines])] if lines else []


def _hint_going_on(scene: Scene) -> list[str]:
    if scene.is_hanging:
        return hint_hanging(scene)
    if scene.state.people_since_ms is not None:
        return commands.type_rollback(scene.state, scene.short_id)
    return [commands.type_resume(scene.short_id), *commands.type_rollback(scene.state, scene.short_id)]


def _report_interrupted(scene: Scene, summary: Summary, ending: Ending) -> str:
    doubtful = [scene.style.show(name_again(each)) for each in ending.left_in_doubt]
    doubt = f"in doubt: {', '.join(doubtful)}" if doubtful else "nothing in doubt"
    going = "interrupted while rolling back" if summary.direction is Direction.COMPENSATION else "interrupted"
    words = f"{scene.title} {going}; {say_progress(scene.saga, scene.state)}, {doubt}"
    return join_blocks(
        headline(Mark.WAITING, words, scene.style),
        list_facts(list_error(scene), scene.style),
        list_hints(_hint_going_on(scene), scene.style),
    )


def _report_lost(scene: Scene) -> str:
    who = "took it over" if scene.holder is None else "drives it now"  # or has come to its end by now
    words = f"{scene.title}: another process {who}; {say_progress(scene.saga, scene.state)} so far"
    return join_blocks(
        headline(Mark.WAITING, words, scene.style),
        list_hints([commands.type_show(scene.short_id)], scene.style),
    )


def _report_going_on(scene: Scene, summary: Summary) -> str:
    mark = STATUS_MARKS[summary.status]
    words = f"{scene.title} is {plain(summary.status)}; {say_progress(scene.saga, scene.state)}"
    return join_blocks(
        headline(mark, words, scene.style),
        list_facts(list_error(scene), scene.style),
        list_hints(_hint_going_on(scene), scene.style),
    )


_REPORTS: Final[dict[RunStatus, Callable[[Scene, Summary], str]]] = {
    RunStatus.SUCCEEDED: _report_succeeded,
    RunStatus.ROLLED_BACK: _report_rolled_back,
    RunStatus.STUCK: _report_stuck,
    RunStatus.TERMINATED: _report_terminated,
}
