"""Expressions that are more than a plain reference: CEL, by a library that is an extra (rule F3).

The library returns errors as values, holds integers of 64 bits and doubles, and knows nothing of decimals. Three
rules keep its numbers honest. An integer that doesn't fit is an error. A decimal goes in if its double is written the
same way again (`0.1` is, a price of twenty digits isn't), else it is an error, never a rounded number. A double comes
out as the decimal that its shortest spelling names; infinity and NaN are errors.

Only those parts of the scope that an expression mentions are handed over, so a large run costs a small expression
nothing, and a number elsewhere that CEL can't hold does no harm.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from decimal import Decimal
from typing import Any, Final

from sagactl.core.canonical import Json
from sagactl.core.template import ROOTS, ExpressionError, Path, Reference, Scope, parse_expression
from sagactl.errors import InvalidError
from sagactl.spec.schema_types import Types
from sagactl.spec.visible import quote

INTEGER_MIN: Final = -(2**63)
INTEGER_MAX: Final = 2**63 - 1
PROGRAMS_MAX: Final = 4_096
"""Compiled expressions that are kept; then the store starts anew."""

MISSING_HINT: Final = "pip install 'sagactl[cel]'"

_COMPLAINT: Final = re.compile(r"ERROR: <input>:(\d+):(\d+): ([^\n]*)")
_STATUS: Final = re.compile(r"^[A-Z_]+: ")
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
_NO_JSON: Final = {"BYTES": "bytes", "TIMESTAMP": "a timestamp", "DURATION": "a duration", "TYPE": "a type"}


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
            program = self._program(expression)
        except RuntimeError as error:
            return _read_complaints(str(error), expression)
        name = str(program.return_type()).partition("<")[0]
        if name in _NO_JSON:
            return (
                Complaint(f"the result is {_NO_JSON[name]}, which JSON lacks; use string(...)", 0, len(expression)),
            )
        kind = {"LIST": "array", "MAP": "object", **_TYPES}.get(name)
        return None if kind is None else frozenset({kind})

    def evaluate(self, expression: str, scope: Scope) -> Json:
        """Return the value of *expression* in *scope*; raises ExpressionError."""
        try:
            result = self._program(expression).eval(data=_pick(expression, scope))
            if result.type() == self._library.Type.ERROR:
                raise ExpressionError(f"{_explain(str(result.plain_value()))}, in {quote(expression)}")
            return _read(result.plain_value(), expression)
        except RuntimeError as error:
            raise ExpressionError(f"{_explain(str(error))}, in {quote(expression)}") from None

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


def _read(value: object, expression: str) -> Json:
    if value is None or isinstance(value, bool | int | str):
        return value
    if isinstance(value, float):
        if value != value or value in {float("inf"), float("-inf")}:  # noqa: PLR0124 - NaN is what differs from itself
            raise ExpressionError(f"the result is no finite number, in {quote(expression)}")
        return Decimal(repr(value))
    if isinstance(value, list):
        return [_read(item, expression) for item in value]
    if isinstance(value, dict) and all(isinstance(key, str) for key in value):
        return {str(key): _read(item, expression) for key, item in value.items()}
    kind = "a map with keys that are no text" if isinstance(value, dict) else f"a {type(value).__name__}"
    raise ExpressionError(f"the result is {kind}, which JSON lacks, in {quote(expression)}")
