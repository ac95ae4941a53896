"""The keys of one map of the file, read with their types; what is wrong is noted and read as absent."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from decimal import Decimal
from enum import StrEnum
from typing import Final, Generic, TypeVar

from sagactl.dataclass import dataclass
from sagactl.schemas.durations import BadDurationError, format_duration, parse_duration
from sagactl.written.findings import Findings
from sagactl.written.positions import Entry, ListNode, MapNode, Node, Scalar
from sagactl.written.source import Span
from sagactl.written.visible import quote

T = TypeVar("T")
EnumT = TypeVar("EnumT", bound=StrEnum)

_WORDS_LISTED_MAX: Final = 30
_SHORT_FORMS: Final = {"compensate": "tool", "retry": "max_attempts"}
"""Keys of maps for which people write one value, and the key that it belongs to."""

_OTHER_BOOLEANS: Final = {"yes": "true", "on": "true", "no": "false", "off": "false", "1": "true", "0": "false"}


@dataclass(frozen=True, slots=True)
class Placed(Generic[T]):
    """A value and where it stands."""

    value: T
    span: Span


def kind_of(node: Node) -> str:
    """Name what *node* is, for a message."""
    if isinstance(node, ListNode):
        return "a list"
    if isinstance(node, MapNode):
        return "a map"
    if node.value is None:
        return "null"
    if isinstance(node.value, bool):
        return f"the boolean {quote(node.raw)}"
    if isinstance(node.value, int | Decimal):
        return f"the number {quote(node.raw)}"
    return "text"


class Fields:
    """One map of the file; `owner` names it in messages."""

    def __init__(self, node: MapNode, keys: Collection[str], owner: str, findings: Findings) -> None:
        self.node = node
        self.owner = owner
        self._findings = findings
        self._entries = {entry.key: entry for entry in node.entries}
        for entry in node.entries:
            if entry.key not in keys and not findings.is_full:
                self._refuse_key(entry, keys)

    def _refuse_key(self, entry: Entry, keys: Collection[str]) -> None:
        message = f"{self.owner} has no key {quote(entry.key)}"
        hint = f"the keys are {', '.join(sorted(keys)[:_WORDS_LISTED_MAX])}"
        self._findings.unknown("unknown-key", message, entry.key_span, word=entry.key, known=keys, hint=hint)

    def entry(self, key: str) -> Entry | None:
        """Return the entry as it stands."""
        return self._entries.get(key)

    def require(self, key: str, span: Span) -> None:
        """Note that *key* is missing, at *span*."""
        if key not in self._entries:
            self._findings.error("missing-key", f"{self.owner} needs the key {key}", span)

    def text(self, key: str, *, hint: str | None = None) -> Placed[str] | None:
        """Return text that isn't empty; *hint* is for what only quotes wouldn't mend."""
        entry = self._entries.get(key)
        if entry is None:
            return None
        if not isinstance(entry.node, Scalar) or not isinstance(entry.node.value, str):
            self.refuse(entry, "text", hint or _quote_hint(entry.node))
            return None
        if not entry.node.value.strip():
            self._findings.error("wrong-type", f"{key} is empty", entry.span, hint=hint)
            return None
        return Placed(entry.node.value, entry.span)

    def version(self, key: str) -> str | None:
        """Return text or a number, as written."""
        entry = self._entries.get(key)
        if entry is None:
            return None
        node = entry.node
        if isinstance(node, Scalar) and node.value is not None and not isinstance(node.value, bool) and node.raw:
            return node.raw
        self.refuse(entry, "a number or text")
        return None

    def flag(self, key: str) -> Placed[bool] | None:
        """Return a boolean."""
        entry = self._entries.get(key)
        if entry is None:
            return None
        if not isinstance(entry.node, Scalar) or not isinstance(entry.node.value, bool):
            raw = entry.node.raw if isinstance(entry.node, Scalar) else ""
            meant = _OTHER_BOOLEANS.get(raw.lower())
            self.refuse(entry, "true or false", None if meant is None else f"write {meant}")
            return None
        return Placed(entry.node.value, entry.span)

    def count(self, key: str, maximum: int) -> Placed[int] | None:
        """Return a whole number from 1 to *maximum*."""
        entry = self._entries.get(key)
        if entry is None:
            return None
        value = entry.node.value if isinstance(entry.node, Scalar) else None
        if isinstance(value, Decimal) and value > maximum:
            value = maximum + 1
        if not isinstance(value, int) or isinstance(value, bool):
            self.refuse(entry, f"a whole number from 1 to {maximum}")
            return None
        if not 1 <= value <= maximum:
            raw = entry.node.raw if isinstance(entry.node, Scalar) else ""
            message = f"{key} is {quote(raw, 40)}; it must be from 1 to {maximum}"
            self._findings.error("over-limit", message, entry.span)
            return None
        return Placed(value, entry.span)

    def duration(self, key: str, minimum_ms: int, maximum_ms: int) -> Placed[int] | None:
        """Return a duration in milliseconds within both bounds."""
        entry = self._entries.get(key)
        if entry is None:
            return None
        bounds = f"from {format_duration(minimum_ms)} to {format_duration(maximum_ms)}"
        if not isinstance(entry.node, Scalar):
            self.refuse(entry, f"a duration {bounds}, such as 30s")
            return None
        try:
            value = parse_duration(entry.node.raw)
        except BadDurationError as error:
            message = f"{key}: {quote(entry.node.raw, 40) or 'nothing'} is no duration"
            self._findings.error("bad-duration", message, entry.span, hint=f"{error}; here {bounds}")
            return None
        if not minimum_ms <= value <= maximum_ms:
            message = f"{key} is {quote(entry.node.raw, 40)}; it must be {bounds}"
            self._findings.error("over-limit", message, entry.span)
            return None
        return Placed(value, entry.span)

    def choice(self, key: str, kind: type[EnumT], *, without: Collection[EnumT] = ()) -> Placed[EnumT] | None:
        """Return a member of *kind*."""
        entry = self._entries.get(key)
        if entry is None:
            return None
        words = [str(member) for member in kind if member not in without]
        raw = entry.node.raw if isinstance(entry.node, Scalar) else None
        if raw not in words:
            message = f"{key} must be {_list_words(words)}, not {kind_of(entry.node) if raw is None else quote(raw)}"
            hint = f"write one of {', '.join(words)}"
            self._findings.unknown("bad-choice", message, entry.span, word=raw or "", known=words, hint=hint)
            return None
        return Placed(kind(raw), entry.span)

    def names(self, key: str) -> tuple[Placed[str], ...] | None:
        """Return a list of texts."""
        entry = self._entries.get(key)
        if entry is None:
            return None
        if not isinstance(entry.node, ListNode):
            self.refuse(entry, "a list", f"write {key}: [...]")
            return None
        return tuple(self._read_names(key, entry.node))

    def _read_names(self, key: str, node: ListNode) -> Iterator[Placed[str]]:
        for item in node.items:
            if isinstance(item, Scalar) and isinstance(item.value, str) and item.value:
                yield Placed(item.value, item.span)
            else:
                message = f"{key} must be a list of texts; this is {kind_of(item)}"
                self._findings.error("wrong-type", message, item.span)

    def map(self, key: str) -> MapNode | None:
        """Return a map."""
        entry = self._entries.get(key)
        if entry is None:
            return None
        if not isinstance(entry.node, MapNode):
            self.refuse(entry, "a map", self._hint_map(entry))
            return None
        return entry.node

    def _hint_map(self, entry: Entry) -> str | None:
        """Show the map that a single value was probably meant as."""
        inner = _SHORT_FORMS.get(entry.key)
        if inner is None or not isinstance(entry.node, Scalar) or not entry.node.raw:
            return None
        return f"write {entry.key}: {{{inner}: {quote(entry.node.raw)}}}"

    def fields(self, key: str, keys: Collection[str], owner: str) -> Fields | None:
        """Return the fields of a map below *key*."""
        node = self.map(key)
        return None if node is None else Fields(node, keys, owner, self._findings)

    def refuse(self, entry: Entry, expected: str, hint: str | None = None) -> None:
        """Note that the value of *entry* is not what it must be."""
        message = f"{quote(entry.key)} must be {expected}, not {kind_of(entry.node)}"
        self._findings.error("wrong-type", message, entry.span, hint=hint)


def _quote_hint(node: Node) -> str | None:
    if isinstance(node, Scalar) and node.is_plain and node.value is not None:
        return f'write it as "{quote(node.raw)}"'
    return None


def _list_words(words: list[str]) -> str:
    return ", ".join(words[:-1]) + f" or {words[-1]}" if len(words) > 1 else words[0]
