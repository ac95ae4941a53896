"""`sagactl tools pin`: what servers say of their tools, beside what is pinned."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from sagactl.cli.views.documents import Document
from sagactl.cli.views.layout import Fact, headline, join_blocks, list_facts, list_hints
from sagactl.cli.views.style import Mark, Style
from sagactl.cli.views.text import plural
from sagactl.core.canonical import Json
from sagactl.dataclass import dataclass

PIN_SCHEMA: Final = "sagactl.tools_pin/1"

_GOOD: Final = frozenset({"same", "new"})
_WORDS: Final = {
    "same": "as pinned",
    "new": "not pinned before",
    "changed": "not what is pinned",
    "removed": "pinned, and no longer in the settings",
    "unreachable": "can't be reached",
}


@dataclass(frozen=True, slots=True)
class PinChange:
    """One difference in what a server says of a tool; None: nothing."""

    tool: str
    where: str
    pinned: str | None
    present: str | None


@dataclass(frozen=True, slots=True)
class PinRow:
    """One server."""

    name: str
    status: str
    version: str = ""
    tools: int = 0
    changes: tuple[PinChange, ...] = ()
    error: str | None = None


def render_pins(rows: Sequence[PinRow], *, written: str | None, style: Style) -> str:
    """Return each server with the differences; *written* is the file that has them now."""
    if not rows:
        return join_blocks(
            ["no servers: the table [mcp] of the settings has none"], list_hints(["sagactl help mcp"], style)
        )
    left = [row.name for row in rows if row.status not in {"same", "unreachable"}]
    return join_blocks(
        *[_render_row(row, style) for row in rows],
        [f"written to {style.show(written)}"] if written else [],
        list_hints(["sagactl tools" if written else "sagactl tools pin"] if left else [], style),
    )


def _render_row(row: PinRow, style: Style) -> list[str]:
    about = [style.show(row.version), plural(row.tools, "tool")] if row.tools else []
    head = ", ".join([f"{style.show(row.name)}: {_WORDS[row.status]}", *filter(None, about)])
    facts: list[Fact] = [("why", style.show(row.error or ""))]
    for change in row.changes:
        facts += [
            ("tool", f"{style.show(change.tool)}, {style.show(change.where)}"),
            ("pinned", style.show(change.pinned or "nothing")),
            ("now", style.show(change.present or "nothing")),
        ]
    return [*headline(Mark.DONE if row.status in _GOOD else Mark.FAILED, head, style), *list_facts(facts, style)]


def write_pins(rows: Sequence[PinRow], *, written: str | None) -> Document:
    """Return the document of what was looked at."""
    items: list[Json] = [
        {
            "name": row.name,
            "status": row.status,
            "version": row.version,
            "tools": row.tools,
            "changes": [
                {"tool": each.tool, "where": each.where, "pinned": each.pinned, "present": each.present}
                for each in row.changes
            ],
            "error": row.error,
        }
        for row in rows
    ]
    return {"schema": PIN_SCHEMA, "servers": items, "file": written, "error": None}
