"""What a record is worth telling while a run goes on, in a word and a few more, unsafe as yet.

Each fact is told once: that something was tried again is told with its reason and its delay, calls that only begin are
told on demand.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import field
from typing import Any, Final

from sagactl.cli.views.commands import type_resume
from sagactl.cli.views.events import describe, describe_request, place_in
from sagactl.cli.views.tally import say_progress
from sagactl.cli.views.text import brief
from sagactl.cli.views.times import show_duration, show_seconds
from sagactl.cli.views.words import (
    failed_place,
    name_again,
    name_cause,
    name_failure,
    name_holder,
    name_operation,
    name_place,
    name_reason,
    plain,
    say_pending,
)
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
    StepDecided,
    Timer,
    TimerKind,
)
from sagactl.core.saga import Saga
from sagactl.core.state import RunState, call_of
from sagactl.core.summary import summarize
from sagactl.core.transitions import Phase
from sagactl.dataclass import dataclass


@dataclass(frozen=True, slots=True)
class Line:
    """A word that says what kind of news it is, and the news, unsafe as yet."""

    word: str
    text: str


@dataclass(slots=True)
class Track:
    """What has been seen of one run: when operations began and why they failed last."""

    short_id: str
    saga: Saga
    began_ms: dict[Operation, int] = field(default_factory=dict)
    under_way: dict[Operation, int] = field(default_factory=dict)
    timers: dict[Operation, int] = field(default_factory=dict)
    awaiting: dict[str, None] = field(default_factory=dict)
    attempts: dict[Operation, int] = field(default_factory=dict)
    failures: dict[Operation, Failure | None] = field(default_factory=dict)
    pending: set[Operation] = field(default_factory=set)
    hanging: set[Operation] = field(default_factory=set)
    driver: str = "its process"

    def note(self, record: Record) -> None:
        """Remember what later lines need of *record*."""
        match record:
            case StepDecided(approval=str()):
                self.awaiting[record.step] = None
            case Intent(operation=operation):
                self.timers.pop(operation, None)
                self.awaiting.pop(operation.step, None)
                self.began_ms.setdefault(operation, record.at_ms)
                self.under_way[operation] = record.at_ms
                self.attempts[operation] = record.attempt
            case Outcome(operation=operation):
                self.under_way.pop(operation, None)
                self.hanging.discard(operation)
                self.failures[operation] = record.failure
            case DriverClaimed():
                self.driver = name_holder(record.holder)
                lost = Failure("driver_lost", "the driver ended before the answer was recorded")
                self.failures |= dict.fromkeys(self.under_way, lost)
                self.under_way.clear()
                self.hanging.clear()
            case Probe(operation=operation):
                self.timers.pop(operation, None)
                self.hanging.discard(operation)
            case Decision(cause=Cause.CANNOT_END, operation=Operation() as operation):
                self.hanging.add(operation)
            case Timer(operation=operation):
                self.timers[operation] = record.due_ms
            case Decision(kind=DecisionKind.ROLLBACK | DecisionKind.STUCK) | Ended():
                self.timers.clear()
                self.awaiting.clear()
            case _:
                pass

    def list_going_on(self, now_ms: int) -> Iterator[str]:
        """Yield what is under way or waited for, the oldest first."""
        for operation, since_ms in self.under_way.items():
            is_late = operation in self.hanging
            going = "past its time" if is_late else self._say_attempt(operation, 0)
            yield f"{name_operation(operation)} {show_seconds(now_ms - since_ms)}, {going}"
            if is_late:
                yield self.say_end()
        for operation, due_ms in self.timers.items():
            attempt = self._say_attempt(operation, 1)
            yield f"{name_operation(operation)} goes on in {show_seconds(due_ms - now_ms)}, {attempt}"

        for step in self.awaiting:
            yield f"{step} waits for a person's approval"

    def say_end(self) -> str:
        """Return what a person does where a call can't be ended."""
        return f"end {self.driver}, then: {type_resume(self.short_id)}"

    def _say_attempt(self, operation: Operation, after: int) -> str:
        attempt = self.attempts.get(operation, 0) + (after if operation not in self.pending else 0)
        limit = call_of(self.saga, operation).retry.max_attempts
        return f"attempt {attempt} of {max(attempt, limit)}"


@dataclass(frozen=True, slots=True)
class News:
    """One record with all that is known around it."""

    saga: Saga
    state: RunState
    track: Track

    def took(self, operation: Operation, at_ms: int) -> str:
        """Return how long the operation took until *at_ms*."""
        return show_duration(at_ms - self.track.began_ms.get(operation, at_ms))

    def phase(self, operation: Operation) -> Phase | None:
        """Return where the operation stands after the whole batch."""
        found = self.state.operations.get(operation)
        return None if found is None else found.phase


def say_place(saga: Saga, state: RunState) -> str:
    """Return how far a run is: `2 of 5 steps done, 1 in doubt`, `rolling back, 1 undone, 2 to go`."""
    summary = summarize(saga, state)
    back = "rolling back, " if summary.direction is Direction.COMPENSATION else ""
    where = back + say_progress(saga, state)
    doubtful = sum(op.doubt for op in state.operations.values())
    return where + (f", {doubtful:,} in doubt" if doubtful else "")


def tell(record: Record, news: News) -> Iterator[Line]:
    """Yield the lines that *record* is worth, most often none or one."""
    teller = _TELLERS.get(type(record))
    if teller is not None:
        yield from teller(record, news)


def tell_more(record: Record) -> Iterator[Line]:
    """Yield what is said of what only begins or waits, for whoever wants to know more."""
    match record:
        case Intent(operation=operation, attempt=attempt, asking=asking):
            again = f", asked again ({asking})" if asking > 1 else ""
            yield Line("call", f"{name_operation(operation)}, attempt {attempt}{again}: {record.tool}")
        case Probe(operation=operation, answer=None):
            yield Line("probe", f"{name_operation(operation)}, number {record.number}: {record.tool}")
        case Timer(operation=operation, kind=kind) if kind is not TimerKind.RETRY:
            yield Line("timer", f"{name_operation(operation)}, {kind} in {show_duration(record.due_ms - record.at_ms)}")
        case DriverClaimed():
            yield Line("drive", describe(record).words)
        case _:
            return


def describe_whole(seq: int, record: Record) -> str:
    """Return all that *record* holds, bounded, with secrets as their names."""
    place = place_in(record)
    name = "" if place is None else f" {name_place(*place)}"
    text = f"#{seq}{name} {describe(record).words}"
    if isinstance(record, Intent):
        given = brief(record.arguments, joint="=")
        text += f", tool {record.tool}, key {record.key}" + (f", {given}" if given else "")
    return text


def _tell_claimed(record: DriverClaimed, news: News) -> Iterator[Line]:
    """Say that another driver took the run over, to somebody who only watches."""
    if record.fence > 1:
        text = f"{news.saga.name} {news.track.short_id} resumed; {say_place(news.saga, news.state)}"
        yield Line("run", text)


def _tell_decided(record: StepDecided, _: News) -> Iterator[Line]:
    if not record.runs:
        yield Line("skip", f"{record.step}: its condition is false")
    elif record.approval is not None:
        yield Line("wait", f"{record.step}: for a person's approval")
    elif record.items == ():
        yield Line("ok", f"{record.step}: no items")


def _tell_outcome(record: Outcome, news: News) -> Iterator[Line]:
    operation = record.operation
    if record.kind is OutcomeKind.SUCCEEDED:
        yield _say_done(operation, news, record.at_ms)
        return
    why = name_failure(record.failure)
    name = name_operation(operation)
    if record.kind is OutcomeKind.PENDING:
        if operation not in news.track.pending:
            news.track.pending.add(operation)
            yield Line("wait", f"{name} {say_pending(news.saga, operation, record.after_ms)}")
        return
    match news.phase(operation):
        case Phase.RETRYING | Phase.CALLING | Phase.PENDING:
            return  # the timer's line says why and when
        case Phase.IN_DOUBT | Phase.PROBING:
            yield Line("doubt", f"{name}, its probe is asked: {why}")
        case _:
            unknown = ", outcome unknown" if record.kind is OutcomeKind.UNKNOWN else ""
            yield Line("FAIL", f"{name} {news.took(operation, record.at_ms)}{unknown}: {why}")


def _say_done(operation: Operation, news: News, at_ms: int, how: str = "") -> Line:
    attempts = news.track.attempts.get(operation, 1)
    tries = f", {attempts} attempts" if attempts > 1 else ""
    word = "ok" if operation.direction is Direction.ACTION else "undo"
    name = name_place(operation.step, operation.item)
    return Line(word, f"{name} {news.took(operation, at_ms)}{tries}{how}")


def _tell_probe(record: Probe, news: News) -> Iterator[Line]:
    if record.answer is None:
        return
    name = name_operation(record.operation)
    match record.answer:
        case ProbeAnswer.DONE if news.state.direction is Direction.ACTION:
            yield _say_done(record.operation, news, record.at_ms, ", found by its probe")
        case ProbeAnswer.DONE:
            yield Line("probe", f"{name}: it happened")
        case ProbeAnswer.NOT_DONE:
            yield Line("probe", f"{name}: it did not happen")
        case ProbeAnswer.CANNOT_TELL:
            why = name_reason(record.failure, "cannot_tell")
            yield Line("probe", f"{name}: can't tell" + (f": {why}" if why else ""))


def _tell_timer(record: Timer, news: News) -> Iterator[Line]:
    if record.kind is not TimerKind.RETRY:
        return
    operation = record.operation
    why = name_failure(news.track.failures.get(operation))
    op = news.state.operations[operation]
    attempt = news.track.attempts.get(operation, 0) - op.attempts_before_retry + 1
    limit = call_of(news.saga, operation).retry.max_attempts
    delay = show_duration(record.due_ms - record.at_ms)
    again = f"{name_operation(operation)}, attempt {attempt} of {limit} in {delay}"
    yield Line("retry", f"{again}: {why}" if why else again)


def _tell_decision(record: Decision, news: News) -> Iterator[Line]:
    why = name_failure(record.failure)
    name = record.step or ("the run" if record.operation is None else name_operation(record.operation))
    match record.kind:
        case DecisionKind.ROLLBACK:
            undos = sum(news.saga.by_id[action.step].compensation is not None for action in record.plan)
            amount = f"rolling back, {undos:,} to undo" if undos else "there is nothing to undo"
            yield Line("back", f"{amount}: {_say_cause(record, news)}")
        case DecisionKind.REFUSED:
            yield Line("FAIL", f"{name} was not called: {name_reason(record.failure, 'refused')}")
        case DecisionKind.EXPIRED:
            yield Line("FAIL", f"{name} is out of time: {why}")
        case DecisionKind.DEAD_LETTER:
            cause = "" if record.cause is None else plain(record.cause.value)
            yield Line("STUCK", f"{name}: {cause}; a person must decide")
        case DecisionKind.PIVOT_PASSED:
            yield Line("pivot", "passed: from here the run only goes forward")
        case DecisionKind.WAITING if record.cause is Cause.CANNOT_END:
            yield Line("wait", name_again(name_reason(record.failure, "cannot_end")))
            yield Line("wait", news.track.say_end())
        case DecisionKind.WAITING:
            yield Line("wait", name_reason(record.failure, str(record.cause)) or "for a person")
        case DecisionKind.ALERT:
            keeps = "keeps failing" if record.cause is not Cause.TIMEOUT else "goes on behind its pivot"
            yield Line("alert", f"{name} {keeps}: {why}")
        case DecisionKind.RECOVERED:
            yield Line("alert", "is over: nothing keeps failing any more")
        case DecisionKind.STUCK:
            return  # the dead letters have said it


def _say_cause(record: Decision, news: News) -> str:
    if record.cause is Cause.STEP_FAILED and news.state.failed_step is not None:
        return f"{failed_place(news.state)} failed"
    if record.failure is not None and record.failure.type in {record.cause, "run_timeout"}:
        return record.failure.message
    return name_cause(record.cause, news.state.failed_step) or "as asked"


def _tell_operator(record: Operator, _: News) -> Iterator[Line]:
    if record.disposition is not Disposition.VOID:
        yield Line("asked", describe_request(record))
    else:
        yield Line("alert", describe_request(record))


def _tell_ended(record: Ended, _: News) -> Iterator[Line]:
    left = f", {len(record.not_undone):,} left behind" if record.not_undone else ""
    yield Line("end", f"{plain(record.status)}{left}")


_TELLERS: Final[Mapping[type, Callable[[Any, News], Iterator[Line]]]] = {
    DriverClaimed: _tell_claimed,
    StepDecided: _tell_decided,
    Outcome: _tell_outcome,
    Probe: _tell_probe,
    Timer: _tell_timer,
    Decision: _tell_decision,
    Operator: _tell_operator,
    Ended: _tell_ended,
}
