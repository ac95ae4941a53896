"""A run while it runs: a line for each step in a fixed order, the undo below them, and where all of it stands.

`render_live` is a function of what was seen so far and of the time. It gives the lines of one picture; whoever has a
terminal draws them again and again. What doesn't fit into its height is counted: what is under way comes first, then
what is nearest to it.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial
from typing import Final

from sagactl.cli.views.commands import type_resume
from sagactl.cli.views.live_lines import Candidate, Rank, Section, clip, lay_sections, limit_columns
from sagactl.cli.views.live_rows import Moment, Row, draw_bar, is_turned, row_of_operation, row_of_step, row_of_undo
from sagactl.cli.views.stopping import say_stopping
from sagactl.cli.views.style import Hue, Mark, Style
from sagactl.cli.views.text import plural, width_of
from sagactl.cli.views.timeline import Watched
from sagactl.cli.views.times import show_seconds
from sagactl.cli.views.words import name_again
from sagactl.core.left import find_left
from sagactl.core.records import Cause, Direction, Operation
from sagactl.core.saga import Saga, Step
from sagactl.core.state import RunState
from sagactl.core.transitions import Phase
from sagactl.dataclass import dataclass

ITEMS_APART_MAX: Final = 3
"""Items of one step that get a line of their own while they are tried again or failed."""

REASONS_PLAN_MAX: Final = 1_000
"""In a longer rollback it isn't said why each effect waits or stays: to find out takes longer than a picture may."""

STOPS_SAFELY: Final = "Ctrl-C stops safely"
STOPS_WATCHING: Final = "Ctrl-C stops watching, not the run"


@dataclass(frozen=True, slots=True)
class View:
    """How a picture is made: for when, how large, what Ctrl-C does, and since when a driver is asked to stop."""

    now_ms: int
    style: Style
    height: int
    leave: str = STOPS_SAFELY
    stopping_since_ms: int | None = None
    grace_ms: int = 0
    note: str = ""
    is_last: bool = False
    """Nothing follows: this picture stays on the screen."""

    @property
    def moment(self) -> Moment:
        """Return the time, and how it looks."""
        return Moment(self.now_ms, self.style)


def render_live(watched: Watched, view: View) -> list[str]:
    """Return the lines of one run, at most as many as the terminal has."""
    style = view.style
    run = f"  run {watched.short_id}"
    name = style.fit(style.show(watched.saga.name), style.columns - len(run))
    head = [style.paint(name, Hue.STRONG) + run, ""]
    foot = [] if view.is_last else ["", *_render_footer(watched, view)]
    room = view.height - len(head) - len(foot)
    if room < len(head) + 1:
        head, room = [], room + len(head)
    body = lay_sections(list_sections(watched, view), room, style)
    return clip([*head, *body, *foot], view.height)


def _render_footer(watched: Watched, view: View) -> list[str]:
    style = view.style
    created = watched.state.created
    elapsed = "" if created is None else show_seconds(view.now_ms - created.at_ms)
    lines = []
    if watched.state.waiting is not None and watched.state.waiting.failure is not None:
        lines.append(f"  waiting: {style.show(name_again(watched.state.waiting.failure.message))}")
    if watched.state.waiting is not None and watched.state.waiting.cause is Cause.CANNOT_END:
        lines.append(f"  {_say_way_out(watched, view)}")
    if watched.state.paused:
        lines.append("  paused: nothing new is started")
    lines += lay_footer([count_progress(watched), elapsed], view)
    if view.stopping_since_ms is not None:
        lines += say_stopping(list_under_way(watched.state, view), style)
    return [style.fit(line, style.columns) for line in lines]


def _say_way_out(watched: Watched, view: View) -> str:
    """Say what ends a call that can't be ended: only the end of the process that made it."""
    end = "press Ctrl-C twice" if view.leave == STOPS_SAFELY else f"end {view.style.show(watched.driver)}"
    return f"to go on, {end}, then: {view.style.complete(type_resume(watched.short_id))}"


def lay_footer(parts: Sequence[str], view: View) -> list[str]:
    """Return the line that says where all of it stands, with what Ctrl-C does if there is room for that."""
    text = "  " + "   ".join(part for part in parts if part)
    wide = f"{text}   {view.leave}"
    fits = view.stopping_since_ms is None and width_of(wide) <= view.style.columns
    return [wide if fits else text, *([f"  {view.note}"] if view.note else [])]


def count_progress(watched: Watched) -> str:
    """Return `2 of 6 steps done`, or `1 of 4 undone`."""
    state = watched.state
    if state.direction is Direction.COMPENSATION:
        undone, total = sum(watched.undone_items.values()), watched.undos_total
        return f"{undone:,} of {total:,} undone" if total else "nothing to undo"
    steps = len(watched.saga.steps)
    return f"{steps - state.unfinished:,} of {plural(steps, 'step')} done"


def is_undone(state: RunState, action: Operation) -> bool:
    """Tell whether a compensation has undone *action*."""
    undo = state.operations.get(action.other)
    return undo is not None and undo.phase is Phase.SUCCEEDED


def list_under_way(state: RunState, view: View) -> list[tuple[Operation, int]]:
    """Return the calls under way and for how many milliseconds each is waited for at most (E12, E17)."""
    found = []
    for operation in state.in_flight:
        left_ms = state.operations[operation].deadline_ms - view.now_ms
        if operation.direction is Direction.ACTION and view.stopping_since_ms is not None:
            left_ms = min(left_ms, view.stopping_since_ms + view.grace_ms - view.now_ms)
        found.append((operation, max(0, left_ms)))
    return found


def list_sections(watched: Watched, view: View) -> list[Section]:
    """Return the steps, and below them what is undone."""
    columns = limit_columns(_widest_name(watched.saga), view.style)
    hot = _rank_operations(watched.state)
    forward = list(_list_steps(watched, hot))
    undos = list(_list_undos(watched, hot)) if watched.plan else []
    reasons = _why_left(watched) if undos else {}
    return [
        Section("", forward, partial(_make_forward, watched, view), columns),
        Section("rolling back, the last first", undos, partial(_make_undo, watched, view, reasons), columns),
    ]


def _widest_name(saga: Saga) -> int:
    return max(width_of(step.id) + (4 if step.foreach is not None else 0) for step in saga.steps)


def _rank_operations(state: RunState) -> dict[Operation, Rank]:
    """Rank the few operations that something is happening to."""
    ranks = {operation: Rank.WAITING for due_ms, _, operation in state.timers if _is_due(state, operation, due_ms)}
    ranks |= dict.fromkeys([*state.ready, *state.undrawn, *state.doubtful], Rank.WAITING)
    ranks |= dict.fromkeys(state.in_flight, Rank.UNDER_WAY)
    return ranks | dict.fromkeys([*state.exhausted, *state.dead], Rank.TROUBLE)


def _is_due(state: RunState, operation: Operation, due_ms: int) -> bool:
    return state.operations[operation].due_ms == due_ms


def _list_steps(watched: Watched, hot: dict[Operation, Rank]) -> Iterator[Candidate]:
    state = watched.state
    active: dict[str, Rank] = {}
    for operation, rank in hot.items():
        if operation.direction is Direction.ACTION:
            active[operation.step] = min(rank, active.get(operation.step, Rank.FAR))
    active |= dict.fromkeys(state.awaiting, Rank.WAITING)
    if state.failed_step is not None:
        active[state.failed_step] = Rank.TROUBLE
    turned = is_turned(watched)
    frontier = len(watched.saga.steps) - state.unfinished
    for index, step in enumerate(watched.saga.steps):
        found = state.steps.get(step.id)
        is_done = found is not None and found.finished
        word = "done" if is_done else "not run" if turned else "to come"
        rank = active.get(step.id, Rank.FAR if turned else Rank.NEAR)
        yield Candidate(rank, abs(index - frontier), word if step.id not in active else "under way", step)
        if found is not None and found.items:
            yield from _list_items(watched, step, hot)


def _list_items(watched: Watched, step: Step, hot: dict[Operation, Rank]) -> Iterator[Candidate]:
    """Yield the items that are worth a line: those that failed, and those that are tried again."""
    bad = list(watched.bad_items.get(step.id, ()))[:ITEMS_APART_MAX]
    again = [each for each in hot if each.step == step.id and _is_again(watched.state, each)]
    for operation in sorted({*bad, *again[:ITEMS_APART_MAX]}, key=lambda each: each.item or 0):
        rank = Rank.TROUBLE if operation in bad else hot.get(operation, Rank.WAITING)
        yield Candidate(rank, operation.item or 0, "items", operation)


def _is_again(state: RunState, operation: Operation) -> bool:
    op = state.operations[operation]
    return operation.direction is Direction.ACTION and (op.attempts_in_budget > 1 or op.phase is not Phase.CALLING)


def _make_forward(watched: Watched, view: View, key: Step | Operation) -> Row:
    if isinstance(key, Step):
        return row_of_step(watched, key, view.moment)
    return row_of_operation(watched, watched.state.operations[key], view.moment)


def _list_undos(watched: Watched, hot: dict[Operation, Rank]) -> Iterator[Candidate]:
    """Yield what a rollback looks at, in the order of the undo; many items of a step come as one."""
    busy: dict[str, list[Operation]] = {}
    for operation, rank in hot.items():
        if operation.direction is Direction.COMPENSATION and rank is not Rank.UNDER_WAY:
            busy.setdefault(operation.step, []).append(operation.other)
    frontier = sum(_is_key_undone(watched, key) for key in watched.undo_keys)
    for index, key in enumerate(watched.undo_keys):
        word = "undone" if _is_key_undone(watched, key) else "to undo"
        near = abs(index - frontier)
        if isinstance(key, Operation):
            yield Candidate(hot.get(key.other, Rank.NEAR), near, word, key)
            continue
        yield Candidate(Rank.UNDER_WAY, near, word, key)
        for action in busy.get(key, [])[:ITEMS_APART_MAX]:
            yield Candidate(hot[action.other], near, word, action)


def _is_key_undone(watched: Watched, key: Operation | str) -> bool:
    if isinstance(key, Operation):
        return is_undone(watched.state, key)
    return watched.undone_items.get(key, 0) >= watched.undos_by_step[key]


def _why_left(watched: Watched) -> dict[tuple[str, int | None], str]:
    """Return why each effect stays or waits; looked for only where something does."""
    state = watched.state
    is_anything_left = state.dead or state.not_undone or state.ended is not None
    if not is_anything_left or len(watched.plan) > REASONS_PLAN_MAX:
        return {}
    return {(left.step, left.item): left.reason for left in find_left(watched.saga, state)}


def _make_undo(watched: Watched, view: View, reasons: dict[tuple[str, int | None], str], key: Operation | str) -> Row:
    if isinstance(key, Operation):
        return row_of_undo(watched, key, reasons.get((key.step, key.item), ""), view.moment)
    done, total = watched.undone_items.get(key, 0), watched.undos_by_step[key]
    mark = Mark.UNDONE if done >= total else Mark.RUNNING if done and not view.is_last else Mark.WAITING
    return Row(mark, key, note=f"{draw_bar(done, total, view.style)} {done:,} of {total:,} undone")
