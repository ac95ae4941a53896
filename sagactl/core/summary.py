"""A run in one row: what lists show and what exit codes are made from, a pure function of its state."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from enum import StrEnum
from typing import Final

from sagactl.core.canonical import Json
from sagactl.core.records import (
    AT_REST,
    Cause,
    Direction,
    Failure,
    NotUndone,
    Operation,
    Request,
    RunStatus,
    ToolChange,
)
from sagactl.core.saga import Saga
from sagactl.core.state import OperationState, RunState, StepState, next_timer
from sagactl.core.transitions import Phase
from sagactl.dataclass import dataclass


@dataclass(frozen=True, slots=True)
class Waiting:
    """What a run waits for: a word (`timer`, `missing_tool`, `cannot_end`, …), a detail, and until when.

    `changes` say in what a missing tool that is there is another than the pinned one.
    """

    what: str
    detail: str | None = None
    until_ms: int | None = None
    changes: tuple[ToolChange, ...] = ()


@dataclass(frozen=True, slots=True)
class Summary:
    """Where a run stands after its last record."""

    status: RunStatus
    direction: Direction
    cause: Cause | None
    waiting_for: Waiting | None
    failure: Failure | None
    failed_step: str | None
    steps_total: int
    steps_done: int
    dead_letters: int
    not_undone: tuple[NotUndone, ...] = ()
    output: Json = None
    ended_at_ms: int | None = None

    @property
    def is_at_rest(self) -> bool:
        """Tell whether nothing will happen without a person."""
        return self.status in AT_REST


def summarize(saga: Saga, state: RunState) -> Summary:
    """Return where the run stands; costs the same at any length of the log."""
    ended = state.ended
    return Summary(
        status=_status(state),
        direction=state.direction,
        cause=_cause(state),
        waiting_for=_waiting_for(state),
        failure=state.failure,
        failed_step=state.failed_step,
        steps_total=len(saga.steps),
        steps_done=len(saga.steps) - state.unfinished,
        dead_letters=len(state.dead),
        not_undone=() if ended is None else ended.not_undone,
        output=None if ended is None else ended.output,
        ended_at_ms=None if ended is None else ended.at_ms,
    )


def _cause(state: RunState) -> Cause | None:
    if state.stuck is not None:
        return state.stuck.cause
    if state.waiting is not None:
        return state.waiting.cause
    return state.cause or state.failing


def _status(state: RunState) -> RunStatus:
    if state.ended is not None:
        return state.ended.status
    if state.stuck is not None:
        return RunStatus.STUCK
    if _waiting_for(state) is not None and state.direction is Direction.ACTION:
        return RunStatus.WAITING
    return RunStatus.RUNNING if state.direction is Direction.ACTION else RunStatus.ROLLING_BACK


def _waiting_for(state: RunState) -> Waiting | None:
    if state.ended is not None or state.stuck is not None:
        return None
    if state.waiting is not None:
        word = state.waiting.cause.value if state.waiting.cause is not None else "person"
        detail = None if state.waiting.failure is None else state.waiting.failure.message
        return Waiting(word, detail, state.waiting.until_ms, state.waiting.changes)
    if state.in_flight:
        return None
    return Waiting("paused", None, None) if state.paused else _waiting_forward(state)


def _waiting_forward(state: RunState) -> Waiting | None:
    if state.ready or state.startable or state.undecided or state.doubtful:
        return None
    timer = next_timer(state)
    if timer is not None:
        return Waiting("timer", str(timer[1]), timer[0])
    if state.people_since_ms is None:
        return None
    limits = [awaited.until_ms for awaited in state.awaiting.values() if awaited.until_ms is not None]
    return Waiting("approval", ", ".join(state.awaiting), min(limits, default=None))


class StepStatus(StrEnum):
    """What is shown of a step or an item."""

    PENDING = "pending"
    RUNNING = "running"
    RETRYING = "retrying"
    SUCCEEDED = "succeeded"
    FAILED = "failed"
    SKIPPED = "skipped"
    COMPENSATING = "compensating"
    COMPENSATED = "compensated"
    IN_DOUBT = "in_doubt"
    STUCK = "stuck"


@dataclass(frozen=True, slots=True)
class StepRow:
    """One step, or one item of a step with `foreach`, as it is shown."""

    id: str
    item: int | None
    status: StepStatus
    attempts: int
    output: Json
    failure: Failure | None
    undo_attempts: int = 0
    undo_failure: Failure | None = None
    settled: Request | None = None
    """How a person has settled its dead letter (E23), and that of its undo."""
    undo_settled: Request | None = None


def step_rows(saga: Saga, state: RunState) -> list[StepRow]:
    """Return a row for each step in file order, and one for each touched item of a step with `foreach`."""
    rows = []
    for step in saga.steps:
        found = state.steps.get(step.id)
        if found is None or found.items is None:
            rows.append(_step_row(state, Operation(step.id, None, Direction.ACTION)))
            continue
        if not found.items:
            rows.append(StepRow(step.id, None, StepStatus.SUCCEEDED, 0, [], None))
        rows += [_step_row(state, Operation(step.id, index, Direction.ACTION)) for index in range(len(found.items))]
    return rows


def _step_row(state: RunState, operation: Operation) -> StepRow:
    action = state.operations.get(operation)
    undo = state.operations.get(operation.other)
    step = state.steps.get(operation.step)
    return StepRow(
        id=operation.step,
        item=operation.item,
        status=_step_status(step, action, undo),
        attempts=0 if action is None else action.attempts,
        output=None if action is None else action.output,
        failure=None if action is None else action.failure,
        undo_attempts=0 if undo is None else undo.attempts,
        undo_failure=None if undo is None else undo.failure,
        settled=None if action is None else action.settled,
        undo_settled=None if undo is None else undo.settled,
    )


_MOST_TELLING_FIRST: Final = (
    StepStatus.STUCK,
    StepStatus.IN_DOUBT,
    StepStatus.FAILED,
    StepStatus.COMPENSATING,
    StepStatus.RUNNING,
    StepStatus.RETRYING,
    StepStatus.SUCCEEDED,
    StepStatus.COMPENSATED,
    StepStatus.SKIPPED,
    StepStatus.PENDING,
)


def tally_steps(rows: Iterable[StepRow]) -> dict[StepStatus, int]:
    """Count steps by how they stand, the most telling first; one with `foreach` by the most telling of its items."""
    ranks: dict[str, int] = {}
    for row in rows:
        ranks[row.id] = min(_MOST_TELLING_FIRST.index(row.status), ranks.get(row.id, len(_MOST_TELLING_FIRST)))
    counts = Counter(ranks.values())
    return {_MOST_TELLING_FIRST[rank]: counts[rank] for rank in sorted(counts)}


_ACTION_STATUS: Final = {
    Phase.READY: StepStatus.PENDING,
    Phase.CALLING: StepStatus.RUNNING,
    Phase.PENDING: StepStatus.RUNNING,
    Phase.RETRYING: StepStatus.RETRYING,
    Phase.IN_DOUBT: StepStatus.IN_DOUBT,
    Phase.PROBING: StepStatus.IN_DOUBT,
    Phase.SUCCEEDED: StepStatus.SUCCEEDED,
    Phase.EXHAUSTED: StepStatus.STUCK,
    Phase.DEAD: StepStatus.STUCK,
    Phase.CLOSED: StepStatus.SKIPPED,
}

_UNDO_STATUS: Final = {
    Phase.SUCCEEDED: StepStatus.COMPENSATED,
    Phase.EXHAUSTED: StepStatus.STUCK,
    Phase.DEAD: StepStatus.STUCK,
}


def _step_status(step: StepState | None, action: OperationState | None, undo: OperationState | None) -> StepStatus:
    if undo is not None and undo.phase is not Phase.FAILED and undo.phase is not Phase.CLOSED:
        return _UNDO_STATUS.get(undo.phase, StepStatus.COMPENSATING)
    if step is not None and step.skipped:
        return StepStatus.SKIPPED
    if action is None:
        return StepStatus.PENDING
    if action.phase is Phase.FAILED:
        return StepStatus.IN_DOUBT if action.doubt else _failed_or_never(action)
    return _ACTION_STATUS[action.phase]


def _failed_or_never(action: OperationState) -> StepStatus:
    return StepStatus.FAILED if action.attempts > 0 or action.failure is not None else StepStatus.PENDING
