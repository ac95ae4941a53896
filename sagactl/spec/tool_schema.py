"""The schema of saga files with the tools that are there: an editor offers them, and checks `with` by the tool's name.

It says less than `sagactl validate` and never more: wherever a value stands an expression may stand, and keywords that
look at several values at once, of which some may be expressions, are left out. Each tool's arguments lie under `$defs`
with their own references turned to that place, since not every editor knows schemas within schemas.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from sagactl.core.canonical import Json
from sagactl.core.saga import ToolFacts

_EXPRESSION: Final = {"$ref": "#/$defs/expression"}
_MAPS: Final = frozenset({"properties", "patternProperties"})
_LISTS: Final = frozenset({"prefixItems"})
_VALUES: Final = frozenset({"items", "additionalProperties"})
_CHOICES: Final = {"allOf": "allOf", "anyOf": "anyOf", "oneOf": "anyOf"}
"""Of several that must not fit at once more may do so while an expression stands for a value."""

_LEFT_OUT: Final = frozenset(
    {"$id", "$schema", "$anchor", "$dynamicRef", "$dynamicAnchor", "$vocabulary", "$comment", "default", "examples"}
    | {"if", "then", "else", "not", "contains", "minContains", "maxContains", "uniqueItems", "propertyNames"}
    | {"dependentSchemas", "dependentRequired", "unevaluatedItems", "unevaluatedProperties"}
)


def add_tools(schema: Mapping[str, Json], tools: Mapping[str, ToolFacts]) -> dict[str, Json]:
    """Return the schema of saga files with all of *tools*."""
    whole: Any = dict(schema)
    definitions = whole["$defs"] = dict(whole["$defs"])
    names = sorted(tools)
    for name in names:
        arguments = _loosen(dict(tools[name].arguments_schema), f"#/$defs/{_place(name)}")
        definitions[_place(name)] = {"type": "object", **arguments}
    for place, must_be_whole in (("step", True), ("compensate", False)):
        rules = [_rule(tools[name], must_be_whole=must_be_whole) for name in names]
        entry = dict(definitions[place])
        tool = {**entry["properties"]["tool"], "enum": names}
        definitions[place] = {**entry, "properties": {**entry["properties"], "tool": tool}, "allOf": rules}
    return whole  # type: ignore[no-any-return]


def _place(name: str) -> str:
    return f"with.{name}"


def _rule(tool: ToolFacts, *, must_be_whole: bool) -> Json:
    """Return what holds where *tool* is named; an undo may get its arguments from the pair of the action's tool."""
    then: dict[str, Json] = {"properties": {"with": {"$ref": f"#/$defs/{_place(tool.name)}"}}}
    if must_be_whole and tool.arguments_schema.get("required"):
        then["required"] = ["with"]
    return {"if": {"required": ["tool"], "properties": {"tool": {"const": tool.name}}}, "then": then}


def _loosen(schema: Any, root: str) -> Any:
    """Return *schema* with an expression allowed for each value in it, its references leading to *root*."""
    if not isinstance(schema, Mapping):
        return schema
    loose: dict[str, Any] = {}
    for key, value in schema.items():
        if key in _LEFT_OUT:
            continue
        if key == "$ref":
            if not str(value).startswith("#"):
                return {}
            loose[key] = root + str(value)[1:]
        elif key in _MAPS and isinstance(value, Mapping):
            loose[key] = {name: _loosen_value(member, root) for name, member in value.items()}
        elif key == "$defs" and isinstance(value, Mapping):
            loose[key] = {name: _loosen(member, root) for name, member in value.items()}
        elif key in _VALUES:
            loose[key] = _loosen_value(value, root)
        elif key in _LISTS and isinstance(value, list):
            loose[key] = [_loosen_value(member, root) for member in value]
        elif key in _CHOICES and isinstance(value, list):
            loose[_CHOICES[key]] = [_loosen(member, root) for member in value]
        else:
            loose[key] = value
    return loose


def _loosen_value(schema: Any, root: str) -> Any:
    if isinstance(schema, bool):
        return schema
    loose = _loosen(schema, root)
    about = {key: schema[key] for key in ("description", "title") if key in schema}
    return {**about, "anyOf": [loose, _EXPRESSION]}
