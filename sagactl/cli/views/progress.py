"""What happens, line by line as it becomes durable, for whoever watches a run on stderr.

A `Progress` is fed the batches that a driver commits and gives the lines that they are worth. It says each fact once:
that something was tried again is told with its reason and its delay, calls that only begin are not told at all. Of a
run that is taken up again the history isn't repeated; one line says where it stands.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import field
from datetime import tzinfo
from typing import Any, Final

from sagactl.cli.views.events import describe, describe_request, place_in
from sagactl.cli.views.runs import say_status
from sagactl.cli.views.style import Hue, Style
from sagactl.cli.views.text import brief, pad, plural
from sagactl.cli.views.times import show_clock, show_duration, show_seconds
from sagactl.cli.views.words import (
    failed_place,
    name_cause,
    name_failure,
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
    RunStatus,
    StepDecided,
    Timer,
    TimerKind,
)
from sagactl.core.saga import Saga
from sagactl.core.state import RunState, call_of
from sagactl.core.summary import summarize
from sagactl.core.transitions import Phase
from sagactl.dataclass import dataclass
from sagactl.engine.settings import Committed
from sagactl.log.base import RunRow

HEARTBEAT_LINES_MAX: Final = 3
"""How many of the things that go on are named after a silence; the others are counted."""

NEW_RECORDS: Final = 2
"""What the log of a run begins with, before anything is done: it is created, and somebody drives it."""

DEBUG: Final = 2
"""The verbosity at which each record is told with all that it holds."""

_WORD_COLUMNS: Final = 5
_HUES: Final = {
    "ok": Hue.GOOD,
    "FAIL": Hue.BAD,
    "STUCK": Hue.BAD,
    "doubt": Hue.BAD,
    "alert": Hue.BAD,
    "retry": Hue.ODD,
    "undo": Hue.ODD,
    "back": Hue.ODD,
    "wait": Hue.ODD,
    "skip": Hue.DIM,
}


@dataclass(frozen=True, slots=True)
class Line:
    """A word that says what kind of news it is, and the news, unsafe as yet."""

    word: str
    text: str


@dataclass(slots=True)
class _Track:
    """What has been seen of one run: when operations began and why they failed last."""

    short_id: str
    saga: Saga
    began_ms: dict[Operation, int] = field(default_factory=dict)
    under_way: dict[Operation, int] = field(default_factory=dict)
    timers: dict[Operation, int] = field(default_factory=dict)
    attempts: dict[Operation, int] = field(default_factory=dict)
    failures: dict[Operation, Failure | None] = field(default_factory=dict)
    pending: set[Operation] = field(default_factory=set)

    def note(self, record: Record) -> None:
        """Remember what later lines need of *record*."""
        match record:
            case Intent(operation=operation):
                self.timers.pop(operation, None)
                self.began_ms.setdefault(operation, record.at_ms)
                self.under_way[operation] = record.at_ms
                self.attempts[operation] = record.attempt
            case Outcome(operation=operation):
                self.under_way.pop(operation, None)
                self.failures[operation] = record.failure
            case DriverClaimed():
                lost = Failure("driver_lost", "the driver ended before the answer was recorded")
                self.failures |= dict.fromkeys(self.under_way, lost)
                self.under_way.clear()
            case Probe(operation=operation):
                self.timers.pop(operation, None)
            case Timer(operation=operation):
                self.timers[operation] = record.due_ms
            case Decision(kind=DecisionKind.ROLLBACK | DecisionKind.STUCK) | Ended():
                self.timers.clear()
            case _:
                pass

    def list_going_on(self, now_ms: int) -> Iterator[str]:
        """Yield what is under way or waited for, the oldest first."""
        for operation, since_ms in self.under_way.items():
            attempt = self._say_attempt(operation, 0)
            yield f"{name_operation(operation)} {show_seconds(now_ms - since_ms)}, {attempt}"
        for operation, due_ms in self.timers.items():
            attempt = self._say_attempt(operation, 1)
            yield f"{name_operation(operation)} goes on in {show_seconds(due_ms - now_ms)}, {attempt}"

    def _say_attempt(self, operation: Operation, after: int) -> str:
        attempt = self.attempts.get(operation, 0) + (after if operation not in self.pending else 0)
        limit = call_of(self.saga, operation).retry.max_attempts
        return f"attempt {attempt} of {max(attempt, limit)}"


@dataclass(frozen=True, slots=True)
class _News:
    """One record with all that is known around it."""

    saga: Saga
    state: RunState
    track: _Track

    def took(self, operation: Operation, at_ms: int) -> str:
        return show_duration(at_ms - self.track.began_ms.get(operation, at_ms))

    def phase(self, operation: Operation) -> Phase | None:
        """Return where the operation stands after the whole batch."""
        found = self.state.operations.get(operation)
        return None if found is None else found.phase


class Progress:
    """The lines about one run or several; *short_ids* says how runs are named, which lines do once there are several.

    With a *verbosity* of 1 calls that begin, probes and timers are told as well; at 2 every record.
    """

    def __init__(
        self, *, style: Style, tz: tzinfo, short_ids: Mapping[str, str] | None = None, verbosity: int = 0
    ) -> None:
        self._style = style
        self._tz = tz
        self._short_ids = dict(short_ids or {})
        self._verbosity = verbosity
        self._tracks: dict[str, _Track] = {}

    def feed(self, committed: Committed) -> list[str]:
        """Return the lines that a batch is worth, most often none or one."""
        track = self._tracks.get(committed.run_id)
        if track is None:
            short_id = self._short_ids.get(committed.run_id, committed.run_id[:6])
            track = self._tracks[committed.run_id] = _Track(short_id, committed.saga)
            if committed.first_seq == 1:
                return self._begin(committed, track)
        lines = []
        for seq, record in enumerate(committed.records, committed.first_seq):
            track.note(record)
            news = _News(committed.saga, committed.state, track)
            told = [*_tell(record, news), *(_tell_more(record) if self._verbosity else ())]
            lines += [self._write(record.at_ms, track, line) for line in told]
            if self._verbosity >= DEBUG:
                lines.append(self._write_whole(seq, record, track))
        return lines

    def note(self, at_ms: int, text: str) -> str:
        """Return a line about the runs that is no record."""
        return self._write(at_ms, None, Line("note", text))

    def _begin(self, committed: Committed, track: _Track) -> list[str]:
        for record in committed.records:
            track.note(record)
        last = committed.records[-1]
        text = f"{committed.saga.name} {track.short_id}"
        is_resumed = any(isinstance(record, DriverClaimed) and record.fence > 1 for record in committed.records)
        if is_resumed or len(committed.records) > NEW_RECORDS:
            text += f"{' resumed' if is_resumed else ''} at {_say_place(committed.saga, committed.state)}"
        line = Line("run", text)
        return [self._write(last.at_ms, track, line)]

    def heartbeat(self, now_ms: int) -> list[str]:
        """Return lines for what is under way or waited for, after a silence."""
        going_on = [(track, text) for track in self._tracks.values() for text in track.list_going_on(now_ms)]
        lines = [self._write(now_ms, track, Line("wait", text)) for track, text in going_on[:HEARTBEAT_LINES_MAX]]
        more = len(going_on) - HEARTBEAT_LINES_MAX
        return [*lines, self._write(now_ms, None, Line("wait", f"and {more:,} more"))] if more > 0 else lines

    def _write(self, at_ms: int, track: _Track | None, line: Line) -> str:
        style = self._style
        head = self._begin_line(at_ms, track)
        word = pad(line.word, _WORD_COLUMNS)
        room = max(style.columns - len(head) - len(word) - 2, 20)
        text = style.fit(style.show(line.text), room)
        return f"{style.paint(head, Hue.DIM)}{style.paint(word, _HUES.get(line.word, Hue.PLAIN))}  {text}"

    def _begin_line(self, at_ms: int, track: _Track | None) -> str:
        time = show_clock(at_ms, self._tz)
        return f"{time} {track.short_id} " if track is not None and len(self._tracks) > 1 else f"{time} "

    def _write_whole(self, seq: int, record: Record, track: _Track) -> str:
        """Return a record with all that it holds, bounded, and secrets as their names; such a line is not cut."""
        style = self._style
        head = self._begin_line(record.at_ms, track)
        return style.paint(
            head + pad("debug", _WORD_COLUMNS) + "  " + style.show(_describe_whole(seq, record)), Hue.DIM
        )


def render_change(row: RunRow, short_id: str, at_ms: int, tz: tzinfo, style: Style) -> str:
    """Return a line about a run of which only the row is read: `14:02:30 end    7kq2m9 onboarding succeeded`."""
    word = _ROW_WORDS.get(row.status, "run")
    text = style.show(f"{short_id} {row.saga} {say_status(row, at_ms)}")
    head = f"{show_clock(at_ms, tz)} "
    room = max(style.columns - len(head) - _WORD_COLUMNS - 2, 20)
    word = style.paint(pad(word, _WORD_COLUMNS), _HUES.get(word, Hue.PLAIN))
    return f"{style.paint(head, Hue.DIM)}{word}  {style.fit(text, room)}"


_ROW_WORDS: Final = {
    RunStatus.SUCCEEDED: "ok",
    RunStatus.ROLLED_BACK: "FAIL",
    RunStatus.STUCK: "STUCK",
    RunStatus.TERMINATED: "end",
}


def _say_place(saga: Saga, state: RunState) -> str:
    summary = summarize(saga, state)
    where = f"{summary.steps_done:,} of {plural(summary.steps_total, 'step')}"
    if summary.direction is Direction.COMPENSATION:
        where += ", rolling back"
    doubtful = sum(op.doubt for op in state.operations.values())
    return where + (f", {doubtful:,} in doubt" if doubtful else "")


def _tell(record: Record, news: _News) -> Iterator[Line]:
    teller = _TELLERS.get(type(record))
    if teller is not None:
        yield from teller(record, news)


def _tell_more(record: Record) -> Iterator[Line]:
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


def _describe_whole(seq: int, record: Record) -> str:
    place = place_in(record)
    name = "" if place is None else f" {name_place(*place)}"
    text = f"#{seq}{name} {describe(record).words}"
    if isinstance(record, Intent):
        given = brief(record.arguments, joint="=")
        text += f", tool {record.tool}, key {record.key}" + (f", {given}" if given else "")
    return text


def _tell_claimed(record: DriverClaimed, news: _News) -> Iterator[Line]:
    """Say that another driver took the run over, to somebody who only watches."""
    if record.fence > 1:
        text = f"{news.saga.name} {news.track.short_id} resumed at {_say_place(news.saga, news.state)}"
        yield Line("run", text)


def _tell_decided(record: StepDecided, _: _News) -> Iterator[Line]:
    if not record.runs:
        yield Line("skip", f"{record.step}: its condition is false")
    elif record.items == ():
        yield Line("ok", f"{record.step}: no items")


def _tell_outcome(record: Outcome, news: _News) -> Iterator[Line]:
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


def _say_done(operation: Operation, news: _News, at_ms: int, how: str = "") -> Line:
    attempts = news.track.attempts.get(operation, 1)
    tries = f", {attempts} attempts" if attempts > 1 else ""
    word = "ok" if operation.direction is Direction.ACTION else "undo"
    name = name_place(operation.step, operation.item)
    return Line(word, f"{name} {news.took(operation, at_ms)}{tries}{how}")


def _tell_probe(record: Probe, news: _News) -> Iterator[Line]:
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


def _tell_timer(record: Timer, news: _News) -> Iterator[Line]:
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


def _tell_decision(record: Decision, news: _News) -> Iterator[Line]:
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
        case DecisionKind.WAITING:
            yield Line("wait", why or "for a person")
        case DecisionKind.ALERT:
            keeps = "keeps failing" if record.cause is not Cause.TIMEOUT else "goes on behind its pivot"
            yield Line("alert", f"{name} {keeps}: {why}")
        case DecisionKind.STUCK:
            return  # the dead letters have said it


def _say_cause(record: Decision, news: _News) -> str:
    if record.cause is Cause.STEP_FAILED and news.state.failed_step is not None:
        return f"{failed_place(news.state)} failed"
    if record.failure is not None and record.failure.type in {record.cause, "run_timeout"}:
        return record.failure.message
    return name_cause(record.cause, news.state.failed_step) or "as asked"


def _tell_operator(record: Operator, _: _News) -> Iterator[Line]:
    if record.disposition is not Disposition.VOID:
        yield Line("asked", describe_request(record))
    else:
        yield Line("alert", describe_request(record))


def _tell_ended(record: Ended, _: _News) -> Iterator[Line]:
    left = f", {len(record.not_undone):,} left behind" if record.not_undone else ""
    yield Line("end", f"{plain(record.status)}{left}")


_TELLERS: Final[Mapping[type, Callable[[Any, _News], Iterator[Line]]]] = {
    DriverClaimed: _tell_claimed,
    StepDecided: _tell_decided,
    Outcome: _tell_outcome,
    Probe: _tell_probe,
    Timer: _tell_timer,
    Decision: _tell_decision,
    Operator: _tell_operator,
    Ended: _tell_ended,
}
