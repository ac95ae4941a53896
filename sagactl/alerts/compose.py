"""What an alert says: where the run stood at the record that raised it, and the commands that help.

The document is made from the run's records up to the message's own, so it is the same however often it is sent, and
however late. Then every text in it is tamed: it comes from tools and files, and goes to chats and terminals.
"""

from __future__ import annotations

import re
import shlex
import unicodedata
from collections.abc import Iterable, Sequence
from itertools import islice
from typing import Final

from sagactl.core.alerting import Reason
from sagactl.core.canonical import Json
from sagactl.core.left import count_undone, find_left
from sagactl.core.outbox import Message
from sagactl.core.records import (
    Decision,
    Direction,
    DriverClaimed,
    Failure,
    Holder,
    Operation,
    Operator,
    Record,
    StepDecided,
)
from sagactl.core.saga import Saga
from sagactl.core.state import RunState
from sagactl.core.summary import Summary, summarize
from sagactl.dataclass import dataclass
from sagactl.documents import write_operation, write_time

ALERT_SCHEMA: Final = "sagactl.alert/1"
LISTED_MAX: Final = 20
"""How many steps are named in a list; a count tells of the rest."""
TEXT_LENGTH_MAX: Final = 500
LETTERS_SHOWN_MAX: Final = 5

_CALLS: Final = re.compile(r"@(?=everyone\b|here\b|channel\b|all\b|room\b)|<(?=[!@#&])", re.IGNORECASE)
"""What chats take for a call to everybody."""


@dataclass(frozen=True, slots=True)
class Look:
    """A run as it was at a message: its saga, its records up to the message's own, and the state that they make."""

    saga: Saga
    records: Sequence[Record]
    state: RunState


def describe(message: Message, look: Look, project: str) -> dict[str, Json]:
    """Return the document of an alert."""
    state, summary = look.state, summarize(look.saga, look.state)
    left = find_left(look.saga, state)
    return {
        "schema": ALERT_SCHEMA,
        "id": message.id,
        "alert": message.alert_id,
        "state": "resolved" if message.is_resolution else "raised",
        "reason": message.reason.value,
        "says": _say(message, look, summary),
        "run": _write_run(message, look, summary),
        "error": _write_error(state),
        "not_undone": [{"step": each.step, "item": each.item, "reason": each.reason} for each in left[:LISTED_MAX]],
        "not_undone_total": len(left),
        "dead_letters": [_write_letter(state, each) for each in islice(state.dead, LISTED_MAX)],
        "dead_letters_total": len(state.dead),
        "since": write_time(look.records[message.opened_seq - 1].at_ms),
        "host": _find_host(look.records),
        "project": project,
        "commands": _name_project(_list_commands(message, look), project),
    }


def describe_unread(message: Message, problem: str, project: str) -> dict[str, Json]:
    """Return the document of an alert whose run can't be read: a person is told all the same."""
    commands = _name_project(["sagactl verify"], project)
    return {
        "schema": ALERT_SCHEMA,
        "id": message.id,
        "alert": message.alert_id,
        "state": "resolved" if message.is_resolution else "raised",
        "reason": message.reason.value,
        "says": f"{_WORDS[message.reason]}; its log can't be read: {problem}",
        "run": {"id": message.run_id, "saga": message.saga},
        "error": None,
        "since": write_time(message.created_at_ms),
        "project": project,
        "commands": commands,
    }


def _write_run(message: Message, look: Look, summary: Summary) -> Json:
    return {
        "id": message.run_id,
        "saga": message.saga,
        "status": summary.status.value,
        "direction": "forward" if summary.direction is Direction.ACTION else "backward",
        "cause": None if summary.cause is None else summary.cause.value,
        "steps_done": summary.steps_done,
        "steps_total": summary.steps_total,
        "undone": count_undone(look.state),
        "started_at": write_time(look.records[0].at_ms),
    }


def _write_error(state: RunState) -> Json:
    failure = state.failure
    return None if failure is None else {"type": failure.type, "message": failure.message, "step": state.failed_step}


def _write_letter(state: RunState, operation: Operation) -> Json:
    op = state.operations[operation]
    error = None if op.failure is None else str(op.failure)
    return {**write_operation(operation), "attempts": op.attempts, "in_doubt": op.doubt, "error": error}


def _find_host(records: Sequence[Record]) -> str | None:
    holder = _find_holder(records)
    return None if holder is None else holder.host


def _find_holder(records: Sequence[Record]) -> Holder | None:
    return next((record.holder for record in reversed(records) if isinstance(record, DriverClaimed)), None)


_WORDS: Final = {
    Reason.STUCK: "stuck: a person must act",
    Reason.DEAD_LETTER: "an operation is given up: a person must decide",
    Reason.KEEPS_FAILING: "an operation keeps failing",
    Reason.RUN_TIMEOUT: "out of time behind its pivot; it goes on",
    Reason.REQUEST_VOID: "a request came to nothing",
    Reason.APPROVAL: "a step waits for an approval",
    Reason.CANNOT_END: "a call can't be ended",
}


def _say(message: Message, look: Look, summary: Summary) -> str:
    words = _say_reason(message.reason, look, look.records[message.opened_seq - 1])
    return f"over: {words}; the run is {_plain(summary.status)}" if message.is_resolution else words


def _say_reason(reason: Reason, look: Look, record: Record) -> str:
    match record:
        case StepDecided():
            return f"{record.step} waits for an approval"
        case Operator():
            detail = f": {record.detail}" if record.detail else ""
            return f"{record.request.verb} asked by {record.request.who} came to nothing{detail}"
        case Decision(operation=Operation() as operation) if reason is Reason.CANNOT_END:
            return f"{_name(operation)} is past its time and has not returned: end the process that drives the run"
        case Decision(operation=Operation() as operation):
            op = look.state.operations[operation]
            calls = f"{op.attempts} call{'' if op.attempts == 1 else 's'} so far"
            name = _name(operation)
            return f"{name} is given up, {calls}" if reason is Reason.DEAD_LETTER else f"{name} keeps failing, {calls}"
        case _:
            return _WORDS[reason]


def _name(operation: Operation) -> str:
    return str(operation).replace("compensation of ", "the undo of ", 1)


def _plain(word: str) -> str:
    return word.replace("_", " ")


def _name_project(commands: Sequence[str], project: str) -> list[Json]:
    """Return the commands as they work wherever the reader is on that machine."""
    lead = shlex.join(["sagactl", "-C", project])
    split = [each.partition(" ") for each in commands]
    return [f"{lead} {rest}" if name == "sagactl" else f"{name} {rest}" for name, _, rest in split]


def _list_commands(message: Message, look: Look) -> list[str]:
    run = message.run_id
    letters = islice(look.state.dead, LETTERS_SHOWN_MAX)
    commands = [f"sagactl dlq show {run} {_quote(operation)}" for operation in letters]
    if message.reason is Reason.APPROVAL and not message.is_resolution:
        commands += [f"sagactl approve {run} {message.step}", f'sagactl deny {run} {message.step} --reason "..."']
    if message.reason is Reason.CANNOT_END and not message.is_resolution:
        holder = _find_holder(look.records)
        commands += [] if holder is None else [f"kill {holder.pid}  # on {holder.host}", f"sagactl resume {run}"]
    return [*commands, f"sagactl show {run}", f"sagactl log {run}"]


def _quote(operation: Operation) -> str:
    return operation.step if operation.item is None else f"'{operation.step}[{operation.item}]'"


def tame(value: Json) -> Json:
    """Return *value* with every text on one line, visible, bounded, and calling nobody."""
    match value:
        case str():
            return tame_text(value)
        case dict():
            return {key: tame(member) for key, member in value.items()}
        case list():
            return [tame(member) for member in value]
        case _:
            return value


def tame_text(text: str) -> str:
    """Return *text* on one line, with what is hidden or steers a terminal or a chat made visible."""
    cut = text if len(text) <= TEXT_LENGTH_MAX else text[: TEXT_LENGTH_MAX - 1] + "…"
    shown = "".join(each if _is_visible(each) else f"\\u{{{ord(each):x}}}" for each in cut.replace("\n", " "))
    return _CALLS.sub(lambda found: f"{found[0]} ", shown)


def _is_visible(character: str) -> bool:
    return unicodedata.category(character)[0] != "C" and unicodedata.category(character) not in {"Zl", "Zp"}


def write_title(document: dict[str, Json]) -> str:
    """Return the alert in a line, for people."""
    run = document["run"]
    assert isinstance(run, dict), "a run is a document"
    resolved = "" if document["state"] == "raised" else "resolved: "
    return f"{resolved}{run['saga']} {run['id']}: {document['says']}"


def write_text(document: dict[str, Json]) -> str:
    """Return the alert as lines, for people."""
    run, error = document["run"], document["error"]
    assert isinstance(run, dict), "a run is a document"
    lines = [f"{document['says']}", ""]
    if "status" in run:
        is_back = run["direction"] == "backward"
        done = f"{run['undone']} undone" if is_back else f"{run['steps_done']} of {run['steps_total']} steps done"
        stands = f"{_plain(str(run['status']))}, {done}"
        lines.append(f"run      {run['saga']} {run['id']}: {stands}")
    if isinstance(error, dict):
        at = f" (at {error['step']})" if error["step"] else ""
        failure = Failure(str(error["type"]), str(error["message"]))
        lines.append(f"error    {failure}{at}")
    lines += _list_items("left", document.get("not_undone"), document.get("not_undone_total"), "reason")
    lines += _list_items("open", document.get("dead_letters"), document.get("dead_letters_total"), "error")
    lines.append(f"since    {document['since']}" + (f" on {document['host']}" if document.get("host") else ""))
    commands = document["commands"]
    assert isinstance(commands, list), "commands are a list"
    return "\n".join([*lines, "", *(str(command) for command in commands)])


def _list_items(label: str, items: Json, total: Json, member: str) -> Iterable[str]:
    if not isinstance(items, list) or not items:
        return
    for number, each in enumerate(items):
        assert isinstance(each, dict), "a list of documents"
        place = each["step"] if each["item"] is None else f"{each['step']}[{each['item']}]"
        undo = "undo of " if each.get("direction") == "compensation" else ""
        said = f": {each[member]}" if each[member] else ""
        yield f"{label if number == 0 else '':8} {undo}{place}{said}"
    if isinstance(total, int) and total > len(items):
        yield f"{'':8} and {total - len(items):,} more"
