r"""Text made safe, measured and cut: everything foreign passes through here before anybody looks at it.

Saga names, descriptions, outputs, errors and inputs come from files and from tools, and a terminal obeys what it is
sent. So control characters, marks that turn the direction of writing, and whatever has no width are shown as escapes
such as `\x1b`, and a text is one line. Colour is put on afterwards, by `style`.

Widths are columns of a terminal: two for the wide characters of East Asia and for emoji, none for marks that sit on
the letter before them.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterator, Sequence
from typing import Final

from sagactl.cli.views.spelling import spell_as_written
from sagactl.core.canonical import Json
from sagactl.core.keys import SECRET_MARK

BRIEF_LENGTH_MAX: Final = 400
"""Characters of a value that is summed up; the whole value is in the JSON."""

NESTED_LENGTH_MAX: Final = 48
"""Characters of a list or map within a summed-up value."""

MARKS_MAX: Final = 3
"""Marks on one letter: more is no writing, and would reach into the lines around."""

_HIDDEN_CATEGORIES: Final = frozenset({"Cc", "Cf", "Cs", "Cn", "Co", "Zl", "Zp"})
_MARK_CATEGORIES: Final = frozenset({"Mn", "Me"})
_HIDDEN_LETTERS: Final = re.compile(
    "[\u034f\u115f\u1160\u1680\u17b4\u17b5\u180b-\u180f\u2800\u3164\ufe00-\ufe0f\uffa0\U000e0100-\U000e01ef]"
)
_JOINED_VOWELS: Final = re.compile("[\u1160-\u11ff\ud7b0-\ud7ff]")
_SHORT: Final = {"\n": "\\n", "\r": "\\r", "\t": "\\t"}
_PLAIN_WORD: Final = re.compile(r"[^\s,=\"'{}\[\]]+")


def safe(text: str, *, is_ascii: bool = False) -> str:
    """Return *text* on one line with everything in it visible; *is_ascii* escapes all that isn't ASCII."""
    if text.isascii() and text.isprintable():
        return text
    return "".join(_show_each(text, is_ascii=is_ascii))


def _show_each(text: str, *, is_ascii: bool) -> Iterator[str]:
    marks = MARKS_MAX  # a text must not begin with a mark: it would sit on our own letter
    for character in text:
        if " " <= character <= "~":
            marks = 0
            yield character
            continue
        category = unicodedata.category(character)
        marks = marks + 1 if category in _MARK_CATEGORIES else 0
        is_hidden = category in _HIDDEN_CATEGORIES or _HIDDEN_LETTERS.match(character) is not None
        if is_hidden or marks > MARKS_MAX or is_ascii:
            yield escape(character)
        else:
            yield character


def escape(character: str) -> str:
    r"""Return the escape of one character: `\r`, `\x1b`, `\u202e`, `\U000e0001`."""
    code = ord(character)
    if code <= 0xFF:
        return _SHORT.get(character, f"\\x{code:02x}")
    return f"\\u{code:04x}" if code <= 0xFFFF else f"\\U{code:08x}"


def width_of(text: str) -> int:
    """Return how many columns *text* takes."""
    return len(text) if text.isascii() else sum(map(_columns, text))


def _columns(character: str) -> int:
    if " " <= character <= "~":
        return 1
    if unicodedata.category(character) in _MARK_CATEGORIES or _JOINED_VOWELS.match(character):
        return 0
    return 2 if unicodedata.east_asian_width(character) in {"W", "F"} else 1


def fit(text: str, columns: int, *, ellipsis: str = "…") -> str:
    """Return *text*, cut to *columns* with an ellipsis where it is longer."""
    if width_of(text[: columns + 1]) <= columns and len(text) <= columns:
        return text
    if width_of(text) <= columns:
        return text
    head, _ = _split_at(text, max(0, columns - width_of(ellipsis)))
    return (head + ellipsis)[: max(0, columns)] if columns < width_of(ellipsis) else head + ellipsis


def _split_at(text: str, columns: int) -> tuple[str, str]:
    """Split *text* behind the last character that still fits."""
    used = 0
    for index, character in enumerate(text):
        used += _columns(character)
        if used > columns:
            return text[:index], text[index:]
    return text, ""


def pad(text: str, columns: int, *, to_right: bool = False) -> str:
    """Fill *text* with spaces up to *columns*."""
    filling = " " * max(0, columns - width_of(text))
    return filling + text if to_right else text + filling


def wrap(text: str, columns: int) -> list[str]:
    """Break *text* into lines of at most *columns*, at spaces where there are any; at least one line."""
    columns = max(2, columns)
    lines: list[str] = []
    line = ""
    for word in re.findall(r"\s*\S+", text):
        if width_of(line) + width_of(word) <= columns:
            line += word
            continue
        if line:
            lines.append(line)
        line = word.lstrip()
        while width_of(line) > columns:
            head, line = _split_at(line, columns)
            lines.append(head)
    return [*lines, line] if line or not lines else lines


def plural(count: int, noun: str) -> str:
    """Return `1 step`, `3 steps`."""
    return f"{count:,} {noun if count == 1 else noun + 's'}"


def join_some(names: Sequence[str], most: int) -> str:
    """Return `a, b`, of more names than *most* `a, b and 3 more`."""
    more = len(names) - most
    return ", ".join(names[:most]) + (f" and {more:,} more" if more > 0 else "")


def brief(value: Json, *, joint: str = " ", length_max: int = BRIEF_LENGTH_MAX) -> str:
    """Sum *value* up on one line, unsafe as yet: `charge_id ch_1, amount 5000`, or with another *joint* between.

    None and what is empty come out as an empty text.
    """
    match value:
        case None:
            return ""
        case dict() if _secret_name(value) is None:
            text = ", ".join(f"{_bound(key)}{joint}{_spell_member(member)}" for key, member in list(value.items())[:50])
        case list():
            text = ", ".join(_spell_member(member) for member in value[:50])
        case _:
            text = _spell_member(value, length_max)
    return text if len(text) <= length_max else text[: length_max - 1] + "…"


def _spell_member(value: Json, length_max: int = NESTED_LENGTH_MAX) -> str:
    secret = _secret_name(value)
    if secret is not None:
        return f"secret {secret}"
    if isinstance(value, str) and _PLAIN_WORD.fullmatch(value[:length_max]):
        return _bound(value, length_max)
    if isinstance(value, str):
        return spell_as_written(_bound(value, length_max))
    return _bound(spell_as_written(value), length_max)


def _secret_name(value: Json) -> str | None:
    if isinstance(value, dict) and len(value) == 1 and SECRET_MARK in value:
        return str(value[SECRET_MARK])
    return None


def _bound(text: str, length_max: int = NESTED_LENGTH_MAX) -> str:
    return text if len(text) <= length_max else text[: length_max - 1] + "…"
