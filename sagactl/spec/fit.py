"""Whether a value fits a JSON Schema, also a value with holes in it.

The arguments of a step are partly known when the file is read: `{amount: 5, lead: "${{ steps.lead.output.id }}"}` has a
hole whose type may be known and whose value is not. So the check of a whole value and that of a value with holes are
one: a hole is compared by type, and what depends on its value is left to the check before the call. The same walk
checks inputs, where there are no holes.

All misfits come back, not only the first. No message quotes a value that its schema marks as `writeOnly`. Numbers are
compared exactly, `true` is not 1, and a decimal is no integer even if it is whole. The keywords are those of JSON
Schema 2020-12 but for `unevaluatedProperties`, `unevaluatedItems` and `$dynamicRef`, which `input_schema` refuses and
which count as satisfied in the schema of a tool: tools check their arguments again before each call.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from decimal import Decimal
from fractions import Fraction
from itertools import islice
from typing import Final, TypeAlias, cast

from sagactl.core.canonical import Json, canonical
from sagactl.core.template import Path
from sagactl.dataclass import dataclass
from sagactl.schemas.formats import FORMATS
from sagactl.schemas.patterns import UnsafePatternError, compile_pattern, matches
from sagactl.spec.schema_types import Types, follow, overlap, show_types, type_name
from sagactl.written.suggest import COMPARED_MAX
from sagactl.written.visible import quote

VISITS_MAX: Final = 500_000
"""Pairs of a value and a schema in one check; composed schemas can unfold without end."""

MISFITS_MAX: Final = 1_000
"""Misfits of one value that are looked for."""

_SHOWN_LENGTH_MAX: Final = 60
_CHOICES_SHOWN_MAX: Final = 20


@dataclass(frozen=True, slots=True)
class Hole:
    """A value that isn't known yet; `types` is what it can be, None where it can be anything."""

    types: Types | None = None


Open: TypeAlias = "Json | Hole | list[Open] | dict[str, Open]"


@dataclass(frozen=True, slots=True)
class Misfit:
    """Something in the value that doesn't fit; `message` continues the name of the place."""

    path: Path
    keyword: str
    message: str
    known: tuple[str, ...] = ()


class TooComplexError(ValueError):
    """The schema unfolds into more than can be checked."""


@dataclass(slots=True)
class Budget:
    """How many comparisons may still be made; several checks can share one."""

    left: int = VISITS_MAX

    def spend(self, amount: int = 1) -> None:
        """Take some off; raises TooComplexError."""
        self.left -= amount
        if self.left < 0:
            raise TooComplexError("the schema needs too many comparisons")


def find_misfits(
    value: Open,
    schema: Mapping[str, Json],
    *,
    root: Mapping[str, Json] | None = None,
    budget: Budget | None = None,
) -> list[Misfit]:
    """Return all that doesn't fit, up to a limit, in the order of the value; raises TooComplexError.

    *root* is what the schema's `$ref`s refer to, if that is not the schema itself.
    """
    walk = _Walk(dict(schema if root is None else root), Budget() if budget is None else budget)
    return list(dict.fromkeys(islice(walk.visit(value, dict(schema), (), is_secret=False), MISFITS_MAX)))


def equal(first: Open, second: Open) -> bool:
    """Compare as JSON Schema does: numbers by value, booleans never with numbers."""
    if isinstance(first, bool) or isinstance(second, bool):
        return first is second
    if isinstance(first, list) and isinstance(second, list):
        return len(first) == len(second) and all(map(equal, first, second))
    if isinstance(first, dict) and isinstance(second, dict):
        return first.keys() == second.keys() and all(equal(first[key], second[key]) for key in first)
    return first == second


def _say_forms(choices: Sequence[Json]) -> str:
    """Say what was to choose from: the names, where each form only asks for one property."""
    names = [
        str(form["required"][0])
        for form in choices
        if isinstance(form, dict) and form.keys() == {"required"} and isinstance(form["required"], list)
    ]
    if len(names) == len(choices):
        return f"must hold {' or '.join(names)}"
    return f"has none of the {len(choices)} forms that are allowed"


class _Walk:
    """One check."""

    def __init__(self, root: Json, budget: Budget) -> None:
        self._root = root
        self._budget = budget
        self._holes: dict[int, bool] = {}
        self._choices: dict[int, frozenset[Hashable]] = {}
        self._patterns: dict[int, list[tuple[re.Pattern[str] | None, Json]]] = {}

    def _has_holes(self, value: object) -> bool:
        """Tell whether anything in *value* isn't known; each list and map is looked through once."""
        if not isinstance(value, list | dict):
            return isinstance(value, Hole)
        if id(value) not in self._holes:
            parts = value.values() if isinstance(value, dict) else value
            self._holes[id(value)] = any(map(self._has_holes, parts))
        return self._holes[id(value)]

    def _is_chosen(self, value: Open, choices: list[Json]) -> bool:
        if id(choices) not in self._choices:
            self._choices[id(choices)] = frozenset(map(_freeze, choices))
        return _freeze(value) in self._choices[id(choices)]

    def _compile(self, patterns: dict[str, Json]) -> list[tuple[re.Pattern[str] | None, Json]]:
        """Return the patterns of names, compiled once for each schema."""
        if id(patterns) not in self._patterns:
            self._patterns[id(patterns)] = [(_compile_safe(pattern), part) for pattern, part in patterns.items()]
        return self._patterns[id(patterns)]

    def visit(self, value: Open, schema: Json, path: Path, *, is_secret: bool) -> Iterator[Misfit]:
        self._budget.spend()
        if schema is False:
            yield Misfit(path, "false", "is not allowed")
        if not isinstance(schema, dict):
            return
        is_secret = is_secret or schema.get("writeOnly") is True
        target = schema.get("$ref")
        if isinstance(target, str):
            yield from self._visit_reference(value, target, path, is_secret=is_secret)
        yield from self._check_composed(value, schema, path, is_secret=is_secret)
        kind = _check_type(value, schema, is_secret=is_secret)
        if kind is not None:
            yield Misfit(path, "type", kind)
            return
        if isinstance(value, Hole):
            return
        if not self._has_holes(value):
            yield from (Misfit(path, *found) for found in self._check_choices(value, schema, is_secret=is_secret))
        yield from (Misfit(path, *found) for found in _check_plain(value, schema, is_secret=is_secret))
        if isinstance(value, list):
            yield from self._check_list(value, schema, path, is_secret=is_secret)
        elif isinstance(value, dict):
            yield from self._check_map(value, schema, path, is_secret=is_secret)

    def _visit_reference(self, value: Open, target: str, path: Path, *, is_secret: bool) -> Iterator[Misfit]:
        try:
            yield from self.visit(value, follow(self._root, target), path, is_secret=is_secret)
        except RecursionError:
            raise TooComplexError("the schema contains itself without end") from None

    def _fits(self, value: Open, schema: Json) -> bool:
        return next(self.visit(value, schema, (), is_secret=True), None) is None

    def _check_composed(self, value: Open, schema: dict[str, Json], path: Path, *, is_secret: bool) -> Iterator[Misfit]:
        for part in _parts(schema, "allOf"):
            yield from self.visit(value, part, path, is_secret=is_secret)
        choices = _parts(schema, "anyOf")
        if choices and not any(self._fits(value, part) for part in choices):
            yield from self._explain_choices(value, choices, path, is_secret=is_secret)
        if self._has_holes(value) and (schema.keys() & {"oneOf", "not", "if"}):
            return
        exclusive = _parts(schema, "oneOf")
        fitting = sum(self._fits(value, part) for part in exclusive)
        if exclusive and fitting == 0:
            yield from self._explain_choices(value, exclusive, path, is_secret=is_secret)
        elif fitting > 1:
            yield Misfit(path, "oneOf", f"fits {fitting} of the forms that exclude one another")
        if "not" in schema and self._fits(value, schema["not"]):
            yield Misfit(path, "not", "has a form that is not allowed")
        if "if" in schema:
            branch = "then" if self._fits(value, schema["if"]) else "else"
            yield from self.visit(value, schema.get(branch, True), path, is_secret=is_secret)

    def _explain_choices(self, value: Open, choices: list[Json], path: Path, *, is_secret: bool) -> Iterator[Misfit]:
        """Tell what is wrong by the only form whose type is right, if there is one."""
        near = [list(self.visit(value, part, path, is_secret=is_secret)) for part in choices]
        near = [found for found in near if not any(each.keyword == "type" and each.path == path for each in found)]
        if len(near) == 1:
            yield from near[0]
        else:
            yield Misfit(path, "anyOf", _say_forms(choices))

    def _check_choices(self, value: Open, schema: dict[str, Json], *, is_secret: bool) -> Iterator[tuple[str, str]]:
        """Check what takes the whole value; yields keyword and message."""
        choices = schema.get("enum")
        if isinstance(choices, list) and not self._is_chosen(value, choices):
            shown = ", ".join(_spell(each) for each in choices[:_CHOICES_SHOWN_MAX])
            yield "enum", "is none of the values that are allowed" if is_secret else f"must be one of {shown}"
        if "const" in schema and not equal(value, schema["const"]):
            yield "const", "is not the value that is allowed" if is_secret else f"must be {_spell(schema['const'])}"
        if isinstance(value, list) and schema.get("uniqueItems") is True and _has_twins(value):
            yield "uniqueItems", "has an item twice"

    def _check_list(
        self, value: Sequence[Open], schema: dict[str, Json], path: Path, *, is_secret: bool
    ) -> Iterator[Misfit]:
        first = _parts(schema, "prefixItems")
        for index, item in enumerate(value):
            part = first[index] if index < len(first) else schema.get("items", True)
            yield from self.visit(item, part, (*path, index), is_secret=is_secret)
        if "contains" in schema and not self._has_holes(value):
            least, most = schema.get("minContains", 1), schema.get("maxContains", len(value))
            count = sum(self._fits(item, schema["contains"]) for item in value)
            if not cast("int", least) <= count <= cast("int", most):
                yield Misfit(path, "contains", f"has {count} items of the form that is counted")

    def _check_map(
        self, value: Mapping[str, Open], schema: dict[str, Json], path: Path, *, is_secret: bool
    ) -> Iterator[Misfit]:
        properties, patterns = _map(schema, "properties"), self._compile(_map(schema, "patternProperties"))
        for name in _names(schema, "required"):
            if name not in value:
                yield Misfit((*path, name), "required", "is missing")
        self._budget.spend(len(patterns) * len(value))
        known = tuple(islice(properties, COMPARED_MAX))
        for name, content in value.items():
            parts = [properties[name]] if name in properties else []
            parts += [part for pattern, part in patterns if pattern is None or matches(pattern, name)]
            if not parts and schema.get("additionalProperties") is False:
                yield Misfit((*path, name), "additionalProperties", "is not known", known)
            for part in parts or [schema.get("additionalProperties", True)]:
                if part is not False or parts:
                    yield from self.visit(content, part, (*path, name), is_secret=is_secret)
        yield from self._check_dependencies(value, schema, path, is_secret=is_secret)

    def _check_dependencies(
        self, value: Mapping[str, Open], schema: dict[str, Json], path: Path, *, is_secret: bool
    ) -> Iterator[Misfit]:
        if "propertyNames" in schema:
            for name in value:
                if not self._fits(name, schema["propertyNames"]):
                    yield Misfit((*path, name), "propertyNames", "has a name that is not allowed")
        for name, needed in _choose(_map(schema, "dependentRequired"), value):
            for other in needed if isinstance(needed, list) else ():
                if other not in value:
                    yield Misfit((*path, str(other)), "required", f"is missing; {quote(name)} needs it")
        for _, part in _choose(_map(schema, "dependentSchemas"), value):
            yield from self.visit(cast("Open", value), part, path, is_secret=is_secret)


def _parts(schema: dict[str, Json], keyword: str) -> list[Json]:
    found = schema.get(keyword)
    return found if isinstance(found, list) else []


_NO_MEMBERS: Final[dict[str, Json]] = {}


def _map(schema: dict[str, Json], keyword: str) -> dict[str, Json]:
    found = schema.get(keyword)
    return found if isinstance(found, dict) else _NO_MEMBERS


def _choose(members: dict[str, Json], value: Mapping[str, Open]) -> list[tuple[str, Json]]:
    """Return those of *members* that *value* has, in their order; only the fewer of the two are looked through."""
    if len(members) <= len(value):
        return [(name, part) for name, part in members.items() if name in value]
    order = {name: place for place, name in enumerate(members)} if len(value) > 1 else {}
    found = [(name, members[name]) for name in value if name in members]
    return sorted(found, key=lambda each: order.get(each[0], 0))


def _names(schema: dict[str, Json], keyword: str) -> list[str]:
    return [name for name in _parts(schema, keyword) if isinstance(name, str)]


def _check_type(value: Open, schema: dict[str, Json], *, is_secret: bool) -> str | None:
    kind = schema.get("type")
    if kind is None:
        return None
    wanted: Types = frozenset({kind}) if isinstance(kind, str) else frozenset(map(str, _parts(schema, "type")))
    if isinstance(value, Hole):
        if value.types is None or overlap(value.types, wanted):
            return None
        return f"must be {show_types(wanted)}, but the expression gives {show_types(value.types)}"
    name = type_name(cast("Json", value))
    if name in wanted or (name == "integer" and "number" in wanted):
        return None
    return f"must be {show_types(wanted)}, not {_show(value, name, is_secret=is_secret)}"


def _show(value: Open, kind: str, *, is_secret: bool) -> str:
    named = show_types(frozenset({kind}))
    if is_secret or kind in {"null", "array", "object"}:
        return named
    shown = quote(canonical(cast("Json", value)), _SHOWN_LENGTH_MAX)
    return f"the text {shown}" if kind == "string" else shown


def _spell(value: Json) -> str:
    return quote(canonical(value), _SHOWN_LENGTH_MAX)


def _check_plain(value: Open, schema: dict[str, Json], *, is_secret: bool) -> Iterator[tuple[str, str]]:
    """Check what depends on the value alone, also where parts aren't known; yields keyword and message."""
    if isinstance(value, int | Decimal) and not isinstance(value, bool):
        yield from _check_number(value, schema, is_secret=is_secret)
    if isinstance(value, str):
        yield from _check_text(value, schema)
    yield from _check_size(value, schema)


def _has_twins(items: Sequence[Open]) -> bool:
    return len({_freeze(item) for item in items}) < len(items)


def _freeze(value: Open) -> Hashable:
    """Return something that is equal, and has one hash, where the values are equal to JSON Schema."""
    if isinstance(value, bool):
        return ("boolean", value)
    if isinstance(value, list):
        return ("list", *map(_freeze, value))
    return frozenset((key, _freeze(item)) for key, item in value.items()) if isinstance(value, dict) else value


_BOUNDS: Final[tuple[tuple[str, str, Callable[[Decimal, Decimal], bool]], ...]] = (
    ("minimum", "less than {}", lambda value, bound: value >= bound),
    ("maximum", "more than {}", lambda value, bound: value <= bound),
    ("exclusiveMinimum", "not more than {}", lambda value, bound: value > bound),
    ("exclusiveMaximum", "not less than {}", lambda value, bound: value < bound),
)


def _check_number(value: int | Decimal, schema: dict[str, Json], *, is_secret: bool) -> Iterator[tuple[str, str]]:
    shown = "is " if is_secret else f"is {_spell(value)}, "
    for keyword, text, holds in _BOUNDS:
        bound = schema.get(keyword)
        if isinstance(bound, int | Decimal) and not holds(Decimal(value), Decimal(bound)):
            yield keyword, shown + text.format(_spell(bound))
    step = schema.get("multipleOf")
    if isinstance(step, int | Decimal) and step and Fraction(value) % Fraction(step):
        yield "multipleOf", f"{shown}no multiple of {_spell(step)}"


def _check_text(value: str, schema: dict[str, Json]) -> Iterator[tuple[str, str]]:
    pattern = schema.get("pattern")
    if isinstance(pattern, str) and not _matches(pattern, value):
        yield "pattern", f"does not match the pattern {quote(pattern)}"
    known = FORMATS.get(str(schema.get("format")))
    if known is not None and not known(value):
        yield "format", f"is no {schema['format']}"


def _matches(pattern: str, text: str) -> bool:
    compiled = _compile_safe(pattern)
    return compiled is None or matches(compiled, text)


def _compile_safe(pattern: str) -> re.Pattern[str] | None:
    """Return the pattern compiled; None, which matches anything, where it isn't safe."""
    try:
        return compile_pattern(pattern)
    except UnsafePatternError:
        # The schema of an input has been checked; whoever checks a tool's refuses the tool.
        return None


_SIZES: Final = (
    (str, "minLength", "maxLength", "characters"),
    (list, "minItems", "maxItems", "items"),
    (dict, "minProperties", "maxProperties", "properties"),
)


def _check_size(value: Open, schema: dict[str, Json]) -> Iterator[tuple[str, str]]:
    for kind, least, most, unit in _SIZES:
        if not isinstance(value, kind):
            continue
        size = len(value)
        bound = schema.get(least)
        if isinstance(bound, int | Decimal) and size < bound:
            yield least, f"has {size} {unit}, fewer than {bound}"
        bound = schema.get(most)
        if isinstance(bound, int | Decimal) and size > bound:
            yield most, f"has {size} {unit}, more than {bound}"
