"""What a rollback or a resume would call: `--dry-run`, and what is shown before a rollback is confirmed."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

from sagactl.cli.views.layout import Cell, Column, Fact, Row, join_blocks, lay_out, list_facts
from sagactl.cli.views.plan import show_argument
from sagactl.cli.views.scene import Scene
from sagactl.cli.views.style import Hue, Style
from sagactl.cli.views.text import BRIEF_LENGTH_MAX, plural, wrap
from sagactl.cli.views.times import show_ago
from sagactl.cli.views.words import name_operation, name_place, plain
from sagactl.core.canonical import Json
from sagactl.core.foresight import Foreseen, Foresight
from sagactl.core.records import Direction, Operation, RunStatus, Verb
from sagactl.usecases.documents import Document

DRY_RUN_SCHEMA: Final = "sagactl.dry-run/1"
CALLS_SHOWN_MAX: Final = 200
"""Calls that the text lists; the JSON has all of them."""

_COLUMNS: Final = (
    Column("", to_right=True, is_whole=True),
    Column("step", columns_min=10),
    Column("call", columns_min=10),
    Column("with", columns_min=10),
)


def render_foresight(
    scene: Scene, foresight: Foresight, *, verb: Verb | None = Verb.ROLLBACK, shown_max: int = CALLS_SHOWN_MAX
) -> str:
    """Return what would be called, in order, and what would stay; *verb* is None for a resume."""
    style = scene.style
    calls = [each for each in foresight.calls if each.objection is None]
    return join_blocks(
        wrap(f"{scene.title}, {style.show(_say_stand(scene))}{_say_what(foresight, calls, verb)}", style.columns),
        [
            *lay_out(_COLUMNS, [_lay_call(each, calls, style) for each in calls[:shown_max]], style, titles=False),
            *([f"  ... and {plural(len(calls) - shown_max, 'call')} more"] if len(calls) > shown_max else []),
        ],
        list_facts(_list_rest(scene, foresight, verb), style),
    )


def _say_stand(scene: Scene) -> str:
    summary = scene.summary
    since_ms = summary.ended_at_ms
    return plain(summary.status) + ("" if since_ms is None else f" {show_ago(since_ms, scene.now_ms)}")


def _say_what(foresight: Foresight, calls: Sequence[Foreseen], verb: Verb | None) -> str:
    what = "a resume" if verb is None else f"a {verb}"
    if not foresight.is_accepted:
        assert foresight.answer is not None
        return f": {what} would be {foresight.answer.disposition}, {foresight.answer.detail}"
    if not calls:
        return f": {what} makes no call"
    return f": {what} makes {'this call' if len(calls) == 1 else f'these {len(calls):,} calls'}"


def _lay_call(each: Foreseen, calls: Sequence[Foreseen], style: Style) -> Row:
    place = calls.index(each) if len(calls) <= CALLS_SHOWN_MAX else -1
    is_first = place <= 0 or calls[place - 1].turn != each.turn
    step = each.operation.place
    note = ", probe" if each.is_probe else ", if done" if each.hangs_on_answer else ""
    return [
        Cell(str(each.turn + 1) if is_first else "", Hue.DIM),
        style.show(step + note),
        style.show(each.tool),
        style.show(_say_arguments(each.arguments)),
    ]


def _say_arguments(arguments: Json) -> str:
    if not isinstance(arguments, dict):
        return show_argument(arguments)
    text = ", ".join(f"{name}={show_argument(value)}" for name, value in arguments.items())
    return text if len(text) <= BRIEF_LENGTH_MAX else text[: BRIEF_LENGTH_MAX - 1] + "…"


def _list_rest(scene: Scene, foresight: Foresight, verb: Verb | None) -> Iterator[Fact]:
    """Yield what gets no call and why, what stays, and how it would end."""
    show = scene.style.show
    refused = [f"{name_operation(each.operation)}: {each.objection}" for each in foresight.calls if each.objection]
    yield "no call", [show(each) for each in refused]
    yield "stays", [show(f"{name_place(each.step, each.item)}: {each.reason}") for each in foresight.left]
    waits = foresight.waits_for
    if waits is not None:
        until = "" if waits.until_ms is None else f", until {scene.show_due(waits.until_ms)}"
        yield "waits", show(f"for {plain(waits.what)}{f' {waits.detail}' if waits.detail else ''}{until}")
    elif foresight.status is RunStatus.STUCK:
        yield "ends", scene.style.complete("stuck: a person must decide, see sagactl dlq list")
    elif foresight.is_accepted and verb is not None:
        yield "ends", f"{plain(foresight.status)}, if every call succeeds"


def write_foresight(scene: Scene, foresight: Foresight, *, verb: Verb | None = Verb.ROLLBACK) -> Document:
    """Return the document of a dry run."""
    answer = foresight.answer
    waits = foresight.waits_for
    body: Document = {
        "run": scene.created.run_id,
        "saga": scene.saga.name,
        "status": scene.summary.status.value,
        "command": "resume" if verb is None else verb.value,
        "disposition": "accepted" if answer is None else answer.disposition.value,
        "detail": None if answer is None else answer.detail,
        "calls": [_write_call(each) for each in foresight.calls if each.objection is None],
        "no_call": [_write_place(each.operation) | {"reason": each.objection} for each in _refused(foresight)],
        "not_undone": [{"step": each.step, "item": each.item, "reason": each.reason} for each in foresight.left],
        "ends": foresight.status.value,
        "waits_for": None if waits is None else {"what": waits.what, "detail": waits.detail},
    }
    return {"schema": DRY_RUN_SCHEMA, "dry_run": body, "error": None}


def _refused(foresight: Foresight) -> list[Foreseen]:
    return [each for each in foresight.calls if each.objection is not None]


def _write_place(operation: Operation) -> Document:
    return {"step": operation.step, "item": operation.item, "direction": Direction(operation.direction).value}


def _write_call(each: Foreseen) -> Document:
    return {
        "number": each.turn + 1,
        **_write_place(each.operation),
        "kind": "probe" if each.is_probe else "call",
        "tool": each.tool,
        "arguments": each.arguments,
        "only_if_it_took_effect": each.hangs_on_answer,
    }
