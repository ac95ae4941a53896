"""`sagactl tools pin`: what servers say of their tools, beside what is pinned."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

from sagactl.cli.views.layout import Fact, headline, join_blocks, list_facts, list_hints
from sagactl.cli.views.style import Mark, Style
from sagactl.cli.views.text import plural
from sagactl.core.canonical import Json
from sagactl.core.pinned import describe_change
from sagactl.core.records import ToolChange
from sagactl.dataclass import dataclass
from sagactl.usecases.documents import Document, write_change

PIN_SCHEMA: Final = "sagactl.tools_pin/1"

_GOOD: Final = frozenset({"same", "new"})
_WORDS: Final = {
    "same": "as pinned",
    "new": "not pinned before",
    "changed": "not what is pinned",
    "removed": "pinned, and no longer in the settings",
    "unreachable": "can't be reached",
}
_WRITTEN: Final = {
    "new": "pinned",
    "changed": "pinned anew",
    "removed": "not pinned any more: it isn't in the settings",
}
"""What is said instead once that is written down."""


@dataclass(frozen=True, slots=True)
class PinRow:
    """One server."""

    name: str
    status: str
    version: str = ""
    tools: int = 0
    changes: tuple[tuple[str, ToolChange], ...] = ()
    """Each difference, with the server's name of the tool."""
    error: str | None = None
    needs_secret: bool = False


def render_pins(rows: Sequence[PinRow], *, written: str | None, style: Style) -> str:
    """Return each server with the differences; *written* is the file that has them now."""
    if not rows:
        return join_blocks(
            ["no servers: the table [mcp] of the settings has none"], list_hints(["sagactl help mcp"], style)
        )
    left = [row.name for row in rows if row.status not in {"same", "unreachable"}]
    secrets = ["sagactl help secrets"] if any(row.needs_secret for row in rows) else []
    going_on = "sagactl tools" if written else "sagactl tools pin"
    return join_blocks(
        *[_render_row(row, style, is_written=written is not None) for row in rows],
        [f"written to {style.show(written)}"] if written else [],
        list_hints([*secrets, *([going_on] if left else [])], style),
    )


def _render_row(row: PinRow, style: Style, *, is_written: bool) -> list[str]:
    about = [style.show(row.version), plural(row.tools, "tool")] if row.tools else []
    settled = _WRITTEN.get(row.status) if is_written else None
    words = settled or _WORDS[row.status]
    head = ", ".join([f"{style.show(row.name)}: {words}", *filter(None, about)])
    facts: list[Fact] = [("why", style.show(row.error or ""))]
    facts += [("" if tool == last else style.show(tool), style.show(text)) for last, tool, text in _tell(row)]
    return [
        *headline(Mark.DONE if settled or row.status in _GOOD else Mark.FAILED, head, style),
        *list_facts(facts, style),
    ]


def _tell(row: PinRow) -> Iterator[tuple[str, str, str]]:
    """Yield each difference in words, with its tool and the tool before it, which isn't named twice."""
    last = ""
    for tool, change in row.changes:
        yield last, tool, describe_change(change)
        last = tool


def write_pins(rows: Sequence[PinRow], *, written: str | None) -> Document:
    """Return the document of what was looked at."""
    items: list[Json] = [
        {
            "name": row.name,
            "status": row.status,
            "version": row.version,
            "tools": row.tools,
            "changes": [{"tool": tool, **write_change(change)} for tool, change in row.changes],
            "error": row.error,
        }
        for row in rows
    ]
    return {"schema": PIN_SCHEMA, "servers": items, "file": written, "error": None}
