"""YAML read strictly, with the place of every key and value (rule F2).

The parser is libyaml's where PyYAML was built with it; of PyYAML itself only the stream of events is used, so nothing
is constructed, resolved or expanded that this module doesn't build itself. That makes hostile files cheap: depth and
size are counted before a node exists, and the nodes are put together on a stack of our own.

What YAML offers beyond JSON is refused rather than half understood: anchors and aliases, tags, merge keys, keys that
are no text, a second document. All such findings are collected; only a text that is no YAML at all, or one beyond the
limits, ends the reading.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import field
from decimal import Decimal
from typing import Any, Final, TypeAlias, cast

from sagactl.core.canonical import NESTING_MAX, Json
from sagactl.dataclass import dataclass
from sagactl.written.findings import Findings
from sagactl.written.scalars import BadNumberError, read_plain
from sagactl.written.source import Noun, Source, Span
from sagactl.written.syntax import report_depth, report_syntax
from sagactl.written.visible import quote

NODES_MAX: Final = 200_000
"""Keys and values in one file; with the limit of its bytes this bounds time and memory."""


_BEGINNING: Final[dict[Noun, str]] = {
    "saga file": "`sagactl schema` shows the format",
    "data file": "write {} where no value is meant",
    "tool file": "`sagactl help http` shows the format",
}


@dataclass(frozen=True, slots=True)
class Scalar:
    """A single value; `is_plain` tells that it stood without quotes."""

    value: bool | int | Decimal | str | None
    raw: str
    span: Span
    is_plain: bool


@dataclass(frozen=True, slots=True)
class ListNode:
    """A list."""

    items: tuple[Node, ...]
    span: Span


@dataclass(frozen=True, slots=True)
class Entry:
    """A key with its value; a value that takes no room (`key:`) is shown by its key."""

    key: str
    key_span: Span
    node: Node

    @property
    def span(self) -> Span:
        """Return where to point when the value is at fault."""
        return self.key_span if self.node.span.start == self.node.span.end else self.node.span


@dataclass(frozen=True, slots=True)
class MapNode:
    """A map; each key stands once."""

    entries: tuple[Entry, ...]
    span: Span

    def find(self, key: str) -> Entry | None:
        """Return the entry of *key*, if there is one."""
        return next((entry for entry in self.entries if entry.key == key), None)


Node: TypeAlias = "Scalar | ListNode | MapNode"


def plain_value(node: Node) -> Json:
    """Return the value of *node* as JSON, without places."""
    match node:
        case Scalar(value=value):
            return cast("Json", value)
        case ListNode(items=items):
            return [plain_value(item) for item in items]
        case MapNode(entries=entries):
            return {entry.key: plain_value(entry.node) for entry in entries}


def read_yaml(source: Source, findings: Findings) -> Node | None:
    """Return the only document of *source*, or None where there is none to go on with."""
    builder = _Builder(findings)
    try:
        for event in _events(source, findings):
            builder.take(event)
    except _Beyond:
        return None
    if builder.root is None and not findings.has_errors:
        hint = _BEGINNING[source.noun]
        findings.error("empty-file", "there is nothing in the file", Span(0, 0), hint=hint)
    return builder.root


def _events(source: Source, findings: Findings) -> Iterator[Any]:
    from yaml import YAMLError

    parser = _make_parser(source.text)
    try:
        while (event := parser.get_event()) is not None:
            yield event
    except YAMLError as error:
        report_syntax(error, source, findings)
        raise _Beyond from None
    finally:
        parser.dispose()


def _make_parser(text: str) -> Any:
    import yaml

    return yaml.CSafeLoader(text) if yaml.__with_libyaml__ else yaml.SafeLoader(text)


class _Beyond(Exception):  # noqa: N818 - an end, told already
    """There is no use in reading on."""


@dataclass(slots=True)
class _Open:
    """A list or map that isn't finished; `key` is the one whose value comes next, dropped where the key was bad."""

    start: int
    is_map: bool
    items: list[Node] = field(default_factory=list)
    entries: dict[str, Entry] = field(default_factory=dict)
    key: tuple[str, Span] | None = None
    drops_value: bool = False


class _Builder:
    """Turns events into nodes; each refused thing is noted and passed over."""

    def __init__(self, findings: Findings) -> None:
        self.root: Node | None = None
        self._findings = findings
        self._noun = findings.source.noun
        self._open: list[_Open] = []
        self._nodes = 0
        self._documents = 0

    def take(self, event: Any) -> None:
        """Take the next event of the parser."""
        name = type(event).__name__
        span = Span(event.start_mark.index, event.end_mark.index)
        if name == "ScalarEvent":
            self._check_extras(event, span)
            self._put(self._read_scalar(event, span))
        elif name in {"MappingStartEvent", "SequenceStartEvent"}:
            self._check_extras(event, span)
            self._begin(span, is_map=name == "MappingStartEvent")
        elif name in {"MappingEndEvent", "SequenceEndEvent"}:
            self._finish(span)
        elif name == "AliasEvent":
            self._refuse_alias(span)
            self._put(Scalar(None, "", span, is_plain=False))
        elif name == "DocumentStartEvent":
            self._begin_document(span)

    def _begin_document(self, span: Span) -> None:
        self._documents += 1
        if self._documents > 1:
            message = f"a second document begins here; a {self._noun} holds one"
            self._findings.error("several-documents", message, span, hint="put each into a file of its own")
            raise _Beyond

    def _check_extras(self, event: Any, span: Span) -> None:
        self._nodes += 1
        if self._nodes > NODES_MAX:
            message = f"the file has more than {NODES_MAX} keys and values"
            self._findings.error("too-many-values", message, span)
            raise _Beyond
        if event.anchor is not None:
            self._refuse_alias(span)
        if event.tag is not None:
            tag = event.tag.replace("tag:yaml.org,2002:", "!!")
            message = f"the tag {quote(tag)} has no meaning in a {self._noun}"
            self._findings.error("tag", message, span, hint="leave the tag out; quotes make text of anything")

    def _refuse_alias(self, span: Span) -> None:
        message = f"anchors and aliases may not stand in a {self._noun} (limit: 0)"
        self._findings.error("alias", message, span, hint="write the value out in each place")

    def _read_scalar(self, event: Any, span: Span) -> Scalar:
        is_plain = event.style in {None, ""}
        if not is_plain or event.tag is not None:
            return Scalar(self._check_text(event.value, span), event.value, span, is_plain=False)
        try:
            return Scalar(read_plain(event.value), event.value, span, is_plain=True)
        except BadNumberError as error:
            hint = "put it into quotes if it is text"
            self._findings.error("bad-number", quote(str(error), 160), span, hint=hint)
            return Scalar(0, event.value, span, is_plain=True)

    def _check_text(self, text: str, span: Span) -> str:
        if text.isascii() or not any("\ud800" <= each <= "\udfff" for each in text):
            return text
        self._findings.error("bad-character", "half of a surrogate pair is no character", span)
        return ""

    def _begin(self, span: Span, *, is_map: bool) -> None:
        if len(self._open) >= NESTING_MAX:
            report_depth(self._findings, span)
            raise _Beyond
        self._open.append(_Open(span.start, is_map))

    def _finish(self, span: Span) -> None:
        done = self._open.pop()
        whole = Span(done.start, span.end)
        if done.is_map:
            self._put(MapNode(tuple(done.entries.values()), whole))
        else:
            self._put(ListNode(tuple(done.items), whole))

    def _put(self, node: Node) -> None:
        if not self._open:
            self.root = node
            return
        parent = self._open[-1]
        if not parent.is_map:
            parent.items.append(node)
        elif parent.key is None:
            key = self._read_key(node)
            parent.key, parent.drops_value = (key or "", node.span), key is None
        else:
            if not parent.drops_value:
                self._put_entry(parent, Entry(*parent.key, node))
            parent.key = None

    def _put_entry(self, parent: _Open, entry: Entry) -> None:
        first = parent.entries.setdefault(entry.key, entry)
        if first is not entry:
            message = f"the key {quote(entry.key)} is given twice"
            span = entry.key_span
            self._findings.error("duplicate-key", message, span, label="again here", first=first.key_span)

    def _read_key(self, node: Node) -> str | None:
        if isinstance(node, Scalar) and node.is_plain and node.raw == "<<":
            message = f"merge keys may not stand in a {self._noun}"
            self._findings.error("merge-key", message, node.span, hint="write the keys out")
            return None
        if isinstance(node, Scalar) and isinstance(node.value, str):
            return node.value
        message = "a key must be text" + (f", not {quote(node.raw)}" if isinstance(node, Scalar) else "")
        # A map as a key is what `{{ input.x }}` without a dollar sign and quotes looks like to YAML.
        hint = 'an expression is written "${{ ... }}"' if isinstance(node, MapNode) else "put the key into quotes"
        self._findings.error("bad-key", message, node.span, hint=hint)
        return None
