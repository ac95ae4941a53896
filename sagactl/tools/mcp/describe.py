"""From what a server was pinned with and what its operator says of it to tools that sagas can call.

What a server says of itself (its annotations) makes a tool more careful, never less: a tool only reads, and can be
repeated, where the operator says so and the server doesn't contradict. One tool that can't be had breaks no other.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Final, cast

from sagactl.core.canonical import Json, digest
from sagactl.core.template import paths_of
from sagactl.tools.api import DECLARATIONS, Declaration
from sagactl.tools.mcp.connection import Connection
from sagactl.tools.mcp.lock import Pin, PinnedServer
from sagactl.tools.mcp.names import is_tool_name, name_tool
from sagactl.tools.mcp.settings import Server, ToolTable
from sagactl.tools.mcp.tool import ALREADY_GONE, McpTool
from sagactl.tools.plugin import BrokenPlugin, Loaded, Plugin

VERSION_LENGTH: Final = 12
_OLD_DRAFTS: Final = ("draft-04", "draft-06", "draft-07")


def describe_server(
    server: Server, pinned: PinnedServer, connection: Connection, *, place: str, lock: str
) -> Iterator[Loaded | BrokenPlugin]:
    """Yield the tools of a server as those of a plugin of its name, and what can't be used.

    Args:
        server: The operator's settings.
        pinned: What is pinned of it.
        connection: What the calls go through.
        place: Where the settings are, for what is wrong with them.
        lock: The file of the pins.
    """
    functions: list[McpTool] = []
    found: dict[str, ToolTable] = {}
    for table in (*server.tools, *_default_tables(server, pinned)):
        name = table.name or name_tool(server.name, table.tool)
        name = name if "." in name else f"{server.name}.{name}"
        pin = pinned.tools.get(table.tool)
        problem = _object_to(name, table, pin, found)
        if problem is not None or pin is None:
            yield BrokenPlugin(server.name, place, 0, problem or "", (name,))
            continue
        found[name] = table
        function = McpTool(pin, table, connection)
        setattr(function, DECLARATIONS, (replace(_declare(name, server, table, pin), guard=function.guard),))
        functions.append(function)
    where = f"at {server.url}" if server.url else f"of the command {server.command[0]}"
    description = f"Tools {where}, which speaks the Model Context Protocol."
    yield Loaded(
        Plugin(server.name, "mcp", lock, pinned.version or "unknown", description=description), tuple(functions)
    )


def _default_tables(server: Server, pinned: PinnedServer) -> list[ToolTable]:
    """Return a table for each tool that the operator says nothing of; another name for it leaves it as it is."""
    said = {table.tool for table in server.tools if table.name is None or table.name == table.tool}
    return [ToolTable(tool=name) for name in pinned.tools if name not in said]


def _object_to(name: str, table: ToolTable, pin: Pin | None, found: Mapping[str, ToolTable]) -> str | None:
    """Return why there can't be such a tool, or None."""
    if pin is None:
        return f"the server has no tool {table.tool!r}, or it isn't pinned"
    if not is_tool_name(name):
        return f"{name!r} can't be the name of a tool: give it a `name` with small letters"
    if name in found:
        return f"its tools {found[name].tool!r} and {table.tool!r} would both be {name}: give one of them a `name`"
    return _object_to_claims(table, pin) or _object_to_places(table, pin)


def _object_to_claims(table: ToolTable, pin: Pin) -> str | None:
    """Return where the server contradicts its operator on what makes a tool less careful, or None."""
    hints = {name: value for name, value in pin.annotations.items() if name not in table.overrule}
    if table.read_only and (hints.get("readOnlyHint") is False or hints.get("destructiveHint") is True):
        hint = "destructiveHint" if hints.get("destructiveHint") is True else "readOnlyHint"
        return _say_contradiction(table, "read_only", hint, "that it changes things")
    if table.idempotent and table.key is None and not table.read_only and hints.get("idempotentHint") is False:
        return _say_contradiction(table, "idempotent", "idempotentHint", "that a second call has an effect of its own")
    return None


def _say_contradiction(table: ToolTable, claim: str, hint: str, says: str) -> str:
    return (
        f"the settings call {table.tool!r} {claim}, but the server says {says} ({hint}); "
        f'where that is wrong, write overrule = ["{hint}"]'
    )


def _object_to_places(table: ToolTable, pin: Pin) -> str | None:
    properties = pin.input.get("properties")
    known = set(properties) if isinstance(properties, dict) else set()
    for place in (table.key, table.forward_key):
        if place is not None and place.kind == "argument" and place.name not in known:
            return f"the tool {table.tool!r} takes no argument {place.name!r} for the key"
    missing = [name for name in table.secret_arguments if name not in known]
    return f"the tool {table.tool!r} takes no argument {missing[0]!r}" if missing else None


def _declare(name: str, server: Server, table: ToolTable, pin: Pin) -> Declaration:
    idempotent = table.idempotent if table.idempotent is not None else table.key is not None or table.read_only
    return Declaration(
        name=name,
        compensation=table.compensation,
        compensation_with=table.compensation_with,
        probe=table.probe,
        idempotent=idempotent,
        null_safe=table.null_safe,
        late_safe=table.late_safe,
        key_retention=table.key_retention,
        read_only=table.read_only or table.is_probe,
        version=digest([pin.hash, dict(table.said)])[:VERSION_LENGTH],
        arguments_schema=write_arguments_schema(table, pin),
        output_schema=write_output_schema(table, pin),
        secrets=server.secrets,
    )


def write_arguments_schema(table: ToolTable, pin: Pin) -> dict[str, Json]:
    """Return the schema of what a saga gives the tool."""
    if table.with_ is not None:
        named = sorted({str(path[1]) for path in paths_of(table.with_) if path[0] == "args" and len(path) > 1})
        schema: dict[str, Json] = {"type": "object", "properties": {name: {} for name in named}}
        return schema if table.is_probe or table.extra_arguments else {**schema, "additionalProperties": False}
    schema = _modernize(dict(pin.input))
    properties = schema.get("properties")
    if not isinstance(properties, dict):
        return schema
    placed = {place.name for place in (table.key, table.forward_key) if place is not None and place.kind == "argument"}
    secret: dict[str, Json] = {"writeOnly": True}
    schema["properties"] = {
        name: {**member, **secret} if isinstance(member, dict) and name in table.secret_arguments else member
        for name, member in properties.items()
        if name not in placed
    }
    required = schema.get("required")
    if isinstance(required, list):
        schema["required"] = [each for each in required if each not in placed]
    if table.is_probe:  # it is handed all that the action was given, and takes what it knows
        return {**schema, "required": [], "additionalProperties": True}
    if not table.extra_arguments:
        # Most servers leave this open and pass over what they don't know, so that a slip would go unnoticed.
        schema.setdefault("additionalProperties", False)
    return schema


def write_output_schema(table: ToolTable, pin: Pin) -> dict[str, Json]:
    """Return the schema of the tool's output; empty where nobody says what it is."""
    if table.output != "auto":
        return {"type": "string"} if table.output == "text" else {}
    if pin.output is None or table.is_probe:
        return {}
    schema = _modernize(dict(pin.output))
    if not table.gone:
        return schema
    gone: dict[str, Json] = {name: {"const": value} for name, value in ALREADY_GONE.items()}
    return {"anyOf": [schema, {"type": "object", "properties": gone, "required": list(gone)}]}


def _modernize(schema: dict[str, Json]) -> dict[str, Json]:
    """Return a schema of an older draft as one of 2020-12: what they differ in and what servers use is a list of items.

    Without its `$schema`, which names nothing that is of use here.
    """
    given = schema.get("$schema")
    rest = {key: value for key, value in schema.items() if key != "$schema"}
    if isinstance(given, str) and any(draft in given for draft in _OLD_DRAFTS):
        return cast("dict[str, Json]", _modernize_part(rest))
    return rest


def _modernize_part(part: Json) -> Json:
    if isinstance(part, list):
        return [_modernize_part(item) for item in part]
    if not isinstance(part, dict):
        return part
    plain = {key: _modernize_part(value) for key, value in part.items()}
    if isinstance(plain.get("items"), list):
        plain["prefixItems"] = plain.pop("items")
        if "additionalItems" in plain:
            plain["items"] = plain.pop("additionalItems")
    return plain
