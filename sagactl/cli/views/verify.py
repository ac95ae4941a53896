"""`sagactl verify`: what was recomputed, what is wrong, and what no log can notice about itself."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from sagactl.cli.views.layout import Cell, Column, Row, headline, join_blocks, lay_out, list_hints
from sagactl.cli.views.style import Hue, Mark, Style
from sagactl.cli.views.text import plural, wrap
from sagactl.log.base import Verification

HEADS_MAX: Final = 20
FINDINGS_MAX: Final = 100

_FINDING_COLUMNS: Final = (Column("run", is_whole=True), Column("seq", to_right=True), Column("problem"))

UNNOTICED: Final = (
    "A chain proves that nothing in the middle was changed. That the last records of a run were cut off, that whole "
    "runs are gone, or that all was written anew, shows only beside heads that are kept elsewhere: keep what "
    "`sagactl verify --head` prints."
)


def render_verification(
    verification: Verification, *, short_ids: Mapping[str, str], style: Style, kept: int | None = None
) -> str:
    """Return the result, every finding, the heads, and what the check can't notice; *kept* heads were compared."""
    checked = f"{plural(verification.records, 'record')} of {plural(verification.runs, 'run')}"
    holds = "" if kept is None else f", and {plural(kept, 'kept head')} {'holds' if kept == 1 else 'hold'}"
    if not verification.findings:
        gone = f", {plural(verification.tombstones, 'pruned run')} beside them" if verification.tombstones else ""
        line = (
            f"{checked}{gone}: every hash is right{holds}"
            if verification.runs or gone or kept
            else "the log is empty: there is nothing to check"
        )
        top = headline(Mark.DONE if verification.runs or gone or kept else Mark.NOT_RUN, line, style)
    else:
        found = plural(len(verification.findings), "finding")
        what = "the log was damaged or changed" if kept is None else "the log and what was kept don't fit together"
        top = headline(Mark.FAILED, f"{checked}: {found}, {what}", style)
    return join_blocks(
        top,
        _list_findings(verification, short_ids, style),
        _list_heads(verification, style) if kept is None else [],
        [style.paint(line, Hue.DIM) for line in wrap(style.complete(UNNOTICED), style.columns)]
        if verification.heads and kept is None
        else [],
        list_hints(_hint(verification, short_ids, kept), style),
    )


def _list_findings(verification: Verification, short_ids: Mapping[str, str], style: Style) -> list[str]:
    rows: list[Row] = [
        [
            Cell(short_ids.get(each.run_id, style.show(each.run_id)), Hue.COMMAND),
            "" if each.seq is None else str(each.seq),
            Cell(style.show(each.problem), Hue.BAD),
        ]
        for each in verification.findings[:FINDINGS_MAX]
    ]
    more = len(verification.findings) - FINDINGS_MAX
    return lay_out(_FINDING_COLUMNS, rows, style) + ([f"  and {more:,} more"] if more > 0 else [])


def _list_heads(verification: Verification, style: Style) -> list[str]:
    of_tombstones = {"tombstones": verification.tombstones_head} if verification.tombstones_head else {}
    heads = list({**of_tombstones, **verification.heads}.items())
    lines = [f"{style.show(run_id)}  {style.paint(style.show(head), Hue.DIM)}" for run_id, head in heads[:HEADS_MAX]]
    lines = ["heads", *lines] if lines else []
    more = len(heads) - HEADS_MAX
    return lines + ([style.complete(f"  and {more:,} more: sagactl verify -o json")] if more > 0 else [])


def _hint(verification: Verification, short_ids: Mapping[str, str], kept: int | None) -> list[str]:
    if not verification.findings:
        return ["sagactl verify --head"] if verification.heads and kept is None else []
    runs = [each.run_id for each in verification.findings if each.run_id in verification.heads]
    return [f"sagactl verify {short_ids.get(runs[0], runs[0])}"] if runs else []
