"""The schemas of a declared tool: as written, or made from the references that its request holds."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, cast

from sagactl.core.canonical import Json
from sagactl.core.template import Reference, references
from sagactl.dataclass import dataclass
from sagactl.tools.http.declared import Request
from sagactl.tools.validate import InvalidSchemaError, compile_schema
from sagactl.written.fields import Fields
from sagactl.written.findings import Findings
from sagactl.written.positions import Entry, MapNode, plain_value
from sagactl.written.source import Span
from sagactl.written.visible import quote

SCHEMA_KEYS: Final = ("arguments", "optional", "arguments_schema", "output_schema")
ALREADY_GONE: Final[dict[str, Json]] = {"already_gone": True}
"""The output of a compensation that found nothing to undo."""

_GONE_SCHEMA: Final[dict[str, Json]] = {
    "type": "object",
    "properties": {"already_gone": {"const": True}},
    "required": ["already_gone"],
    "additionalProperties": False,
}


@dataclass(frozen=True, slots=True)
class Schemas:
    """What a tool takes and gives, and the values of arguments that aren't given."""

    arguments: Mapping[str, Json]
    output: Mapping[str, Json]
    defaults: Mapping[str, Json]


def read_schemas(fields: Fields, request: Request | None, findings: Findings) -> Schemas:
    """Return the schemas of a tool; what its request refers to must be among the arguments."""
    arguments = _read_arguments(fields, request, findings)
    properties = arguments.get("properties")
    members = properties if isinstance(properties, dict) else {}
    if request is not None:
        _check_references(arguments, members, request, fields, findings)
    defaults = {name: each["default"] for name, each in members.items() if isinstance(each, dict) and "default" in each}
    return Schemas(arguments, _read_output(fields, findings), defaults)


def _read_arguments(fields: Fields, request: Request | None, findings: Findings) -> dict[str, Json]:
    whole, short = fields.entry("arguments_schema"), fields.entry("arguments")
    optional = fields.names("optional") or ()
    if whole is not None and short is not None:
        message = "arguments is short for arguments_schema: give one of them"
        findings.error("exclusive-keys", message, short.key_span, first=whole.key_span)
    if whole is not None:
        return _read_schema(fields, "arguments_schema", findings)
    if short is None:
        # What comes of an output isn't there when the output was lost, and it is called all the same (E7).
        return _derive(request, {each.value for each in optional}, needs_all=not _is_null_safe(fields))
    node = fields.map("arguments")
    properties = {} if node is None else cast("dict[str, Json]", plain_value(node))
    for each in optional:
        if each.value not in properties:
            findings.unknown(
                "unknown-argument",
                f"optional: there is no argument {quote(each.value)}",
                each.span,
                word=each.value,
                known=properties,
                hint=None,
            )
    needed = [name for name, each in properties.items() if not (isinstance(each, dict) and "default" in each)]
    required = [name for name in needed if name not in {each.value for each in optional}]
    schema = _close(properties, required)
    _compile(schema, short, findings)
    return schema


def _derive(request: Request | None, optional: set[str], *, needs_all: bool) -> dict[str, Json]:
    """Return a schema that takes what the request refers to, and anything for each of it."""
    paths = [found.path for found in ([] if request is None else _references(request)) if found.path[0] == "args"]
    if any(len(path) == 1 for path in paths):
        return {"type": "object"}
    names = list(dict.fromkeys(str(path[1]) for path in paths))
    required = [name for name in names if needs_all and name not in optional]
    return _close({name: {} for name in names}, required)


def _close(properties: dict[str, Json], required: list[str]) -> dict[str, Json]:
    schema: dict[str, Json] = {"type": "object", "properties": properties, "additionalProperties": False}
    return {**schema, "required": list(required)} if required else schema


def _references(request: Request) -> list[Reference]:
    templates = [*request.segments, *(value for _, value in (*request.query, *request.headers))]
    templates += [] if request.body is None else [request.body]
    found = [each for template in templates for each in references(template) if isinstance(each, Reference)]
    return found if request.url is None else [request.url, *found]


def _read_output(fields: Fields, findings: Findings) -> dict[str, Json]:
    return {} if fields.entry("output_schema") is None else _read_schema(fields, "output_schema", findings)


def admit_gone(schema: Mapping[str, Json]) -> Mapping[str, Json]:
    """Return the output schema of a tool that undoes: it may also find that there is nothing to undo (E12)."""
    return {"anyOf": [dict(schema), _GONE_SCHEMA]} if schema else schema


def _read_schema(fields: Fields, key: str, findings: Findings) -> dict[str, Json]:
    node, entry = fields.map(key), fields.entry(key)
    if not isinstance(node, MapNode) or entry is None:
        return {}
    schema = cast("dict[str, Json]", plain_value(node))
    _compile(schema, entry, findings)
    return schema


def _compile(schema: dict[str, Json], entry: Entry, findings: Findings) -> None:
    try:
        compile_schema(schema)
    except InvalidSchemaError as error:
        findings.error("bad-schema", f"{entry.key}: {error}", entry.key_span)


def _check_references(
    schema: Mapping[str, Json],
    members: Mapping[str, Json],
    request: Request,
    fields: Fields,
    findings: Findings,
) -> None:
    """Note arguments that the request refers to and that aren't there, or that its path may have to do without."""
    span = _span_of(fields)
    is_closed = schema.get("additionalProperties") is False
    for found in _references(request):
        if found.path[0] == "args" and len(found.path) > 1 and is_closed and str(found.path[1]) not in members:
            message = f"there is no argument {quote(str(found.path[1]))}, and the request refers to {found.text}"
            known = list(members)
            findings.unknown("unknown-argument", message, span, word=str(found.path[1]), known=known, hint=None)
    if _is_null_safe(fields):
        return  # there is no argument in its path at all, which is said elsewhere
    required = schema.get("required")
    sure = {*(required if isinstance(required, list) else ()), *_with_default(members)}
    in_path = [each for template in request.segments for each in references(template) if isinstance(each, Reference)]
    for found in [*in_path, *([] if request.url is None else [request.url])]:
        if found.path[0] == "args" and len(found.path) > 1 and found.path[1] not in sure and found.path[1] in members:
            message = f"the path needs {found.text}, and this argument may be left out"
            findings.error("optional-in-path", message, span, hint="make it required, or give it a default")


def _is_null_safe(fields: Fields) -> bool:
    given = fields.flag("null_safe")
    return given is not None and given.value


def _with_default(members: Mapping[str, Json]) -> set[str]:
    return {name for name, each in members.items() if isinstance(each, dict) and "default" in each}


def _span_of(fields: Fields) -> Span:
    entry = fields.entry("request")
    return Span(0, 0) if entry is None else entry.span
