"""From checked JSON arguments to the Python values that a function's annotations promise.

Most arguments pass unchanged, and then no converter exists. A `float` parameter gets a float and a `Decimal` one a
decimal; dataclasses, enums, tuples, sets and dates are built. Everything else, fractions included, stays as it came.
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
from functools import partial
from typing import Any, Final, TypeAlias, Union, get_args, get_origin

from sagactl.core.canonical import Json
from sagactl.tools.schema import build_schema, is_key, members_of, unwrap
from sagactl.tools.validate import compile_schema

Converter: TypeAlias = Callable[[Any], object]

_SIMPLE: Final[dict[object, Converter]] = {
    float: float,
    Decimal: Decimal,
    datetime: datetime.fromisoformat,
    date: date.fromisoformat,
    tuple: tuple,
    set: set,
    frozenset: frozenset,
}
_CONTAINERS: Final[dict[object, Callable[[Any], object]]] = {
    list: list,
    collections.abc.Sequence: list,
    collections.abc.Iterable: list,
    set: set,
    frozenset: frozenset,
}


def build_converter(hint: object) -> Converter | None:
    """Return what turns a JSON value into the annotated type, or None where it is that already."""
    bare, _ = unwrap(hint)
    origin, parts = get_origin(bare), get_args(bare)
    if origin is None:
        return _build_for_class(bare)
    if origin in (Union, types.UnionType):
        return _build_for_union(parts)
    if origin is tuple:
        return _build_for_tuple(parts)
    if origin in _CONTAINERS:
        return _build_for_items(_CONTAINERS[origin], build_converter(parts[0]))
    if origin in (dict, collections.abc.Mapping) and (converter := build_converter(parts[1])):
        return partial(_convert_values, converter)
    return None


def _build_for_class(hint: object) -> Converter | None:
    if is_key(hint, _SIMPLE):
        return _SIMPLE[hint]
    if isinstance(hint, type) and issubclass(hint, Enum):
        return hint
    is_dataclass = isinstance(hint, type) and dataclasses.is_dataclass(hint)
    if not is_dataclass and not typing.is_typeddict(hint):
        return None
    make = typing.cast("Callable[..., object]", hint)
    found = {name: build_converter(member) for name, (member, _) in members_of(hint).items()}
    converters = {name: converter for name, converter in found.items() if converter}
    if is_dataclass:
        return partial(_make_dataclass, make, converters)
    return partial(_convert_members, converters) if converters else None


def _build_for_union(parts: tuple[object, ...]) -> Converter | None:
    forms = [part for part in parts if part is not type(None)]
    converters = [build_converter(form) for form in forms]
    if not any(converters):
        return None
    if len(forms) == 1:
        return partial(_convert_present, converters[0] or _keep)
    checks = [compile_schema(build_schema(form, closed=True)) for form in forms]

    def convert(value: Json) -> object:
        for check, converter in zip(checks, converters, strict=True):
            if check(value) is None:
                return converter(value) if converter else value
        return value

    return convert


def _build_for_tuple(parts: tuple[object, ...]) -> Converter:
    if len(parts) == 2 and parts[1] is Ellipsis:
        return _build_for_items(tuple, build_converter(parts[0])) or tuple
    converters = [build_converter(part) or _keep for part in parts]
    return lambda value: tuple(convert(item) for convert, item in zip(converters, value, strict=True))


def _build_for_items(make: Callable[[Any], object], converter: Converter | None) -> Converter | None:
    if converter is None:
        return None if make is list else make
    return lambda value: make([converter(item) for item in value])


def _make_dataclass(kind: Callable[..., object], converters: dict[str, Converter], value: dict[str, Json]) -> object:
    return kind(**_convert_members(converters, value))


def _convert_members(converters: dict[str, Converter], value: dict[str, Json]) -> dict[str, object]:
    return {name: converters[name](member) if name in converters else member for name, member in value.items()}


def _convert_values(converter: Converter, value: dict[str, Json]) -> dict[str, object]:
    return {name: converter(member) for name, member in value.items()}


def _convert_present(converter: Converter, value: Json) -> object:
    return None if value is None else converter(value)


def _keep(value: object) -> object:
    return value


def bind(converters: dict[str, Converter], arguments: dict[str, Json]) -> dict[str, object]:
    """Convert the arguments that need it; whatever a converter raises is the caller's to handle."""
    return _convert_members(converters, arguments) if converters else dict(arguments)
