"""Lines of the live views: rows laid out in columns, and which of them are shown where there isn't room for all."""

from __future__ import annotations

import heapq
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from enum import IntEnum
from typing import Any, Final, NamedTuple

from sagactl.cli.views.live_rows import Row
from sagactl.cli.views.style import Hue, Mark, Style, mark_width
from sagactl.cli.views.text import pad, width_of

INDENT: Final = "  "
NAME_COLUMNS_MAX: Final = 28
TOOK_COLUMNS: Final = 6


class Rank(IntEnum):
    """What is shown first; within a rank what is nearest to where things happen."""

    TROUBLE = 0
    UNDER_WAY = 1
    WAITING = 2
    NEAR = 3
    FAR = 4


class Candidate(NamedTuple):
    """Something that may get a line; `word` counts it among what is not shown, `key` says what it is."""

    rank: Rank
    near: int
    word: str
    key: Any


class Section(NamedTuple):
    """Candidates in the order in which they are shown, under a title, and how a row is made of one."""

    title: str
    candidates: Sequence[Candidate]
    make: Callable[[Any], Row]
    name_columns: int


def lay_sections(sections: Iterable[Section], room: int, style: Style) -> list[str]:
    """Return at most *room* lines: those that matter most, in their fixed order, and how many are not shown."""
    filled = [section for section in sections if section.candidates]
    room -= sum(2 for section in filled if section.title)
    chosen = _choose(filled, max(1, room))
    lines: list[str] = []
    for index, section in enumerate(filled):
        lines += ["", f"{INDENT}{style.paint(section.title, Hue.STRONG)}"] if section.title else []
        shown = chosen[index]
        rows = [section.make(section.candidates[place].key) for place in sorted(shown)]
        lines += [lay_row(row, section.name_columns, style) for row in rows]
        hidden = [each for place, each in enumerate(section.candidates) if place not in shown]
        lines += [count_hidden(hidden, style)] if hidden else []
    return lines


def _choose(sections: Sequence[Section], room: int) -> list[set[int]]:
    """Return the places of the candidates that are shown, by section; a section that hides some takes a line more."""
    total = sum(len(section.candidates) for section in sections)
    everything = [set(range(len(section.candidates))) for section in sections]
    if total <= room:
        return everything
    places = (
        (each.rank, each.near, index, place)
        for index, section in enumerate(sections)
        for place, each in enumerate(section.candidates)
    )
    best = heapq.nsmallest(max(1, room - len(sections)), places)
    return [{place for *_, found, place in best if found == index} for index in range(len(sections))]


def count_hidden(hidden: Sequence[Candidate], style: Style, noun: str = "more") -> str:
    """Return `and 1,203 more: 1,150 done, 53 to come`."""
    counts = Counter(each.word for each in hidden)
    parts = ", ".join(f"{count:,} {word}" for word, count in counts.items())
    text = f"{pad('', mark_width(style))} and {len(hidden):,} {noun}: {parts}"
    return INDENT + style.paint(style.fit(text, style.columns - len(INDENT)), Hue.DIM)


def lay_row(row: Row, name_columns: int, style: Style) -> str:
    """Return a row as a line: mark, name, duration, words."""
    mark = style.paint(pad(style.symbol(row.mark), mark_width(style)), row.mark.hue)
    is_dim = row.mark is Mark.NOT_RUN or (row.mark is Mark.WAITING and not row.took)
    name = style.fit(style.show(row.name), name_columns)
    cells = [(name, name_columns), (pad(row.took, TOOK_COLUMNS, to_right=True) if row.took else "", TOOK_COLUMNS)]
    used = len(INDENT) + mark_width(style) + 1 + name_columns + 2 + TOOK_COLUMNS + 2
    note = style.fit(style.show(row.note), max(0, style.columns - used))
    hues = (Hue.DIM if is_dim else Hue.PLAIN, Hue.DIM, Hue.DIM if is_dim else Hue.PLAIN)
    texts = [text for text, _ in cells] + [note]
    last = max(index for index, text in enumerate(texts) if text or index == 0)
    parts = []
    for index, text in enumerate(texts[: last + 1]):
        filling = " " * (cells[index][1] - width_of(text)) if index < last else ""
        parts.append(style.paint(text, hues[index]) + filling)
    return f"{INDENT}{mark} {'  '.join(parts)}"


def limit_columns(name_columns: int, style: Style) -> int:
    """Return how wide a column of names may be, so that there is room for words."""
    return max(8, min(name_columns, NAME_COLUMNS_MAX, style.columns // 3))


def clip(lines: list[str], height: int) -> list[str]:
    """Return lines that a terminal of *height* can hold; what goes is above."""
    return lines[max(0, len(lines) - max(1, height)) :]
