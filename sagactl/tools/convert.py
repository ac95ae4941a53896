"""Between JSON and Python: what a tool returned as JSON, and text from outside made fit for one line.

Fractions are decimals in JSON here. A float becomes the decimal that Python prints for it, so 0.1 stays 0.1.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping
from datetime import date
from decimal import Decimal
from enum import Enum
from typing import Final, TypeAlias

from sagactl.core.canonical import DIGITS_MAX, NESTING_MAX, Json, NotJsonError, canonical
from sagactl.secrets.masking import KNOWN

RAW_BYTES_MAX: Final = 65_536
"""What is kept of a reply that did not fit."""

LINE_LENGTH_MAX: Final = 500
_INTEGER_MAX: Final = 10**DIGITS_MAX
_Level: TypeAlias = int


def write_json(value: object, *, level: _Level = 0) -> Json:
    """Return *value* as JSON: dataclasses and mappings as objects, tuples as lists, floats as decimals.

    Raises NotJsonError for everything that has no JSON form: NaN, bytes, sets, other objects, too deep a nesting.
    """
    if level > NESTING_MAX:
        raise NotJsonError(f"nested deeper than {NESTING_MAX} levels")
    if value is None or isinstance(value, bool):
        return value
    if isinstance(value, Enum):
        return write_json(value.value, level=level)
    if isinstance(value, str):
        return _write_text(value)
    if isinstance(value, int | float | Decimal):
        return _write_number(value)
    if isinstance(value, date):
        return value.isoformat()
    return _write_container(value, level)


def _write_container(value: object, level: _Level) -> Json:
    if isinstance(value, Mapping):
        return {_write_key(key): write_json(member, level=level + 1) for key, member in value.items()}
    if isinstance(value, list | tuple):
        return [write_json(member, level=level + 1) for member in value]
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        names = [each.name for each in dataclasses.fields(value)]
        return {name: write_json(getattr(value, name), level=level + 1) for name in names}
    raise NotJsonError(f"a value of type {type(value).__name__} has no JSON form")


def _write_key(key: object) -> str:
    if isinstance(key, Enum):
        key = key.value
    if not isinstance(key, str):
        raise NotJsonError(f"the key {bound_line(repr(key), 60)} is no string")
    return _write_text(key)


def _write_text(text: str) -> str:
    try:
        text.encode()
    except UnicodeEncodeError:
        raise NotJsonError("a text with half a surrogate pair has no JSON form") from None
    return str(text)


def _write_number(value: float | Decimal) -> int | Decimal:
    if isinstance(value, int):
        if abs(value) >= _INTEGER_MAX:
            raise NotJsonError(f"a number of more than {DIGITS_MAX} digits")
        return int(value)
    if not (value.is_finite() if isinstance(value, Decimal) else math.isfinite(value)):
        raise NotJsonError(f"{value} has no JSON form")
    number = Decimal(repr(float(value))) if isinstance(value, float) else value
    if len(number.as_tuple().digits) > DIGITS_MAX or abs(number.adjusted()) > DIGITS_MAX:
        raise NotJsonError(f"a number of more than {DIGITS_MAX} digits")
    return number


def keep_raw(value: object) -> Json:
    """Keep what can be kept of a reply that did not fit: as JSON if small enough, else the beginning of its text."""
    try:
        written = KNOWN.mask_json(write_json(value))
        text = canonical(written)
    except (NotJsonError, RecursionError):
        return describe_object(value, length_max=RAW_BYTES_MAX // 4)
    if len(text.encode()) <= RAW_BYTES_MAX:
        return written
    return text.encode()[:RAW_BYTES_MAX].decode(errors="ignore")


def describe_object(value: object, *, length_max: int = LINE_LENGTH_MAX) -> str:
    """Return the `repr` of *value* on one bounded line, whatever its `repr` does."""
    try:
        text = repr(value)
    except BaseException as error:  # foreign code, and this must not raise
        text = f"<{type(value).__name__} whose repr raised {type(error).__name__}>"
    return bound_line(text, length_max)


def bound_line(text: str, length_max: int = LINE_LENGTH_MAX) -> str:
    """Return *text* as one line without control characters and secrets, cut where it is too long."""
    cut = KNOWN.shorten(text, length_max + 1)
    if not cut.isprintable():
        cut = "".join(each if each.isprintable() else _show(each) for each in cut)
    return cut if len(cut) <= length_max else cut[: length_max - 4] + " ..."


def _show(character: str) -> str:
    return " " if character in "\n\t" else character.encode("unicode_escape").decode("ascii")
