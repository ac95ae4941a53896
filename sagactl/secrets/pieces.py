"""What is left of a value where another program has shortened the text around it: `'Bear...ijklmnop_END'`.

Libraries that quote what they were given cut it in the middle or at an end, and put dots there. Nothing that is left is
the value any more, so its beginning is looked for before the dots, and its end after them.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from typing import Final

PIECE_LENGTH_MIN: Final = 4
"""A shorter piece stays: too much else would be masked with it."""

_GAP: Final = r"[ \t]?(?:\.{3,}|…|\[\.{3}\]|\[…\])[ \t]?"


class Pieces:
    """The texts whose beginnings and ends are looked for; each by every few characters of it, as dots are many."""

    def __init__(self, texts: Iterable[str]) -> None:
        self._texts: dict[str, dict[str, None]] = {}
        for text in texts:
            for place in range(len(text) - PIECE_LENGTH_MIN + 1):
                self._texts.setdefault(text[place : place + PIECE_LENGTH_MIN], {})[text] = None

    def find(self, text: str) -> Iterator[tuple[int, int]]:
        """Yield where the beginning or the end of one stands beside dots in *text*."""
        for gap in re.finditer(_GAP, text):
            start, end = gap.span()
            for stop in (start, start + 1) if gap[0][0] in " \t" else (start,):
                near = text[max(0, stop - PIECE_LENGTH_MIN) : stop]
                for value in self._texts.get(near, ()):
                    yield from _find_beginning(text, stop, value, near)
            for begin in (end, end - 1) if gap[0][-1] in " \t" else (end,):
                near = text[begin : begin + PIECE_LENGTH_MIN]
                for value in self._texts.get(near, ()):
                    yield from _find_end(text, begin, value, near)


def has_gap(text: str) -> bool:
    """Tell whether anything may have been cut out of *text*."""
    return "..." in text or "…" in text


def _find_beginning(text: str, stop: int, value: str, near: str) -> Iterator[tuple[int, int]]:
    place = value.find(near)
    while place >= 0:
        begin = stop - place - PIECE_LENGTH_MIN
        if begin >= 0 and text.startswith(value[: place + PIECE_LENGTH_MIN], begin):
            yield begin, stop
        place = value.find(near, place + 1)


def _find_end(text: str, begin: int, value: str, near: str) -> Iterator[tuple[int, int]]:
    place = value.find(near)
    while place >= 0:
        if text.startswith(value[place:], begin):
            yield begin, begin + len(value) - place
        place = value.find(near, place + 1)
