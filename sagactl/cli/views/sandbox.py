"""`sagactl sandbox show`: what the make-believe systems hold, and every effect in its order."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

from sagactl.cli.views.layout import Cell, Column, join_blocks, lay_out
from sagactl.cli.views.style import Hue, Style
from sagactl.cli.views.text import brief, plural
from sagactl.core.canonical import Json
from sagactl.usecases.documents import Document

SANDBOX_SCHEMA: Final = "sagactl.sandbox/1"
OBJECTS_MAX: Final = 50
"""Objects of one system, and effects, that are shown; the JSON has all."""

_OBJECT_COLUMNS: Final = (Column("kind"), Column("id", is_whole=True), Column("state"))
_LEDGER_COLUMNS: Final = (
    Column("seq", is_whole=True, to_right=True),
    Column("at", is_whole=True),
    Column("system"),
    Column("effect"),
    Column("detail"),
    Column("key"),
)


def render_sandbox(
    systems: Mapping[str, Sequence[Mapping[str, Json]]], ledger: Sequence[Mapping[str, Json]], *, style: Style
) -> str:
    """Return objects (`kind`, `id`, `body`) by system, then the ledger (`seq`, `at`, `system`, `effect`, `detail`)."""
    if not systems and not ledger:
        return "the sandbox is empty"
    blocks = [_list_system(name, objects, style) for name, objects in systems.items()]
    return join_blocks(*blocks, _list_ledger(ledger, style), [plural(len(ledger), "effect")])


def _list_system(name: str, objects: Sequence[Mapping[str, Json]], style: Style) -> list[str]:
    head = style.paint(style.show(name), Hue.STRONG)
    rows = [_lay_object(each, style) for each in objects[:OBJECTS_MAX]]
    more = len(objects) - OBJECTS_MAX
    return [head, *lay_out(_OBJECT_COLUMNS, rows, style, titles=False), *([f"  and {more:,} more"] if more > 0 else [])]


def _lay_object(each: Mapping[str, Json], style: Style) -> list[Cell | str]:
    kind, identity = str(each.get("kind", "")), str(each.get("id", ""))
    return [style.show(kind), style.show(identity), style.show(brief(each.get("body")))]


def _list_ledger(ledger: Sequence[Mapping[str, Json]], style: Style) -> list[str]:
    """Return the latest effects: the end of a ledger is what matters."""
    skipped = max(0, len(ledger) - OBJECTS_MAX)
    rows = [_lay_effect(each, style) for each in ledger[skipped:]]
    head = style.paint("ledger", Hue.STRONG)
    return [head, *([f"  {skipped:,} earlier"] if skipped else []), *lay_out(_LEDGER_COLUMNS, rows, style)]


def _lay_effect(each: Mapping[str, Json], style: Style) -> list[Cell | str]:
    at = str(each.get("at", ""))[11:23]
    words = [str(each.get(name, "")) for name in ("system", "effect")]
    return [
        str(each.get("seq", "")),
        Cell(style.show(at), Hue.DIM),
        *(style.show(word) for word in words),
        style.show(brief(each.get("detail"))),
        Cell(style.show(str(each.get("key", ""))), Hue.DIM),
    ]


def write_sandbox(
    systems: Mapping[str, Sequence[Mapping[str, Json]]], ledger: Sequence[Mapping[str, Json]]
) -> Document:
    """Return the document of the sandbox."""
    held: dict[str, Json] = {name: [dict(each) for each in objects] for name, objects in systems.items()}
    return {"schema": SANDBOX_SCHEMA, "systems": held, "ledger": [dict(each) for each in ledger], "error": None}
