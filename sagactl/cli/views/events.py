"""What a record says, in words on one line: the log, a dead letter's history and nothing else are made of these.

The words are unsafe as yet: they hold foreign text, and the views make it safe.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final, NamedTuple

from sagactl.cli.views.style import Hue
from sagactl.cli.views.text import brief, plural
from sagactl.cli.views.times import show_duration
from sagactl.cli.views.words import name_failure, name_operation, name_place, name_reason, plain
from sagactl.core.records import (
    Cause,
    Decision,
    DecisionKind,
    Direction,
    Disposition,
    DriverClaimed,
    Ended,
    Failure,
    Intent,
    Operation,
    Operator,
    Outcome,
    OutcomeKind,
    Probe,
    ProbeAnswer,
    Record,
    Request,
    RunCreated,
    RunStatus,
    StepDecided,
    Timer,
    TimerKind,
    Verb,
)
from sagactl.documents import operation_in

DIGEST_LENGTH: Final = 12


class Event(NamedTuple):
    """A record in words; a failure or a turn for the worse `is_bad`."""

    words: str
    hue: Hue = Hue.PLAIN
    is_bad: bool = False


def describe(record: Record) -> Event:
    """Return what *record* says."""
    return _WORDS[type(record)](record)


def place_in(record: Record) -> tuple[str, int | None] | None:
    """Return the step and item that *record* speaks of, or None where it is about the run."""
    operation = operation_in(record)
    if operation is not None:
        return operation.step, operation.item
    step = getattr(record, "step", None)
    return None if step is None else (step, None)


def name_request(request: Request) -> str:
    """Return what was asked for as it is typed: `cancel`, `dlq resolve --done`."""
    if request.verb is Verb.RETRY:
        return "dlq retry"
    if request.verb is Verb.RESOLVE:
        how = "" if request.resolution is None else f" --{request.resolution.value.replace('_', '-')}"
        return f"dlq resolve{how}"
    if request.verb is Verb.REBIND:
        before, after = ((digest or "?")[:DIGEST_LENGTH] for digest in (request.replaces, request.digest))
        return f"definition {before} -> {after}"
    return f"{request.verb}{' --past-pivot' if request.past_pivot else ''}"


def describe_request(record: Operator) -> str:
    """Return who asked for what, why, and what became of it."""
    request = record.request
    reason = f": {request.reason}" if request.reason else ""
    answer = record.disposition.value + (f": {record.detail}" if record.detail else "")
    return f"{name_request(request)} asked by {request.who}{reason} -> {answer}"


def _created(record: RunCreated) -> Event:
    given = brief(record.input, joint="=")
    key = f", key {record.run_key}" if record.run_key else ""
    key += f", from {record.forked_from}" if record.forked_from else ""
    key += f", plan {record.plan[:DIGEST_LENGTH]}" if record.plan else ""
    return Event(f"run created by {record.requested_by}{key}" + (f", {given}" if given else ""))


def _claimed(record: DriverClaimed) -> Event:
    words = f"driver {record.fence}: pid {record.holder.pid} on {record.holder.host}"
    if record.fence == 1:
        return Event(words, Hue.DIM)
    earlier = "the earlier one has ended" if record.calls_ended else "calls of the earlier one may still land"
    return Event(f"{words}; {earlier}", Hue.ODD)


def _decided(record: StepDecided) -> Event:
    if not record.runs:
        return Event("skipped: when is false", Hue.DIM)
    words = [] if record.items is None else [f"foreach: {plural(len(record.items), 'item')}"]
    if record.approval is not None:
        return Event(", ".join([*words, f"waits for an approval of {record.approval[:DIGEST_LENGTH]}"]), Hue.ODD)
    return Event(", ".join(words) or "goes ahead")


def _intent(record: Intent) -> Event:
    word = "call" if record.operation.direction is Direction.ACTION else "undo"
    if record.asking > 1:
        return Event(f"{word} {record.attempt}, asked again ({record.asking})")
    return Event(f"{word} {record.attempt}" + (", same key" if record.attempt > 1 else ""))


def _outcome(record: Outcome) -> Event:
    match record.kind:
        case OutcomeKind.SUCCEEDED:
            is_undo = record.operation.direction is Direction.COMPENSATION
            found = brief(record.output)
            return Event(("undone" if is_undo else "done") + (f", {found}" if found else ""), Hue.GOOD)
        case OutcomeKind.REJECTED:
            return Event(_with_reason("rejected, no effect", record.failure), Hue.BAD, is_bad=True)
        case OutcomeKind.UNAVAILABLE:
            return Event(_with_reason("unavailable, no effect", record.failure), Hue.ODD, is_bad=True)
        case OutcomeKind.UNKNOWN:
            return Event(_with_reason("outcome unknown", record.failure), Hue.BAD, is_bad=True)
        case OutcomeKind.PENDING:
            return Event("not done yet")


def _with_reason(word: str, failure: Failure | None) -> str:
    """Put the word before the reason, as it must survive where the line is cut."""
    why = name_reason(failure, word.split(",", maxsplit=1)[0])
    return f"{word}: {why}" if why else word


def _probe(record: Probe) -> Event:
    words = f"probe {record.number}"
    match record.answer:
        case None:
            return Event(f"{words} asked, {record.tool}")
        case ProbeAnswer.DONE:
            found = brief(record.output)
            return Event(f"{words}: it happened" + (f", {found}" if found else ""), Hue.GOOD)
        case ProbeAnswer.NOT_DONE:
            return Event(f"{words}: it did not happen", Hue.GOOD)
        case ProbeAnswer.CANNOT_TELL:
            why = name_reason(record.failure, "cannot_tell")
            return Event(f"{words} can't tell" + (f": {why}" if why else ""), Hue.ODD, is_bad=True)


_AGAIN: Final = {TimerKind.RETRY: "again", TimerKind.POLL: "asked again", TimerKind.PROBE: "probed again"}


def _timer(record: Timer) -> Event:
    return Event(f"{_AGAIN[record.kind]} in {show_duration(record.due_ms - record.at_ms)}", Hue.DIM)


def _decision(record: Decision) -> Event:
    match record.kind:
        case DecisionKind.ROLLBACK:
            amount = f"{len(record.plan):,} to undo" if record.plan else "nothing to undo"
            return Event(f"rolling back: {record.cause or 'asked for'}; {amount}", Hue.ODD, is_bad=True)
        case DecisionKind.PIVOT_PASSED:
            return Event("pivot passed: only forward from here", Hue.STRONG)
        case DecisionKind.WAITING:
            word = str(record.cause or "for a person")
            reason = name_reason(record.failure, word)
            return Event(f"waiting, {word}" + (f": {reason}" if reason else ""), Hue.ODD)
        case DecisionKind.RECOVERED:
            return Event("alert over: nothing keeps failing any more")
        case DecisionKind.ALERT:
            return Event(
                f"alert: {_describe_alert(record.operation, record.cause)}: {name_failure(record.failure)}",
                Hue.ODD,
                is_bad=True,
            )
        case _:
            return Event(_describe_setback(record), Hue.BAD, is_bad=True)


def _describe_setback(record: Decision) -> str:
    if record.kind is DecisionKind.REFUSED:
        return _with_reason("refused, not called", record.failure)
    if record.kind is DecisionKind.EXPIRED:
        return _with_reason("out of time", record.failure)
    if record.kind is DecisionKind.DEAD_LETTER:
        return _with_reason(f"dead letter, {record.cause or 'stuck'}", record.failure)
    return f"stuck: {record.cause or 'a person must act'}"


def _describe_alert(operation: Operation | None, cause: Cause | None) -> str:
    if operation is not None:
        return f"{name_operation(operation)} keeps failing"
    return plain(cause.value) if cause is not None else "the run"


def _operator(record: Operator) -> Event:
    is_refused = record.disposition in {Disposition.REFUSED, Disposition.VOID}
    return Event(describe_request(record), Hue.BAD if is_refused else Hue.STRONG, is_bad=is_refused)


def _ended(record: Ended) -> Event:
    words = f"ended: {record.status}"
    if record.not_undone:
        names = ", ".join(name_place(each.step, each.item) for each in record.not_undone[:5])
        return Event(f"{words}; {len(record.not_undone):,} left behind: {names}", Hue.BAD, is_bad=True)
    if record.status is RunStatus.SUCCEEDED:
        found = brief(record.output)
        warning = f"; no output: {name_failure(record.output_failure)}" if record.output_failure else ""
        return Event(words + (f", {found}" if found else "") + warning, Hue.GOOD)
    return Event(f"{words}; nothing left behind", Hue.ODD)


_WORDS: Final[dict[type, Callable[[Any], Event]]] = {
    RunCreated: _created,
    DriverClaimed: _claimed,
    StepDecided: _decided,
    Intent: _intent,
    Outcome: _outcome,
    Probe: _probe,
    Timer: _timer,
    Decision: _decision,
    Operator: _operator,
    Ended: _ended,
}
