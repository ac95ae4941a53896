"""`sagactl dlq list` and `sagactl dlq show`: what waits for a person, and what a person needs to decide it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final, NamedTuple

from sagactl.cli.views import commands
from sagactl.cli.views.events import describe
from sagactl.cli.views.layout import (
    Cell,
    Column,
    Fact,
    headline,
    join_blocks,
    lay_out,
    list_choices,
    list_facts,
    list_hints,
)
from sagactl.cli.views.letters import explain, explain_output, say_what
from sagactl.cli.views.outcome import list_left
from sagactl.cli.views.scene import Scene
from sagactl.cli.views.spelling import spell
from sagactl.cli.views.style import Hue, Mark, Style
from sagactl.cli.views.text import brief, plural, wrap
from sagactl.cli.views.times import show_ago, show_clock_ms, show_moment
from sagactl.cli.views.words import name_failure, name_operation, place_of
from sagactl.core.canonical import Json
from sagactl.core.keys import idempotency_key
from sagactl.core.left import find_left
from sagactl.core.records import Direction, DriverClaimed, Holder, Intent, Operation
from sagactl.core.state import OperationState, tool_of
from sagactl.documents import operation_in, write_time
from sagactl.log.base import DeadLetter, StoredRecord
from sagactl.usecases.documents import Document, write_letter

VALUE_LENGTH_MAX: Final = 2_000
"""Characters of arguments and replies that are shown; `-o json` has all."""

HISTORY_MAX: Final = 40
"""Records of a dead letter that are shown; the log has all."""

HISTORY_FIRST: Final = 10
"""How many of them are the first ones; the others are the last."""


_THEN: Final = "      then: "


class Decided(NamedTuple):
    """What can be decided, and what it would lead to in words."""

    choice: commands.Choice
    then: str


_LIST_COLUMNS: Final = (
    Column("run", is_whole=True),
    Column("step", is_whole=True),
    Column("since"),
    Column("why"),
    Column("error"),
)
_HISTORY_COLUMNS: Final = (
    Column("seq", is_whole=True, to_right=True),
    Column("time", is_whole=True),
    Column("side"),
    Column("event"),
)


def render_letters(
    letters: Sequence[DeadLetter],
    *,
    short_ids: Mapping[str, str],
    now_ms: int,
    style: Style,
    total: int | None = None,
    is_narrowed: bool = False,
) -> str:
    """Return the table of dead letters in the order given, and the command that shows the first open one."""
    if not letters:
        return "no dead letters that fit" if is_narrowed else "no dead letters: nothing waits for a person"
    runs = len({letter.run_id for letter in letters})
    unsettled = [letter for letter in letters if letter.closed_at_ms is None]
    settled = len(letters) - len(unsettled)
    counted = f"{plural(len(letters), 'dead letter')} in {plural(runs, 'run')}"
    if total is not None and total > len(letters):
        counted = f"{len(letters):,} of {plural(total, 'dead letter')}, --limit 0 for all"
    show = [
        commands.type_letter("show", short_ids.get(letter.run_id, letter.run_id), letter.operation)
        for letter in unsettled[:1]
    ]
    return join_blocks(
        lay_out(_LIST_COLUMNS, [_lay_letter(letter, short_ids, now_ms, style) for letter in letters], style),
        [counted + (f", {settled:,} settled" if settled else "")],
        list_hints(show, style),
    )


def _lay_letter(letter: DeadLetter, short_ids: Mapping[str, str], now_ms: int, style: Style) -> list[Cell | str]:
    return [
        Cell(short_ids.get(letter.run_id, letter.run_id), Hue.COMMAND),
        style.show(name_operation(letter.operation).removeprefix("undo of ")),
        Cell(show_ago(letter.opened_at_ms, now_ms), Hue.DIM),
        Cell(_say_why(letter), Hue.BAD if letter.closed_at_ms is None else Hue.DIM),
        style.show(name_failure(letter.failure)),
    ]


def _say_why(letter: DeadLetter) -> str:
    if letter.closed_at_ms is not None:
        return "settled"
    if letter.reason == "in_doubt":
        return "in doubt"
    return "undo failed" if letter.operation.direction is Direction.COMPENSATION else "failed"


def render_letter(
    scene: Scene,
    letter: DeadLetter,
    stored: Sequence[StoredRecord],
    decided: Sequence[Decided] = (),
    *,
    printed: int = 0,
) -> str:
    """Return all about one dead letter: what is left behind, every call, and the commands that decide it.

    *decided* are what can be decided, with what each would lead to; *printed* says how many of its calls printed.
    """
    operation = letter.operation
    op = scene.state.operations.get(operation) or OperationState(operation)
    left = find_left(scene.saga, scene.state)
    history = [each for each in stored if operation_in(each.record) in {operation, operation.other}]
    is_open = operation in scene.state.dead
    decisions = _list_decisions(scene, operation, decided) if is_open else ["  it is closed: nothing is to be decided"]
    hints = [commands.type_log(scene.short_id, operation.step), commands.type_show(scene.short_id)]
    if printed:
        hints.append(f"{commands.type_show(scene.short_id)} --printed")
    return join_blocks(
        headline(Mark.STUCK, f"{scene.title}, {say_what(op)}", scene.style),
        list_facts(list_left(scene, left), scene.style, hue=Hue.BAD) if left else [],
        list_facts(_list_facts(scene, letter, op, stored), scene.style),
        _lay_history(scene, history),
        decisions,
        list_hints(hints, scene.style),
    )


def _lay_history(scene: Scene, history: Sequence[StoredRecord]) -> list[str]:
    """Return the first records and the last ones; how it began and how it ended is what is asked for."""
    left_out = len(history) - HISTORY_MAX
    shown = history if left_out <= 0 else [*history[:HISTORY_FIRST], *history[HISTORY_FIRST + left_out :]]
    lines = lay_out(_HISTORY_COLUMNS, [_lay_event(scene, each) for each in shown], scene.style)
    if left_out > 0:
        lines.insert(HISTORY_FIRST + 1, f"  {scene.style.ellipsis} {left_out:,} more between, see the log")
    return lines


def _list_decisions(scene: Scene, operation: Operation, decided: Sequence[Decided]) -> list[str]:
    """Return what can be decided and what it leads to, with the shape of an output where one is asked for."""
    decisions = commands.list_decisions(scene.saga, scene.state, scene.short_id, operation, scene.now_ms)
    then = {each.choice.command: each.then for each in decided}
    lines = ["  decide:"]
    for (_, command), line in zip(decisions, list_choices(decisions, scene.style), strict=True):
        lines.append(line)
        if then.get(command):
            first, *others = wrap(scene.style.show(then[command]), scene.style.columns - len(_THEN))
            lines += [_THEN + first, *(" " * len(_THEN) + other for other in others)]
    return lines + explain_output(scene, operation, [command for _, command in decisions])


def _say_last_call(scene: Scene, operation: Operation, stored: Sequence[StoredRecord]) -> str:
    """Return when, where and how often the operation was called last: where to look for what it did."""
    call, holder = find_last_call(operation, stored)
    if call is None:
        return ""
    where = "" if holder is None else scene.style.show(f" on {holder.host}, process {holder.pid}")
    return f"{show_moment(call.at_ms, scene.tz)}{where}, call {call.attempt}"


def find_last_call(operation: Operation, stored: Sequence[StoredRecord]) -> tuple[Intent | None, Holder | None]:
    """Return the last call of *operation*, and the process that made it."""
    holders: dict[int, Holder] = {}
    call: Intent | None = None
    for each in stored:
        if isinstance(each.record, DriverClaimed):
            holders[each.record.fence] = each.record.holder
        elif isinstance(each.record, Intent) and each.record.operation == operation:
            call = each.record
    return call, None if call is None else holders.get(call.fence)


def _list_facts(scene: Scene, letter: DeadLetter, op: OperationState, stored: Sequence[StoredRecord]) -> list[Fact]:
    operation, show = letter.operation, scene.style.show
    action = scene.state.operations.get(operation.other) if operation.direction is Direction.COMPENSATION else None
    forward = action if action is not None else op
    keys = [idempotency_key(letter.run_id, operation)]
    if action is not None:
        keys.append(f"{idempotency_key(letter.run_id, action.operation)} (of the action)")
    opened = f"{show_moment(letter.opened_at_ms, scene.tz)}, {show_ago(letter.opened_at_ms, scene.now_ms)}"
    return [
        ("means", explain(scene, op)),
        ("error", show(name_failure(letter.failure))),
        ("at", show(place_of(scene.saga, operation.step))),
        ("called", _say_last_call(scene, operation, stored)),
        ("tool", show(tool_of(scene.saga, operation) or "")),
        ("key", keys),
        ("sent", _show_value(scene, op.arguments)),
        ("undoes", "" if action is None else _show_value(scene, action.arguments)),
        ("returned", "" if action is None else _show_value(scene, action.output)),
        ("raw", _show_value(scene, forward.raw if op.raw is None else op.raw)),
        ("undo", "" if action is not None else show(tool_of(scene.saga, operation.other) or "none")),
        ("since", opened),
    ]


def _show_value(scene: Scene, value: Json) -> str:
    if value is None:
        return ""
    text = brief(value, joint="=", length_max=VALUE_LENGTH_MAX) if isinstance(value, dict) else spell(value)
    return scene.style.show(text[:VALUE_LENGTH_MAX])


def _lay_event(scene: Scene, stored: StoredRecord) -> list[Cell | str]:
    event = describe(stored.record)
    operation = operation_in(stored.record)
    side = "" if operation is None else {"compensation": "undo"}.get(operation.direction, operation.direction.value)
    return [
        str(stored.seq),
        Cell(show_clock_ms(stored.record.at_ms, scene.tz), Hue.DIM),
        side,
        Cell(scene.style.show(event.words), event.hue),
    ]


def write_whole_letter(
    scene: Scene, letter: DeadLetter, stored: Sequence[StoredRecord], decided: Sequence[Decided], *, printed: int
) -> Document:
    """Return the document of a dead letter, with its last call and what can be decided."""
    call, holder = find_last_call(letter.operation, stored)
    last_call: Json = None
    if call is not None:
        where: dict[str, Json] = {} if holder is None else {"host": holder.host, "pid": holder.pid}
        last_call = {"at": write_time(call.at_ms), "attempt": call.attempt, "asking": call.asking, **where}
    document = write_letter(scene.saga, scene.state, letter, stored)
    body = document["dead_letter"]
    assert isinstance(body, dict), "a letter has members"
    body["last_call"] = last_call
    body["calls_that_printed"] = printed
    body["decisions"] = [
        {"means": each.choice.words, "command": each.choice.command, "then": each.then} for each in decided
    ]
    return document
