"""What a JSON Schema says about a path into its values, as far as that is certain.

Used to find a misspelt field or a value of the wrong type before anything runs (rule F5). Wherever a schema leaves
something open, or is cleverer than this module, the answer is "unknown", and the value is checked when it is there.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from decimal import Decimal
from typing import Final, TypeAlias

from sagactl.core.canonical import Json
from sagactl.dataclass import dataclass
from sagactl.written.visible import quote

Types: TypeAlias = frozenset[str]

ANYTHING: Final[dict[str, Json]] = {}
_REFS_MAX: Final = 16
_CLEVER: Final = frozenset({"anyOf", "oneOf", "allOf", "not", "if", "$dynamicRef", "dependentSchemas"})
_TYPE_NAMES: Final = {bool: "boolean", int: "integer", Decimal: "number", str: "string", list: "array", dict: "object"}
_SHOWN: Final = {
    "null": "null",
    "boolean": "a boolean",
    "integer": "a whole number",
    "number": "a number",
    "string": "text",
    "array": "a list",
    "object": "a map",
}


@dataclass(frozen=True, slots=True)
class Typed:
    """A schema within its root, to which its `$ref`s refer."""

    schema: Json
    root: Json

    @classmethod
    def of(cls, schema: Mapping[str, Json]) -> Typed:
        """Return a schema that is its own root."""
        whole = dict(schema)
        return cls(whole, whole)

    def resolve(self) -> Typed:
        """Return what the schema refers to, and the one alternative to null where it is nullable."""
        found: Json = self.schema
        for _ in range(_REFS_MAX):
            if not isinstance(found, dict):
                break
            target, choices = found.get("$ref"), found.get("anyOf")
            if isinstance(target, str):
                found = follow(self.root, target)
            elif isinstance(choices, list) and len(rest := [each for each in choices if not _is_null(each)]) == 1:
                found = rest[0]
            else:
                return Typed(found, self.root)
        return Typed(found if isinstance(found, bool) else ANYTHING, self.root)


class NoSuchFieldError(LookupError):
    """The schema certainly has nothing there; `known` are the names that it has."""

    def __init__(self, message: str, known: Sequence[str] = ()) -> None:
        super().__init__(message)
        self.known = known


def follow(root: Json, target: str) -> Json:
    """Return the part of *root* that `#/a/b` points to; anything at all where it points nowhere."""
    found = root
    for step in target.removeprefix("#").split("/")[1:]:
        name = step.replace("~1", "/").replace("~0", "~")
        if isinstance(found, list) and name.isdecimal() and int(name) < len(found):
            found = found[int(name)]
        elif isinstance(found, dict) and name in found:
            found = found[name]
        else:
            return ANYTHING
    return found if target.startswith("#") else ANYTHING


def _is_null(schema: Json) -> bool:
    return isinstance(schema, dict) and schema.get("type") == "null"


def descend(here: Typed, step: str | int) -> Typed:
    """Return the schema one step further; raises NoSuchFieldError."""
    typed = here.resolve()
    schema = typed.schema
    unknown = Typed(ANYTHING, here.root)
    if not isinstance(schema, dict) or _is_clever(schema):
        return unknown
    kinds = types_of(typed)
    wanted = "array" if isinstance(step, int) else "object"
    if kinds is not None and wanted not in kinds:
        name = f"[{step}]" if isinstance(step, int) else quote(step)
        raise NoSuchFieldError(f"is {show_types(kinds)}, so it has no {name}")
    if isinstance(step, int):
        return Typed(_item(schema, step), here.root)
    found = _member(schema, step)
    return unknown if found is None else Typed(found, here.root)


def _is_clever(schema: dict[str, Json]) -> bool:
    """Tell whether what a member can be is decided by more than its name; that names must be there is no such thing."""
    found = _CLEVER & schema.keys()
    forms = _list(schema.get("anyOf"))
    asks_for_names = all(isinstance(form, dict) and form.keys() == {"required"} for form in forms)
    return bool(found) and not (found == {"anyOf"} and asks_for_names)


def _item(schema: dict[str, Json], index: int) -> Json:
    first = schema.get("prefixItems")
    if isinstance(first, list) and index < len(first):
        return first[index]
    items = schema.get("items", ANYTHING)
    if items is False:
        raise NoSuchFieldError(f"has at most {len(first) if isinstance(first, list) else 0} items")
    return items


def _member(schema: dict[str, Json], name: str) -> Json:
    """Return the schema of a property; where properties are listed, others count only if they are allowed in words."""
    properties = schema.get("properties")
    others = schema.get("additionalProperties")
    if isinstance(properties, dict) and name in properties:
        return properties[name]
    if isinstance(others, dict):
        return others
    if others is True or schema.get("patternProperties"):
        return None
    if others is False or properties:
        known = list(properties) if isinstance(properties, dict) else []
        raise NoSuchFieldError(f"has no {quote(name)}", known)
    return None


def types_of(typed: Typed) -> Types | None:
    """Return the JSON types that values of the schema can have, or None where any could come."""
    schema = typed.schema
    if isinstance(schema, dict) and isinstance(schema.get("anyOf"), list) and "$ref" not in schema:
        each = [types_of(Typed(part, typed.root).resolve()) for part in _list(schema["anyOf"])]
        known = [kinds for kinds in each if kinds is not None]
        return frozenset[str]().union(*known) if len(known) == len(each) else None
    schema = typed.resolve().schema
    if not isinstance(schema, dict):
        return None
    kind = schema.get("type")
    if isinstance(kind, str):
        return frozenset({kind})
    if isinstance(kind, list):
        return frozenset(str(each) for each in kind)
    values = schema.get("enum") or ([schema["const"]] if "const" in schema else None)
    return frozenset(map(type_name, values)) if isinstance(values, list) and values else None


def _list(value: Json) -> list[Json]:
    return value if isinstance(value, list) else []


def type_name(value: Json) -> str:
    """Return the JSON type of *value*; a decimal is a number and never an integer, also if it is whole."""
    return "null" if value is None else _TYPE_NAMES[type(value)]


def show_types(kinds: Types) -> str:
    """Name types for a message."""
    return " or ".join(_SHOWN.get(kind, kind) for kind in sorted(kinds))


def overlap(first: Types, second: Types) -> bool:
    """Tell whether a value can be of both; a number may be an integer."""
    return bool(_widen(first) & _widen(second))


def _widen(kinds: Types) -> Types:
    return kinds | {"integer"} if "number" in kinds else kinds


def array_of(items: Typed) -> Typed:
    """Return the schema of a list of such values."""
    return Typed({"type": "array", "items": items.schema}, items.root)
