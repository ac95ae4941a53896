"""What an unquoted word of YAML means (rule F2): the core schema of YAML 1.2, minus its surprises.

`null`, `~` and nothing at all are null; `true` and `false` (also `True`, `TRUE`) are booleans; everything that looks
like a decimal number is one, exact at any size. All else is text as written: `no`, `on`, `yes`, `1:30`, `2026-01-01`,
`1_000`. A leading zero makes text too, so `012` keeps its zero; the core schema's `0o17` and `0x1F` are text for the
same reason. NaN and infinity are errors, since nothing downstream could hold them.
"""

from __future__ import annotations

import re
from decimal import Decimal
from typing import Final

from sagactl.core.canonical import DIGITS_MAX

_NULL: Final = frozenset({"", "~", "null", "Null", "NULL"})
_BOOLEAN: Final = {"true": True, "True": True, "TRUE": True, "false": False, "False": False, "FALSE": False}
_INTEGER: Final = re.compile(r"[-+]?(?:0|[1-9][0-9]*)", re.ASCII)
_FRACTION: Final = re.compile(r"[-+]?(?:\.[0-9]+|(?:0|[1-9][0-9]*)(?:\.[0-9]*)?)(?:[eE][-+]?[0-9]+)?", re.ASCII)
_NOT_FINITE: Final = re.compile(r"[-+]?\.(?:inf|Inf|INF)|\.(?:nan|NaN|NAN)")
_NUMBER_STARTS: Final = frozenset("+-.0123456789")


class BadNumberError(ValueError):
    """The word is a number, but none that can be kept."""


def read_plain(text: str) -> bool | int | Decimal | str | None:
    """Return the value of an unquoted scalar; raises BadNumberError."""
    if text in _NULL:
        return None
    if text in _BOOLEAN:
        return _BOOLEAN[text]
    if text[0] not in _NUMBER_STARTS:
        return text
    if _NOT_FINITE.fullmatch(text):
        raise BadNumberError(f"{text} is no number that can be stored")
    if _INTEGER.fullmatch(text):
        _check_length(text)
        return int(text)
    return _read_fraction(text) if _FRACTION.fullmatch(text) else text


def _read_fraction(text: str) -> Decimal:
    _check_length(text)
    exponent = re.split("[eE]", text)[-1] if "e" in text.lower() else "0"
    if len(exponent.lstrip("+-0")) > len(str(DIGITS_MAX)) or abs(Decimal(text).adjusted()) > DIGITS_MAX:
        raise BadNumberError(f"{text} is out of range; numbers have at most {DIGITS_MAX} digits")
    return Decimal(text)


def _check_length(text: str) -> None:
    if len(text) > DIGITS_MAX:
        raise BadNumberError(f"a number of {len(text)} characters; at most {DIGITS_MAX} digits are kept")
