"""What an expression may be given, so that its memory stays bounded whatever the input is (limits).

The library stops after ten thousand rounds of a loop and knows no limit of memory. Two things grow beyond what they are
given: `map` and `filter` copy their result at each round, so a list of ten thousand takes more than a gigabyte; and
loops, `replace` and `join` multiply one text by another. Whoever gives the input would choose how much. So what is
looped over is short, and so is a text that the saga puts into others a number of times that it doesn't choose itself.

An expression that doubles a text by itself, ten times over, is the author's own: nothing here looks for it.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from functools import lru_cache
from typing import Final

from sagactl.core.template import STRINGS, ExpressionError
from sagactl.dataclass import dataclass

LOOPED_LENGTH_MAX: Final = 2_000
"""Items of a list or map that an expression with `map` or `filter` reads, and parts of a text that it splits."""

LOOPED_CHARACTERS_MAX: Final = 1 << 26
"""The longest text that an expression with a loop reads, times the items of the longest list."""

MULTIPLIED_CHARACTERS_MAX: Final = 1 << 28
"""What comes of all texts that are read, where `replace` or `join` put them into one another."""

_LOOP: Final = re.compile(r"\.\s*(?:map|filter)\s*\(", re.ASCII)
_STRING: Final = "|".join(STRINGS.values())
_PLAIN: Final = rf"(?:{_STRING}|-?\d+)"
_CALL: Final = re.compile(
    rf"(?P<string>{_STRING})"
    rf"|\.\s*(?P<name>replace|join|split)\s*\((?P<plain>\s*(?:{_PLAIN}\s*(?:,\s*{_PLAIN}\s*)*)?\))?",
    re.ASCII | re.DOTALL,
)


@dataclass(frozen=True, slots=True)
class _Calls:
    """What one expression does: `separators` are those that it splits by, `multiplying` counts texts put into texts."""

    loops: bool
    multiplying: int
    separators: tuple[str, ...]


def refuse_large(expression: str, given: Mapping[str, object]) -> None:
    """Raise ExpressionError where *expression* could make too much of what it is *given*."""
    calls = _read_calls(expression)
    if not (calls.loops or calls.multiplying):
        return
    texts = [value for value in _walk(given) if isinstance(value, str)]
    if calls.loops:
        _refuse_loop(calls, given, texts)
    total = sum(map(len, texts))
    limit = int(MULTIPLIED_CHARACTERS_MAX ** (1 / (calls.multiplying + 1)))
    if calls.multiplying and total > limit:
        message = f"replace and join put texts of {limit} characters into one another at most"
        raise ExpressionError(f"{message}, and these have {total}")


def _refuse_loop(calls: _Calls, given: Mapping[str, object], texts: list[str]) -> None:
    lengths = [len(value) for value in _walk(given) if isinstance(value, list | dict)]
    parts = [text.count(separator) + 1 for separator in calls.separators for text in texts]
    longest = max([*lengths, *parts], default=0)
    if longest > LOOPED_LENGTH_MAX:
        raise ExpressionError(f"map and filter take {LOOPED_LENGTH_MAX} items at most, and there are {longest}")
    limit = LOOPED_CHARACTERS_MAX // max(longest, 1)
    if (length := max(map(len, texts), default=0)) > limit:
        message = f"map and filter of {longest} items take texts of {limit} characters at most"
        raise ExpressionError(f"{message}, and one has {length}")


@lru_cache(maxsize=256)
def _read_calls(expression: str) -> _Calls:
    calls = [call for call in _CALL.finditer(expression) if call["name"] is not None]
    return _Calls(
        loops=_LOOP.search(expression) is not None,
        multiplying=sum(call["plain"] is None for call in calls if call["name"] != "split"),
        separators=tuple(_read_separator(call["plain"] or "") for call in calls if call["name"] == "split"),
    )


def _read_separator(arguments: str) -> str:
    """Return what a text is split by; where that isn't plain to see, what gives the most parts: nothing."""
    written = arguments.partition(",")[0].strip(" )\t\r\n")
    is_plain = len(written) > 2 and written[0] == written[-1] and written[1] != written[0] and "\\" not in written
    return written[1:-1] if is_plain and written[0] in "\"'" else ""


def _walk(value: object) -> Iterator[object]:
    waiting = [value]
    while waiting:
        here = waiting.pop()
        yield here
        if isinstance(here, dict):
            waiting.extend(here)
            waiting.extend(here.values())
        elif isinstance(here, list):
            waiting.extend(here)
