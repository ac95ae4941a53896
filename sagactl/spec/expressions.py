"""Expressions found in the values of the file, each with its own place."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from sagactl.core.canonical import Json
from sagactl.core.template import (
    Expression,
    Literal,
    Path,
    Reference,
    Template,
    TemplateSyntaxError,
    parse_template,
    references,
)
from sagactl.spec.findings import Findings
from sagactl.spec.positions import Entry, ListNode, MapNode, Node, Scalar, plain_value
from sagactl.spec.source import Source, Span

_OPENING: Final = re.compile(r"\$?\$\{\{")
_MARK: Final = "${{"
_MACRO: Final = re.compile(r"\.\s*(?:all|exists|exists_one|map|filter)\s*\(\s*([A-Za-z_]\w*)\s*,", re.ASCII)


@dataclass(frozen=True, slots=True)
class PlacedExpression:
    """An expression; `within` is where in its value it stands, `is_whole` that there is no text around it.

    `is_exact` tells that the file has the characters of the expression one by one, without escapes or folded lines.
    """

    found: Reference | Expression
    span: Span
    within: Path
    is_whole: bool
    is_exact: bool

    @property
    def paths(self) -> tuple[Path, ...]:
        """List the references in it, without the variables that its macros bind."""
        if isinstance(self.found, Reference):
            return (self.found.path,)
        bound = set(_MACRO.findall(self.found.text))
        return tuple(path for path in self.found.paths if path[0] not in bound)

    def part(self, offset: int, length: int) -> Span:
        """Return the place of some characters of the expression."""
        if not self.is_exact:
            return self.span
        start = min(self.span.start + offset, self.span.end - 1)
        return Span(start, min(start + length, self.span.end))


def read_template(node: Node, findings: Findings) -> Template | None:
    """Return *node* as a template with its maps in the order of their keys, or None where one can't be read."""
    failed = False
    for scalar, _ in texts(node):
        try:
            parse_template(scalar.value)
        except TemplateSyntaxError as error:
            failed = True
            _refuse(scalar, error, findings)
    return None if failed else parse_template(sort_keys(plain_value(node)))


def _refuse(scalar: Scalar, error: TemplateSyntaxError, findings: Findings) -> None:
    assert isinstance(scalar.value, str), "only text holds expressions"
    opening = max(scalar.value.rfind(_MARK, 0, error.offset + len(_MARK)), 0)
    start = _place_mark(findings.source, scalar, opening)
    span = scalar.span if start is None else Span(start, start + len(_MARK))
    findings.error("bad-expression", str(error), span, hint="${{ opens an expression and }} ends it; $${{ is just text")


def sort_keys(value: Json) -> Json:
    """Return *value* with the keys of its maps in order: the order of writing means nothing (and isn't stored)."""
    if isinstance(value, dict):
        return {key: sort_keys(value[key]) for key in sorted(value)}
    return [sort_keys(item) for item in value] if isinstance(value, list) else value


def texts(node: Node, within: Path = ()) -> Iterator[tuple[Scalar, Path]]:
    """Yield each text in *node* that could hold an expression, and where in it."""
    if isinstance(node, Scalar):
        if isinstance(node.value, str) and _MARK in node.value:
            yield node, within
    elif isinstance(node, ListNode):
        for index, item in enumerate(node.items):
            yield from texts(item, (*within, index))
    elif isinstance(node, MapNode):
        for entry in node.entries:
            yield from texts(entry.node, (*within, entry.key))


def placed_expressions(node: Node, source: Source) -> Iterator[PlacedExpression]:
    """Yield the expressions in *node*, in order; texts that can't be read are passed over."""
    for scalar, within in texts(node):
        try:
            template = parse_template(scalar.value)
        except TemplateSyntaxError:
            continue
        if not isinstance(template, Literal):
            yield from _place_all(scalar, template, within, source)


def _place_all(scalar: Scalar, template: Template, within: Path, source: Source) -> Iterator[PlacedExpression]:
    assert isinstance(scalar.value, str), "only text holds expressions"
    is_whole = isinstance(template, Reference | Expression)
    position = 0
    for found in references(template):
        opening = _next_opening(scalar.value, position)
        start = scalar.value.index(found.text, opening + len(_MARK))
        position = start + len(found.text)
        mark = _place_mark(source, scalar, opening)
        if mark is None:
            yield PlacedExpression(found, scalar.span, within, is_whole, is_exact=False)
            continue
        begin = mark + start - opening
        is_exact = source.text.startswith(found.text, begin) and begin + len(found.text) <= scalar.span.end
        span = Span(begin, begin + len(found.text)) if is_exact else Span(mark, mark + len(_MARK))
        yield PlacedExpression(found, span, within, is_whole, is_exact)


def _next_opening(text: str, position: int) -> int:
    while (found := _OPENING.search(text, position)) is not None:
        if not found.group().startswith("$$"):
            return found.start()
        position = found.end()
    raise AssertionError("each expression has an opening")


def _place_mark(source: Source, scalar: Scalar, opening: int) -> int | None:
    """Return where in the file the `${{` stands that is at *opening* of the value."""
    assert isinstance(scalar.value, str), "only text holds expressions"
    position = scalar.span.start - 1
    for _ in range(scalar.value.count(_MARK, 0, opening) + 1):
        position = source.text.find(_MARK, position + 1, scalar.span.end)
        if position < 0:
            return None
    return position


def node_of(value: Json, span: Span) -> Node:
    """Return a value that doesn't stand in the file as if all of it stood at *span*."""
    if isinstance(value, dict):
        return MapNode(tuple(Entry(key, span, node_of(item, span)) for key, item in value.items()), span)
    if isinstance(value, list):
        return ListNode(tuple(node_of(item, span) for item in value), span)
    return Scalar(value, "" if value is None else str(value), span, is_plain=False)
