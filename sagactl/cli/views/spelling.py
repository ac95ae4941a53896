"""JSON as it is printed: in ASCII, so that no terminal obeys it and no encoding can spoil it.

Values are exact (see `core.canonical`); keys keep the order of the document, the schema first.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Final

from sagactl.core.canonical import Json, canonical

_NOT_PLAIN: Final = re.compile(r"[^ -~]")


def spell(document: Json | Mapping[str, Json], *, indent: int | None = None) -> str:
    """Return *document* as JSON on one line, or on several where *indent* says how far members stand in."""
    return _NOT_PLAIN.sub(_escape, _spell(document)) if indent is None else _spell_tall(document, indent, 0)


def _escape(found: re.Match[str]) -> str:
    code = ord(found.group())
    if code <= 0xFFFF:
        return f"\\u{code:04x}"
    high, low = divmod(code - 0x10000, 0x400)
    return f"\\u{0xD800 + high:04x}\\u{0xDC00 + low:04x}"


def _spell(value: object) -> str:
    if isinstance(value, Mapping):
        return "{" + ", ".join(f"{canonical(str(key))}: {_spell(member)}" for key, member in value.items()) + "}"
    if isinstance(value, list | tuple):
        return "[" + ", ".join(_spell(item) for item in value) + "]"
    return canonical(value)  # type: ignore[arg-type]  # what is no JSON is refused there


def _spell_tall(value: object, indent: int, depth: int) -> str:
    inner, outer = "\n" + " " * indent * (depth + 1), "\n" + " " * indent * depth
    if isinstance(value, Mapping) and value:
        members = (
            f"{_NOT_PLAIN.sub(_escape, canonical(str(key)))}: {_spell_tall(member, indent, depth + 1)}"
            for key, member in value.items()
        )
        return "{" + inner + ("," + inner).join(members) + outer + "}"
    if isinstance(value, Sequence) and not isinstance(value, str) and value:
        return "[" + inner + ("," + inner).join(_spell_tall(item, indent, depth + 1) for item in value) + outer + "]"
    return _NOT_PLAIN.sub(_escape, _spell(value))
