"""Arguments for a check: from a tool's schema where no check file gives them, and such as its schema must refuse."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Final

from sagactl.core.canonical import Json

_WRONG: Final[Mapping[str, Json]] = {
    "string": [],
    "integer": "no number",
    "number": "no number",
    "boolean": "no boolean",
    "array": "no list",
    "object": "no map",
}
_ODD_NAME: Final = "no_such_argument"


def guess_arguments(schema: Mapping[str, Json]) -> dict[str, Json] | str:
    """Return arguments made of examples, defaults and choices, or what there is none for."""
    examples = schema.get("examples")
    if isinstance(examples, list) and examples and isinstance(examples[0], dict):
        return dict(examples[0])
    members = schema.get("properties")
    required = schema.get("required")
    found: dict[str, Json] = {}
    for name in required if isinstance(required, list) else ():
        member = members.get(str(name)) if isinstance(members, dict) else None
        values = list(_guess(member)) if isinstance(member, dict) else []
        if not values:
            return f"nothing says what {name} may be"
        found[str(name)] = values[0]
    return found


def _guess(member: Mapping[str, Json]) -> Iterator[Json]:
    for key in ("examples", "enum"):
        values = member.get(key)
        if isinstance(values, list) and values:
            yield values[0]
    for key in ("default", "const"):
        if key in member:
            yield member[key]


def list_misfits(schema: Mapping[str, Json], arguments: Mapping[str, Json]) -> Iterator[tuple[str, dict[str, Json]]]:
    """Yield arguments that the schema must refuse, each with what is wrong with them."""
    required = schema.get("required")
    for name in required if isinstance(required, list) else ():
        if name in arguments:
            yield f"without {name}", {key: value for key, value in arguments.items() if key != name}
    members = schema.get("properties")
    for name, member in members.items() if isinstance(members, dict) else ():
        kind = member.get("type") if isinstance(member, dict) else None
        if isinstance(kind, str) and kind in _WRONG and name in arguments:
            yield f"with {name} of another type", {**arguments, name: _WRONG[kind]}
    if schema.get("additionalProperties") is False:
        yield "with an argument that it doesn't know", {**arguments, _ODD_NAME: 1}


def list_oddities(arguments: Mapping[str, Json]) -> Iterator[tuple[str, dict[str, Json]]]:
    """Yield arguments that are odd, and that a schema may take or not: one is left out, or is of another type."""
    for name in arguments:
        yield f"without {name}", {key: value for key, value in arguments.items() if key != name}
        yield f"with {name} of another type", {**arguments, name: [] if isinstance(arguments[name], str) else "text"}
