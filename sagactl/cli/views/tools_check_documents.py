"""What `sagactl tools check` tells programs: its JSON document, and suites of JUnit."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from sagactl.cli.views.annotations import Annotation, bound
from sagactl.cli.views.junit import Case, Suite
from sagactl.cli.views.text import safe
from sagactl.cli.views.tools_check import repeat_command
from sagactl.conformance.report import CheckReport, Finding, ToolReport, Verdict
from sagactl.conformance.rules import MEANINGS
from sagactl.core.canonical import Json
from sagactl.usecases.documents import Document

TOOLS_CHECK_SCHEMA: Final = "sagactl.tools_check/1"


def write_check(report: CheckReport, words: Sequence[str]) -> Document:
    """Return the document of a check."""
    return {
        "schema": TOOLS_CHECK_SCHEMA,
        "good": report.is_good(strict=False),
        "counts": {verdict.value: report.count(verdict) for verdict in Verdict},
        "tools": [_write_tool(each, words) for each in report.tools],
        "notes": list(report.notes),
        "error": None,
    }


def _write_tool(tool: ToolReport, words: Sequence[str]) -> Json:
    return {
        "name": tool.tool,
        "plugin": tool.plugin,
        "file": tool.file or None,
        "line": tool.line or None,
        "compensation": tool.compensation,
        "probe": tool.probe,
        "rules": [_write_finding(tool, each, words) for each in tool.findings.values()],
    }


def _write_finding(tool: ToolReport, finding: Finding, words: Sequence[str]) -> Json:
    is_broken = finding.verdict is Verdict.BROKEN
    return {
        "rule": finding.rule.value,
        "verdict": finding.verdict.value,
        "asks": MEANINGS[finding.rule].asks,
        "seen": finding.seen or None,
        "change": MEANINGS[finding.rule].change_in(tool.file) if is_broken else None,
        "again": repeat_command(words, tool, finding) if is_broken else None,
    }


def make_check_suites(report: CheckReport, *, strict: bool) -> list[Suite]:
    """Return a suite for each tool, with a case for each rule that concerns it."""
    return [
        Suite(
            f"tools check {tool.tool}",
            [_make_case(each, strict=strict) for each in tool.findings.values()],
            took_ms=tool.took_ms,
        )
        for tool in report.tools
    ]


def _make_case(finding: Finding, *, strict: bool) -> Case:
    is_bad = finding.verdict is Verdict.BROKEN or (strict and finding.verdict is Verdict.UNTRIED)
    if is_bad:
        return Case(finding.rule.value, "failure", finding.verdict.value, finding.seen)
    if finding.verdict is Verdict.HOLDS:
        return Case(finding.rule.value, "passed", "", finding.seen)
    return Case(finding.rule.value, "skipped", finding.verdict.value, finding.seen)


def annotate_check(report: CheckReport, words: Sequence[str]) -> list[Annotation]:
    """Return a remark for each breach at the line of its tool."""
    return bound(
        [
            _annotate(tool, finding, words)
            for tool in report.tools
            for finding in tool.findings.values()
            if finding.verdict is Verdict.BROKEN
        ]
    )


def _annotate(tool: ToolReport, finding: Finding, words: Sequence[str]) -> Annotation:
    parts = [finding.seen, MEANINGS[finding.rule].change_in(tool.file), repeat_command(words, tool, finding)]
    title, text = safe(f"{finding.rule}: {tool.tool}"), safe(". ".join(parts))
    return Annotation("error", title, text, tool.file or None, tool.line or None)
