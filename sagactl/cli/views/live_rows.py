"""How one operation, step or undo stands at this moment, in a mark, a duration and a few words.

The words are unsafe as yet: they hold foreign text, and whoever lays them out makes them safe.
"""

from __future__ import annotations

from typing import Final, NamedTuple

from sagactl.cli.views.style import Mark, Style
from sagactl.cli.views.text import join_some, plural
from sagactl.cli.views.timeline import Watched
from sagactl.cli.views.times import show_duration, show_seconds
from sagactl.cli.views.words import is_wait, name_failure
from sagactl.core.people import approval_until_ms
from sagactl.core.records import Cause, Direction, Failure, Operation
from sagactl.core.saga import Step, StepClass
from sagactl.core.state import OperationState, RunState, StepState, call_of
from sagactl.core.transitions import Phase

BAR_COLUMNS: Final = 10
TENTH_MS: Final = 100
"""What is under way is timed in tenths of seconds; less than one would only flicker."""

_SAID_BY_MESSAGE: Final = frozenset({"timeout", "driver_lost", "unavailable", "rejected"})
NEEDS_NAMED_MAX: Final = 3
"""Steps that are named as what a step waits for."""


class Row(NamedTuple):
    """A line of the live view before it is laid out."""

    mark: Mark
    name: str
    took: str = ""
    note: str = ""


class Moment(NamedTuple):
    """When and how a run is looked at; of one that is let go of, no call is under way any more."""

    now_ms: int
    style: Style


def row_of_step(watched: Watched, step: Step, moment: Moment) -> Row:
    """Return how the way forward of a step stands."""
    if step.id in watched.state.awaiting and not is_turned(watched):
        return Row(Mark.WAITING, step.id, note=_say_approval(watched.state, step.id, moment.now_ms))
    found = watched.state.steps.get(step.id)
    if found is not None and found.items is not None and found.items:
        return _row_of_items(watched, step, found, moment)
    action = watched.state.operations.get(Operation(step.id, None, Direction.ACTION))
    if action is not None and not (action.phase is Phase.READY and is_turned(watched)):
        row = row_of_operation(watched, action, moment)
        is_pivot = step.klass is StepClass.PIVOT and action.phase is Phase.SUCCEEDED
        return row._replace(note=_join(row.note, "no way back from here")) if is_pivot else row
    if found is not None and found.finished:
        return Row(Mark.NOT_RUN, step.id, note="its condition is false") if found.skipped else _done_without_items(step)
    if is_turned(watched) or watched.state.ended is not None:
        return Row(Mark.NOT_RUN, step.id, note="not run")
    return Row(Mark.WAITING, step.id, note=_say_needs(watched, step))


def is_turned(watched: Watched) -> bool:
    """Tell whether nothing more will be started on the way forward."""
    return watched.state.failing is not None or watched.state.direction is Direction.COMPENSATION


def _done_without_items(step: Step) -> Row:
    return Row(Mark.DONE, step.id, note="no items" if step.foreach is not None else "")


def _say_approval(state: RunState, step_id: str, now_ms: int) -> str:
    until_ms = approval_until_ms(state, state.awaiting[step_id], now_ms)
    return "for a person's approval" + ("" if until_ms is None else f", within {show_seconds(until_ms - now_ms)}")


def _say_needs(watched: Watched, step: Step) -> str:
    steps = watched.state.steps
    open_needs = [need for need in step.needs if (found := steps.get(need)) is None or not found.finished]
    if not open_needs:
        return "for a free slot"
    return f"after {join_some(open_needs, NEEDS_NAMED_MAX)}"


def row_of_operation(watched: Watched, op: OperationState, moment: Moment) -> Row:
    """Return how an action or a compensation stands."""
    operation = op.operation
    name = operation.place
    if op.attempts == 0 and op.failure is None and op.phase in {Phase.FAILED, Phase.CLOSED}:
        return Row(Mark.NOT_RUN, name, note="not run")
    ended_ms = watched.ended_ms.get(operation)
    took = ""
    if op.attempts > 0 and not (ended_ms is None and op.phase is Phase.FAILED):
        took = _show_took(op.first_intent_ms, ended_ms, moment.now_ms)
    if op.phase in _SETTLED_MARKS:
        return Row(_mark_settled(op), name, took, _say_settled(op))
    if watched.is_let_go and operation in watched.state.in_flight:
        return Row(Mark.STUCK, name, took, "left without an answer: in doubt")
    mark = _OPEN_MARKS[op.phase]
    return Row(mark, name, took, _say_open(watched, op, moment.now_ms))


_SETTLED_MARKS: Final = {
    Phase.SUCCEEDED: Mark.DONE,
    Phase.FAILED: Mark.FAILED,
    Phase.CLOSED: Mark.NOT_RUN,
    Phase.EXHAUSTED: Mark.STUCK,
    Phase.DEAD: Mark.STUCK,
}
_OPEN_MARKS: Final = {
    Phase.READY: Mark.WAITING,
    Phase.CALLING: Mark.RUNNING,
    Phase.RETRYING: Mark.WAITING,
    Phase.PENDING: Mark.WAITING,
    Phase.IN_DOUBT: Mark.WAITING,
    Phase.PROBING: Mark.RUNNING,
}


def _mark_settled(op: OperationState) -> Mark:
    is_undo = op.operation.direction is Direction.COMPENSATION
    return Mark.UNDONE if is_undo and op.phase is Phase.SUCCEEDED else _SETTLED_MARKS[op.phase]


def _say_settled(op: OperationState) -> str:
    tries = plural(op.attempts, "attempt") if op.attempts > 1 else ""
    match op.phase:
        case Phase.SUCCEEDED:
            return tries
        case Phase.FAILED if op.operation.direction is Direction.COMPENSATION:
            return "there was nothing to undo"
        case Phase.FAILED:
            why = _name_briefly(op.failure)
            unknown = "outcome unknown" if op.doubt else ""
            return _join(tries, _say_why(unknown, why))
        case Phase.CLOSED:
            return "left as it is"
        case _:
            doubt = "in doubt, " if op.cause is Cause.IN_DOUBT else ""
            return _say_why(f"{doubt}a person must decide", _name_briefly(op.failure))


def _say_open(watched: Watched, op: OperationState, now_ms: int) -> str:
    due = _say_due(op, now_ms)
    why = _name_briefly(op.failure)
    text = ""
    match op.phase:
        case Phase.READY:
            text = f"an earlier call may still land{due}" if op.due_ms is not None else "is next"
        case Phase.CALLING if now_ms > op.deadline_ms:
            text = _join(_say_attempt(watched, op, op.attempts_in_budget) if op.attempts > 1 else "", "past its time")
        case Phase.CALLING if op.asking > 1:
            text = _join(_say_attempt(watched, op, op.attempts_in_budget), "asked again")
        case Phase.CALLING if op.attempts_in_budget > 1:
            text = _say_attempt(watched, op, op.attempts_in_budget)
        case Phase.RETRYING:
            text = _say_attempt(watched, op, op.attempts_in_budget + 1, due)
        case Phase.PENDING:
            text = f"waits{due}" if is_wait(watched.saga, op.operation) else f"not done yet, asked again{due}"
        case Phase.PROBING:
            text = _say_why("in doubt, its probe is asked", why)
        case Phase.IN_DOUBT:
            text = _say_why(f"in doubt, probed{due}", why)
    return text


def _say_due(op: OperationState, now_ms: int) -> str:
    if op.due_ms is None:
        return ""
    return f" in {show_duration(op.due_ms - now_ms)}" if op.due_ms > now_ms else " now"


def _say_attempt(watched: Watched, op: OperationState, attempt: int, due: str = "") -> str:
    """Return `attempt 3 of 4 in 1.2s; last: …`: the first failure where it is the only one."""
    limit = call_of(watched.saga, op.operation).retry.max_attempts
    first = watched.first_failures.get(op.operation)
    last = op.failure if op.failure is not None else first
    word, failure = ("first", first) if attempt <= 2 else ("last", last)
    text = f"attempt {attempt} of {max(attempt, limit)}{due}"
    return text if failure is None else f"{text}; {word}: {_name_briefly(failure)}"


def _name_briefly(failure: Failure | None) -> str:
    """Leave the type out where the message says all: a timeout says so itself."""
    if failure is None:
        return ""
    return failure.message if failure.type in _SAID_BY_MESSAGE and failure.message else name_failure(failure)


def _say_why(words: str, why: str) -> str:
    return f"{words}: {why}" if words and why else words or why


def _join(*parts: str) -> str:
    return "; ".join(part for part in parts if part)


def _row_of_items(watched: Watched, step: Step, found: StepState, moment: Moment) -> Row:
    """Return a `foreach` step on one line: a bar, how many are done, what runs, what failed."""
    total = len(found.items or ())
    bad = len(watched.bad_items.get(step.id, ()))
    count = f"{draw_bar(found.items_done, total, moment.style)} {found.items_done:,} of {total:,}"
    failed = f"{bad:,} {'stuck' if not is_turned(watched) else 'failed'}" if bad else ""
    mark = _mark_items(watched, found, bad)
    under_way = max(0, found.items_open) if mark is Mark.RUNNING else 0
    running = f"{under_way:,} under way" if under_way > 1 else ""
    parts = [part for part in (count, running, failed) if part]
    return Row(mark, step.id, _time_items(watched, step.id, found, moment.now_ms), ", ".join(parts))


def _mark_items(watched: Watched, found: StepState, bad: int) -> Mark:
    if found.finished:
        return Mark.DONE
    if is_turned(watched):
        return Mark.FAILED if bad else Mark.NOT_RUN
    if bad and not found.items_open:
        return Mark.STUCK
    return Mark.RUNNING if found.items_started else Mark.WAITING


def _time_items(watched: Watched, step_id: str, found: StepState, now_ms: int) -> str:
    first = watched.state.operations.get(Operation(step_id, 0, Direction.ACTION))
    if first is None or not found.items_started:
        return ""
    is_over = found.finished or is_turned(watched)
    return _show_took(first.first_intent_ms, watched.step_ended_ms.get(step_id) if is_over else None, now_ms)


def _show_took(since_ms: int, ended_ms: int | None, now_ms: int) -> str:
    if ended_ms is not None:
        return show_duration(ended_ms - since_ms)
    return show_duration(max(TENTH_MS, now_ms - since_ms))


def row_of_undo(watched: Watched, action: Operation, reason: str, moment: Moment) -> Row:
    """Return how the undo of an action stands; *reason* is why it waits or stays, where that is known."""
    name = action.place
    undo = watched.state.operations.get(action.other)
    if undo is not None and undo.phase is not Phase.READY:
        return row_of_operation(watched, undo, moment)
    if action in watched.state.not_undone or watched.saga.by_id[action.step].compensation is None:
        return Row(Mark.NOT_RUN, name, note=_say_why("stays", reason))
    found = watched.state.operations[action]
    if found.phase is Phase.FAILED and not found.doubt:
        return Row(Mark.NOT_RUN, name, note="it did not happen")
    if watched.state.ended is not None:
        return Row(Mark.NOT_RUN, name, note=reason)
    if found.due_ms is not None and found.late_until_ms > moment.now_ms:
        return Row(Mark.WAITING, name, note=f"an earlier call may still land{_say_due(found, moment.now_ms)}")
    return Row(Mark.WAITING, name, note=reason)


def draw_bar(done: int, total: int, style: Style) -> str:
    """Return a bar of `BAR_COLUMNS` columns; full only when all is done."""
    filled = BAR_COLUMNS * done // max(1, total)
    full, rest = ("━", "─") if style.unicode else ("#", "-")
    return full * filled + rest * (BAR_COLUMNS - filled)
