"""JSON with one spelling: what is hashed, compared and stored.

Keys are sorted, there is no white space, text stays as it is (UTF-8), integers are exact at any size and fractions
are decimals (rule F2), so the same value has the same bytes on every machine and in every release. NaN, infinity and
lone surrogates have no spelling and are refused.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping, Sequence
from decimal import Decimal, InvalidOperation
from typing import Final, TypeAlias, cast

from sagactl.hashing import sha256

Json: TypeAlias = "bool | int | Decimal | str | list[Json] | dict[str, Json] | None"

NESTING_MAX: Final = 64
"""Levels of lists and maps in any value: saga, input, arguments, outputs."""

DIGITS_MAX: Final = 1000
"""Digits of one number; more is refused before Python would."""

_fast = json.JSONEncoder(ensure_ascii=False, sort_keys=True, separators=(",", ":"), allow_nan=False).encode
_quote = json.JSONEncoder(ensure_ascii=False).encode


class NotJsonError(ValueError):
    """The value has no canonical spelling."""


def canonical(value: Json) -> str:
    """Spell *value*; raises NotJsonError for NaN, infinity, half characters and types that JSON lacks."""
    try:
        text = _fast(value)
    except TypeError:
        text = _spell_slowly(value)
    except (ValueError, RecursionError) as error:
        raise NotJsonError(str(error)) from None
    _refuse_halves(text)
    return text


def _spell_slowly(value: Json) -> str:
    try:
        return _spell(value)
    except (TypeError, RecursionError) as error:
        raise NotJsonError(str(error)) from None


def _refuse_halves(text: str) -> None:
    if text.isascii():
        return
    try:
        text.encode()
    except UnicodeEncodeError:
        raise NotJsonError("half of a surrogate pair is no character") from None


def _spell(value: object) -> str:
    if isinstance(value, Decimal):
        if not value.is_finite():
            raise NotJsonError(f"{value} has no JSON form")
        return str(value).lower().replace("e+", "e")
    if isinstance(value, Mapping):
        return "{" + ",".join(f"{_quote(str(key))}:{_spell(value[key])}" for key in sorted(value)) + "}"
    if isinstance(value, list | tuple):
        return "[" + ",".join(_spell(item) for item in cast("Sequence[object]", value)) + "]"
    try:
        return _fast(value)
    except (TypeError, ValueError) as error:
        raise NotJsonError(str(error)) from None


def parse(text: str | bytes) -> Json:
    """Read JSON strictly: decimals exact, no NaN or infinity, no key twice; raises NotJsonError."""
    try:
        value = json.loads(
            text,
            parse_float=_parse_decimal,
            parse_int=_parse_integer,
            parse_constant=_refuse_constant,
            object_pairs_hook=_refuse_twins,
        )
    except NotJsonError:
        raise
    except RecursionError:
        raise NotJsonError(f"nested deeper than {NESTING_MAX} levels") from None
    except ValueError as error:
        raise NotJsonError(str(error)) from None
    check_nesting(value)
    _refuse_half_characters(text, value)
    return cast("Json", value)


def _refuse_half_characters(text: str | bytes, value: object) -> None:
    """Look for halves of surrogate pairs where there can be any: as escapes, and (json lets them pass) as bytes."""
    has_escapes = "\\u" in text if isinstance(text, str) else b"\\u" in text
    if has_escapes or not text.isascii():
        canonical(cast("Json", value))


def parse_trusted(text: str) -> Json:
    """Read what `canonical` wrote: as `parse`, without the checks that its origin makes needless."""
    return cast("Json", json.loads(text, parse_float=Decimal))


def check_nesting(value: object, levels_max: int = NESTING_MAX) -> None:
    """Raise NotJsonError where lists and maps lie deeper than *levels_max* in one another."""
    layer: list[object] = [value]
    for _ in range(levels_max + 1):
        layer = [child for parent in layer for child in _children(parent)]
        if not layer:
            return
    raise NotJsonError(f"nested deeper than {levels_max} levels")


def _children(value: object) -> Sequence[object]:
    if isinstance(value, dict):
        return list(value.values())
    return value if isinstance(value, list) else ()


def digest(value: Json) -> str:
    """Return the SHA-256 of the canonical spelling, in hexadecimal."""
    return sha256(canonical(value).encode()).hexdigest()


def _parse_decimal(text: str) -> Decimal:
    if len(text) > DIGITS_MAX:
        raise NotJsonError(f"a number of more than {DIGITS_MAX} digits")
    try:
        number = Decimal(text)
    except InvalidOperation:  # an exponent beyond what a Decimal can hold
        raise NotJsonError(f"the number {text} is out of range") from None
    if abs(number.adjusted()) > DIGITS_MAX:
        raise NotJsonError(f"the number {text} is out of range")
    return number


def _parse_integer(text: str) -> int:
    if len(text) > DIGITS_MAX:
        raise NotJsonError(f"a number of more than {DIGITS_MAX} digits")
    return int(text)


def _refuse_constant(text: str) -> None:
    raise NotJsonError(f"{text} has no JSON form")


def _refuse_twins(pairs: list[tuple[str, object]]) -> dict[str, object]:
    result = dict(pairs)
    if len(result) != len(pairs):
        twin = next(key for key, count in Counter(key for key, _ in pairs).items() if count > 1)
        raise NotJsonError(f"the key {twin!r} is given twice")
    return result
