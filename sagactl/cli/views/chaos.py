"""`sagactl chaos`: which steps aren't safe to crash in, why, and how to see it again."""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence
from typing import Final

from sagactl.chaos.choosing import IS_UNDONE, SUCCEEDS
from sagactl.chaos.experiment import Experiment
from sagactl.chaos.findings import Finding, Severity
from sagactl.chaos.report import ChaosReport, Found, StepVerdict, Verdict, World
from sagactl.cli.views.layout import GAP, INDENT, Column, Row, headline, join_blocks, lay_out, list_facts, marked
from sagactl.cli.views.style import Hue, Mark, Style
from sagactl.cli.views.text import plural, wrap
from sagactl.cli.views.words import name_operation, place_of, plain
from sagactl.core.records import Operation
from sagactl.core.saga import Saga
from sagactl.core.state import tool_of

OTHERS_MAX: Final = 3
"""Further experiments that are named for one finding; the JSON has all."""

FOUND_MAX: Final = 50
"""Findings that are shown; the JSON has all."""

REFERENCES: Final = {
    SUCCEEDS: "without any fault",
    IS_UNDONE: "rolled back, without any other fault",
}
"""The two runs that are no experiments of their own."""

_MARKS: Final = {
    Verdict.SAFE: Mark.DONE,
    Verdict.NOTED: Mark.WAITING,
    Verdict.UNSAFE: Mark.FAILED,
    Verdict.NOT_TRIED: Mark.NOT_RUN,
}
_COLUMNS: Final = (
    Column("step", is_whole=True),
    Column("forward", is_whole=True, to_right=True),
    Column("back", is_whole=True, to_right=True),
    Column("verdict"),
)
_LIST_COLUMNS: Final = (Column("experiment", is_whole=True), Column("what happens"))


def render_chaos(report: ChaosReport, words: Sequence[str], *, style: Style) -> str:
    """Return the verdict on each step, then each finding with the command that shows it again."""
    rows = [_lay_step(each, style) for each in report.steps]
    unsafe = [each for each in report.found if each.first.severity is Severity.UNSAFE]
    notes = [each for each in report.found if each.first.severity is Severity.NOTE]
    described = {each.name: each.describe() for each in report.made} | REFERENCES
    blocks = [_lay_found(each, words, described, report.saga, style) for each in [*unsafe, *notes][:FOUND_MAX]]
    return join_blocks(_head(report, style), lay_out(_COLUMNS, rows, style), *blocks, _tail(report, style))


def _head(report: ChaosReport, style: Style) -> list[str]:
    saga = report.saga
    made = len(report.made) - len(report.not_reached)
    facts = f"{saga.name}   {saga.source or ''}   {plural(made, 'experiment')}, {_name_world(report)}"
    return wrap(style.show(facts), style.columns)


def _name_world(report: ChaosReport) -> str:
    if report.world is World.RECORDED:
        return "with recorded outputs; no tool is called"
    return " and ".join(["in worlds of their own", *report.checks])


def _lay_step(each: StepVerdict, style: Style) -> Row:
    words = ", ".join(each.codes) if each.codes else plain(each.verdict.value)
    counts = [str(count) if count else "" for count in (each.forward, each.back)]
    return [style.show(each.step), *counts, marked(_MARKS[each.verdict], words, style)]


def _lay_found(found: Found, words: Sequence[str], described: Mapping[str, str], saga: Saga, style: Style) -> list[str]:
    finding = found.first
    is_note = finding.severity is Severity.NOTE
    name = "the run" if found.step is None else found.step
    head = style.paint(
        f"{'note: ' if is_note else ''}{finding.code}: {style.show(name)}", Hue.ODD if is_note else Hue.BAD
    )
    facts = [
        ("at", style.show(_name_tools(found, saga))),
        ("seen", style.show(finding.seen)),
        ("when", style.show(_name_experiment(finding.experiment, described))),
        ("also", style.show(_name_others(found))),
        ("why", finding.meaning.why),
        ("change", finding.meaning.change),
    ]
    again = style.command(style.show(repeat_command(words, finding.experiment)))
    return [head, *list_facts(facts, style), f"  again     {again}"]


def _name_tools(found: Found, saga: Saga) -> str:
    """Return where the step stands, and the tools that are to be mended."""
    place = found.first.place
    if place is None or place.step not in saga.by_id:
        return ""
    tools = [tool for each in (place, place.other) if (tool := tool_of(saga, each)) is not None]
    return "   ".join(filter(None, [place_of(saga, place.step), ", ".join(tools)]))


def _name_experiment(name: str, described: Mapping[str, str]) -> str:
    place = name.partition("/")[0]
    return described.get(name, name) if name in REFERENCES else f"{place}: {described.get(name, name)}"


def _name_others(found: Found) -> str:
    others = [name for name in found.others if name not in REFERENCES]
    shown = ", ".join(others[:OTHERS_MAX])
    more = len(others) - OTHERS_MAX
    return f"{shown}, and {more:,} more" if more > 0 else shown


def repeat_command(words: Sequence[str], experiment: str) -> str:
    """Return the command that makes *experiment* again, and no other but the runs without a fault."""
    return shlex.join([*words, "--experiment", experiment])


def _tail(report: ChaosReport, style: Style) -> list[str]:
    steps = [each for each in report.steps if each.verdict is Verdict.UNSAFE]
    tried = [each for each in report.steps if each.verdict is not Verdict.NOT_TRIED]
    if report.is_safe:
        lines = headline(Mark.DONE, f"{plural(len(tried), 'step')} tried, safe to crash in", style)
    elif not steps:
        lines = headline(Mark.FAILED, "the run isn't safe to crash in", style)
    else:
        verb = "isn't" if len(steps) == 1 else "aren't"
        lines = headline(Mark.FAILED, f"{len(steps)} of {plural(len(tried), 'step')} {verb} safe to crash in", style)
    more = len(report.found) - FOUND_MAX
    lines += [f"  {more:,} more findings, with -o json"] if more > 0 else []
    if report.not_reached:
        lines += [f"  {plural(len(report.not_reached), 'experiment')} not reached: the run never came there"]
    if report.left_out:
        lines += [f"  {plural(report.left_out, 'experiment')} left out"]
    return lines


def render_experiments(experiments: Sequence[Experiment], left_out: int, *, style: Style) -> str:
    """Return a line for each experiment that would be made."""
    names = [(style.show(each.name), style.show(each.describe())) for each in experiments]
    told = plural(len(experiments), "experiment") + (f", {left_out:,} left out" if left_out else "")
    longest = [max((len(pair[part]) for pair in names), default=0) for part in (0, 1)]
    if len(INDENT) + longest[0] + len(GAP) + longest[1] > style.columns:
        return join_blocks([line for name, what in names for line in _stack(name, what, style)], [told])
    rows: list[Row] = [[*each] for each in names]
    return join_blocks(lay_out(_LIST_COLUMNS, rows, style), [told])


def _stack(name: str, what: str, style: Style) -> list[str]:
    """Return a name, and below it what happens: side by side they wouldn't fit, and both are to be read whole."""
    below = 3 * INDENT
    return [INDENT + name, *(below + line for line in wrap(what, style.columns - len(below)))]


def say_finding(finding: Finding, style: Style) -> str:
    """Return the line that tells of a finding as soon as it is there."""
    word = "note" if finding.severity is Severity.NOTE else "unsafe"
    return style.show(f"{word:<6} {_name_place(finding.place)}: {finding.code}, {finding.experiment}")


def _name_place(place: Operation | None) -> str:
    return "run" if place is None else name_operation(place)


def say_progress(made: int, total: int) -> str:
    """Return the line that tells how far the experiments have come."""
    return f"chaos  {made:,} of {total:,} experiments made"
