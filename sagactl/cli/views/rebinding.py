"""What binding a run to another definition would change, and what forbids it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

from sagactl.cli.views.layout import Cell, Column, Row, join_blocks, lay_out, list_facts
from sagactl.cli.views.style import Hue, Mark, Style
from sagactl.cli.views.text import brief, plural, wrap
from sagactl.core.canonical import Json
from sagactl.core.difference import Aspect
from sagactl.core.rebinding import Change, Rebinding, describe_objection
from sagactl.dataclass import dataclass
from sagactl.schemas.durations import format_duration
from sagactl.usecases.documents import Document

REBINDING_SCHEMA: Final = "sagactl.rebinding/1"
CHANGES_SHOWN_MAX: Final = 60
"""Changes, and objections, that the text lists; what is refused comes first, and the JSON has all of them."""

DIGEST_LENGTH: Final = 12
TEXT_LENGTH_MAX: Final = 400
"""Characters of a value that are laid out at all; no terminal shows as many beside each other."""

_COLUMNS: Final = (
    Column("", is_whole=True),
    Column("of", columns_min=8),
    Column("what", columns_min=8),
    Column("was", columns_min=8),
    Column("becomes", columns_min=8),
)

_WORDS: Final = {
    Aspect.STEP_GONE: "the step is gone",
    Aspect.STEP_ADDED: "the step is new",
    Aspect.TOOL_FACTS: "the tool changed",
    Aspect.UNDO_RETRY: "retry of the undo",
    Aspect.UNDO_TIMEOUTS: "timeouts of the undo",
    Aspect.UNDO_ON_UNKNOWN: "on_unknown of the undo",
}


@dataclass(frozen=True, slots=True)
class Proposal:
    """A run, the definition that it is bound to, and the one that it is to go on under."""

    run_id: str
    short_id: str
    saga: str
    before: str
    after: str
    file: str
    rebinding: Rebinding


def render_rebinding(proposal: Proposal, style: Style) -> str:
    """Return the changes as a table, those that are refused first, and the reasons below it."""
    rebinding = proposal.rebinding
    changes = sorted(rebinding.changes, key=lambda change: change.objection is None)
    left = len(changes) - CHANGES_SHOWN_MAX
    return join_blocks(
        wrap(style.show(_say_what(proposal)), style.columns),
        [
            *lay_out(_COLUMNS, [_lay_change(each, style) for each in changes[:CHANGES_SHOWN_MAX]], style),
            *([f"  ... and {plural(left, 'change')} more"] if left > 0 else []),
        ],
        list_facts([("refused", list(_list_reasons(rebinding, style)))], style, hue=Hue.BAD),
    )


def _say_what(proposal: Proposal) -> str:
    counted = plural(len(proposal.rebinding.changes), "change")
    name = f"{proposal.saga} {proposal.short_id}"
    if not proposal.rebinding.changes:
        return f"{name}: {proposal.file} means what the run is bound to already"
    digests = f"definition {proposal.before[:DIGEST_LENGTH]} -> {proposal.after[:DIGEST_LENGTH]}"
    return f"{name}, {digests}, {proposal.file}: {counted}"


def _list_reasons(rebinding: Rebinding, style: Style) -> Iterator[str]:
    found = rebinding.objections
    for reason in found[:CHANGES_SHOWN_MAX]:
        yield style.show(reason)
    if len(found) > CHANGES_SHOWN_MAX:
        yield f"and {plural(len(found) - CHANGES_SHOWN_MAX, 'reason')} more"


def _lay_change(change: Change, style: Style) -> Row:
    each = change.difference
    hue = Hue.PLAIN if change.objection is None else Hue.BAD
    before, after = _show_both(each.aspect, each.before, each.after)
    return [
        Cell("" if change.objection is None else style.symbol(Mark.FAILED), hue),
        Cell(style.show(each.step or each.tool or "saga"), hue),
        Cell(_WORDS.get(each.aspect, each.aspect.value), hue),
        style.show(before),
        style.show(after),
    ]


def _show_both(aspect: Aspect, before: Json, after: Json) -> tuple[str, str]:
    """Return both values in short, of maps only what differs in them."""
    if aspect in {Aspect.RUN_TIMEOUT, Aspect.SETTLE_TIMEOUT}:
        return _show_time(before), _show_time(after)
    if isinstance(before, dict) and isinstance(after, dict):
        names = [name for name in {**before, **after} if before.get(name) != after.get(name)]
        before, after = ({name: each[name] for name in names if name in each} for each in (before, after))
    return _show(before)[:TEXT_LENGTH_MAX], _show(after)[:TEXT_LENGTH_MAX]


def _show_time(value: Json) -> str:
    return format_duration(value) if isinstance(value, int) else ""


def _show(value: Json) -> str:
    if isinstance(value, dict):
        members = [(name, each) for name, each in value.items() if each is not None]
        return ", ".join(f"{name}={_show_member(name, each)}" for name, each in members)
    return "" if value is None else _show_member("", value)


def _show_member(name: str, value: Json) -> str:
    if name.endswith("_ms") and isinstance(value, int):
        return format_duration(value)
    if isinstance(value, str):
        return value
    if isinstance(value, list):
        return ", ".join(_show_member("", each) for each in value)
    return brief(value, joint="=") or str(value)


def write_rebinding(proposal: Proposal, error: Json) -> Document:
    """Return the document of a rebinding that was looked at; *error* says that it would be refused."""
    rebinding = proposal.rebinding
    return {
        "schema": REBINDING_SCHEMA,
        "rebinding": {
            "run": proposal.run_id,
            "saga": proposal.saga,
            "file": proposal.file,
            "from": proposal.before,
            "to": proposal.after,
            "changes": _write_changes(rebinding.changes),
            "refused": list(rebinding.objections),
        },
        "error": error,
    }


def _write_changes(changes: Sequence[Change]) -> Json:
    return [
        {
            "what": each.difference.aspect.value,
            "step": each.difference.step,
            "tool": each.difference.tool,
            "before": each.difference.before,
            "after": each.difference.after,
            "refused": None if each.objection is None else describe_objection(each),
        }
        for each in changes
    ]
