"""Problems as text for a terminal: each with its line of the file and a caret under the very characters.

A pure function, without colour. Carets are placed by columns of the screen, not by characters: tabs are expanded, wide
characters take two columns and combining ones none. Nothing in a file can move the cursor or hide: see `visible`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from sagactl.written.problem import Problem, Related
from sagactl.written.source import line_at, line_starts
from sagactl.written.visible import show, show_character, width

SHOWN_MAX: Final = 20
"""Problems that are shown; the rest is counted."""

LINE_COLUMNS_MAX: Final = 120
"""Columns of a line that are shown; of a longer one the part around the caret."""

_TAB: Final = "    "
_LEAD_COLUMNS: Final = 30
_LAID_OUT_MAX: Final = 1_000
_GUTTER_MIN: Final = 3


def render_problems(problems: Sequence[Problem], source_text: str) -> str:
    """Return the problems of the file *source_text* as text, one line each way and a count at the end."""
    if not problems:
        return ""
    starts = line_starts(source_text)
    blocks = [_render(problem, source_text, starts) for problem in _choose(problems)]
    hidden = len(problems) - SHOWN_MAX
    if hidden > 0:
        blocks.append(f"... and {hidden} more")
    return "\n\n".join([*blocks, _count(problems)]) + "\n"


def _choose(problems: Sequence[Problem]) -> Sequence[Problem]:
    """Return the problems to show, in their order: where not all fit, errors before warnings."""
    if len(problems) <= SHOWN_MAX:
        return problems
    chosen = sorted(range(len(problems)), key=lambda place: problems[place].severity != "error")[:SHOWN_MAX]
    return [problems[place] for place in sorted(chosen)]


def _count(problems: Sequence[Problem]) -> str:
    errors = sum(problem.severity == "error" for problem in problems)
    amounts = [(errors, "error"), (len(problems) - errors, "warning")]
    files = len({problem.file for problem in problems})
    counted = ", ".join(_plural(amount, noun) for amount, noun in amounts if amount)
    return f"{counted} in {_plural(files, 'file')}"


def _plural(amount: int, noun: str) -> str:
    return f"{amount} {noun}" if amount == 1 else f"{amount} {noun}s"


def _render(problem: Problem, text: str, starts: list[int]) -> str:
    lines = [f"{problem.severity}[{problem.code}]: {show(problem.message)}"]
    place = f":{problem.line}:{problem.column}" if problem.line else ""
    lines.append(f"  {show(problem.file)}{place}")
    hint = problem.hint
    if problem.line and text:  # a text that could not be read has no lines
        label = problem.label or ""
        if hint is not None and hint.startswith("did you mean"):
            label, hint = f"{label} {hint}".strip(), None
        lines += _render_snippet(problem, label, text, starts)
    if hint is not None:
        lines.append(f"  hint: {show(hint)}")
    return "\n".join(lines)


def _render_snippet(problem: Problem, label: str, text: str, starts: list[int]) -> list[str]:
    own: Related = (problem.line, problem.column, problem.end_column, label)
    places = [own] if problem.related is None else sorted([problem.related, own], key=lambda place: place[:2])
    gutter = max(_GUTTER_MIN, len(str(max(place[0] for place in places))) + 1)
    lines = [f"{'':{gutter}} |"]
    for place in places:
        line, pointer = _render_line(place, "^" if place is own else "-", gutter, line_at(text, starts, place[0]))
        # Two places in one line share it, unless it is so long that each shows another part of it.
        lines += [pointer] if line in lines else [line, pointer]
    return lines


def _render_line(place: Related, mark: str, gutter: int, line: str) -> tuple[str, str]:
    number, column, end_column, label = place
    # Of a very long line only the part around the caret is looked at.
    skipped = max(0, column - _LAID_OUT_MAX // 2) if len(line) > _LAID_OUT_MAX else 0
    column, end_column = column - skipped, end_column - skipped
    cells = _lay_out(line[skipped : skipped + _LAID_OUT_MAX])
    start, end = _column_of(cells, column - 1), _column_of(cells, end_column - 1)
    shown, shift = _cut(cells, start)
    marks = mark * max(1, min(end, shift + LINE_COLUMNS_MAX) - start)
    pointer = f"{'':{start - shift}}{marks} {show(label)}".rstrip()
    return f"{number:{gutter}} | {shown}".rstrip(), f"{'':{gutter}} | {pointer}"


def _lay_out(line: str) -> list[tuple[str, int]]:
    """Return what is shown for each character of *line*, and the column at which it begins."""
    cells: list[tuple[str, int]] = []
    column = 0
    for character in line:
        shown = _TAB[column % len(_TAB) :] if character == "\t" else show_character(character)
        cells.append((shown, column))
        column += sum(map(width, shown))
    cells.append(("", column))
    return cells


def _column_of(cells: list[tuple[str, int]], index: int) -> int:
    last = cells[-1][1]
    return cells[index][1] if index < len(cells) else last + index - len(cells) + 1


def _cut(cells: list[tuple[str, int]], start: int) -> tuple[str, int]:
    """Return the part of the line to show and how many columns were cut off before it."""
    if cells[-1][1] <= LINE_COLUMNS_MAX:
        return "".join(shown for shown, _ in cells), 0
    first = max(0, start - _LEAD_COLUMNS) if start > LINE_COLUMNS_MAX - _LEAD_COLUMNS else 0
    kept = [(shown, column) for shown, column in cells if first <= column < first + LINE_COLUMNS_MAX]
    # A wide character may begin before the cut, so the first kept one says where the shown part begins.
    shift = kept[0][1] if kept else first
    return "".join(shown for shown, _ in kept), shift
