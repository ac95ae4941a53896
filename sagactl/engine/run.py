"""One run in a driver's hands: its saga, its state, what is not committed yet, and its calls under way."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import field
from itertools import takewhile

from sagactl.core.advance import Turn
from sagactl.core.canonical import Json
from sagactl.core.evolve import evolve, replay
from sagactl.core.pinned import Guard, Misfit, describe_misfit
from sagactl.core.records import (
    AT_REST,
    Cause,
    Decision,
    DecisionKind,
    Disposition,
    Failure,
    Operation,
    Operator,
    Outcome,
    Probe,
    Record,
)
from sagactl.core.saga import Saga, ToolFacts
from sagactl.core.state import RunState, list_doubts
from sagactl.core.summary import summarize
from sagactl.core.template import ExpressionError, Scope
from sagactl.core.transitions import IllegalRecordError
from sagactl.core.world import AskProbe, MakeCall, Rest, Wait, World
from sagactl.dataclass import dataclass
from sagactl.engine.calls import CallUnderWay
from sagactl.engine.ending import Why
from sagactl.engine.guards import Question
from sagactl.engine.missing import find_missing_tools
from sagactl.errors import DamagedLogError, InternalError
from sagactl.log.base import Batch, Captured, Lease, Log
from sagactl.tools.base import Toolbox

Evaluate = Callable[[str, Scope], Json]


@dataclass(frozen=True, slots=True)
class RunEvaluator:
    """The core's `Evaluator`: expressions by *evaluate_expression*, arguments by the pinned schemas."""

    tools: Mapping[str, ToolFacts]
    toolbox: Toolbox
    evaluate_expression: Evaluate

    def evaluate(self, expression: str, scope: Scope) -> Json:
        """Return the value of a CEL expression; raises ExpressionError, whatever goes wrong inside the library."""
        try:
            return self.evaluate_expression(expression, scope)
        except ExpressionError:
            raise
        except Exception as error:
            raise ExpressionError(f"the expression failed: {type(error).__name__}, in {expression}") from error

    def check_arguments(self, tool: str, arguments: Json) -> str | None:
        """Return what is wrong with *arguments*, or None."""
        return self.toolbox.check_arguments(self.tools[tool], arguments)


@dataclass(slots=True)
class Run:
    """A run under a lease; `records` and `to_make` wait for the next commit."""

    lease: Lease
    saga: Saga
    state: RunState
    evaluator: RunEvaluator
    committed_seq: int
    skew_ms: int = 0
    """How far the run's last record lies ahead of this machine's clock."""
    missing_tools: dict[str, Misfit] = field(default_factory=dict)
    """Those that can't be called here, each with the reason."""
    guards: Mapping[str, Guard] = field(default_factory=dict)
    """What must be asked before the intent of a call, by tool."""
    questions: dict[str, Question] = field(default_factory=dict)
    """Those that are open, by tool; each holds a slot."""
    missing_secrets: Mapping[str, str] = field(default_factory=dict)
    """Those that can't be resolved now, each with the reason."""
    records: list[Record] = field(default_factory=list)
    to_make: list[MakeCall | AskProbe] = field(default_factory=list)
    answered: list[str] = field(default_factory=list)
    captured: list[Captured] = field(default_factory=list)
    under_way: dict[Operation, CallUnderWay] = field(default_factory=dict)
    wake_ms: int | None = None
    calls_in_a_row: int = 0
    """Calls since the run last stood back for others that waited for a slot."""
    is_waiting_for_timer: bool = False
    is_waiting_for_person: bool = False
    held_up: tuple[Why, str] | None = None
    """What isn't here, and its name, where nothing goes on without it."""
    is_at_rest: bool = False
    is_released: bool = False
    """The lease was given back with the last record."""

    @property
    def run_id(self) -> str:
        """Return the id of the run."""
        return self.lease.run_id

    @property
    def is_finished(self) -> bool:
        """Tell whether nothing is left to do for a driver once the waiting records are durable."""
        return self.is_at_rest and not self.under_way and not self.to_make

    def list_doubts(self) -> tuple[str, ...]:
        """Return the calls that are let go of without an answer, and those that ended with none that says what was."""
        found = [*self.under_way, *list_doubts(self.state)]
        return tuple(dict.fromkeys(map(str, found)))

    def make_world(self, now_ms: int, slots: int) -> World:
        """Return what the core decides from besides the state; looks after the secrets it needs (E19)."""
        if self.saga.secrets_needed:
            self.missing_secrets = self.evaluator.toolbox.missing_secrets(self.saga.secrets_needed)
        missing = frozenset(self.missing_tools)
        return World(now_ms, slots, self.evaluator, missing, frozenset(self.missing_secrets))

    def queue(self, turn: Turn) -> None:
        """Queue what was decided for the next commit, and note what the run waits for now."""
        self.records += turn.records
        self.to_make += turn.calls
        self.calls_in_a_row += len(turn.calls)
        self.is_at_rest = isinstance(turn.then, Rest)
        waits_for = turn.then.what if isinstance(turn.then, Wait) else None
        self.is_waiting_for_person = waits_for in {"approval", "paused"}
        self.is_waiting_for_timer = waits_for == "timer" and not self.state.in_flight

    def hold_up(self, wait: Wait, now_ms: int) -> Decision:
        """Note what the run waits for in vain, and return the record that says so."""
        name, cause = str(wait.detail), Cause(wait.what)
        self.held_up = Why(wait.what), name
        if cause is Cause.MISSING_TOOL:
            misfit = self.missing_tools[name]
            failure, changes = describe_misfit(name, misfit), misfit.changes
        else:
            failure, changes = Failure(wait.what, f"the secret {name}: {self.missing_secrets.get(name, '')}"), ()
        return Decision(now_ms, DecisionKind.WAITING, cause=cause, failure=failure, changes=changes)

    def fold(self, record: Record) -> None:
        """Take *record* into the state and queue it for the next commit; raises InternalError for our own mistakes."""
        try:
            evolve(self.saga, self.state, record)
        except IllegalRecordError as error:
            raise InternalError(f"run {self.run_id}: {error}", hint="please report this with the run's log") from error
        self.records.append(record)

    def make_batch(self, records: Sequence[Record]) -> Batch:
        """Return *records*, those up to the present state, as what the log appends."""
        answered = tuple(
            record.request.id
            for record in records
            if isinstance(record, Operator) and record.disposition is not Disposition.DEFERRED
        )
        summary = summarize(self.saga, self.state)
        return Batch(
            self.lease, self.committed_seq, tuple(records), summary, tuple(self.captured), answered, self.is_finished
        )


def take_up(
    lease: Lease, saga: Saga, records: Sequence[Record], toolbox: Toolbox, evaluate: Evaluate, *, now_ms: int
) -> Run:
    """Return the run that *records*, all there are, tell of; raises DamagedLogError where they can't be."""
    try:
        state = replay(saga, records)
    except IllegalRecordError as error:
        message = f"the log of run {lease.run_id} holds what can't be: {error}"
        raise DamagedLogError(message, hint=f"sagactl verify {lease.run_id}") from error
    return Run(
        lease=lease,
        saga=saga,
        state=state,
        evaluator=RunEvaluator(saga.tools, toolbox, evaluate),
        committed_seq=state.seq,
        skew_ms=max(0, max(record.at_ms for record in records) - now_ms),
        missing_tools=find_missing_tools(saga, toolbox),
        guards={name: guard for name in saga.tools if (guard := toolbox.guard_of(name)) is not None},
    )


def keep_answers(run: Run, log: Log, count: int) -> None:
    """Commit the first *count* records that wait, on a state made anew: the run's own may be half-way."""
    if count == 0:
        return
    kept = tuple(run.records[:count])
    whole = [*(stored.record for stored in log.read(run.run_id)), *kept]
    run.state = replay(run.saga, whole)
    log.append([run.make_batch(kept)])


def take_up_again(run: Run, log: Log, *, now_ms: int) -> Run:
    """Return *run* as its log tells of it, with its calls under way and the answers that were still to be written."""
    durable = tuple(stored.record for stored in log.read(run.run_id))
    evaluator = run.evaluator
    again = take_up(run.lease, run.saga, durable, evaluator.toolbox, evaluator.evaluate_expression, now_ms=now_ms)
    again.under_way = run.under_way
    if len(durable) == run.committed_seq:
        again.captured = run.captured
        for record in takewhile(_is_answer, run.records):
            again.fold(record)
    again.is_at_rest = summarize(run.saga, again.state).status in AT_REST
    again.is_released = again.is_finished and not again.records
    return again


def _is_answer(record: Record) -> bool:
    return isinstance(record, Outcome) or (isinstance(record, Probe) and record.answer is not None)
