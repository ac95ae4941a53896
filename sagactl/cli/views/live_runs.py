"""Many runs while they run: a line for each, those that need somebody first where there isn't room for all."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from typing import Final

from sagactl.cli.views.live import View, count_progress, lay_footer, list_under_way
from sagactl.cli.views.live_lines import Candidate, Rank, Section, clip, lay_sections, limit_columns
from sagactl.cli.views.live_rows import Row, row_of_operation
from sagactl.cli.views.runs import say_status
from sagactl.cli.views.stopping import say_stopping
from sagactl.cli.views.style import Mark
from sagactl.cli.views.text import plural, width_of
from sagactl.cli.views.timeline import Watched
from sagactl.cli.views.times import show_duration, show_seconds
from sagactl.cli.views.words import STATUS_MARKS, name_cause, name_operation, plain
from sagactl.core.records import AT_REST, Direction, Operation, RunStatus
from sagactl.core.summary import Summary, summarize
from sagactl.log.base import RunRow

_RANKS: Final = {
    RunStatus.STUCK: Rank.TROUBLE,
    RunStatus.RUNNING: Rank.UNDER_WAY,
    RunStatus.ROLLING_BACK: Rank.UNDER_WAY,
    RunStatus.WAITING: Rank.WAITING,
}


def render_live_runs(runs: Sequence[Watched], view: View, *, began_ms: int) -> list[str]:
    """Return the lines of several runs, at most as many as the terminal has."""
    summaries = [summarize(each.saga, each.state) for each in runs]
    ended = sum(summary.is_at_rest for summary in summaries)
    foot = [] if view.is_last else ["", *_render_footer(runs, ended, view, began_ms)]
    candidates = [_weigh(index, summary) for index, summary in enumerate(summaries)]
    columns = limit_columns(max((width_of(_name(each)) for each in runs), default=8), view.style)
    section = Section("", candidates, partial(_row_of_run, runs, summaries, view), columns)
    return clip([*lay_sections([section], view.height - len(foot), view.style), *foot], view.height)


def _render_footer(runs: Sequence[Watched], ended: int, view: View, began_ms: int) -> list[str]:
    parts = [f"{ended:,} of {plural(len(runs), 'run')} at rest", show_seconds(view.now_ms - began_ms)]
    lines = lay_footer(parts, view)
    if view.stopping_since_ms is not None:
        calls = [call for each in runs for call in list_under_way(each.state, view)]
        lines += say_stopping(calls, view.style)
    return [view.style.fit(line, view.style.columns) for line in lines]


def _weigh(index: int, summary: Summary) -> Candidate:
    rank = _RANKS.get(summary.status, Rank.NEAR)
    near = -(summary.ended_at_ms or 0) if rank is Rank.NEAR else index  # of those that have ended, the latest
    return Candidate(rank, near, plain(summary.status), index)


def _name(watched: Watched) -> str:
    return f"{watched.short_id}  {watched.saga.name}"


def _row_of_run(runs: Sequence[Watched], summaries: Sequence[Summary], view: View, index: int) -> Row:
    watched, summary = runs[index], summaries[index]
    created = watched.state.created
    is_over = summary.is_at_rest or watched.is_let_go
    until_ms = watched.last_ms if is_over else view.now_ms
    took = "" if created is None else show_duration(until_ms - created.at_ms)
    note = _say_rest(summary) if summary.is_at_rest else _say_going_on(watched, summary, view)
    return Row(STATUS_MARKS[summary.status], _name(watched), took, note)


def _say_rest(summary: Summary) -> str:
    why = name_cause(summary.cause, summary.failed_step)
    status = plain(summary.status)
    left = f"; {len(summary.not_undone):,} left behind" if summary.not_undone else ""
    if summary.dead_letters:
        return f"{status}, {plural(summary.dead_letters, 'dead letter')}{left}"
    return (f"{status}, {why}" if why and why != status else status) + left


def _say_going_on(watched: Watched, summary: Summary, view: View) -> str:
    is_back = summary.direction is Direction.COMPENSATION
    done = f"{summary.steps_done:,}/{summary.steps_total:,}"
    progress = f"rolling back, {count_progress(watched)}" if is_back else done
    doing = "; ".join(_say_doing(watched, view)) or ("interrupted" if watched.is_let_go else "")
    if not doing and watched.state.waiting is not None and watched.state.waiting.failure is not None:
        doing = watched.state.waiting.failure.message
    return f"{progress}; {doing}" if doing else progress


def _say_doing(watched: Watched, view: View) -> Iterator[str]:
    """Yield the first call under way, or else the first that is waited for."""
    state = watched.state
    waiting = (operation for _, _, operation in state.timers if state.operations[operation].due_ms is not None)
    operation: Operation | None = next(iter(state.in_flight), None) or next(waiting, None)
    if operation is not None:
        note = row_of_operation(watched, state.operations[operation], view.moment).note
        yield f"{name_operation(operation)}{', ' if note else ''}{note}"


def render_live_rows(
    rows: Sequence[RunRow], total: int, view: View, *, short_ids: Mapping[str, str], idle: frozenset[str]
) -> list[str]:
    """Return the unfinished runs of a log as a table; nobody drives those in *idle*."""
    foot = [] if view.is_last else ["", *lay_footer([f"{plural(total, 'run')} not at rest"], view)]
    names = {row.run_id: f"{short_ids.get(row.run_id, row.run_id)}  {row.saga}" for row in rows}
    columns = limit_columns(max((width_of(name) for name in names.values()), default=8), view.style)
    candidates = [
        Candidate(_RANKS.get(row.status, Rank.NEAR), index, plain(row.status), row) for index, row in enumerate(rows)
    ]
    section = Section("", candidates, partial(_row_of_row, names, idle, view), columns)
    return clip([*lay_sections([section], view.height - len(foot), view.style), *foot], view.height)


def _row_of_row(names: Mapping[str, str], idle: frozenset[str], view: View, row: RunRow) -> Row:
    until_ms = row.updated_at_ms if row.status in AT_REST else view.now_ms
    is_idle = row.run_id in idle and row.status not in AT_REST
    note = say_status(row, view.now_ms) + ("; nobody drives it" if is_idle else "")
    mark = Mark.WAITING if is_idle else STATUS_MARKS[row.status]
    return Row(mark, names[row.run_id], show_duration(until_ms - row.created_at_ms), note)
