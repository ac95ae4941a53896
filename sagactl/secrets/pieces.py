"""What is left of a value where another program has shortened the text around it: `'Bear...ijklmnop_END'`.

Libraries that quote what they were given cut it in the middle or at an end, and put dots there. Nothing that is left is
the value any more, so its beginning is looked for before the dots, and its end after them.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Final

PIECE_LENGTH_MIN: Final = 4
"""A shorter piece stays: too much else would be masked with it."""

_GAP: Final = r"[ \t]?(?:\.{3,}|…|\[\.{3}\]|\[…\])[ \t]?"


def find_pieces(text: str, value: str) -> Iterator[tuple[int, int]]:
    """Yield where the beginning or the end of *value* stands beside dots in *text*."""
    for gap in re.finditer(_GAP, text):
        for start in {gap.start(), gap.start() + len(gap[0]) - len(gap[0].lstrip())}:
            yield from _find_beginning(text, start, value)
        for end in {gap.end(), gap.end() - len(gap[0]) + len(gap[0].rstrip())}:
            yield from _find_end(text, end, value)


def has_gap(text: str) -> bool:
    """Tell whether anything may have been cut out of *text*."""
    return "..." in text or "…" in text


def _find_beginning(text: str, stop: int, value: str) -> Iterator[tuple[int, int]]:
    last = text[max(0, stop - PIECE_LENGTH_MIN) : stop]
    place = value.find(last) if len(last) == PIECE_LENGTH_MIN else -1
    while place >= 0:
        begin = stop - place - PIECE_LENGTH_MIN
        if begin >= 0 and text.startswith(value[: place + PIECE_LENGTH_MIN], begin):
            yield begin, stop
        place = value.find(last, place + 1)


def _find_end(text: str, begin: int, value: str) -> Iterator[tuple[int, int]]:
    first = text[begin : begin + PIECE_LENGTH_MIN]
    place = value.find(first) if len(first) == PIECE_LENGTH_MIN else -1
    while place >= 0:
        if text.startswith(value[place:], begin):
            yield begin, begin + len(value) - place
        place = value.find(first, place + 1)
