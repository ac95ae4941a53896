r"""Text made safe to look at: what a terminal would obey, hide or reorder is shown as an escape.

Control characters, the marks that turn the direction of writing, and everything of no width are shown as `\u202e`
and the like; so are spaces that are no plain space, because they look like one and YAML doesn't think they are.
"""

from __future__ import annotations

import unicodedata
from typing import Final

QUOTED_LENGTH_MAX: Final = 80
"""Characters of a value in a message."""

_HIDDEN_CATEGORIES: Final = frozenset({"Cc", "Cf", "Cs", "Cn", "Co", "Zl", "Zp", "Zs"})
_HIDDEN_LETTERS: Final = frozenset("\u034f\u115f\u1160\u17b4\u17b5\u3164\uffa0")
"""Letters and marks by category, but nothing to see."""

_SHORT: Final = {"\n": "\\n", "\r": "\\r", "\t": "\\t"}


def show_character(character: str) -> str:
    """Return *character* itself, or its escape where it would not be seen for what it is."""
    if " " <= character <= "~":
        return character
    if unicodedata.category(character) in _HIDDEN_CATEGORIES or character in _HIDDEN_LETTERS:
        code = ord(character)
        return _SHORT.get(character) or (f"\\u{code:04x}" if code <= 0xFFFF else f"\\U{code:08x}")
    return character


def show(text: str) -> str:
    """Return *text* on one line with everything visible."""
    if text.isascii() and text.isprintable():
        return text
    return "".join(map(show_character, text))


def quote(text: str, length_max: int = QUOTED_LENGTH_MAX) -> str:
    """Return *text* for a message: visible, on one line, and cut where it is long."""
    cut = text if len(text) <= length_max else text[: length_max - 1] + "…"
    return show(cut)


def width(character: str) -> int:
    """Return how many columns of a terminal *character* takes: 0, 1 or 2."""
    if " " <= character <= "~":
        return 1
    if unicodedata.category(character) in {"Mn", "Me"}:
        return 0
    return 2 if unicodedata.east_asian_width(character) in {"W", "F"} else 1


def name_odd(text: str) -> str:
    """Return `: it has …` for a name that holds what no name of ours does, so that nobody searches a look-alike."""
    return "" if text.isascii() and text.isprintable() else f": it has {code_points(text)}"


def code_points(text: str) -> str:
    """Name each character of *text* beyond ASCII, and each that can't be seen: `U+0430 CYRILLIC SMALL LETTER A`."""
    odd = dict.fromkeys(each for each in text if not " " <= each <= "~")
    return ", ".join(f"U+{ord(each):04X} {unicodedata.name(each, 'without a name')}" for each in list(odd)[:5])
