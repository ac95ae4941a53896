"""What the YAML parser said, in words that help: above all where an expression lacks its quotes."""

from __future__ import annotations

import re
from typing import Any, Final

from sagactl.core.canonical import NESTING_MAX
from sagactl.written.findings import Findings
from sagactl.written.source import Source, Span
from sagactl.written.visible import quote

_UNQUOTED: Final = re.compile(
    r"""(?P<before>^\s*(?:-\s+)*(?:[\w.-]+:\s+)?|[\[{,]\s*(?:[\w.-]+:\s+)?)"""
    r"""(?P<text>[^\s"'\[\]{},#][^"'\[\]{},]*?\$\{\{.*?\}\}|\$\{\{.*?\}\})(?P<after>[^\],}]*)""",
    re.ASCII,
)
_LINE_LENGTH_MAX: Final = 2_000
"""Longer lines get no proposal: nobody has typed them."""

_DEPTH_PROBLEM: Final = "maximum nesting depth"
"""libyaml reads ahead and may reach a limit of its own before ours."""


def report_syntax(error: Any, source: Source, findings: Findings) -> None:
    """Note why the text is no YAML; *error* is what PyYAML raised."""
    mark = getattr(error, "problem_mark", None)
    offset = min(mark.index, len(source.text)) if mark is not None else len(source.text)
    if _DEPTH_PROBLEM in str(getattr(error, "problem", "")):
        report_depth(findings, Span(offset, offset))
        return
    unquoted = _find_unquoted(source, offset)
    if unquoted is not None:
        span, line = unquoted
        findings.error(
            "unquoted-expression",
            "the expression must stand in quotes here",
            span,
            hint=f"write it as: {quote(line.strip(), 160)}",
        )
        return
    message, hint = _explain(error, source, offset)
    findings.error("yaml-syntax", message, Span(offset, offset), hint=hint)


def report_depth(findings: Findings, span: Span) -> None:
    """Note that lists and maps lie too deep in one another."""
    findings.error("too-deep", f"lists and maps lie more than {NESTING_MAX} levels deep in one another", span)


def _explain(error: Any, source: Source, offset: int) -> tuple[str, str | None]:
    problem = str(getattr(error, "problem", None) or getattr(error, "reason", None) or "the text is no YAML")
    context = getattr(error, "context", None)
    message = quote(f"{problem}, {context}" if context else problem, 200)
    if source.text[offset : offset + 1] == "\t":
        return message, "YAML is indented with spaces; there is a tab here"
    start = getattr(error, "context_mark", None)
    if start is not None and start.line != getattr(error.problem_mark, "line", start.line):
        return message, f"what is not finished began in line {source.place(start.index)[0]}"
    return message, None


def _find_unquoted(source: Source, offset: int) -> tuple[Span, str] | None:
    """Return the expression without quotes in the line of *offset*, and that line as it should be."""
    number, column = source.place(offset)
    line = source.line(number)
    if len(line) > _LINE_LENGTH_MAX:
        return None
    for found in _UNQUOTED.finditer(line):
        after = found["after"].partition(" #")[0]
        start, end = found.start("text"), found.end("text") + len(after)
        if not start <= column - 1 <= end + 1:
            continue
        text = (found["text"] + after).rstrip()
        place = source.line_starts[number - 1] + start
        return Span(place, place + len(text)), line[:start] + _quote_yaml(text) + line[start + len(text) :]
    return None


def _quote_yaml(text: str) -> str:
    if '"' not in text and "\\" not in text:
        return f'"{text}"'
    return "'" + text.replace("'", "''") + "'"
