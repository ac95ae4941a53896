"""`sagactl list`: runs, newest first, each on a line that says how it stands."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Final

from sagactl.cli.views.layout import Cell, Column, join_blocks, lay_out, marked
from sagactl.cli.views.style import Hue, Style
from sagactl.cli.views.text import plural
from sagactl.cli.views.times import show_ago, show_duration, show_rough
from sagactl.cli.views.words import STATUS_MARKS, name_cause, plain
from sagactl.core.records import Cause, Direction, RunStatus
from sagactl.log.base import RunRow

_TROUBLES: Final = frozenset({Cause.CANNOT_END, Cause.MISSING_TOOL, Cause.MISSING_SECRET})
"""What a run waits for that is no event to come, but something amiss."""

_COLUMNS: Final = (
    Column("run", is_whole=True),
    Column("saga"),
    Column("status", columns_min=28),
    Column("started"),
    Column("took"),
)


def render_runs(
    rows: Sequence[RunRow],
    total: int,
    *,
    short_ids: Mapping[str, str],
    now_ms: int,
    style: Style,
    undriven: Collection[str] = (),
) -> str:
    """Return the table of runs and a line that says how many there are; *undriven* are those whose driver is gone."""
    if not rows:
        return "no runs"
    return join_blocks(
        lay_out(_COLUMNS, [_lay_row(row, short_ids, now_ms, style, row.run_id in undriven) for row in rows], style),
        _count(rows, total, style),
    )


def _lay_row(
    row: RunRow, short_ids: Mapping[str, str], now_ms: int, style: Style, is_undriven: bool
) -> list[Cell | str]:
    status = say_status(row, now_ms)
    if is_undriven and row.waiting_for == Cause.CANNOT_END:
        status = f"{plain(row.status)}, nobody drives it"
    elif is_undriven and row.status in {RunStatus.RUNNING, RunStatus.ROLLING_BACK}:
        status += ", nobody drives it"
    took = "" if row.ended_at_ms is None else show_duration(row.ended_at_ms - row.created_at_ms)
    return [
        Cell(short_ids.get(row.run_id, row.run_id), Hue.COMMAND),
        style.show(row.saga),
        marked(STATUS_MARKS[row.status], style.show(status), style),
        Cell(show_ago(row.created_at_ms, now_ms), Hue.DIM),
        Cell(took, Hue.DIM),
    ]


def say_status(row: RunRow, now_ms: int) -> str:
    """Return the status with what matters about it: `waiting for timer, 12s`, `rolled back, at deposit`."""
    status = plain(row.status)
    match row.status:
        case RunStatus.RUNNING:
            return f"{status} {row.steps_done:,}/{row.steps_total:,}"
        case RunStatus.STUCK:
            return f"{status}, {plural(row.dead_letters, 'dead letter')}"
        case RunStatus.WAITING:
            return f"{status}{_say_waiting(row, now_ms)}"
        case RunStatus.SUCCEEDED:
            return status
        case _:
            why = "" if row.cause == row.waiting_for else name_cause(row.cause, row.failed_step)
            text = f"{status}, {why}" if why and why != status else status
            waiting = _say_waiting(row, now_ms) if row.direction is Direction.COMPENSATION else ""
            return text + (f", waiting{waiting}" if waiting.startswith(" ") else waiting)


def _say_waiting(row: RunRow, now_ms: int) -> str:
    if row.waiting_for is None:
        return ""
    if row.waiting_for == "paused":
        return ", paused"
    if row.waiting_for in _TROUBLES:
        return f", {name_cause(Cause(row.waiting_for), None)}"
    if row.waiting_until_ms is None:
        return f" for {plain(row.waiting_for)}"
    left_ms = row.waiting_until_ms - now_ms
    return f" for {plain(row.waiting_for)}, {show_rough(left_ms) if left_ms > 0 else 'overdue'}"


def _count(rows: Sequence[RunRow], total: int, style: Style) -> list[str]:
    counted = f"{len(rows):,} of {plural(total, 'run')}"
    lines = [f"{counted}; --limit 0 for all" if total > len(rows) else plural(total, "run")]
    stuck = sum(row.status is RunStatus.STUCK for row in rows)
    if stuck:
        needs = "needs" if stuck == 1 else "need"
        lines.append(style.complete(f"{stuck:,} {needs} a person: sagactl dlq list"))
    return lines
