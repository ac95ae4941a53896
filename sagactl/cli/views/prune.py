"""`sagactl prune`: what would be deleted, what was, and what is said of a run that is gone."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

from sagactl.cli.views.layout import Cell, Column, headline, join_blocks, lay_out, list_hints, marked
from sagactl.cli.views.style import Hue, Mark, Style
from sagactl.cli.views.text import plural
from sagactl.cli.views.times import show_ago
from sagactl.cli.views.words import STATUS_MARKS, plain
from sagactl.documents import write_time
from sagactl.log.base import RunRow, Tombstone
from sagactl.usecases.documents import RUN_SCHEMA, Document, write_row

PRUNE_SCHEMA: Final = "sagactl.prune/1"

_COLUMNS: Final = (
    Column("run", is_whole=True),
    Column("saga"),
    Column("status", columns_min=14),
    Column("ended"),
    Column("records", to_right=True),
)


def render_prunable(
    rows: Sequence[RunRow], total: int, *, short_ids: Mapping[str, str], now_ms: int, style: Style, hints: Sequence[str]
) -> str:
    """Return the runs that would be deleted, oldest first."""
    if not total:
        return "nothing to prune"
    more = total - len(rows)
    return join_blocks(
        [f"{plural(total, 'run')} would be deleted for good"],
        lay_out(_COLUMNS, [_lay_row(row, short_ids, now_ms, style) for row in rows], style)
        + ([f"  and {more:,} more"] if more > 0 else []),
        list_hints(hints, style),
    )


def _lay_row(row: RunRow, short_ids: Mapping[str, str], now_ms: int, style: Style) -> list[Cell | str]:
    ended_ms = row.updated_at_ms if row.ended_at_ms is None else row.ended_at_ms
    return [
        Cell(short_ids.get(row.run_id, row.run_id), Hue.COMMAND),
        style.show(row.saga),
        marked(STATUS_MARKS[row.status], plain(row.status), style),
        Cell(show_ago(ended_ms, now_ms), Hue.DIM),
        f"{row.seq:,}",
    ]


def render_pruned(runs: int, records: int, bytes_given_back: int, total: int, *, style: Style) -> str:
    """Return what was deleted, and what had to stay."""
    if not total:
        return "nothing to prune"
    left = total - runs
    line = f"{plural(runs, 'run')} with {plural(records, 'record')} deleted, {show_bytes(bytes_given_back)} given back"
    stayed = f"{plural(left, 'run')} stayed: driven again, or asked for something" if left > 0 else ""
    return join_blocks(headline(Mark.DONE, line, style), [stayed] if stayed else [])


def show_bytes(count: int) -> str:
    """Return `512 B`, `12.3 MiB`."""
    size, unit = float(count), "B"
    for larger in ("KiB", "MiB", "GiB", "TiB"):
        if size < 1024:
            break
        size, unit = size / 1024, larger
    return f"{count:,} B" if unit == "B" else f"{size:,.1f} {unit}"


def write_prunable(rows: Sequence[RunRow], total: int) -> Document:
    """Return the document of a dry run: at most so many runs are named, all are counted."""
    return {
        "schema": PRUNE_SCHEMA,
        "dry_run": True,
        "pruned": 0,
        "records": 0,
        "bytes_given_back": 0,
        "items": [write_row(row) for row in rows],
        "total": total,
        "error": None,
    }


def write_pruned(runs: int, records: int, bytes_given_back: int, total: int) -> Document:
    """Return the document of what was deleted."""
    counts: Document = {"pruned": runs, "records": records, "bytes_given_back": bytes_given_back}
    return {"schema": PRUNE_SCHEMA, "dry_run": False, **counts, "items": [], "total": total, "error": None}


def render_tombstone(tombstone: Tombstone, *, now_ms: int, style: Style) -> str:
    """Return what is left to say of a run that was pruned."""
    ended, pruned = (show_ago(at_ms, now_ms) for at_ms in (tombstone.ended_at_ms, tombstone.pruned_at_ms))
    name = f"{style.show(tombstone.saga)} {tombstone.run_id} {plain(tombstone.status)} {ended}"
    text = f"{name}; it was pruned {pruned} by {style.show(tombstone.pruned_by)}, and its records are gone"
    return "\n".join(headline(STATUS_MARKS[tombstone.status], text, style))


def write_tombstone(tombstone: Tombstone) -> Document:
    """Return the document of a run that was pruned: of what a run has, that which is left."""
    body: Document = {
        "id": tombstone.run_id,
        "saga": tombstone.saga,
        "status": tombstone.status.value,
        "started_at": write_time(tombstone.created_at_ms),
        "ended_at": write_time(tombstone.ended_at_ms),
        "seq": tombstone.seq,
        "head": tombstone.head,
        "pruned_at": write_time(tombstone.pruned_at_ms),
        "pruned_by": tombstone.pruned_by,
    }
    return {"schema": RUN_SCHEMA, "run": body, "error": None}
