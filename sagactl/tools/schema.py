"""Annotations as JSON Schema: what a function says of its parameters is what a saga is checked against.

`Annotated[int, {"minimum": 1}, "Cents."]` adds keywords and a description; `Secret`, and `Annotated[str,
{"writeOnly": True}]` in the same way, mark a secret. Integers are integers: neither `true` nor `1.0` is one. Objects
are closed in arguments, where an unknown key is a slip, and open in outputs, where it is news.
"""

from __future__ import annotations

import collections.abc
import dataclasses
import types
import typing
from collections.abc import Callable
from datetime import date, datetime
from decimal import Decimal
from enum import Enum
from typing import Annotated, Any, Final, Literal, NotRequired, Required, TypeAlias, Union, get_args, get_origin

from sagactl.core.canonical import Json, NotJsonError
from sagactl.tools.api import Mark
from sagactl.tools.convert import write_json

Schema: TypeAlias = dict[str, Json]

_PLAIN: Final[dict[object, Schema]] = {
    Any: {},
    object: {},
    None: {"type": "null"},
    type(None): {"type": "null"},
    bool: {"type": "boolean"},
    int: {"type": "integer"},
    float: {"type": "number"},
    Decimal: {"type": "number"},
    str: {"type": "string"},
    datetime: {"type": "string", "format": "date-time"},
    date: {"type": "string", "format": "date"},
    list: {"type": "array"},
    tuple: {"type": "array"},
    set: {"type": "array", "uniqueItems": True},
    frozenset: {"type": "array", "uniqueItems": True},
    dict: {"type": "object"},
}
_ARRAYS: Final = frozenset({list, set, frozenset, collections.abc.Sequence, collections.abc.Iterable})
_SETS: Final = frozenset({set, frozenset})
_MAPPINGS: Final = frozenset({dict, collections.abc.Mapping})


class UnsupportedTypeError(TypeError):
    """The annotation has no JSON form."""


class _Builder:
    """One walk over one annotation; `closed` objects take no unknown keys."""

    def __init__(self, *, closed: bool) -> None:
        self._closed = closed
        self._inside: list[object] = []

    def build(self, hint: object) -> Schema:
        bare, notes = unwrap(hint)
        return {**self._build_bare(bare), **notes}

    def _build_bare(self, hint: object) -> Schema:
        origin, parts = get_origin(hint), get_args(hint)
        if origin is None:
            return self._build_class(hint)
        if origin in (Union, types.UnionType):
            return self._build_union(parts)
        if origin is Literal:
            return _enumerate(parts)
        if origin is tuple:
            return self._build_tuple(parts)
        if origin in _ARRAYS:
            unique: Schema = {"uniqueItems": True} if origin in _SETS else {}
            return {"type": "array", "items": self.build(parts[0]), **unique}
        if origin in _MAPPINGS:
            return self._build_mapping(parts)
        raise UnsupportedTypeError(f"{hint} has no JSON form")

    def _build_class(self, hint: object) -> Schema:
        if is_key(hint, _PLAIN):
            return dict(_PLAIN[hint])
        if isinstance(hint, type) and issubclass(hint, Enum):
            return _enumerate([member.value for member in hint])
        if typing.is_typeddict(hint) or (isinstance(hint, type) and dataclasses.is_dataclass(hint)):
            return self._build_object(hint)
        raise UnsupportedTypeError(f"{getattr(hint, '__name__', hint)!r} has no JSON form")

    def _build_object(self, hint: object) -> Schema:
        if hint in self._inside:
            raise UnsupportedTypeError(f"{getattr(hint, '__name__', hint)!r} contains itself; give the schema outright")
        self._inside.append(hint)
        members = members_of(hint)
        properties: dict[str, Json] = {name: self.build(member) for name, (member, _) in members.items()}
        self._inside.pop()
        schema: Schema = {"type": "object", "properties": properties}
        required: list[str] = [name for name, (_, is_required) in members.items() if is_required]
        if required:
            schema["required"] = list(required)
        if self._closed:
            schema["additionalProperties"] = False
        return schema

    def _build_union(self, parts: tuple[object, ...]) -> Schema:
        forms = [self.build(part) for part in parts if part is not type(None)]
        if len(forms) == len(parts):
            return _merge(forms)
        return _allow_null(_merge(forms))

    def _build_tuple(self, parts: tuple[object, ...]) -> Schema:
        if len(parts) == 2 and parts[1] is Ellipsis:
            return {"type": "array", "items": self.build(parts[0])}
        forms: list[Json] = [self.build(part) for part in parts if part != ()]
        return {"type": "array", "prefixItems": forms, "items": False, "minItems": len(forms)}

    def _build_mapping(self, parts: tuple[object, ...]) -> Schema:
        key, content = parts
        if unwrap(key)[0] is not str:
            raise UnsupportedTypeError("the keys of a JSON object are strings")
        rest = self.build(content)
        return {"type": "object", "additionalProperties": rest} if rest else {"type": "object"}


def build_schema(hint: object, *, closed: bool) -> Schema:
    """Return the JSON Schema of an annotation; raises UnsupportedTypeError."""
    return _Builder(closed=closed).build(hint)


def unwrap(hint: object) -> tuple[object, Schema]:
    """Take off what says how a type is used (`Annotated`, `Required`, `NewType`, aliases); return its keywords too."""
    notes: Schema = {}
    while True:
        origin = get_origin(hint)
        if origin is Annotated:
            hint, *metadata = get_args(hint)
            notes = {**_read_notes(metadata), **notes}
        elif origin in (Required, NotRequired):
            (hint,) = get_args(hint)
        elif hasattr(hint, "__supertype__"):
            hint = hint.__supertype__
        elif type(hint).__name__ == "TypeAliasType":
            hint = hint.__value__  # type: ignore[attr-defined]  # Python 3.12 and later
        else:
            return hint, notes


def members_of(hint: object) -> dict[str, tuple[object, bool]]:
    """Return the members of a TypedDict or dataclass: annotation, and whether it must be there."""
    hints = resolve_hints(hint)
    if typing.is_typeddict(hint):
        required: frozenset[str] = getattr(hint, "__required_keys__", frozenset())
        return {name: (member, _is_required(member, name in required)) for name, member in hints.items()}
    fields = [each for each in dataclasses.fields(typing.cast("Any", hint)) if each.init]
    missing = dataclasses.MISSING
    return {
        each.name: (hints[each.name], each.default is missing and each.default_factory is missing) for each in fields
    }


def resolve_hints(thing: object) -> dict[str, object]:
    """Return the annotations as types; raises UnsupportedTypeError where a name can't be resolved."""
    try:
        return typing.get_type_hints(typing.cast("Callable[..., object]", thing), include_extras=True)
    except (NameError, TypeError, AttributeError, SyntaxError) as error:
        raise UnsupportedTypeError(f"an annotation can't be resolved: {error}") from None


def _is_required(member: object, default: bool) -> bool:
    # Where annotations are strings, the class itself can't see NotRequired; the resolved annotation can.
    while get_origin(member) is Annotated:
        member = get_args(member)[0]
    origin = get_origin(member)
    return origin is Required or (origin is not NotRequired and default)


def _read_notes(metadata: list[object]) -> Schema:
    notes: Schema = {}
    for note in metadata:
        if isinstance(note, str):
            notes["description"] = note
        elif isinstance(note, Mark):
            notes[note.value] = True
        elif isinstance(note, dict):
            notes.update(typing.cast("Schema", _write_keywords(note)))
    return notes


def _write_keywords(note: dict[object, object]) -> Json:
    try:
        return write_json(note)
    except NotJsonError as error:
        raise UnsupportedTypeError(f"the keywords of an annotation: {error}") from None


def _enumerate(values: typing.Iterable[object]) -> Schema:
    plain: list[Json] = [write_json(value) for value in values]
    if plain and all(isinstance(value, str) for value in plain):
        return {"type": "string", "enum": plain}
    return {"enum": plain}


def is_key(hint: object, table: typing.Container[object]) -> bool:
    """Tell whether *table* has *hint*, which may be something that can't be hashed."""
    try:
        return hint in table
    except TypeError:
        return False


def _merge(forms: list[Schema]) -> Schema:
    if len(forms) == 1:
        return forms[0]
    if any(not form for form in forms):
        return {}
    if all(form.keys() == {"type"} and isinstance(form["type"], str) for form in forms):
        return {"type": list(dict.fromkeys(form["type"] for form in forms))}
    return {"anyOf": list(forms)}


def _allow_null(schema: Schema) -> Schema:
    if not schema:
        return {}
    if "anyOf" in schema:
        return {"anyOf": [*typing.cast("list[Json]", schema["anyOf"]), {"type": "null"}]}
    if not schema.keys() & {"type", "enum"}:
        return {"anyOf": [schema, {"type": "null"}]}
    wider = dict(schema)
    if "type" in schema:
        present = schema["type"]
        wider["type"] = [*(present if isinstance(present, list) else [present]), "null"]
    if "enum" in schema:
        wider["enum"] = [*typing.cast("list[Json]", schema["enum"]), None]
    return wider
