"""Tables, blocks of labelled facts, and hints: where text is put on lines that fit the terminal."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final, TypeAlias

from sagactl.cli.views.style import Hue, Mark, Style, mark_width
from sagactl.cli.views.text import pad, width_of, wrap
from sagactl.dataclass import dataclass

GAP: Final = "  "
INDENT: Final = "  "
LABEL_COLUMNS: Final = 8
COLUMN_MIN: Final = 5
"""No column is made narrower than that to let a table fit."""


@dataclass(frozen=True, slots=True)
class Cell:
    """Safe text with a colour."""

    text: str
    hue: Hue = Hue.PLAIN


Row: TypeAlias = Sequence[Cell | str]


@dataclass(frozen=True, slots=True)
class Column:
    """A column of a table.

    One that `is_whole` is never cut, because its text is typed or copied; others are cut down to `columns_min`.
    """

    title: str = ""
    is_whole: bool = False
    to_right: bool = False
    columns_min: int = COLUMN_MIN


def lay_out(columns: Sequence[Column], rows: Iterable[Row], style: Style, *, titles: bool = True) -> list[str]:
    """Return the lines of a table; a column in which nothing stands is left out."""
    cells = [[each if isinstance(each, Cell) else Cell(each) for each in row] for row in rows]
    if not cells:
        return []
    kept = [index for index in range(len(columns)) if any(row[index].text for row in cells)]
    shown = [columns[index] for index in kept]
    body = [[row[index] for index in kept] for row in cells]
    if titles:
        body.insert(0, [Cell(column.title, Hue.DIM) for column in shown])
    widths = _choose_widths(shown, body, style)
    return [_lay_row(shown, row, widths, style) for row in body]


def _choose_widths(columns: Sequence[Column], rows: Sequence[Sequence[Cell]], style: Style) -> list[int]:
    """Take columns from the widest that may be cut until the table fits."""
    widths = [max(min(width_of(row[index].text), style.columns) for row in rows) for index in range(len(columns))]
    room = style.columns - len(INDENT) - len(GAP) * (len(columns) - 1)
    while sum(widths) > room:
        cuttable = [
            index for index, column in enumerate(columns) if not column.is_whole and widths[index] > column.columns_min
        ]
        if not cuttable:
            break
        widths[max(cuttable, key=lambda index: widths[index])] -= 1
    return widths


def _lay_row(columns: Sequence[Column], row: Sequence[Cell], widths: Sequence[int], style: Style) -> str:
    """Put the cells on a line; nothing is filled up behind the last one that has text."""
    last = max((index for index, cell in enumerate(row) if cell.text), default=-1)
    parts = []
    left = style.columns - len(INDENT)
    for index in range(last + 1):
        column, text = columns[index], row[index].text
        if left <= 0:
            break
        room = widths[index] if column.is_whole else min(widths[index], left)
        text = text if column.is_whole else style.fit(text, room)
        if index < last or column.to_right:
            text = pad(text, room, to_right=column.to_right)
        left -= width_of(text) + len(GAP)
        parts.append(style.paint(text, row[index].hue))
    return INDENT + GAP.join(parts)


Fact: TypeAlias = tuple[str, "str | Sequence[str]"]
"""A label and safe text for it, or several lines of it; an empty text leaves the fact out."""


def list_facts(facts: Iterable[Fact], style: Style, *, hue: Hue = Hue.PLAIN) -> list[str]:
    """Return labelled facts, each wrapped beside its label."""
    given = [(label, [text] if isinstance(text, str) else list(text)) for label, text in facts]
    given = [(label, texts) for label, texts in given if any(texts)]
    label_columns = max([LABEL_COLUMNS, *(width_of(label) for label, _ in given)])
    lines = []
    for label, texts in given:
        for number, text in enumerate(texts):
            head = pad(label if number == 0 else "", label_columns)
            lines += _hang(head, text, style, hue)
    return lines


def _hang(head: str, text: str, style: Style, hue: Hue) -> list[str]:
    margin = INDENT + " " * width_of(head) + GAP
    first, *others = wrap(text, style.columns - width_of(margin))
    lines = [INDENT + style.paint(head, Hue.DIM) + GAP + style.paint(first, hue)]
    return [*lines, *(margin + style.paint(other, hue) for other in others)]


def headline(mark: Mark, text: str, style: Style) -> list[str]:
    """Return the line that says it all, with its mark; wrapped where it must be."""
    symbol = style.symbol(mark)
    first, *others = wrap(text, style.columns - width_of(symbol) - 1)
    lead = style.paint(f"{symbol} {first}", mark.hue)
    return [lead, *(INDENT + style.paint(other, mark.hue) for other in others)]


def list_hints(commands: Iterable[str], style: Style) -> list[str]:
    """Return a line for each command, whole and ready to be typed, whatever its length."""
    return [f"hint: {style.command(command)}" for command in dict.fromkeys(commands)]


def list_choices(choices: Iterable[tuple[str, str]], style: Style) -> list[str]:
    """Return lines of what can be done: in words, then the command, whole."""
    given = list(choices)
    columns_wide = max((width_of(words) for words, _ in given), default=0)
    return [f"    {pad(words, columns_wide)}{GAP}{style.command(command)}" for words, command in given]


def marked(mark: Mark, text: str, style: Style) -> Cell:
    """Return a cell with a mark before its text."""
    return Cell(f"{pad(style.symbol(mark), mark_width(style))} {text}", mark.hue)


def join_blocks(*blocks: Iterable[str]) -> str:
    """Return the blocks that have lines, with an empty line between them."""
    filled = [list(block) for block in blocks]
    return "\n\n".join("\n".join(block) for block in filled if block)
