"""Expressions found in the values of the file, each with its own place."""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import lru_cache
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
from sagactl.dataclass import dataclass
from sagactl.written.findings import Findings
from sagactl.written.positions import Entry, ListNode, MapNode, Node, Scalar, plain_value
from sagactl.written.source import Source, Span

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
            _parse(scalar)
        except TemplateSyntaxError as error:
            failed = True
            _refuse(scalar, error, findings)
    return None if failed else parse_template(sort_keys(plain_value(node)))


def _parse(scalar: Scalar) -> Template:
    assert isinstance(scalar.value, str), "only text holds expressions"
    return _parse_text(scalar.value)


@lru_cache(maxsize=256)
def _parse_text(text: str) -> Template:
    # The parts of the check look at one step after the other, each several times.
    return parse_template(text)


def _refuse(scalar: Scalar, error: TemplateSyntaxError, findings: Findings) -> None:
    assert isinstance(scalar.value, str), "only text holds expressions"
    opening = max(scalar.value.rfind(_MARK, 0, error.offset + len(_MARK)), 0)
    start = _skip_marks(findings.source, scalar, scalar.span.start - 1, scalar.value.count(_MARK, 0, opening) + 1)
    span = scalar.span if start < 0 else Span(start, start + len(_MARK))
    is_syntax = error.code == "bad-expression"
    hint = "${{ opens an expression and }} ends it; $${{ is just text" if is_syntax else "let a tool do what is so long"
    findings.error(error.code, str(error), span, hint=hint)


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
            template = _parse(scalar)
        except TemplateSyntaxError:
            continue
        if not isinstance(template, Literal):
            yield from _place_all(scalar, template, within, source)


def _place_all(scalar: Scalar, template: Template, within: Path, source: Source) -> Iterator[PlacedExpression]:
    assert isinstance(scalar.value, str), "only text holds expressions"
    is_whole = isinstance(template, Reference | Expression)
    position, mark = 0, scalar.span.start - 1
    if source.text.count(_MARK, scalar.span.start, scalar.span.end) != scalar.value.count(_MARK):
        # Some marks are written with escapes, or the value stands elsewhere.
        mark = scalar.span.end
    for found in references(template):
        opening = _next_opening(scalar.value, position)
        mark = _skip_marks(source, scalar, mark, scalar.value.count(_MARK, position, opening) + 1)
        start = scalar.value.index(found.text, opening + len(_MARK))
        if mark < 0:
            yield PlacedExpression(found, scalar.span, within, is_whole, is_exact=False)
            mark, position = scalar.span.end, start + len(found.text)
            continue
        begin = mark + start - opening
        is_exact = source.text.startswith(found.text, begin) and begin + len(found.text) <= scalar.span.end
        span = Span(begin, begin + len(found.text)) if is_exact else Span(mark, mark + len(_MARK))
        yield PlacedExpression(found, span, within, is_whole, is_exact)
        # Marks within the expression stand in strings of it; they are passed over on both sides.
        position = start + len(found.text)
        mark = _skip_marks(source, scalar, mark, scalar.value.count(_MARK, opening + 1, position))


def _next_opening(text: str, position: int) -> int:
    while (found := _OPENING.search(text, position)) is not None:
        if not found.group().startswith("$$"):
            return found.start()
        position = found.end()
    raise AssertionError("each expression has an opening")


def _skip_marks(source: Source, scalar: Scalar, position: int, amount: int) -> int:
    """Return where the last of the next *amount* marks behind *position* stands in the file; -1 if there are fewer."""
    for _ in range(amount):
        position = source.text.find(_MARK, position + 1, scalar.span.end)
        if position < 0:
            return -1
    return position


def node_of(value: Json, span: Span) -> Node:
    """Return a value that doesn't stand in the file as if all of it stood at *span*."""
    if isinstance(value, dict):
        return MapNode(tuple(Entry(key, span, node_of(item, span)) for key, item in value.items()), span)
    if isinstance(value, list):
        return ListNode(tuple(node_of(item, span) for item in value), span)
    return Scalar(value, "" if value is None else str(value), span, is_plain=False)
