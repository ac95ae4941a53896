"""`sagactl show`: one run on a screen, what is left behind first."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

from sagactl.cli.views import commands
from sagactl.cli.views.approvals import describe_approvals
from sagactl.cli.views.changed_tool import list_changes
from sagactl.cli.views.layout import (
    Cell,
    Column,
    Fact,
    Row,
    headline,
    join_blocks,
    lay_out,
    list_facts,
    list_hints,
    marked,
)
from sagactl.cli.views.letters import describe_letters
from sagactl.cli.views.outcome import list_error, list_left, list_outputs
from sagactl.cli.views.scene import Scene
from sagactl.cli.views.style import Hue, Mark
from sagactl.cli.views.tally import say_steps
from sagactl.cli.views.text import brief, plural, wrap
from sagactl.cli.views.times import show_ago, show_duration, show_moment
from sagactl.cli.views.waiting import hint_hanging, hint_missing, hint_people, say_waiting
from sagactl.cli.views.words import (
    STATUS_MARKS,
    name_cause,
    name_failure,
    name_holder,
    name_operation,
    plain,
    say_settled,
)
from sagactl.core.left import find_left
from sagactl.core.records import AT_REST, Cause, Direction, Holder, Operation, RunStatus
from sagactl.core.summary import StepRow, StepStatus, Summary, step_rows
from sagactl.log.base import Captured

DIGEST_LENGTH: Final = 12
LEFT_OPEN: Final = "left without an answer"
ITEMS_TOGETHER_MIN: Final = 6
"""Items of one step that stand alike are shown on one line when there are so many of them."""

STEP_MARKS: Final = {
    StepStatus.PENDING: Mark.NOT_RUN,
    StepStatus.RUNNING: Mark.RUNNING,
    StepStatus.RETRYING: Mark.WAITING,
    StepStatus.SUCCEEDED: Mark.DONE,
    StepStatus.FAILED: Mark.FAILED,
    StepStatus.SKIPPED: Mark.NOT_RUN,
    StepStatus.COMPENSATING: Mark.RUNNING,
    StepStatus.COMPENSATED: Mark.UNDONE,
    StepStatus.IN_DOUBT: Mark.STUCK,
    StepStatus.STUCK: Mark.STUCK,
}

_COLUMNS: Final = (
    Column("step", columns_min=10),
    Column("status"),
    Column("calls", to_right=True),
    Column("undos", to_right=True),
    Column("output or error"),
)


def render_run(scene: Scene, *, captured: Sequence[Captured] | None = None) -> str:
    """Return all about a run; *captured* is what its calls printed, if that was asked for."""
    summary = scene.summary
    left = find_left(scene.saga, scene.state)
    is_undone = summary.status is RunStatus.ROLLED_BACK and not left
    status = _say_status(scene, summary)
    return join_blocks(
        headline(STATUS_MARKS[summary.status], f"{scene.title} {scene.style.show(status)}", scene.style),
        list_facts(list_left(scene, left), scene.style, hue=Hue.BAD) if left else [],
        list_facts(
            [
                *list_error(scene),
                *(list_left(scene, left) if is_undone else []),
                ("waits", say_waiting(scene, summary)),
                *list_changes(scene, summary),
                *_list_requests(scene),
            ],
            scene.style,
        ),
        *describe_letters(scene),
        *describe_approvals(scene),
        list_facts(_list_header(scene, summary), scene.style),
        lay_out(_COLUMNS, list(_lay_steps(scene)), scene.style),
        list_facts(list_outputs(scene), scene.style),
        [] if captured is None else list(_list_captured(scene, captured)),
        list_hints(_hint(scene, summary), scene.style),
    )


def _say_status(scene: Scene, summary: Summary) -> str:
    """Return the status with why, and that nobody drives it where that is why nothing goes on."""
    status = plain(summary.status)
    is_hanging = summary.cause is Cause.CANNOT_END
    why = "" if is_hanging and scene.is_left else name_cause(summary.cause, summary.failed_step)
    goes_on = is_hanging or summary.status in {RunStatus.RUNNING, RunStatus.ROLLING_BACK}
    parts = [status, why if why != status else "", "nobody drives it" if goes_on and scene.is_left else ""]
    return ", ".join(part for part in parts if part)


def _list_requests(scene: Scene) -> list[Fact]:
    asked = [f"{request.verb} by {request.who}, until the pivot's outcome is known" for request in scene.state.deferred]
    return [("asked", [scene.style.show(each) for each in asked])]


def _list_header(scene: Scene, summary: Summary) -> list[Fact]:
    created, saga, show = scene.created, scene.saga, scene.style.show
    version = f", version {saga.version}" if saga.version else ""
    ended_ms = summary.ended_at_ms
    until_ms = scene.now_ms if ended_ms is None else ended_ms
    return [
        ("run", created.run_id),
        ("saga", show(f"{saga.name}{version}, definition {scene.state.definition[:DIGEST_LENGTH]}")),
        ("about", show(saga.description or "")),
        ("status", f"{summary.status}" + (f", cause {summary.cause}" if summary.cause else "")),
        ("steps", say_steps(saga, scene.state)),
        ("started", f"{show_moment(created.at_ms, scene.tz)}, {show_ago(created.at_ms, scene.now_ms)}"),
        ("ended", "" if ended_ms is None else show_moment(ended_ms, scene.tz)),
        ("took" if ended_ms is not None else "so far", show_duration(until_ms - created.at_ms)),
        ("asked by", show(created.requested_by)),
        ("key", show(created.run_key or "")),
        ("from", show(f"the inputs of run {created.forked_from}") if created.forked_from else ""),
        ("plan", show((created.plan or "")[:DIGEST_LENGTH])),
        ("driver", "" if scene.holder is None else show(_name_driver(scene.holder, is_driven=scene.is_driven))),
        ("input", show(brief(created.input, joint="="))),
    ]


def _name_driver(holder: Holder, *, is_driven: bool) -> str:
    return name_holder(holder) + ("" if is_driven else ", which is gone: nobody drives it")


def _lay_steps(scene: Scene) -> Iterator[Row]:
    rows = step_rows(scene.saga, scene.state)
    index = 0
    while index < len(rows):
        end = _end_of_group(rows, index)
        yield _lay_group(scene, rows[index:end])
        index = end


def _end_of_group(rows: Sequence[StepRow], start: int) -> int:
    """Return where the items end that stand exactly alike, or the next row where they are few."""
    first, end = rows[start], start + 1
    if first.item is None:
        return end
    while end < len(rows) and rows[end].id == first.id and _likeness(rows[end]) == _likeness(first):
        end += 1
    return end if end - start >= ITEMS_TOGETHER_MIN else start + 1


def _likeness(row: StepRow) -> tuple[StepStatus, int, int]:
    return row.status, row.attempts, row.undo_attempts


def _mark_status(scene: Scene, step_id: str, status: StepStatus) -> Cell:
    if step_id in scene.state.awaiting:
        return marked(Mark.WAITING, "awaits approval", scene.style)
    is_over = status is StepStatus.PENDING and scene.state.ended is not None
    return marked(STEP_MARKS[status], "not run" if is_over else plain(status), scene.style)


def _lay_group(scene: Scene, group: Sequence[StepRow]) -> Row:
    first, last = group[0], group[-1]
    place = first.id if first.item is None else f"{first.id}[{first.item}]"
    note = LEFT_OPEN if _is_left_open(scene, first) else _say_result(first)
    if len(group) > 1:
        place = f"{first.id}[{first.item}-{last.item}]"
        note = plural(len(group), "item") + (f", first: {note}" if note else "")
    status = StepStatus.IN_DOUBT if _is_left_open(scene, first) else first.status
    return [
        scene.style.show(place),
        _mark_status(scene, first.id, status),
        str(first.attempts or ""),
        str(first.undo_attempts or ""),
        Cell(scene.style.show(note)),
    ]


def _is_left_open(scene: Scene, row: StepRow) -> bool:
    """Tell whether a call of it is without an answer that nobody waits for any more: in doubt, and not running (E4)."""
    action = Operation(row.id, row.item, Direction.ACTION)
    return scene.is_left and not {action, action.other}.isdisjoint(scene.state.in_flight)


def _say_result(row: StepRow) -> str:
    """Return what came of it; an error that a person has settled since is what was, after what is (S11)."""
    is_undo = row.undo_failure is not None or row.undo_settled is not None
    failure = name_failure(row.undo_failure if is_undo else row.failure)
    settled = row.undo_settled if is_undo else row.settled
    if settled is None:
        return failure or brief(row.output)
    parts = (brief(row.output), say_settled(settled), failure and f"was: {failure}")
    return "; ".join(part for part in parts if part)


def _list_captured(scene: Scene, captured: Sequence[Captured]) -> Iterator[str]:
    """Yield what calls printed, line by line, each under the name of its call."""
    if not captured:
        yield "no call printed anything"
    for each in captured:
        yield scene.style.paint(scene.style.show(f"{name_operation(each.operation)}, call {each.attempt}:"), Hue.STRONG)
        for line in each.text.replace("\r\n", "\n").removesuffix("\n").split("\n"):
            for part in wrap(scene.style.show(line), scene.style.columns - 4):
                yield f"  | {part}".rstrip()


def _hint(scene: Scene, summary: Summary) -> list[str]:
    shown = [commands.type_log(scene.short_id)]
    if scene.is_hanging:
        return [*shown, *hint_hanging(scene)]
    if summary.status in AT_REST or not scene.is_left:
        return shown
    if scene.state.people_since_ms is not None:
        return [*shown, *hint_people(scene, summary), *commands.type_rollback(scene.state, scene.short_id)]
    shown += hint_missing(scene, summary)
    return [*shown, commands.type_resume(scene.short_id), *commands.type_rollback(scene.state, scene.short_id)]
