"""The quick way to check a value: plain functions made from a schema that uses the common keywords only.

Most tools take a flat object of strings and numbers, and importing a JSON Schema library for them would cost more than
everything else a short command does. `compile_simple` answers None for any schema beyond its keywords, and the library
decides; a test holds the two to the same verdicts.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from decimal import Decimal
from functools import partial
from typing import Any, Final, TypeAlias, cast

from sagactl.core.canonical import Json
from sagactl.core.keys import SECRET_MARK
from sagactl.schemas.formats import FORMATS
from sagactl.schemas.patterns import compile_pattern, matches
from sagactl.tools.explain import explain, join_path, place

Check: TypeAlias = Callable[[Json, str], "str | None"]
"""Takes a value and its path; returns what is wrong, or None."""

ANNOTATIONS: Final = frozenset(
    {"title", "description", "default", "examples", "deprecated", "readOnly", "writeOnly", "$comment", "$schema"}
    | {"contentMediaType", "contentEncoding"}
)


class NotSimpleError(ValueError):
    """The schema needs the library."""


def compile_simple(schema: Mapping[str, Json]) -> Check | None:
    """Return a check for *schema*, or None where it uses more than the common keywords."""
    try:
        return _compile(schema, hides=False)
    except NotSimpleError:
        return None


def is_integer(value: object) -> bool:
    """Tell whether *value* is an integer: `true` is none, and neither is the decimal 1.0."""
    return isinstance(value, int) and not isinstance(value, bool)


def is_number(value: object) -> bool:
    """Tell whether *value* is an integer or a decimal."""
    return isinstance(value, int | Decimal) and not isinstance(value, bool)


def is_secret(value: object) -> bool:
    """Tell whether *value* is a reference to a secret, which stands for a string that isn't known yet."""
    return isinstance(value, dict) and value.keys() == {SECRET_MARK} and isinstance(value[SECRET_MARK], str)


_TYPES: Final[dict[str, Callable[[object], bool]]] = {
    "string": lambda value: isinstance(value, str),
    "integer": is_integer,
    "number": is_number,
    "boolean": lambda value: isinstance(value, bool),
    "array": lambda value: isinstance(value, list),
    "object": lambda value: isinstance(value, dict),
    "null": lambda value: value is None,
}


def is_same(one: object, two: object) -> bool:
    """Tell whether two JSON values are equal; `true` and 1 are not, 1 and 1.0 are."""
    if isinstance(one, bool) or isinstance(two, bool):
        return one is two
    if isinstance(one, dict) and isinstance(two, dict):
        return one.keys() == two.keys() and all(is_same(one[key], two[key]) for key in one)
    if isinstance(one, list) and isinstance(two, list):
        return len(one) == len(two) and all(map(is_same, one, two))
    return one == two


def _compile(schema: object, *, hides: bool) -> Check:
    if not isinstance(schema, dict):
        raise NotSimpleError
    hides = hides or schema.get("writeOnly") is True
    checks = [
        _KEYWORDS[keyword](keyword, expected, schema, hides) if keyword in _KEYWORDS else _refuse()
        for keyword, expected in schema.items()
        if keyword not in ANNOTATIONS
    ]
    if schema.get("writeOnly") is True:
        return partial(_check_unless_secret, checks)
    return checks[0] if len(checks) == 1 else partial(_check_all, checks)


def _refuse() -> Check:
    raise NotSimpleError


def _check_all(checks: list[Check], value: Json, path: str) -> str | None:
    for check in checks:
        if (problem := check(value, path)) is not None:
            return problem
    return None


def _check_unless_secret(checks: list[Check], value: Json, path: str) -> str | None:
    return None if is_secret(value) else _check_all(checks, value, path)


def _make(keyword: str, expected: object, hides: bool, holds: Callable[[Any], bool]) -> Check:
    def check(value: Json, path: str) -> str | None:
        return None if holds(value) else place(path, explain(keyword, expected, value, hides=hides))

    return check


_Compile: TypeAlias = Callable[[str, Any, "dict[str, Json]", bool], Check]


def _compile_type(keyword: str, expected: Any, _: dict[str, Json], hides: bool) -> Check:
    names = expected if isinstance(expected, list) else [expected]
    if not names or not all(isinstance(name, str) and name in _TYPES for name in names):
        raise NotSimpleError
    tests = [_TYPES[name] for name in names]
    if len(tests) == 1:
        return _make(keyword, expected, hides, tests[0])
    return _make(keyword, expected, hides, lambda value: any(test(value) for test in tests))


def _compile_values(keyword: str, expected: Any, _: dict[str, Json], hides: bool) -> Check:
    values = [expected] if keyword == "const" else expected
    if not isinstance(values, list) or not values:
        raise NotSimpleError
    return _make(keyword, expected, hides, lambda value: any(is_same(value, each) for each in values))


_COMPARE: Final[dict[str, Callable[[Any, Any], bool]]] = {
    "minimum": lambda value, bound: value >= bound,
    "maximum": lambda value, bound: value <= bound,
    "exclusiveMinimum": lambda value, bound: value > bound,
    "exclusiveMaximum": lambda value, bound: value < bound,
}


def _compile_bound(keyword: str, expected: Any, _: dict[str, Json], hides: bool) -> Check:
    if not is_number(expected):
        raise NotSimpleError
    compare = _COMPARE[keyword]
    return _make(keyword, expected, hides, lambda value: not is_number(value) or compare(value, expected))


def _compile_size(keyword: str, expected: Any, _: dict[str, Json], hides: bool) -> Check:
    if not is_integer(expected) or expected < 0:
        raise NotSimpleError
    kind = str if keyword.endswith("Length") else list
    compare = _COMPARE["minimum" if keyword.startswith("min") else "maximum"]
    return _make(keyword, expected, hides, lambda value: not isinstance(value, kind) or compare(len(value), expected))


def _compile_pattern(keyword: str, expected: Any, _: dict[str, Json], hides: bool) -> Check:
    if not isinstance(expected, str):
        raise NotSimpleError
    compiled = compile_pattern(expected)
    return _make(keyword, expected, hides, lambda value: not isinstance(value, str) or matches(compiled, value))


def _compile_format(keyword: str, expected: Any, _: dict[str, Json], hides: bool) -> Check:
    if not isinstance(expected, str):
        raise NotSimpleError
    known = FORMATS.get(expected)
    return _make(keyword, expected, hides, lambda value: not known or not isinstance(value, str) or known(value))


def _compile_items(_: str, expected: Any, __: dict[str, Json], hides: bool) -> Check:
    check_item = _compile(expected, hides=hides)

    def check(value: Json, path: str) -> str | None:
        if not isinstance(value, list):
            return None
        for index, item in enumerate(value):
            if (problem := check_item(item, join_path(path, index))) is not None:
                return problem
        return None

    return check


def _compile_required(_: str, expected: Any, __: dict[str, Json], ___: bool) -> Check:
    if not isinstance(expected, list) or not all(isinstance(name, str) for name in expected):
        raise NotSimpleError

    def check(value: Json, path: str) -> str | None:
        missing = [name for name in expected if isinstance(value, dict) and name not in value]
        return place(path, f"`{missing[0]}` is missing") if missing else None

    return check


def _compile_properties(_: str, expected: Any, __: dict[str, Json], hides: bool) -> Check:
    if not isinstance(expected, dict):
        raise NotSimpleError
    checks = {name: _compile(member, hides=hides) for name, member in expected.items()}

    def check(value: Json, path: str) -> str | None:
        for name, member in value.items() if isinstance(value, dict) else ():
            if name in checks and (problem := checks[name](member, join_path(path, name))) is not None:
                return problem
        return None

    return check


def _compile_rest(_: str, expected: Any, schema: dict[str, Json], hides: bool) -> Check:
    known = schema.get("properties", {})
    if not isinstance(known, dict):
        raise NotSimpleError
    if isinstance(expected, bool):
        return _make_closed(known, is_closed=not expected)
    check_rest = _compile(expected, hides=hides)

    def check(value: Json, path: str) -> str | None:
        for name, member in value.items() if isinstance(value, dict) else ():
            if name not in known and (problem := check_rest(member, join_path(path, name))) is not None:
                return problem
        return None

    return check


def _make_closed(known: Mapping[str, Json], *, is_closed: bool) -> Check:
    names = f"it takes {', '.join(f'`{name}`' for name in known)}" if known else "it takes none"

    def check(value: Json, path: str) -> str | None:
        unknown = [name for name in cast("dict[str, Json]", value) if name not in known] if _closes(value) else []
        return place(path, f"`{unknown[0]}` is no known property; {names}") if unknown else None

    def _closes(value: Json) -> bool:
        return is_closed and isinstance(value, dict)

    return check


def _compile_any(keyword: str, expected: Any, _: dict[str, Json], hides: bool) -> Check:
    if not isinstance(expected, list) or not expected:
        raise NotSimpleError
    checks = [_compile(form, hides=hides) for form in expected]
    return _make(keyword, expected, hides, lambda value: any(check(value, "") is None for check in checks))


_KEYWORDS: Final[dict[str, _Compile]] = {
    "type": _compile_type,
    "enum": _compile_values,
    "const": _compile_values,
    **dict.fromkeys(_COMPARE, _compile_bound),
    **dict.fromkeys(("minLength", "maxLength", "minItems", "maxItems"), _compile_size),
    "pattern": _compile_pattern,
    "format": _compile_format,
    "items": _compile_items,
    "required": _compile_required,
    "properties": _compile_properties,
    "additionalProperties": _compile_rest,
    "anyOf": _compile_any,
}
