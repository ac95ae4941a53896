"""`sagactl tools import`: what was made of a description, and what wasn't taken over."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Final

from sagactl.cli.views.layout import Column, headline, join_blocks, lay_out, list_hints
from sagactl.cli.views.style import Mark, Style
from sagactl.cli.views.text import plural
from sagactl.core.canonical import Json
from sagactl.dataclass import dataclass
from sagactl.usecases.documents import Document

IMPORT_SCHEMA: Final = "sagactl.tools_import/1"
SHOWN_MAX: Final = 20

_COLUMNS: Final = (Column("operation", is_whole=True), Column("why"))


@dataclass(frozen=True, slots=True)
class LeftRow:
    """Something that wasn't taken over."""

    where: str
    why: str


def render_import(
    tools: Sequence[str], left: Sequence[LeftRow], notes: Sequence[str], *, out: Path | None, style: Style
) -> str:
    """Return how many tools there are, what a person has to fill in, and what isn't taken over."""
    where = "" if out is None else f" in {style.show(str(out))}"
    hidden = len(left) - SHOWN_MAX
    rows = [[style.show(each.where), style.show(each.why)] for each in left[:SHOWN_MAX]]
    return join_blocks(
        headline(Mark.DONE, f"{plural(len(tools), 'tool')}{where}; what undoes each is yours to fill in", style),
        [f"note: {style.show(note)}" for note in notes],
        ["not taken over:", *lay_out(_COLUMNS, rows, style)] if rows else [],
        [f"... and {hidden} more"] if hidden > 0 else [],
        list_hints(["sagactl tools" if out is not None else "sagactl help http"], style),
    )


def write_import(
    tools: Sequence[str], left: Sequence[LeftRow], notes: Sequence[str], *, text: str, out: Path | None
) -> Document:
    """Return the document of what was made."""
    left_out: list[Json] = [{"where": each.where, "why": each.why} for each in left]
    return {
        "schema": IMPORT_SCHEMA,
        "tools": list(tools),
        "left_out": left_out,
        "notes": list(notes),
        "file": None if out is None else str(out),
        "text": text,
        "error": None,
    }
