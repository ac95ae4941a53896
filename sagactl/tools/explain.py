"""Sentences about values that break a schema: they name the place and never quote what must stay secret."""

from __future__ import annotations

import json
from collections.abc import Iterable
from decimal import Decimal
from typing import Final

from sagactl.core.canonical import Json
from sagactl.secrets.masking import KNOWN
from sagactl.tools.convert import bound_line

QUOTED_LENGTH_MAX: Final = 60
LISTED_MAX: Final = 8

_ARTICLES: Final = {
    "string": "a string",
    "integer": "an integer",
    "number": "a number",
    "boolean": "true or false",
    "array": "a list",
    "object": "an object",
    "null": "null",
}


def explain(keyword: str, expected: object, value: Json, *, hides: bool) -> str:
    """Say what *value* should be by *keyword*; with *hides*, without a word of the value itself."""
    wanted = _wanted(keyword, expected)
    if hides:
        return f"{wanted} (its value isn't shown)"
    return f"{wanted}, not {name_value(value)}"


def _wanted(keyword: str, expected: object) -> str:  # noqa: PLR0911 - a table, each row with its own form
    match keyword, expected:
        case "type", list():
            return f"must be {' or '.join(_ARTICLES.get(str(each), str(each)) for each in expected)}"
        case "type", _:
            return f"must be {_ARTICLES.get(str(expected), str(expected))}"
        case "enum", list():
            return f"must be one of {_list_values(expected)}"
        case "const", _:
            return f"must be {_quote(expected)}"
        case (("minimum" | "maximum" | "exclusiveMinimum" | "exclusiveMaximum" | "multipleOf"), _):
            return f"must be {_COMPARISONS[keyword]} {expected}"
        case (("minLength" | "maxLength" | "minItems" | "maxItems" | "minProperties" | "maxProperties"), _):
            return f"must have {_COUNTS[keyword]} {expected} {_UNITS[keyword[3:]]}"
        case "pattern", _:
            return f"must match {bound_line(str(expected), QUOTED_LENGTH_MAX)}"
        case "format", _:
            return f"must be a valid {expected}"
        case "uniqueItems", _:
            return "must not hold the same item twice"
    return f"must satisfy `{keyword}` of its schema"


_COMPARISONS: Final = {
    "minimum": "at least",
    "maximum": "at most",
    "exclusiveMinimum": "more than",
    "exclusiveMaximum": "less than",
    "multipleOf": "a multiple of",
}
_COUNTS: Final = {
    "minLength": "at least",
    "maxLength": "at most",
    "minItems": "at least",
    "maxItems": "at most",
    "minProperties": "at least",
    "maxProperties": "at most",
}
_UNITS: Final = {"Length": "characters", "Items": "items", "Properties": "properties"}


def name_value(value: Json) -> str:
    """Quote a scalar, bounded; only say the kind of a list or object."""
    if isinstance(value, dict):
        return "an object"
    if isinstance(value, list):
        return f"a list of {len(value)}"
    return _quote(value)


def _quote(value: object) -> str:
    if isinstance(value, Decimal):
        return bound_line(str(value), QUOTED_LENGTH_MAX)
    text = KNOWN.shorten(value, QUOTED_LENGTH_MAX + 1) if isinstance(value, str) else value
    return bound_line(json.dumps(text, ensure_ascii=False, default=str), QUOTED_LENGTH_MAX)


def _list_values(values: Iterable[object]) -> str:
    quoted = [_quote(value) for value in values]
    more = f" and {len(quoted) - LISTED_MAX} more" if len(quoted) > LISTED_MAX else ""
    return ", ".join(quoted[:LISTED_MAX]) + more


def place(path: str, sentence: str) -> str:
    """Put the place before the sentence; the root has none."""
    return f"{bound_line(path, QUOTED_LENGTH_MAX * 2)}: {sentence}" if path else sentence


def join_path(path: str, key: str | int) -> str:
    """Return the path of a member."""
    if isinstance(key, int):
        return f"{path}[{key}]"
    return f"{path}.{key}" if path else key
