"""`sagactl log`: one line for each record that reads at a glance, or each record with all that it holds."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import tzinfo
from typing import Final

from sagactl.cli.views.events import describe, place_in
from sagactl.cli.views.layout import GAP, INDENT, Cell, Column, Row, join_blocks, lay_out, list_facts
from sagactl.cli.views.spelling import spell
from sagactl.cli.views.style import Hue, Style
from sagactl.cli.views.text import pad, width_of, wrap
from sagactl.cli.views.times import show_clock_ms, show_date, show_offset
from sagactl.cli.views.words import STATUS_MARKS, name_place, plain
from sagactl.core.canonical import Json
from sagactl.core.records import Record
from sagactl.documents import operation_in
from sagactl.log.base import RunRow, StoredRecord
from sagactl.usecases.documents import write_record

STEP_COLUMNS_MAX: Final = 28
"""Longer names of steps are cut in the log, so that the event has room."""

_COLUMNS: Final = (
    Column("seq", is_whole=True, to_right=True),
    Column("time", is_whole=True),
    Column("step", columns_min=9),
)


@dataclass(frozen=True, slots=True)
class LogFilter:
    """Which records are shown: all, those of a step (`servers`, or `servers[2]`), those that failed, the last ones."""

    step: str | None = None
    only_failed: bool = False
    last: int | None = None

    def choose(self, stored: Iterable[StoredRecord]) -> list[StoredRecord]:
        """Return the records that fit, in order."""
        chosen = [each for each in stored if self._fits(each.record)]
        return chosen if self.last is None else chosen[max(0, len(chosen) - self.last) :]

    def _fits(self, record: Record) -> bool:
        if self.only_failed and not describe(record).is_bad:
            return False
        if self.step is None:
            return True
        place = place_in(record)
        return place is not None and self.step in {place[0], name_place(*place)}


def render_log(
    row: RunRow,
    stored: Sequence[StoredRecord],
    *,
    short_id: str,
    tz: tzinfo,
    style: Style,
    chosen: LogFilter = LogFilter(),
    detail: bool = False,
) -> str:
    """Return the log of a run as people read it."""
    records = chosen.choose(stored)
    head = render_log_head(row, short_id=short_id, tz=tz, style=style)
    if not records:
        return join_blocks([head], [f"{INDENT}no record fits; the log has {len(stored):,}" if stored else ""])
    body = render_details(records, tz=tz, style=style) if detail else render_lines(records, tz=tz, style=style)
    note = [f"{len(records):,} of {len(stored):,} records"] if len(records) < len(stored) else []
    return join_blocks([head], body, note)


def render_log_head(row: RunRow, *, short_id: str, tz: tzinfo, style: Style) -> str:
    """Return the line above a log: saga, run, status, day and zone of the times."""
    status = plain(row.status)
    when = f"{show_date(row.created_at_ms, tz)}, times at {show_offset(row.created_at_ms, tz)}"
    first = f"{style.show(row.saga)} {short_id}   "
    fits = width_of(first) + width_of(status) + len("   ") + width_of(when) <= style.columns
    head = first + style.paint(status, STATUS_MARKS[row.status].hue)
    return f"{head}{'   ' if fits else chr(10)}{style.paint(when, Hue.DIM)}"


def render_lines(
    stored: Sequence[StoredRecord], *, tz: tzinfo, style: Style, titles: bool = True, step_columns: int = 0
) -> list[str]:
    """Return a line for each record; *step_columns* keeps the columns in place where lines come one by one."""
    rows: list[Row] = []
    for each in stored:
        place = place_in(each.record)
        step = "" if place is None else style.show(name_place(*place))
        step = step if style.is_unlimited else style.fit(step, STEP_COLUMNS_MAX)
        event = describe(each.record)
        time = Cell(show_clock_ms(each.record.at_ms, tz), Hue.DIM)
        rows.append([f"{each.seq:>3}", time, pad(step, step_columns), Cell(style.show(event.words), event.hue)])
    columns = (*_COLUMNS, Column("event"))
    return lay_out(columns, rows, style, titles=titles)


def render_details(stored: Sequence[StoredRecord], *, tz: tzinfo, style: Style) -> list[str]:
    """Return each record as a section with everything that it holds."""
    lines: list[str] = []
    for each in stored:
        place = place_in(each.record)
        head = f"#{each.seq}  {show_date(each.record.at_ms, tz)} {show_clock_ms(each.record.at_ms, tz)}" + (
            f"  {name_place(*place)}" if place else ""
        )
        lines += [""] if lines else []
        lines += [style.paint(line, Hue.STRONG) for line in wrap(style.show(head), style.columns)]
        event = describe(each.record)
        lines += _hang_words(style.show(event.words), event.hue, style)
        lines += list_facts(_list_body(each, style), style)
    return lines


def _hang_words(words: str, hue: Hue, style: Style) -> list[str]:
    return [INDENT + style.paint(line, hue) for line in wrap(words, style.columns - width_of(INDENT))]


def _list_body(stored: StoredRecord, style: Style) -> list[tuple[str, str]]:
    document = write_record(stored)
    body = document["body"]
    assert isinstance(body, dict), "a record's body is a map"
    operation = operation_in(stored.record)
    direction = "" if operation is None else operation.direction.value
    facts: list[tuple[str, str]] = [("type", str(document["type"])), ("side", direction)]
    facts += [
        (plain(name), style.show(_spell_value(value))) for name, value in body.items() if value not in (None, [], "")
    ]
    return [*facts, ("hash", stored.hash)]


def _spell_value(value: Json) -> str:
    return value if isinstance(value, str) else spell(value)


def follow_line(stored: StoredRecord, *, tz: tzinfo, style: Style, step_columns: int = 16) -> str:
    """Return one record as a line that stands well below others, for a log that is followed."""
    return GAP.join(render_lines([stored], tz=tz, style=style, titles=False, step_columns=step_columns))
