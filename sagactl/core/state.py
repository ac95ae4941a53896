"""The state of a run: a fold over its log, and the frontier of what can happen next.

Rules of this module and of `evolve`
------------------------------------
* The state is what the records say, and nothing else. Two processes that fold the same records hold equal states, so
  after a crash nothing is lost but the process (rules E1, E20; L4).
* State objects are mutable and belong to one fold: `evolve` consumes the state it is given. That is a choice for speed;
  records and decisions, which others see, are frozen.
* One record costs what it changes. A finished step touches its direct dependents and no other; what is ready, due, in
  doubt or dead lies in containers of its own, so `decide` never looks through the steps. A run of 10,000 steps
  therefore pays per record what a run of 10 pays.
* What nobody has touched has no object: steps and operations come into being when a record (or a fulfilled `needs`)
  first speaks of them.

What the containers mean is said at each field. They hold nothing that could not be worked out again from the
operations; they only keep it at hand. The two heaps drop stale entries lazily, so they alone may differ between two
folds of the same records, and take no part in comparing states.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterator
from dataclasses import field
from typing import NamedTuple

from sagactl.core.canonical import Json
from sagactl.core.records import (
    Cause,
    Decision,
    Direction,
    Ended,
    Failure,
    NotUndone,
    Operation,
    Request,
    RunCreated,
    TimerKind,
)
from sagactl.core.saga import Call, Saga, Step
from sagactl.core.transitions import WAITING_PHASES, Phase
from sagactl.dataclass import dataclass


@dataclass(slots=True)
class OperationState:
    """All that is known of one operation."""

    operation: Operation
    phase: Phase = Phase.READY
    attempts: int = 0
    attempts_before_retry: int = 0
    """Attempts that an operator's retry has written off: a fresh budget (E23)."""
    asking: int = 0
    doubt: bool = False
    is_final: bool = False
    """The last definite answer was one that is never retried (E5)."""
    arguments: Json = None
    output: Json = None
    raw: Json = None
    token: Json = None
    failure: Failure | None = None
    first_seq: int = 0
    first_intent_ms: int = 0
    deadline_ms: int = 0
    schedule_deadline_ms: int | None = None
    probes: int = 0
    due_ms: int | None = None
    delay: tuple[TimerKind, int, int] | None = None
    """A delay that is still to be drawn: kind, shortest and longest milliseconds."""
    not_before_ms: int | None = None
    """When the tool wants to be called again, by its last answer; a probe in between doesn't change that (E5)."""
    late_until_ms: int = 0
    """Until then a call of an earlier driver may still land (E9)."""
    cause: Cause | None = None
    settled: Request | None = None
    """How a person has settled its dead letter last (E23); its failure stays, as what was."""

    @property
    def attempts_in_budget(self) -> int:
        """Return how many attempts count against `max_attempts`."""
        return self.attempts - self.attempts_before_retry


class Awaited(NamedTuple):
    """An approval that was asked for: what it is bound to, and until when it can be given."""

    digest: str
    until_ms: int | None


@dataclass(slots=True)
class StepState:
    """What became of a step as a whole; for a plain step `items` is None and `outputs` has one place."""

    items: tuple[Json, ...] | None = None
    decided: bool = False
    skipped: bool = False
    finished: bool = False
    items_started: int = 0
    items_open: int = 0
    items_done: int = 0
    outputs: dict[int | None, Json] = field(default_factory=dict)
    output: Json = None
    asked: Awaited | None = None
    """The approval that it waits, or waited, for; None once it was given."""
    arguments: tuple[Json, ...] = ()
    """What a person was asked to agree to: the arguments of its call, or of each item's."""


@dataclass(slots=True)
class Backward:
    """The frontier of a rollback (E10, E11)."""

    blockers: dict[str, int] = field(default_factory=dict)
    """Dependents of a step that are not undone yet; at none its turn has come."""
    open_items: dict[str, dict[Operation, None]] = field(default_factory=dict)
    """Touched actions of a step that are not settled backward."""
    waiting: dict[str, list[Operation]] = field(default_factory=dict)
    """Items of a step whose turn hasn't come, the latest first intent on top (F9)."""
    next_item: dict[str, Operation] = field(default_factory=dict)
    """The item of a step whose undo must begin before the next one's turn comes."""
    heap: list[tuple[int, Operation]] = field(default_factory=list, compare=False)
    """Actions whose turn has come, the latest first intent on top."""
    left: int = 0
    """How many touched actions are not settled backward, in all."""


@dataclass(slots=True)
class RunState:
    """A run after `seq` records."""

    seq: int = 0
    created: RunCreated | None = None
    definition: str = ""
    """The digest of the definition that the run is bound to now."""
    fence: int = 0
    claimed_at_ms: int | None = None
    direction: Direction = Direction.ACTION
    cause: Cause | None = None
    failure: Failure | None = None
    failed_step: str | None = None

    steps: dict[str, StepState] = field(default_factory=dict)
    operations: dict[Operation, OperationState] = field(default_factory=dict)
    needs_left: dict[str, int] = field(default_factory=dict)
    unfinished: int = 0
    touched: list[Operation] = field(default_factory=list)
    """Actions with an intent, in the order of their first intents."""

    undecided: dict[str, None] = field(default_factory=dict)
    """Steps whose needs are met and whose `when`, `foreach` or `approval` must be evaluated."""
    awaiting: dict[str, Awaited] = field(default_factory=dict)
    """Steps that a person must agree to before they start."""
    startable: dict[str, None] = field(default_factory=dict)
    """Steps with items that were never called."""
    ready: dict[Operation, None] = field(default_factory=dict)
    """Operations that may be called at once."""
    undrawn: dict[Operation, None] = field(default_factory=dict)
    """Operations whose delay is still to be drawn."""
    timers: list[tuple[int, int, Operation]] = field(default_factory=list, compare=False)
    """When waiting operations go on; an entry is stale unless the operation's `due_ms` says the same."""
    doubtful: dict[Operation, None] = field(default_factory=dict)
    """Operations that are to be probed at once."""
    exhausted: dict[Operation, None] = field(default_factory=dict)
    """Operations whose dead letter must be recorded."""
    dead: dict[Operation, None] = field(default_factory=dict)
    """Operations with an open dead letter."""
    in_flight: dict[Operation, None] = field(default_factory=dict)
    """Calls and probes without an answer, of the present driver."""
    alerts: dict[Operation, None] = field(default_factory=dict)
    """Operations that keep failing and of which a person should hear (recorded, then removed)."""
    troubled: dict[Operation, None] = field(default_factory=dict)
    """Operations of which a person has heard that they keep failing, and that still do."""
    has_recovered: bool = False
    """None of them does any more, which is still to be recorded."""

    failing: Cause | None = None
    """Nothing new is started; the rollback is decided as soon as the calls under way have settled (E10)."""
    failing_since_ms: int = 0
    terminating: bool = False
    pivot: Operation | None = None
    """The operation of the pivot once it had an intent."""
    pivot_passed: bool = False
    pivot_announced: bool = False
    deferred: list[Request] = field(default_factory=list)
    answered: set[str] = field(default_factory=set)
    paused_since_ms: int | None = None
    """Since when an operator has let the run begin nothing new."""
    people_since_ms: int | None = None
    """Since when nothing but an answer of a person has been awaited."""
    deadline_ms: int | None = None
    deadline_alerted: bool = False
    backward: Backward | None = None
    not_undone: dict[Operation, NotUndone] = field(default_factory=dict)
    abandoned: bool = False
    waiting: Decision | None = None
    stuck: Decision | None = None
    ended: Ended | None = None

    @property
    def run_id(self) -> str:
        """Return the id of the run."""
        assert self.created is not None, "a run begins with its first record"
        return self.created.run_id

    @property
    def paused(self) -> bool:
        """Tell whether an operator lets the run begin nothing new (E22)."""
        return self.paused_since_ms is not None

    @property
    def is_pivot_open(self) -> bool:
        """Tell whether the pivot's fate is open: a call of it under way, or in doubt (E13)."""
        if self.pivot is None or self.pivot_passed:
            return False
        pivot = self.operations[self.pivot]
        return pivot.doubt or pivot.phase in {Phase.CALLING, Phase.PENDING, Phase.PROBING}

    @property
    def is_halted(self) -> bool:
        """Tell whether a dead letter before or at the pivot keeps everything from starting."""
        return bool(self.dead) and self.direction is Direction.ACTION and not self.pivot_passed


def call_of(saga: Saga, operation: Operation) -> Call:
    """Return how *operation* is called; a compensation must exist."""
    step = saga.by_id[operation.step]
    if operation.direction is Direction.ACTION:
        return step.action
    assert step.compensation is not None, f"{operation} has no tool"
    return step.compensation


def tool_of(saga: Saga, operation: Operation) -> str | None:
    """Return the tool that *operation* calls, or None where its step has none for that direction."""
    step = saga.by_id[operation.step]
    call = step.action if operation.direction is Direction.ACTION else step.compensation
    return None if call is None else call.tool


def step_state(state: RunState, step_id: str) -> StepState:
    """Return the state of a step, made if nobody touched it yet."""
    found = state.steps.get(step_id)
    if found is None:
        found = state.steps[step_id] = StepState()
    return found


def operation_state(state: RunState, operation: Operation) -> OperationState:
    """Return the state of an operation, made if nobody touched it yet."""
    found = state.operations.get(operation)
    if found is None:
        found = state.operations[operation] = OperationState(operation)
    return found


def set_timer(state: RunState, operation: OperationState, due_ms: int) -> None:
    """Let the operation go on at *due_ms*."""
    operation.due_ms = due_ms
    heapq.heappush(state.timers, (due_ms, state.seq, operation.operation))


def make_ready(state: RunState, operation: OperationState, at_ms: int) -> None:
    """Let the operation be called: at once, or when no earlier call of it can land any more (E9)."""
    if operation.late_until_ms > at_ms:
        set_timer(state, operation, operation.late_until_ms)
    else:
        state.ready[operation.operation] = None


def refill_budget(operation: OperationState) -> None:
    """E23: a fresh budget of attempts, probes and (from its next intent on) time, with the same key and arguments."""
    operation.attempts_before_retry = operation.attempts
    operation.probes = 0
    operation.is_final = False
    operation.schedule_deadline_ms = None


def next_timer(state: RunState) -> tuple[int, Operation] | None:
    """Return the earliest timer that is still good, and drop stale ones before it."""
    while state.timers:
        due_ms, _, operation = state.timers[0]
        if _is_good(state, due_ms, operation):
            return due_ms, operation
        heapq.heappop(state.timers)
    return None


def _is_good(state: RunState, due_ms: int, operation: Operation) -> bool:
    found = state.operations[operation]
    return found.due_ms == due_ms and found.phase in WAITING_PHASES


def due_timers(state: RunState, now_ms: int) -> Iterator[Operation]:
    """Yield the operations whose timer has come; costs what it yields, as only the top of the heap is looked at."""
    next_timer(state)
    places = [0]
    while places:
        place = places.pop()
        if place >= len(state.timers) or state.timers[place][0] > now_ms:
            continue
        due_ms, _, operation = state.timers[place]
        if _is_good(state, due_ms, operation):
            yield operation
        places += [2 * place + 2, 2 * place + 1]


def first_timer_after(state: RunState, now_ms: int) -> int | None:
    """Return when the next timer comes that has not come yet."""
    first = next_timer(state)
    if first is None or first[0] > now_ms:
        return None if first is None else first[0]
    later = (due_ms for due_ms, _, operation in state.timers if due_ms > now_ms and _is_good(state, due_ms, operation))
    return min(later, default=None)


def is_plain(step: Step) -> bool:
    """Tell whether nothing has to be evaluated before the step's call."""
    return step.when is None and step.foreach is None and step.approval is None


def list_doubts(state: RunState) -> list[Operation]:
    """Return the operations of which nobody knows whether they happened, and which aren't undone or settled since."""
    settled = {Phase.SUCCEEDED, Phase.CLOSED}
    return [
        operation
        for operation, op in state.operations.items()
        if op.doubt
        and op.phase not in settled
        and ((other := state.operations.get(operation.other)) is None or other.phase not in settled)
    ]
