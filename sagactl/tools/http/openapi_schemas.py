"""Schemas of OpenAPI as JSON Schema of a tool: references put in, old spellings made new, the rest left out.

An argument's schema is kept as strict as it is. An answer's says what there is and no more: real servers answer a
little else than their descriptions have it, and an answer that doesn't fit would leave a call in doubt.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, cast

from sagactl.core.canonical import Json
from sagactl.schemas.patterns import UnsafePatternError, compile_pattern
from sagactl.tools.http.openapi_reading import follow

PARTS_MAX: Final = 600
"""Parts of one schema; what lies further in may be anything."""

DEPTH_MAX: Final = 12

_LISTS: Final = ("allOf", "anyOf", "oneOf", "prefixItems")
_KEPT: Final = frozenset(
    {"type", "enum", "const", "format", "default", "minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum"}
    | {"multipleOf", "minLength", "maxLength", "minItems", "maxItems", "uniqueItems", "minProperties", "maxProperties"}
)
_DESCRIPTION_MAX: Final = 200


class Schemas:
    """Schemas of one description, within its bounds.

    Args:
        root: The description, in which references lead somewhere.
        is_answer: Whether the schemas are those of answers.
        dropped: Where what isn't taken over is put, in words.
    """

    def __init__(self, root: Mapping[str, Any], *, is_answer: bool, dropped: list[str]) -> None:
        self._root = root
        self._is_answer = is_answer
        self._left = PARTS_MAX
        self._dropped = dropped

    def write(self, schema: Any, within: tuple[str, ...] = ()) -> dict[str, Json]:
        """Return *schema* as JSON Schema 2020-12; `{}`, which is anything, beyond the bounds."""
        self._left -= 1
        reference = schema.get("$ref") if isinstance(schema, dict) else None
        found = follow(schema, self._root)
        if not isinstance(found, dict) or self._left < 0 or len(within) > DEPTH_MAX or reference in within:
            self._note_anything(found, reference, within)
            return {}
        inner = (*within, str(reference)) if reference is not None else within
        written = self._write_inner(found, (*inner, ""))
        if found.get("nullable") is True:
            return _admit_null(written)
        return written

    def _note_anything(self, found: Any, reference: object, within: tuple[str, ...]) -> None:
        """Say where a schema becomes one that takes anything, though the description says more."""
        if reference is not None and reference in within:
            self._dropped.append(f"{reference} within itself: there it is anything")
        elif reference is not None and found is None:
            self._dropped.append(f"{reference}, which leads elsewhere or nowhere: it is anything")
        elif isinstance(found, dict) and found:
            self._dropped.append("a schema that is too large: what lies deeper is anything")

    def _write_inner(self, found: dict[str, Any], within: tuple[str, ...]) -> dict[str, Json]:
        written: dict[str, Json] = {}
        for key in ("type",) if self._is_answer else sorted(_KEPT & found.keys()):
            if key in found:
                _put(written, key, found)
        for key in _LISTS:
            if isinstance(found.get(key), list):
                written[key] = [self.write(each, within) for each in found[key]]
        if self._is_answer and "oneOf" in written:
            written["anyOf"] = written.pop("oneOf")
        if isinstance(found.get("items"), dict):
            written["items"] = self.write(found["items"], within)
        if isinstance(found.get("properties"), dict):
            written["properties"] = self._write_properties(found["properties"], within)
        return written if self._is_answer else self._write_strict(found, written, within)

    def _write_properties(self, properties: Mapping[str, Any], within: tuple[str, ...]) -> dict[str, Json]:
        kept = {}
        for name, member in properties.items():
            found = follow(member, self._root)
            hidden = "writeOnly" if self._is_answer else "readOnly"
            if not (isinstance(found, dict) and found.get(hidden) is True):
                kept[str(name)] = cast("Json", self.write(member, within))
        return kept

    def _write_strict(
        self, found: dict[str, Any], written: dict[str, Json], within: tuple[str, ...]
    ) -> dict[str, Json]:
        required = found.get("required")
        properties = written.get("properties")
        if isinstance(required, list):
            names = [str(each) for each in required]
            known = [name for name in names if not isinstance(properties, dict) or name in properties]
            written.update({"required": list(known)} if known else {})
        rest = found.get("additionalProperties")
        if isinstance(rest, bool):
            written["additionalProperties"] = rest
        elif isinstance(rest, dict):
            written["additionalProperties"] = self.write(rest, within)
        if isinstance(found.get("pattern"), str):
            if _is_safe(found["pattern"]):
                written["pattern"] = found["pattern"]
            else:
                self._dropped.append(f"the pattern {found['pattern']}, which could take for ever")
        if found.get("format") == "password":
            written["writeOnly"] = True
        text = found.get("description")
        if isinstance(text, str) and text.strip():
            written["description"] = " ".join(text.split())[:_DESCRIPTION_MAX]
        return written


def _put(written: dict[str, Json], key: str, found: Mapping[str, Any]) -> None:
    """Put one keyword; OpenAPI 3.0 has `exclusiveMinimum: true` beside `minimum`."""
    bound = {"exclusiveMinimum": "minimum", "exclusiveMaximum": "maximum"}.get(key)
    if bound is None or not isinstance(found[key], bool):
        written[key] = found[key]
    elif found[key] and bound in found:
        written[key] = found[bound]


def _admit_null(schema: dict[str, Json]) -> dict[str, Json]:
    kind = schema.get("type")
    if isinstance(kind, str) and "enum" not in schema:
        return {**schema, "type": [kind, "null"]}
    return {"anyOf": [schema, {"type": "null"}]} if schema else schema


def _is_safe(pattern: str) -> bool:
    try:
        compile_pattern(pattern)
    except UnsafePatternError:
        return False
    return True


def merge_all_of(schema: dict[str, Json]) -> dict[str, Json]:
    """Return a schema whose `allOf` of objects is one object, so that its properties can be arguments."""
    parts = schema.get("allOf")
    if not isinstance(parts, list):
        return schema
    properties: dict[str, Json] = {}
    required: list[Json] = []
    for part in [*map(_as_map, parts), {**schema, "allOf": None}]:
        merged = merge_all_of(part)
        properties |= _as_map(merged.get("properties"))
        names = merged.get("required")
        required += [name for name in (names if isinstance(names, list) else []) if name not in required]
    rest = {key: value for key, value in schema.items() if key not in {"allOf", "properties", "required"}}
    whole: dict[str, Json] = {**rest, "type": "object", "properties": properties}
    return {**whole, "required": required} if required else whole


def _as_map(value: Json) -> dict[str, Json]:
    return value if isinstance(value, dict) else {}
