"""JSON as it is printed: in ASCII, so that no terminal obeys it and no encoding can spoil it.

Numbers are exact (see `core.canonical`); keys keep the order of the document, the schema first. Nothing that a log or
an error can hold is refused here, half a surrogate pair neither: a view must not fail over what it shows.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Final

from sagactl.core.canonical import Json, canonical

_NOT_PLAIN: Final = re.compile(r"[^ -~]")
_quote = json.JSONEncoder(ensure_ascii=False).encode


def spell(value: Json | Mapping[str, Json], *, indent: int | None = None) -> str:
    """Return *value* as JSON on one line, or on several where *indent* says how far members stand in."""
    text = spell_as_written(value) if indent is None else _spell_tall(value, indent, 0)
    return text if text.isascii() and "\x7f" not in text else "\n".join(map(_to_ascii, text.split("\n")))


def spell_as_written(value: object) -> str:
    """Return *value* as JSON on one line, its text as it is and unsafe as yet."""
    match value:
        case str():
            return _quote(value)
        case Mapping():
            return "{" + ", ".join(f"{_quote(str(key))}: {spell_as_written(each)}" for key, each in value.items()) + "}"
        case list() | tuple():
            return "[" + ", ".join(map(spell_as_written, value)) + "]"
        case _:
            return canonical(value)  # type: ignore[arg-type]  # what is no JSON is refused there


def _spell_tall(value: object, indent: int, depth: int) -> str:
    inner, outer = "\n" + " " * indent * (depth + 1), "\n" + " " * indent * depth
    if isinstance(value, Mapping) and value:
        members = (f"{_quote(str(key))}: {_spell_tall(each, indent, depth + 1)}" for key, each in value.items())
        return "{" + inner + ("," + inner).join(members) + outer + "}"
    if isinstance(value, list | tuple) and value:
        return "[" + inner + ("," + inner).join(_spell_tall(item, indent, depth + 1) for item in value) + outer + "]"
    return spell_as_written(value)


def _to_ascii(line: str) -> str:
    return _NOT_PLAIN.sub(_escape, line)


def _escape(found: re.Match[str]) -> str:
    code = ord(found.group())
    if code <= 0xFFFF:
        return f"\\u{code:04x}"
    high, low = divmod(code - 0x10000, 0x400)
    return f"\\u{0xD800 + high:04x}\\u{0xDC00 + low:04x}"
