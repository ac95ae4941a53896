"""From records to spans: a pure fold, so that whoever reads the same log makes the same spans.

A run is one trace. Its root is the run itself, ended whenever the run rests; below it is one span for each call, that
is for each attempt of an action or a compensation, and for each probe. A call that is pending is one span, however
often it is asked about. What has no length of its own, such as a timer or a decision, is an event of the root.

Nothing of arguments, inputs, outputs or messages gets into a span: names, ids and counts, and the type of an error.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from dataclasses import replace
from typing import Final

from sagactl.core.records import (
    Decision,
    DecisionKind,
    Direction,
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
    RunCreated,
    RunStatus,
    StepDecided,
    Timer,
)
from sagactl.core.tracing import call_span_id, probe_span_id, run_span_id
from sagactl.dataclass import dataclass

EVENTS_MAX: Final = 128
"""How many events the span of a run has at most, timers and others each; the oldest make room."""

Value = str | int | bool


@dataclass(frozen=True, slots=True)
class SpanEvent:
    """Something that happened at one moment."""

    name: str
    at_ms: int
    attributes: dict[str, Value]


@dataclass(frozen=True, slots=True)
class Span:
    """A span that has ended; `error` is the type of what went wrong, `links` are spans of the same trace.

    `begun_in` is a span of somebody else's trace, as a `traceparent`, that the run was begun in.
    """

    run_id: str
    span_id: str
    parent_id: str | None
    name: str
    start_ms: int
    end_ms: int
    attributes: dict[str, Value]
    events: tuple[SpanEvent, ...] = ()
    error: str | None = None
    links: tuple[str, ...] = ()
    begun_in: str | None = None


@dataclass(slots=True)
class _Open:
    """A call that has begun; `is_under_way` while its driver waits for an answer."""

    span: Span
    is_under_way: bool = True
    askings: int = 1


class RunTrace:
    """The spans of one run, as its records come in; see the essay above."""

    def __init__(self) -> None:
        self._created: RunCreated | None = None
        self._open: dict[tuple[Operation, bool], _Open] = {}
        self._attempts: dict[Operation, int] = {}
        self._counts = {"calls": 0, "retries": 0, "compensations": 0, "probes": 0}
        self._timers: deque[SpanEvent] = deque(maxlen=EVENTS_MAX)
        self._turns: deque[SpanEvent] = deque(maxlen=EVENTS_MAX)
        self._events = 0
        self.is_at_rest = False

    def replay(self, records: Iterable[Record]) -> list[Span]:
        """Take a run's records up to the claim of its present driver; return the spans that may not have been sent.

        A driver that was killed had calls under way, and perhaps spans that it had not sent yet: all that ended while
        it drove is given once more, with the calls that it left. Of one that let go of the run in order nothing is.
        """
        unsent: list[Span] = []
        for record in records:
            found = self._take(record)
            if isinstance(record, DriverClaimed) and not found:
                unsent = []
            unsent += found
        return unsent

    def take(self, records: Iterable[Record]) -> list[Span]:
        """Take records that follow; return the spans that ended with them."""
        return [span for record in records for span in self._take(record)]

    def _take(self, record: Record) -> list[Span]:
        self.is_at_rest = False
        match record:
            case RunCreated():
                self._created = record
            case DriverClaimed():
                return self._on_claimed(record)
            case Intent():
                self._on_intent(record)
            case Probe(answer=None):
                self._on_probe(record)
            case Probe():
                return self._on_answer(record)
            case Outcome():
                return self._on_outcome(record)
            case Decision():
                return self._on_decision(record)
            case Ended():
                return self._on_ended(record)
            case Timer() | Operator() | StepDecided():
                self._on_moment(record)
        return []

    # Calls

    def _on_intent(self, record: Intent) -> None:
        key = (record.operation, False)
        known = self._open.get(key)
        if known is not None and record.attempt == self._attempts.get(record.operation):
            known.is_under_way, known.askings = True, known.askings + 1
            return
        self._attempts[record.operation] = record.attempt
        self._counts["calls"] += 1
        self._counts["retries"] += record.attempt > 1
        is_undo = record.operation.direction is Direction.COMPENSATION
        self._counts["compensations"] += is_undo and record.attempt == 1
        span_id = call_span_id(self._run_id, record.operation, record.attempt)
        links = self._link(record.operation.other) if is_undo else ()
        attributes: dict[str, Value] = {"sagactl.attempt": record.attempt, "sagactl.idempotency_key": record.key}
        self._open[key] = _Open(self._begin(record, span_id, attributes, links))

    def _on_probe(self, record: Probe) -> None:
        self._counts["probes"] += 1
        at = {"fence": record.fence, "deadline_ms": record.deadline_ms}
        span_id = probe_span_id(self._run_id, record.operation, record.number, **at)
        attributes: dict[str, Value] = {"sagactl.probe.number": record.number}
        self._open[record.operation, True] = _Open(
            self._begin(record, span_id, attributes, self._link(record.operation))
        )

    def _begin(
        self, record: Intent | Probe, span_id: str, attributes: dict[str, Value], links: tuple[str, ...]
    ) -> Span:
        kind = "probe" if isinstance(record, Probe) else str(record.operation.direction)
        return Span(
            self._run_id,
            span_id,
            run_span_id(self._run_id),
            f"{record.tool} {record.operation.step}",
            record.at_ms,
            record.at_ms,
            {
                **self._whose(),
                **_where(record.operation),
                "sagactl.call": kind,
                "sagactl.tool": record.tool,
                "sagactl.fence": record.fence,
                **attributes,
            },
            links=links,
        )

    def _link(self, operation: Operation) -> tuple[str, ...]:
        """Return the span of the last attempt of *operation*: what an undo undoes, and what a probe asks about."""
        attempt = self._attempts.get(operation)
        return () if attempt is None else (call_span_id(self._run_id, operation, attempt),)

    def _on_outcome(self, record: Outcome) -> list[Span]:
        known = self._open.get((record.operation, False))
        if known is None:
            return []
        if record.kind is OutcomeKind.PENDING:
            known.is_under_way = False
            return []
        failure = None if record.kind is OutcomeKind.SUCCEEDED else record.failure or Failure(record.kind, "")
        return [self._end((record.operation, False), record.at_ms, record.kind, failure)]

    def _on_answer(self, record: Probe) -> list[Span]:
        if (record.operation, True) not in self._open or record.answer is None:
            return []
        failure = record.failure if record.answer is ProbeAnswer.CANNOT_TELL else None
        return [self._end((record.operation, True), record.at_ms, record.answer, failure)]

    def _end(self, key: tuple[Operation, bool], at_ms: int, outcome: str, failure: Failure | None) -> Span:
        known = self._open.pop(key)
        error = None if failure is None else failure.type or str(outcome)
        attributes: dict[str, Value] = {**known.span.attributes, "sagactl.outcome": str(outcome)}
        if error is not None:
            attributes["error.type"] = error
        if known.askings > 1:
            attributes["sagactl.askings"] = known.askings
        return replace(known.span, end_ms=max(at_ms, known.span.start_ms), attributes=attributes, error=error)

    def _on_claimed(self, record: DriverClaimed) -> list[Span]:
        """End the calls that an earlier driver left: nobody will say what they came to (E4)."""
        if record.fence > 1:
            self._note("driver_claimed", record.at_ms, {"sagactl.fence": record.fence})
        failure = Failure("driver_lost", "")
        left = [key for key, known in self._open.items() if known.is_under_way]
        return [self._end(key, record.at_ms, OutcomeKind.UNKNOWN, failure) for key in left]

    # The run

    def _on_decision(self, record: Decision) -> list[Span]:
        attributes: dict[str, Value] = {} if record.operation is None else _where(record.operation)
        if record.step is not None:
            attributes["sagactl.step"] = record.step
        if record.cause is not None:
            attributes["sagactl.cause"] = str(record.cause)
        if record.failure is not None and record.failure.type:
            attributes["error.type"] = record.failure.type
        if record.kind is DecisionKind.ROLLBACK:
            attributes["sagactl.planned"] = len(record.plan)
        self._note(str(record.kind), record.at_ms, attributes)
        key = None if record.operation is None else (record.operation, False)
        if record.kind is DecisionKind.EXPIRED and key in self._open and not self._open[key].is_under_way:
            return [self._end(key, record.at_ms, OutcomeKind.UNKNOWN, record.failure or Failure("expired", ""))]
        if record.kind is DecisionKind.STUCK:
            cause: dict[str, Value] = {} if record.cause is None else {"sagactl.cause": str(record.cause)}
            return [self._end_run(record.at_ms, RunStatus.STUCK, cause)]
        return []

    def _on_ended(self, record: Ended) -> list[Span]:
        attributes: dict[str, Value] = {"sagactl.not_undone": len(record.not_undone)}
        if record.cause is not None:
            attributes["sagactl.cause"] = str(record.cause)
        # What is pending at the end isn't asked about any more; in a run that is stuck it may be.
        given_up = Failure("given_up", "")
        left = [self._end(key, record.at_ms, OutcomeKind.UNKNOWN, given_up) for key in list(self._open)]
        return [*left, self._end_run(record.at_ms, record.status, attributes)]

    def _end_run(self, at_ms: int, status: RunStatus, attributes: dict[str, Value]) -> Span:
        assert self._created is not None, "a run begins with its first record"
        self.is_at_rest = True
        counts: dict[str, Value] = {f"sagactl.{name}": count for name, count in self._counts.items()}
        events = sorted([*self._timers, *self._turns], key=lambda event: event.at_ms)
        return Span(
            self._run_id,
            run_span_id(self._run_id),
            None,
            f"saga {self._created.saga}",
            self._created.at_ms,
            max(at_ms, self._created.at_ms),
            {
                **self._whose(),
                "sagactl.run.status": str(status),
                **counts,
                "sagactl.events": self._events,
                **attributes,
            },
            tuple(events),
            None if status is RunStatus.SUCCEEDED else str(attributes.get("sagactl.cause", status)),
            begun_in=self._created.traceparent,
        )

    def _on_moment(self, record: Timer | Operator | StepDecided) -> None:
        match record:
            case Timer():
                delay = {"sagactl.delay_ms": max(0, record.due_ms - record.at_ms)}
                self._note(f"{record.kind}_timer", record.at_ms, {**_where(record.operation), **delay}, is_timer=True)
            case Operator(request=request):
                found: dict[str, Value] = {
                    "sagactl.request.id": request.id,
                    "sagactl.request.disposition": str(record.disposition),
                }
                where = {} if request.operation is None else _where(request.operation)
                self._note(f"operator_{request.verb}", record.at_ms, {**where, **found})
            case StepDecided(runs=False):
                self._note("step_skipped", record.at_ms, {"sagactl.step": record.step})
            case StepDecided() if record.approval is not None:
                self._note("approval_awaited", record.at_ms, {"sagactl.step": record.step})
            case _:
                pass

    def _note(self, name: str, at_ms: int, attributes: dict[str, Value], *, is_timer: bool = False) -> None:
        self._events += 1
        (self._timers if is_timer else self._turns).append(SpanEvent(name, at_ms, attributes))

    @property
    def _run_id(self) -> str:
        assert self._created is not None, "a run begins with its first record"
        return self._created.run_id

    def _whose(self) -> dict[str, Value]:
        assert self._created is not None, "a run begins with its first record"
        return {"sagactl.run.id": self._created.run_id, "sagactl.saga": self._created.saga}


def _where(operation: Operation) -> dict[str, Value]:
    found: dict[str, Value] = {"sagactl.step": operation.step, "sagactl.direction": str(operation.direction)}
    if operation.item is not None:
        found["sagactl.item"] = operation.item
    return found


def spans_of(records: Iterable[Record]) -> list[Span]:
    """Return all spans of a run's records, those of its root as often as it rested."""
    return RunTrace().take(records)
