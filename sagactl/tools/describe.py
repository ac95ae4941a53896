"""From a decorated function to a tool: its facts, schemas and the way its arguments are bound, all checked once."""

from __future__ import annotations

import inspect
import re
import types
from collections.abc import Callable, Mapping
from dataclasses import field
from datetime import timedelta
from decimal import Decimal
from typing import Final, Union, cast, get_args, get_origin

from sagactl.core.canonical import Json, NotJsonError
from sagactl.core.keys import SECRET_NAME, TOOL_NAME
from sagactl.core.pinned import Guard
from sagactl.core.saga import ToolFacts
from sagactl.core.template import TemplateSyntaxError, parse_template
from sagactl.dataclass import dataclass
from sagactl.errors import PluginError
from sagactl.tools.api import ISOLATIONS, CallContext, CannotTell, Declaration, Done, NotDone, Pending
from sagactl.tools.binding import Converter, build_converter
from sagactl.tools.convert import write_json
from sagactl.tools.docstring import read_parameters, summarize
from sagactl.tools.plugin import Home
from sagactl.tools.schema import Schema, UnsupportedTypeError, build_schema, resolve_hints, unwrap
from sagactl.tools.validate import InvalidSchemaError, compile_schema

SECRETS_MAX: Final = 100
"""How many secrets a tool may declare for itself."""

_SIGNALS: Final = frozenset({Pending, Done, NotDone, CannotTell})
_UNIT_MS: Final = {"ms": 1, "s": 1_000, "m": 60_000, "h": 3_600_000, "d": 86_400_000}
_DURATION: Final = re.compile(r"(\d{1,9}(?:\.\d{1,3})?)(ms|s|m|h|d)", re.ASCII)


@dataclass(frozen=True, slots=True)
class Place:
    """Where a tool or a problem comes from."""

    plugin: str
    file: str
    line: int

    def __str__(self) -> str:
        return f"plugin {self.plugin} ({self.file}{f':{self.line}' if self.line else ''})"


@dataclass(frozen=True, slots=True)
class Isolation:
    """A process of its own for each call: who wants it, where it finds the tool, and in which version."""

    by: str
    home: Home
    version: str


@dataclass(frozen=True, slots=True)
class Tool:
    """A function with all that is needed to call it."""

    facts: ToolFacts
    function: Callable[..., object]
    place: Place
    description: str
    is_async: bool
    signature: inspect.Signature
    context_parameter: str | None
    takes_more: bool
    parameters: frozenset[str]
    required: frozenset[str] = frozenset()
    """Those that have no default."""
    converters: dict[str, Converter] = field(default_factory=dict)
    is_chaos_safe: bool = False
    """No fact about it: it says who may call it, not what it does."""
    isolation: Isolation | None = None
    """No fact either: how it is called. None: in this process."""
    guard: Guard | None = None
    """What is asked before the intent of a call is written."""


def describe_tool(declaration: Declaration, function: object, *, place: Place, version: str) -> Tool:
    """Check a declaration against its function; raises PluginError that names plugin, file and line."""
    try:
        if not callable(function):
            kind = type(function).__name__
            raise TypeError(f"it is a {kind}, and a tool is a function")  # noqa: TRY301 - named as its like below
        return _describe(declaration, function, place, version)
    except (UnsupportedTypeError, InvalidSchemaError, NotJsonError, ValueError, TypeError) as error:
        raise PluginError(f"{place}: tool {declaration.name!r}: {error}") from error


def _describe(declaration: Declaration, function: Callable[..., object], place: Place, version: str) -> Tool:
    _check_names(declaration)
    if declaration.isolation not in ISOLATIONS:
        raise ValueError(f"isolation {declaration.isolation!r} is none of {', '.join(ISOLATIONS)}")
    signature = _Signature(function)
    return Tool(
        facts=_write_facts(declaration, signature, place, version),
        function=function,
        place=place,
        description=summarize(function.__doc__),
        is_async=inspect.iscoroutinefunction(function),
        signature=signature.bound,
        context_parameter=signature.context_parameter,
        takes_more=signature.takes_more,
        parameters=frozenset(signature.named),
        required=frozenset(name for name, each in signature.named.items() if each.default is inspect.Parameter.empty),
        converters=signature.build_converters(),
        is_chaos_safe=declaration.chaos_safe,
        guard=declaration.guard,
    )


def _write_facts(declaration: Declaration, signature: _Signature, place: Place, version: str) -> ToolFacts:
    arguments_schema = _choose(declaration.arguments_schema, signature.write_schema)
    output_schema = _choose(declaration.output_schema, signature.write_output_schema)
    for schema in (arguments_schema, output_schema):
        compile_schema(schema)
    return ToolFacts(
        name=declaration.name,
        version=declaration.version or version,
        plugin=place.plugin,
        idempotent=declaration.idempotent,
        read_only=declaration.read_only,
        null_safe=declaration.null_safe,
        late_safe=declaration.late_safe,
        key_retention_ms=_read_duration("key_retention", declaration.key_retention),
        probe=declaration.probe,
        compensation=declaration.compensation,
        compensation_with=_write_optional(declaration.compensation_with),
        arguments_schema=arguments_schema,
        output_schema=output_schema,
        pending_max_ms=_read_duration("pending_max", declaration.pending_max),
        secrets=tuple(dict.fromkeys(declaration.secrets)),
    )


def _check_names(declaration: Declaration) -> None:
    named = {"name": declaration.name, "compensation": declaration.compensation, "probe": declaration.probe}
    for what, name in named.items():
        if name is not None and not TOOL_NAME.fullmatch(name):
            raise ValueError(f"{what} {name!r} is not of the form `system.verb`, small letters, digits, `_` and `-`")
    for what in ("compensation", "probe"):
        if named[what] is not None and named[what] == declaration.name:
            raise ValueError(f"it is its own {what}")
    _check_secrets(declaration.secrets)
    if declaration.read_only and declaration.compensation:
        raise ValueError("it is read_only and has a compensation; there is nothing to undo")
    if declaration.compensation_with is not None and declaration.compensation is None:
        raise ValueError("compensation_with is given without a compensation")
    if declaration.compensation_with is not None:
        _check_template(declaration.compensation_with)


def _check_secrets(names: tuple[object, ...]) -> None:
    if len(names) > SECRETS_MAX:
        raise ValueError(f"it declares {len(names)} secrets; at most {SECRETS_MAX} are allowed")
    for name in names:
        if not isinstance(name, str) or not SECRET_NAME.fullmatch(name):
            raise ValueError(f"secrets: {name!r} can't be the name of a secret: letters, digits and `_`")


def _check_template(compensation_with: Mapping[str, object]) -> None:
    """Raise ValueError for an expression that can't be read: no saga that uses the pair could be loaded."""
    try:
        parse_template(write_json(compensation_with))
    except TemplateSyntaxError as error:
        raise ValueError(f"compensation_with: {error}") from error


class _Signature:
    """What the parameters and annotations of a function say."""

    def __init__(self, function: Callable[..., object]) -> None:
        self._hints = resolve_hints(_annotated(function))
        self._descriptions = read_parameters(function.__doc__)
        self.named: dict[str, inspect.Parameter] = {}
        self.context_parameter: str | None = None
        self.takes_more = False
        self.bound = inspect.signature(function)
        if next(iter(self.bound.parameters), None) in {"self", "cls"}:
            raise TypeError("it is a method; a tool is a function, or a `staticmethod` of a class")
        for name, parameter in self.bound.parameters.items():
            self._add(name, parameter)

    def _add(self, name: str, parameter: inspect.Parameter) -> None:
        if unwrap(self._hints.get(name))[0] is CallContext:
            self.context_parameter = name
        elif parameter.kind is inspect.Parameter.VAR_KEYWORD:
            self.takes_more = True
        elif parameter.kind in (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.VAR_POSITIONAL):
            raise TypeError(f"parameter {name!r} can't be given by name, and a saga gives all arguments by name")
        else:
            self.named[name] = parameter

    def write_schema(self) -> Schema:
        properties: dict[str, Json] = {name: self._write_parameter(name) for name in self.named}
        schema: Schema = {"type": "object", "properties": properties}
        required: list[Json] = [name for name, each in self.named.items() if each.default is inspect.Parameter.empty]
        if required:
            schema["required"] = required
        if not self.takes_more:
            schema["additionalProperties"] = False
        return schema

    def _write_parameter(self, name: str) -> Schema:
        try:
            schema = build_schema(self._hints[name], closed=True) if name in self._hints else {}
        except UnsupportedTypeError as error:
            raise UnsupportedTypeError(f"parameter {name!r}: {error}") from None
        if name in self._descriptions:
            schema.setdefault("description", self._descriptions[name])
        default = self.named[name].default
        if default is not inspect.Parameter.empty and default is not None:
            schema["default"] = write_json(default)
        return schema

    def write_output_schema(self) -> Schema:
        hint = self._hints.get("return", object)
        forms = get_args(hint) if get_origin(hint) in (Union, types.UnionType) else (hint,)
        kept = [form for form in forms if form not in _SIGNALS]
        if not kept:
            return {}
        try:
            return build_schema(Union[tuple(kept)], closed=False)  # noqa: UP007 - made from a list
        except UnsupportedTypeError as error:
            raise UnsupportedTypeError(f"its return type: {error}") from None

    def build_converters(self) -> dict[str, Converter]:
        found = {name: build_converter(self._hints[name]) for name in self.named if name in self._hints}
        return {name: converter for name, converter in found.items() if converter}


def _annotated(function: Callable[..., object]) -> object:
    """Return the function whose annotations count: below wrappers, partials and callable objects."""
    inner = inspect.unwrap(function)
    if inspect.isroutine(inner) or isinstance(inner, type):
        return inner
    return getattr(inner, "func", None) or type(inner).__call__


def _choose(given: Mapping[str, object] | None, write: Callable[[], Schema]) -> Schema:
    return write() if given is None else cast("Schema", write_json(given))


def _write_optional(given: Mapping[str, object] | None) -> Schema | None:
    return None if given is None else cast("Schema", write_json(given))


def _read_duration(what: str, given: str | timedelta | None) -> int | None:
    if given is None:
        return None
    if isinstance(given, timedelta):
        duration_ms = given // timedelta(milliseconds=1)
    else:
        found = _DURATION.fullmatch(str(given))
        if found is None:
            raise ValueError(f"{what} {given!r} is no duration such as `24h` or `30d`")
        duration_ms = int(Decimal(found[1]) * _UNIT_MS[found[2]])
    if duration_ms <= 0:
        raise ValueError(f"{what} {given!r} is not more than nothing")
    return duration_ms
