"""The one choke point for secrets: what may be stored or shown passes here, and values of secrets come out as `***`.

What is known
-------------
Every value that was resolved in this process, whatever run it was for, and old ones too: a tool may hold on to a key
that was rotated since. What a tool makes of a value that can't be undone (a hash, a cipher, reversed text) isn't known.

How it is found
---------------
A text is looked at as it is, and as what it would be without each layer that programs commonly put around text: JSON
and `repr` escapes (twice), percent signs of URLs (twice), breaks over lines. In each of these views the value itself is
searched, its hexadecimal digits, and what base64 makes of it at each of the three places where it may begin. What is
found is traced back to the text, and masked there. Lines of a value with several are also secrets each. Beside dots,
what is left of a shortened value is masked as well (see `pieces`).

A text that holds none of it costs a few searches; one without percent signs, backslashes and line breaks has no
views but itself.
"""

from __future__ import annotations

import re
import threading
from bisect import bisect_right
from collections.abc import Callable, Iterator
from decimal import Decimal
from itertools import chain
from typing import Final, NamedTuple

from sagactl.core.canonical import Json, canonical
from sagactl.secrets.pieces import Pieces, has_gap

MASK: Final = "***"

LENGTH_MIN: Final = 6
"""A shorter value is none that can be masked: too much else would be masked with it."""

LINE_LENGTH_MIN: Final = 8
"""From which length on a line of a value that has several is masked by itself."""

VALUES_MAX: Final = 1_000
"""How many values are known at a time; the oldest are forgotten, which only a process that rotates for ever does."""

GROWTH_MAX: Final = 12
"""How many characters an encoding that is searched makes of one at most."""

_BASE64: Final = frozenset("ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/-_")
# Texts, compiled by `re` when one is first needed: most commands need none.
_BREAK: Final = r"[ \t]*(?:\r?\n|\r|(?:\\r)?\\n)[ \t]*"
_PERCENT: Final = r"%([0-9A-Fa-f]{2})"
_ESCAPE: Final = (
    r"\\(?:u([dD][89abAB][0-9a-fA-F]{2})\\u([dD][c-fC-F][0-9a-fA-F]{2})|u([0-9a-fA-F]{4})|U([0-9a-fA-F]{8})"
    r"|x([0-9a-fA-F]{2})|([\\\"'/nrtbfav]))"
)
_CONTROLS: Final = {"n": "\n", "r": "\r", "t": "\t", "b": "\b", "f": "\f", "a": "\a", "v": "\v"}


class _Needle(NamedTuple):
    """A text to search; `lead` and `tail` say how many characters beside it hold a part of the value as well."""

    text: str
    lead: int = 0
    tail: int = 0


class _View(NamedTuple):
    """A text made from another; segments at even places were taken over, those at odd ones replaced something."""

    text: str
    starts: list[int]
    sources: list[int]

    def trace(self, start: int, end: int) -> tuple[int, int]:
        """Return where the characters from *start* to *end* come from."""
        return self._come_from(start)[0], self._come_from(end - 1)[1]

    def _come_from(self, place: int) -> tuple[int, int]:
        segment = bisect_right(self.starts, place) - 1
        if segment % 2:
            return self.sources[segment], self.sources[segment + 1]
        source = self.sources[segment] + place - self.starts[segment]
        return source, source + 1


class Masker:
    """Knows the values of secrets, and takes them out of texts; may be used from any thread."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._values: dict[str, tuple[_Needle, ...]] = {}
        self._needles: tuple[_Needle, ...] = ()
        self._reach = 0
        self._pieces: tuple[tuple[_Needle, ...], Pieces] | None = None

    @property
    def is_active(self) -> bool:
        """Tell whether there is anything to mask."""
        return bool(self._needles)

    @property
    def reach(self) -> int:
        """Return the length of the longest text that a value may be spelled by; 0 where none is known."""
        return self._reach

    def add(self, value: str) -> None:
        """Mask *value* from now on; a short one can't be."""
        if value in self._values or len(value) < LENGTH_MIN:
            return
        with self._lock:
            values = {**self._values, value: tuple(_make_needles(value))}
            while len(values) > VALUES_MAX:
                del values[next(iter(values))]
            self._values = values
            self._needles = tuple(dict.fromkeys(needle for found in values.values() for needle in found))
            self._reach = GROWTH_MAX * max(map(len, values))

    def mask(self, text: str) -> str:
        """Return *text* with `***` in place of each value."""
        spans = self.find(text)
        if not spans:
            return text
        parts, place = [], 0
        for start, end in spans:
            parts += [text[place:start], MASK]
            place = end
        return "".join([*parts, text[place:]])

    def find(self, text: str) -> list[tuple[int, int]]:
        """Return where values stand in *text*, in order, those that touch as one."""
        if not self._needles or not text:
            return []
        found = sorted(self._search(text))
        merged: list[tuple[int, int]] = []
        for start, end in found:
            if merged and start <= merged[-1][1]:
                merged[-1] = merged[-1][0], max(end, merged[-1][1])
            else:
                merged.append((start, end))
        return merged

    def _search(self, text: str) -> Iterator[tuple[int, int]]:
        needles = self._needles
        for views in _look_at(text):
            content = views[-1].text if views else text
            pieces = self._find_pieces(content, needles) if has_gap(content) else ()
            for span in chain(pieces, *(_occurrences(content, needle) for needle in needles)):
                yield _trace(span, views)

    def _find_pieces(self, text: str, needles: tuple[_Needle, ...]) -> Iterator[tuple[int, int]]:
        """Return what is left of values beside dots; what is looked for is made ready when a text first has any."""
        made = self._pieces
        if made is None or made[0] is not needles:
            self._pieces = made = needles, Pieces(needle.text for needle in needles)
        return made[1].find(text)

    def mask_json(self, value: Json) -> Json:
        """Return *value* with texts, keys and numbers masked; one without secrets comes back as it is."""
        if not self._needles or not self.find(canonical(value)):
            return value
        return self._mask_parts(value)

    def _mask_parts(self, value: Json) -> Json:
        if isinstance(value, str):
            return self.mask(value)
        if isinstance(value, dict):
            return {self.mask(key): self._mask_parts(member) for key, member in value.items()}
        if isinstance(value, list):
            return [self._mask_parts(member) for member in value]
        is_number = isinstance(value, int | Decimal) and not isinstance(value, bool)
        return self.mask(str(value)) if is_number and self.find(str(value)) else value

    def mask_cut(self, text: str, *, start: bool = False, end: bool = False) -> str:
        """Return *text* masked, without what may be a part of a value where it was cut at its *start* or *end*."""
        masked = self.mask(text)
        if not self._reach:
            return masked
        begin, stop = self._reach if start else 0, len(masked) - (self._reach if end else 0)
        return masked[begin:stop] if begin < stop else ""

    def shorten(self, text: str, length_max: int, *, dots: str = "", is_cut: bool = False) -> str:
        """Return the beginning of *text*, masked before it is cut, so that nothing of a value is left at its end.

        Args:
            text: What was said, by whomever.
            length_max: How many characters may stay, *dots* among them.
            dots: What stands at the end of what was cut here.
            is_cut: Whether the end of *text* had been cut off before it came here.
        """
        masked = self.mask_cut(text, end=is_cut)
        return masked if len(masked) <= length_max else masked[: length_max - len(dots)] + dots

    def shorten_start(self, text: str, length_max: int) -> str:
        """Return the end of *text*, likewise: of a traceback, it is the end that tells."""
        return self.mask(text)[-length_max:]

    def split(self, text: str) -> tuple[str, str]:
        """Return what of a stream can be shown, masked, and what must wait, for a value may have begun in it."""
        place = max(0, len(text) - self._reach)
        place = text.rfind("\n", 0, place) + 1 or place  # others write whole lines in between
        for start, end in self.find(text):
            place = start if start < place < end else place
        return self.mask(text[:place]), text[place:]


def _make_needles(value: str) -> Iterator[_Needle]:
    lines = [line.strip() for line in value.splitlines()] if len(value.splitlines()) > 1 else []
    shown = [line for line in lines if len(line) >= LINE_LENGTH_MIN and not line.startswith("-----")]
    for plain in dict.fromkeys([value, value.strip(), *shown]):
        if len(plain) >= LENGTH_MIN:
            yield from _spell(plain)


def _spell(plain: str) -> Iterator[_Needle]:
    data = plain.encode("utf-8", "surrogatepass")
    as_bytes = data.decode("latin-1")  # what is left of `%C3%A9` and of b'\\xc3\\xa9'
    texts = [text for base in (plain, as_bytes) for text in (base, base.replace(" ", "+"), re.sub(_BREAK, "", base))]
    digits = data.hex()
    yield from (_Needle(text) for text in dict.fromkeys([*texts, digits, digits.upper()]) if len(text) >= LENGTH_MIN)
    from base64 import b64encode

    for offset in range(3):
        text = b64encode(bytes(offset) + data).decode("ascii")
        first, last = -(-8 * offset // 6), 8 * (offset + len(data)) // 6
        core, tail = text[first:last], int(8 * (offset + len(data)) % 6 > 0)
        for spelled in dict.fromkeys([core, core.replace("+", "-").replace("/", "_")]):
            yield _Needle(spelled, lead=int(offset > 0), tail=tail)


def _occurrences(text: str, needle: _Needle) -> Iterator[tuple[int, int]]:
    place = text.find(needle.text)
    while place >= 0:
        start, end = place, place + len(needle.text)
        if needle.lead and start > 0 and text[start - 1] in _BASE64:
            start -= 1
        if needle.tail and end < len(text) and text[end] in _BASE64:
            end += 1
        yield start, end
        place = text.find(needle.text, place + len(needle.text))


def _trace(span: tuple[int, int], views: tuple[_View, ...]) -> tuple[int, int]:
    for view in reversed(views):
        span = view.trace(*span)
    return span


def _look_at(text: str) -> Iterator[tuple[_View, ...]]:
    """Yield the ways to look at *text*, each as the views one upon the other; first the text itself."""
    for escapes in _peel((), text, "\\", _unescape):
        for percents in _peel(escapes, text, "%", _unquote):
            yield percents
            content = percents[-1].text if percents else text
            if "\n" in content or "\r" in content or "\\n" in content:
                yield (*percents, _replace(content, _BREAK, lambda _: ""))


def _peel(
    views: tuple[_View, ...], text: str, sign: str, take_off: Callable[[str], _View]
) -> Iterator[tuple[_View, ...]]:
    """Yield *views*, and them with one layer and with two layers taken off, as far as there are any."""
    yield views
    for _ in range(2):
        content = views[-1].text if views else text
        if sign not in content:
            return
        view = take_off(content)
        if view.text == content:
            return
        views = (*views, view)
        yield views


def _unescape(text: str) -> _View:
    return _replace(text, _ESCAPE, _read_escape)


def _read_escape(match: re.Match[str]) -> str:
    high, low, four, eight, two, sign = match.groups()
    if high:
        return chr(0x10000 + ((int(high, 16) - 0xD800) << 10) + int(low, 16) - 0xDC00)
    if sign:
        return _CONTROLS.get(sign, sign)
    code = int(four or eight or two, 16)
    return chr(code) if code <= 0x10FFFF else "?"


def _unquote(text: str) -> _View:
    return _replace(text, _PERCENT, lambda match: chr(int(match[1], 16)))


def _replace(text: str, pattern: str, read: Callable[[re.Match[str]], str]) -> _View:
    parts: list[str] = []
    starts, sources, place, length = [0], [0], 0, 0
    for match in re.finditer(pattern, text):
        kept, new = text[place : match.start()], read(match)
        parts += [kept, new]
        length += len(kept)
        starts.append(length)
        sources.append(match.start())
        length += len(new)
        starts.append(length)
        sources.append(match.end())
        place = match.end()
    parts.append(text[place:])
    return _View("".join(parts), starts, sources)


KNOWN: Final = Masker()
"""The values that were resolved in this process."""
