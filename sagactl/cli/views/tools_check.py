"""`sagactl tools check`: which rule holds for which tool, what was seen where one doesn't, and how to see it again."""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Sequence
from typing import Final

from sagactl.cli.views.layout import GAP, INDENT, Cell, Column, Row, headline, join_blocks, lay_out, list_facts, marked
from sagactl.cli.views.style import Hue, Mark, Style
from sagactl.cli.views.text import plural, width_of, wrap
from sagactl.conformance.report import CheckReport, Finding, ToolReport, Verdict
from sagactl.conformance.rules import MEANINGS, Rule

FOUND_MAX: Final = 50
"""Breaches that are shown; the JSON has all."""

TOOLS_NAMED_MAX: Final = 4
"""Tools that are named where the same is said of several."""

WORDS: Final = {
    Verdict.HOLDS: (Mark.DONE, "holds"),
    Verdict.BROKEN: (Mark.FAILED, "broken"),
    Verdict.EXCUSED: (Mark.WAITING, "excused"),
    Verdict.UNTRIED: (Mark.WAITING, "untried"),
    Verdict.NOT_PROMISED: (Mark.NOT_RUN, "no promise"),
}
_TITLES: Final = {
    Verdict.EXCUSED: "excused: the check file says why",
    Verdict.NOT_PROMISED: "not promised, and the engine acts on that",
    Verdict.UNTRIED: "untried",
    Verdict.HOLDS: "holds, with a remark",
}


def render_check(report: CheckReport, words: Sequence[str], *, style: Style, strict: bool = False) -> str:
    """Return the table of rules and tools, each breach, and what isn't promised or couldn't be tried."""
    broken = [(tool, finding) for tool in report.tools for finding in _find(tool, Verdict.BROKEN)]
    return join_blocks(
        *_lay_tables(report.tools, style),
        *(_lay_breach(tool, finding, words, style) for tool, finding in broken[:FOUND_MAX]),
        *(_lay_notes(report, verdict, style) for verdict in _TITLES),
        [style.paint(f"note: {style.show(note)}", Hue.ODD) for note in report.notes],
        _tail(report, len(broken), style, strict=strict),
    )


def _find(tool: ToolReport, verdict: Verdict) -> list[Finding]:
    return [each for each in tool.findings.values() if each.verdict is verdict]


def _lay_tables(tools: Sequence[ToolReport], style: Style) -> Iterator[list[str]]:
    """Yield a table for each plugin, or several where its tools don't fit beside each other."""
    for plugin in dict.fromkeys(each.plugin for each in tools):
        columns = [each for each in tools if each.plugin == plugin and _is_told(each)]
        while columns:
            number = _count_fitting(columns, style)
            yield _lay_table(columns[:number], style)
            columns = columns[number:]


def _is_told(tool: ToolReport) -> bool:
    """Tell whether a tool has a column: one of which nothing could be tried is named below."""
    return any(each.verdict is not Verdict.UNTRIED for each in tool.findings.values())


def _count_fitting(tools: Sequence[ToolReport], style: Style) -> int:
    """Return how many tools fit beside each other."""
    room = style.columns - len(INDENT) - max(map(len, Rule))
    number = 0
    for tool in tools:
        words = [width_of(f"{style.symbol(mark)} {word}") for mark, word in WORDS.values()]
        room -= len(GAP) + max(width_of(_title(tool, style)), *words)
        if room < 0 and number:
            break
        number += 1
    return number


def _title(tool: ToolReport, style: Style) -> str:
    return style.show(tool.tool)


def _lay_table(tools: Sequence[ToolReport], style: Style) -> list[str]:
    columns = [Column("rule", is_whole=True), *(Column(_title(each, style), is_whole=True) for each in tools)]
    rows: list[Row] = []
    for rule in Rule:
        cells = [_lay_finding(each.findings.get(rule), style) for each in tools]
        if any(cell.text for cell in cells):
            rows.append([Cell(rule.value), *cells])
    return lay_out(columns, rows, style)


def _lay_finding(finding: Finding | None, style: Style) -> Cell:
    if finding is None:
        return Cell("")
    mark, word = WORDS[finding.verdict]
    return marked(mark, word, style)


def _lay_breach(tool: ToolReport, finding: Finding, words: Sequence[str], style: Style) -> list[str]:
    meaning = MEANINGS[finding.rule]
    place = f"{tool.file}:{tool.line}" if tool.line else tool.file
    partners = ", ".join(name for name in (tool.compensation, tool.probe) if name)
    facts = [
        ("at", style.show("   ".join(filter(None, [place, partners and f"with {partners}"])))),
        ("rule", meaning.asks),
        ("seen", style.show(finding.seen)),
        ("change", meaning.change_in(tool.file)),
    ]
    head = style.paint(f"{finding.rule}: {style.show(tool.tool)}", Hue.BAD)
    again = style.command(style.show(repeat_command(words, tool, finding)))
    return [head, *list_facts(facts, style), f"  again     {again}"]


def repeat_command(words: Sequence[str], tool: ToolReport, finding: Finding) -> str:
    """Return the command that tries this rule with this tool, and nothing else."""
    return shlex.join([*words, tool.tool, "--rule", finding.rule])


def _lay_notes(report: CheckReport, verdict: Verdict, style: Style) -> list[str]:
    """Return what is to be said of findings that are neither plain nor breaches, once for all tools it is true of."""
    said: dict[tuple[tuple[str, ...], str], list[str]] = {}
    for tool in report.tools:
        for seen, rules in _gather(tool, verdict).items():
            said.setdefault((tuple(rules), seen), []).append(tool.tool)
    lines = [_say(tools, rules, seen, style) for (rules, seen), tools in said.items()]
    return [style.paint(_TITLES[verdict], Hue.STRONG), *(line for each in lines for line in each)] if lines else []


def _gather(tool: ToolReport, verdict: Verdict) -> dict[str, list[str]]:
    """Return which rules there is the same to be said of; none where it is said of all of a tool."""
    found: dict[str, list[str]] = {}
    is_left = verdict is Verdict.UNTRIED and not _is_told(tool)
    for finding in _find(tool, verdict):
        if finding.seen:
            rules = found.setdefault(finding.seen, [])
            rules += [] if is_left else [finding.rule.value]
    return found


def _say(tools: Sequence[str], rules: Sequence[str], seen: str, style: Style) -> list[str]:
    more = len(tools) - TOOLS_NAMED_MAX
    named = ", ".join([*tools[:TOOLS_NAMED_MAX], *([f"and {more} more"] if more > 0 else [])])
    about = f" ({', '.join(rules)})" if rules else ""
    first, *others = wrap(style.show(f"{named}{about}: {seen}"), style.columns - 2 * len(INDENT))
    return [INDENT + first, *(2 * INDENT + line for line in others)]


def _tail(report: CheckReport, broken: int, style: Style, *, strict: bool) -> list[str]:
    tried = [each for each in report.tools if _is_told(each)]
    if broken:
        guilty = sum(bool(_find(each, Verdict.BROKEN)) for each in tried)
        lines = headline(Mark.FAILED, f"{plural(broken, 'rule')} broken by {plural(guilty, 'tool')}", style)
    elif not report.is_tried:
        lines = headline(Mark.FAILED, "nothing could be tried", style)
    else:
        untried = report.count(Verdict.UNTRIED) if strict else 0
        left = f", but {plural(untried, 'rule')} untried" if untried else f" ({report.count(Verdict.HOLDS)} held)"
        others = len(report.tools) - len(tried)
        left += f"; {plural(others, 'tool')} untried" if others and not untried else ""
        mark = Mark.FAILED if untried else Mark.DONE
        lines = headline(mark, f"{plural(len(tried), 'tool')} tried, no rule broken{left}", style)
    more = broken - FOUND_MAX
    return [*lines, *([f"  {more:,} more breaches, with -o json"] if more > 0 else [])]


def say_tool(tool: ToolReport, style: Style) -> str:
    """Return the line that tells of a tool as soon as it was tried."""
    broken = [finding.rule.value for finding in _find(tool, Verdict.BROKEN)]
    if broken:
        return style.show(f"{'broken':<8} {tool.tool}: {', '.join(broken)}")
    word = "checked" if _is_told(tool) else "untried"
    return style.show(f"{word:<8} {tool.tool}")
