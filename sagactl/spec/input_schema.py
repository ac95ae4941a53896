"""Whether the schema of an input is one that can be used: well formed, self-contained, and quick to check.

A keyword that nobody knows is nearly always a slip (`minimun`), so it is an error; `x-...` is free for notes. Nothing
is fetched: `$ref` may point into the schema itself only. Patterns that could take for ever are refused. `default`s
must fit where they stand.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from decimal import Decimal
from typing import Final

from sagactl.core.canonical import Json
from sagactl.schemas.patterns import UnsafePatternError, compile_pattern
from sagactl.spec.fit import Budget, TooComplexError, find_misfits
from sagactl.spec.schema_types import follow
from sagactl.written.findings import Findings
from sagactl.written.positions import Entry, ListNode, MapNode, Node, Scalar, plain_value
from sagactl.written.source import Span
from sagactl.written.visible import quote

DEFAULTS_COMPARISONS_MAX: Final = 50_000
PATTERNS_LENGTH_MAX: Final = 20_000

_TYPES: Final = ("null", "boolean", "integer", "number", "string", "array", "object")

_SCHEMA: Final = frozenset(
    {"items", "additionalProperties", "contains", "propertyNames", "not", "if", "then", "else", "contentSchema"}
)
_SCHEMA_LISTS: Final = frozenset({"allOf", "anyOf", "oneOf", "prefixItems"})
_SCHEMA_MAPS: Final = frozenset({"properties", "patternProperties", "$defs", "dependentSchemas"})
_TEXT: Final = frozenset(
    {"title", "description", "$comment", "format", "$schema", "contentEncoding", "contentMediaType"}
)
_FLAGS: Final = frozenset({"uniqueItems", "deprecated", "readOnly", "writeOnly"})
_COUNTS: Final = frozenset(
    {"minLength", "maxLength", "minItems", "maxItems", "minProperties", "maxProperties", "minContains", "maxContains"}
)
_NUMBERS: Final = frozenset({"minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum"})
_UNSUPPORTED: Final = frozenset(
    {"unevaluatedProperties", "unevaluatedItems", "$dynamicRef", "$dynamicAnchor", "$id", "$anchor", "$vocabulary"}
)
_OTHERS: Final = frozenset(
    {"type", "enum", "const", "default", "examples", "required", "dependentRequired", "pattern", "multipleOf", "$ref"}
)
KEYWORDS: Final = _SCHEMA | _SCHEMA_LISTS | _SCHEMA_MAPS | _TEXT | _FLAGS | _COUNTS | _NUMBERS | _OTHERS


def check_input_schema(entry: Entry, findings: Findings) -> None:
    """Note all that is wrong with the schema below the key `input`."""
    _Check(entry, findings).run()


def _is_count(value: Json) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value >= 0


def _is_number(value: Json) -> bool:
    return isinstance(value, int | Decimal) and not isinstance(value, bool)


def _is_step(value: Json) -> bool:
    return isinstance(value, int | Decimal) and not isinstance(value, bool) and value > 0


def _is_text(value: Json) -> bool:
    return isinstance(value, str)


def _is_flag(value: Json) -> bool:
    return isinstance(value, bool)


def _is_list(value: Json) -> bool:
    return isinstance(value, list) and len(value) > 0


def _is_names(value: Json) -> bool:
    return isinstance(value, list) and all(map(_is_text, value)) and len(set(map(str, value))) == len(value)


def _is_type(value: Json) -> bool:
    kinds = value if isinstance(value, list) else [value]
    return bool(kinds) and all(kind in _TYPES for kind in kinds) and len(set(map(str, kinds))) == len(kinds)


def _is_names_map(value: Json) -> bool:
    return isinstance(value, dict) and all(map(_is_names, value.values()))


_FORMS: Final[Mapping[str, tuple[Callable[[Json], bool], str]]] = {
    **dict.fromkeys(_TEXT, (_is_text, "text")),
    **dict.fromkeys(_FLAGS, (_is_flag, "true or false")),
    **dict.fromkeys(_COUNTS, (_is_count, "a whole number from 0")),
    **dict.fromkeys(_NUMBERS, (_is_number, "a number")),
    "multipleOf": (_is_step, "a number above 0"),
    "type": (_is_type, f"one or several of {', '.join(_TYPES)}"),
    "enum": (_is_list, "a list of values"),
    "examples": (_is_list, "a list of values"),
    "required": (_is_names, "a list of names, each once"),
    "dependentRequired": (_is_names_map, "a map of lists of names"),
    "pattern": (_is_text, "text"),
    "$ref": (_is_text, "text"),
}


class _Check:
    """One walk over one schema."""

    def __init__(self, entry: Entry, findings: Findings) -> None:
        self._entry = entry
        self._root = plain_value(entry.node)
        self._findings = findings
        self._budget = Budget(DEFAULTS_COMPARISONS_MAX)
        self._pattern_characters = 0

    def run(self) -> None:
        before = self._findings.count
        self._check_root()
        self._check_schema(self._entry)
        if self._findings.count == before:
            self._check_defaults(self._entry.node)

    def _check_root(self) -> None:
        kind = self._root.get("type") if isinstance(self._root, dict) else None
        if kind is not None and kind != "object" and _is_type(kind):
            node = self._entry.node.find("type") if isinstance(self._entry.node, MapNode) else None
            span = self._entry.span if node is None else node.span
            self._refuse("the input of a saga is a map, so its type must be object", span)

    def _refuse(self, message: str, span: Span, hint: str | None = None) -> None:
        self._findings.error("bad-schema", message, span, hint=hint)

    def _check_schema(self, entry: Entry) -> None:
        node = entry.node
        if isinstance(node, Scalar) and isinstance(node.value, bool):
            return
        if not isinstance(node, MapNode):
            self._refuse(f"{quote(entry.key)} must be a schema: a map, true or false", entry.span)
            return
        for keyword in node.entries:
            self._check_keyword(keyword)

    def _check_keyword(self, entry: Entry) -> None:
        keyword = entry.key
        if keyword in _UNSUPPORTED:
            message = f"{keyword} is not supported in the schema of an input"
            self._refuse(message, entry.key_span, "say it with properties, items, anyOf or a $ref to #/$defs/...")
        elif keyword in _SCHEMA:
            self._check_schema(entry)
        elif keyword in _SCHEMA_LISTS:
            self._check_list(entry)
        elif keyword in _SCHEMA_MAPS:
            self._check_map(entry)
        elif keyword in KEYWORDS:
            self._check_value(entry)
        elif not keyword.startswith("x-"):
            message = f"{quote(keyword)} is no keyword of JSON Schema"
            hint = "notes of your own begin with x-"
            self._findings.unknown(
                "bad-schema", message, entry.key_span, word=keyword, known=sorted(KEYWORDS), hint=hint
            )

    def _check_list(self, entry: Entry) -> None:
        if not isinstance(entry.node, ListNode) or not entry.node.items:
            self._refuse(f"{entry.key} must be a list of schemas", entry.span)
            return
        for item in entry.node.items:
            self._check_schema(Entry(entry.key, entry.key_span, item))

    def _check_map(self, entry: Entry) -> None:
        if not isinstance(entry.node, MapNode):
            self._refuse(f"{entry.key} must be a map of schemas", entry.span)
            return
        for member in entry.node.entries:
            if entry.key == "patternProperties":
                self._check_pattern(member.key, member.key_span)
            self._check_schema(member)

    def _check_value(self, entry: Entry) -> None:
        value = plain_value(entry.node)
        holds, expected = _FORMS.get(entry.key, (None, ""))
        if holds is not None and not holds(value):
            self._refuse(f"{entry.key} must be {expected}", entry.span)
        elif entry.key == "pattern":
            self._check_pattern(str(value), entry.span)
        elif entry.key == "$ref":
            self._check_reference(str(value), entry)
        elif entry.key == "writeOnly" and value is True:
            message = "an input is written to the log as it is, and shown: writeOnly only keeps it out of messages"
            hint = "list a secret under secrets, and hand it over as ${{ secrets.NAME }}"
            self._findings.warning("stored-input", message, entry.key_span, hint=hint)

    def _check_pattern(self, pattern: str, span: Span) -> None:
        self._pattern_characters += len(pattern)
        if self._pattern_characters > PATTERNS_LENGTH_MAX:
            message = f"the patterns of the schema have more than {PATTERNS_LENGTH_MAX} characters together"
            self._findings.error("over-limit", message, self._entry.key_span)
            return
        try:
            compile_pattern(pattern)
        except UnsafePatternError as error:
            self._findings.error("unsafe-pattern", quote(str(error), 200), span, hint=_hint_pattern(error))

    def _check_reference(self, target: str, entry: Entry) -> None:
        if not target.startswith("#"):
            message = f"the schema refers to {quote(target)}; nothing outside of it is read"
            self._findings.error("remote-ref", message, entry.span, hint="put it under $defs and write #/$defs/...")
        elif target != "#" and not isinstance(_point(self._root, target), dict | bool):
            self._refuse(f"{quote(target)} points to no schema", entry.span)

    def _check_defaults(self, node: Node) -> None:
        if not isinstance(node, MapNode):
            return
        default = node.find("default")
        if default is not None:
            self._check_default(default, node)
        for member in _subschemas(node):
            self._check_defaults(member)

    def _check_default(self, default: Entry, node: MapNode) -> None:
        schema = plain_value(node)
        assert isinstance(schema, dict), "a map is a map"
        root = self._root if isinstance(self._root, dict) else {}
        try:
            found = find_misfits(plain_value(default.node), schema, root=root, budget=self._budget)
        except TooComplexError as error:
            self._refuse(str(error), default.span)
            return
        for misfit in found[:1]:
            within = "".join(f".{step}" for step in misfit.path)
            self._refuse(f"the default does not fit: default{quote(within)} {misfit.message}", default.span)


def _hint_pattern(error: UnsafePatternError) -> str:
    if isinstance(error.__context__, re.error):
        return "write it as Python does; a backslash before a sign takes its meaning away, as in \\["
    if "sets flags" in str(error):
        return "leave (?...) out; [aA] matches a letter of either case"
    return "rewrite it so that no part can match the same text in two ways"


_MISSING: Final[Json] = "no schema"


def _point(root: Json, target: str) -> Json:
    if not target.startswith("#/"):
        return _MISSING
    found = follow(root, target)
    # `follow` answers with anything at all where there is nothing.
    return found if found != {} or _is_there(root, target) else _MISSING


def _is_there(root: Json, target: str) -> bool:
    parent, _, name = target.rpartition("/")
    holder = follow(root, parent)
    return isinstance(holder, dict) and name.replace("~1", "/").replace("~0", "~") in holder


def _subschemas(node: MapNode) -> Iterator[Node]:
    for entry in node.entries:
        if entry.key in _SCHEMA:
            yield entry.node
        elif entry.key in _SCHEMA_LISTS and isinstance(entry.node, ListNode):
            yield from entry.node.items
        elif entry.key in _SCHEMA_MAPS and isinstance(entry.node, MapNode):
            yield from (member.node for member in entry.node.entries)
