"""Expressions that are more than a plain reference: CEL, by a library that is an extra (rule F3).

The library returns errors as values, holds integers of 64 bits and doubles, and knows nothing of decimals. Three
rules keep its numbers honest. An integer that doesn't fit is an error. A decimal goes in if its double is written the
same way again (`0.1` is, a price of twenty digits isn't), else it is an error, never a rounded number. A double comes
out as the decimal that its shortest spelling names; infinity and NaN are errors.

A result is read value by value, each by the type that the library names. Its own conversion of a whole result isn't
used: it knows no optionals, and one within a map ends the process. Whatever else the library raises, of whatever class,
is an error of the expression.

Only those parts of the scope that an expression mentions are handed over, so a large run costs a small expression
nothing, and a number elsewhere that CEL can't hold does no harm.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from decimal import Decimal
from math import isfinite
from typing import Any, Final

from sagactl.core.canonical import Json
from sagactl.core.saga import PAYLOAD_BYTES_MAX
from sagactl.core.template import ROOTS, ExpressionError, Path, Reference, Scope, parse_expression
from sagactl.dataclass import dataclass
from sagactl.errors import InvalidError
from sagactl.spec.cel_bounds import refuse_large
from sagactl.spec.schema_types import Types
from sagactl.written.visible import quote

INTEGER_MIN: Final = -(2**63)
INTEGER_MAX: Final = 2**63 - 1
PROGRAMS_MAX: Final = 4_096
"""Compiled expressions that are kept; then the store starts anew."""

MISSING_HINT: Final = "pip install 'sagactl[cel]'"

_COMPLAINT: Final = re.compile(r"ERROR: <input>:(\d+):(\d+): ([^\n]*)")
_STATUS: Final = re.compile(r"^[A-Z_]+: (?:<input>:-?\d+:-?\d+: )?")
_NAMED: Final = re.compile(r"'([^']+)'")
_NOISE: Final = re.compile(r" expecting .*| \(in container ''\)| \[[A-Z_]+\]$")
_KEY: Final = re.compile(r'Key not found in map : "(.*)"')
_OVERLOAD: Final = re.compile(r"for '_?@?(\W+?|in)_?' applied to '(.*)'")
_TYPES: Final = {
    "BOOL": "boolean",
    "INT": "integer",
    "UINT": "integer",
    "DOUBLE": "number",
    "STRING": "string",
    "NULL": "null",
}
_NO_JSON: Final = {
    "optional_type": ("an optional", ".orValue(...)"),
    "BYTES": ("bytes", "string(...)"),
    "TIMESTAMP": ("a timestamp", "string(...)"),
    "DURATION": ("a duration", "string(...)"),
    "TYPE": ("a type", "string(...)"),
}
"""What JSON lacks, by the library's name of the type: its name in a message, and what makes JSON of it."""

_TYPE_NAME: Final = re.compile(r"\w+")


@dataclass(frozen=True, slots=True)
class Complaint:
    """What the compiler says about an expression; `offset` and `length` count characters of it."""

    message: str
    offset: int
    length: int


class CelEvaluator:
    """Compiles each expression once, and evaluates it as a pure function of its scope."""

    def __init__(self) -> None:
        self._library, self._environment = _load_library()
        self._programs: dict[str, Any] = {}

    def compile(self, expression: str) -> Types | tuple[Complaint, ...] | None:
        """Return the JSON types of the result (None: any), or what is wrong with the expression."""
        try:
            kinds = str(self._program(expression).return_type())
        except Exception as error:
            return _read_complaints(str(error), expression)
        foreign = next((name for name in _TYPE_NAME.findall(kinds) if name in _NO_JSON), None)
        if foreign is not None:
            return (Complaint(_refuse_result(foreign, is_all=kinds.startswith(foreign)), 0, len(expression)),)
        kind = {"LIST": "array", "MAP": "object", **_TYPES}.get(kinds.partition("<")[0])
        return None if kind is None else frozenset({kind})

    def evaluate(self, expression: str, scope: Scope) -> Json:
        """Return the value of *expression* in *scope*; raises ExpressionError."""
        try:
            given = _pick(expression, scope)
            refuse_large(expression, given)
            return _Reader().read(self._program(expression).eval(data=given))
        except ExpressionError as error:
            raise ExpressionError(f"{error}, in {quote(expression)}") from None
        except Exception as error:
            raise ExpressionError(f"{_explain(str(error) or type(error).__name__)}, in {quote(expression)}") from None

    def _program(self, expression: str) -> Any:
        known = self._programs.get(expression)
        if known is None:
            if len(self._programs) >= PROGRAMS_MAX:
                self._programs.clear()
            known = self._programs[expression] = self._environment.compile(expression)
        return known


def _load_library() -> tuple[Any, Any]:
    try:
        from cel_expr_python import cel
        from cel_expr_python.ext import ext_math, ext_optional, ext_strings
    except ImportError:
        message = "the saga has expressions in CEL, and the library for them is not installed"
        raise InvalidError(message, code="cel-missing", hint=MISSING_HINT) from None
    extensions = [ext_optional.ExtOptional(), ext_strings.ExtStrings(), ext_math.ExtMath()]
    return cel, cel.NewEnv(variables=dict.fromkeys(sorted(ROOTS), cel.Type.DYN), extensions=extensions)


def _read_complaints(text: str, expression: str) -> tuple[Complaint, ...]:
    lines = expression.split("\n")
    found = []
    for line, column, message in _COMPLAINT.findall(text):
        row = min(int(line), len(lines)) - 1
        offset = sum(len(each) + 1 for each in lines[:row]) + int(column) - 1
        found.append(_place(_shorten(message), min(max(offset, 0), len(expression)), expression))
    return tuple(found) or (Complaint(_explain(text), 0, len(expression)),)


def _shorten(message: str) -> str:
    if "'_?_:_'" in message:
        return "the two results of ? : must be of one type, after a condition that is true or false"
    if "'<EOF>'" in message:
        return "the expression ends too early"
    overload = _OVERLOAD.search(message)
    if overload is not None:
        kinds = overload[2].strip("()")
        return f"{overload[1].replace('_', ' ').strip()} can't be applied to {kinds}"
    return quote(_NOISE.sub("", message.removeprefix("Syntax error: ")), 160)


def _place(message: str, offset: int, expression: str) -> Complaint:
    """Point to the whole name that the message is about: the library points to the dot or bracket behind it."""
    named = _NAMED.search(message)
    name = named[1].partition(".")[0] if named is not None else ""
    if name:
        at = expression.rfind(name, 0, offset + len(name))
        if at >= 0:
            return Complaint(message, at, len(name))
    return Complaint(message, offset, 1)


def _explain(text: str) -> str:
    key = _KEY.search(text)
    if key is not None:
        return f"there is no {quote(key[1])}"
    if "SELECT to non-message" in text:
        return "a field is asked of something that is no map"
    return quote(_NOISE.sub("", _STATUS.sub("", text.partition("\n")[0])), 160)


def _pick(expression: str, scope: Scope) -> dict[str, Any]:
    """Return the parts of *scope* that *expression* refers to, as the library takes them."""
    found = parse_expression(expression)
    paths = (found.path,) if isinstance(found, Reference) else found.paths
    picked: dict[str, Any] = {}
    whole: set[Path] = set()
    for path in sorted(set(map(_plain_start, paths)), key=len):
        if not any(path[:length] in whole for length in range(1, len(path))):
            _copy(path, scope, picked)
            whole.add(path)
    return picked


def _plain_start(path: Path) -> Path:
    """Return the part of *path* before the first index: lists are handed over whole."""
    length = next((depth for depth, step in enumerate(path) if isinstance(step, int)), len(path))
    return path[:length]


def _copy(path: Path, scope: Scope, picked: dict[str, Any]) -> None:
    """Put the value at *path* into *picked*; where there is none, what is around it tells CEL so."""
    here: object = scope
    into: dict[str, Any] = picked
    for depth, step in enumerate(path):
        if not isinstance(here, Mapping) or step not in here:
            return
        here = here[step]
        is_last = depth == len(path) - 1
        if is_last or not isinstance(here, Mapping):
            into[str(step)] = _write(here, path[: depth + 1])
            return
        into = into.setdefault(str(step), {})


def _write(value: object, path: Path) -> Any:
    if isinstance(value, bool) or value is None or isinstance(value, str):
        return value
    if isinstance(value, int):
        if not INTEGER_MIN <= value <= INTEGER_MAX:
            raise ExpressionError(f"{_spell(path)} is {quote(str(value), 40)}: CEL holds integers of 64 bits only")
        return value
    if isinstance(value, Decimal):
        return _write_decimal(value, path)
    if isinstance(value, Mapping):
        return {str(key): _write(item, (*path, str(key))) for key, item in value.items()}
    if isinstance(value, list):
        return [_write(item, (*path, index)) for index, item in enumerate(value)]
    raise ExpressionError(f"{_spell(path)} is no JSON value")


def _write_decimal(value: Decimal, path: Path) -> float:
    double = float(value)
    if Decimal(repr(double)) != value:
        raise ExpressionError(f"{_spell(path)} is {quote(str(value), 40)}: CEL would round it")
    return double


def _spell(path: Path) -> str:
    return str(path[0]) + "".join(f"[{step}]" if isinstance(step, int) else f".{step}" for step in path[1:])


class _Reader:
    """Reads one result as JSON, and no further than anything could store it."""

    def __init__(self) -> None:
        self._size = 0

    def read(self, value: Any, *, is_all: bool = True) -> Json:
        """Return a value of the library as JSON; raises ExpressionError."""
        kind = value.type().name().partition("<")[0]
        if kind in _NO_JSON:
            raise ExpressionError(_refuse_result(kind, is_all=is_all))
        if kind == "ERROR":
            raise ExpressionError(_read_error(value, is_all=is_all))
        content = value.value()
        self._count(len(content) if isinstance(content, str) else 1)
        if kind == "LIST":
            return [self.read(item, is_all=False) for item in content]
        if kind == "MAP":
            return {self._read_key(key): self.read(item, is_all=False) for key, item in content.items()}
        if kind == "DOUBLE":
            return _read_double(content)
        if content is None or isinstance(content, bool | int | str):
            return content
        message = f"the result {'is' if is_all else 'holds'} a value of type {quote(kind)}, which JSON lacks"
        raise ExpressionError(message)

    def _read_key(self, key: object) -> str:
        if isinstance(key, str):
            self._count(len(key))
            return key
        raise ExpressionError("the result is a map with keys that are no text, which JSON lacks")

    def _count(self, characters: int) -> None:
        self._size += characters
        if self._size > PAYLOAD_BYTES_MAX:
            raise ExpressionError(f"the result is larger than {PAYLOAD_BYTES_MAX} bytes")


def _read_error(value: Any, *, is_all: bool) -> str:
    """Return what the library says; an optional has the type of an error, and no content."""
    try:
        content = value.value()
    except TypeError:
        return _refuse_result("optional_type", is_all=is_all)
    return _explain(str(content))


def _read_double(value: float) -> Decimal:
    if not isfinite(value):
        raise ExpressionError("the result is no finite number")
    return Decimal(repr(value))


def _refuse_result(kind: str, *, is_all: bool) -> str:
    name, cure = _NO_JSON[kind]
    return f"the result {'is' if is_all else 'holds'} {name}, which JSON lacks; use {cure}"
