"""The fold: what each record does to the state of a run.

`evolve` takes one record at a time and refuses what can't follow; `replay` folds a whole log. Read `state` first: its
essay says what the state may hold and why one record costs only what it changes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, Final, assert_never

from sagactl.core import backward, called, operated
from sagactl.core.frontier import apply_event, begin_step, deny_step, fail_run, finish_step, make_available, start_item
from sagactl.core.people import note_people
from sagactl.core.records import (
    Cause,
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
    Probe,
    Record,
    RunCreated,
    RunStatus,
    StepDecided,
    Timer,
)
from sagactl.core.saga import GRACE_MS, ITEMS_MAX, Saga, StepClass
from sagactl.core.state import (
    Awaited,
    RunState,
    operation_state,
    step_state,
)
from sagactl.core.transitions import Event, IllegalRecordError, Phase, require


def evolve(saga: Saga, state: RunState, record: Record) -> RunState:
    """Return the state after *record*, consuming *state*; raises IllegalRecordError, after which it is spoilt."""
    if state.created is None and not isinstance(record, RunCreated):
        raise IllegalRecordError("a log begins with run created")
    if state.ended is not None and not isinstance(record, Operator | DriverClaimed):
        raise IllegalRecordError("the run has ended: only an operator's record may follow")
    if state.stuck is not None and not isinstance(record, Operator | DriverClaimed):
        raise IllegalRecordError("the run is stuck: only an operator's record may follow")
    state.seq += 1
    _FOLDS[type(record)](saga, state, record)
    if state.awaiting or state.paused or state.people_since_ms is not None:
        note_people(state, record.at_ms)
    return state


def replay(saga: Saga, records: Iterable[Record]) -> RunState:
    """Return the state after all *records*."""
    state = RunState()
    for record in records:
        evolve(saga, state, record)
    return state


def _on_created(saga: Saga, state: RunState, record: RunCreated) -> None:
    require(state.created is None, "a run is created once")
    state.created = record
    state.definition = record.definition
    state.deadline_ms = record.deadline_ms
    state.unfinished = len(saga.steps)
    for step_id in saga.roots:
        make_available(saga, state, step_id)


def _on_claimed(saga: Saga, state: RunState, record: DriverClaimed) -> None:
    require(record.fence > state.fence, "a fence only grows")
    state.fence, state.claimed_at_ms = record.fence, record.at_ms
    state.waiting = None
    for operation in list(state.in_flight):
        op = state.operations[operation]
        del state.in_flight[operation]
        if op.phase is Phase.CALLING:
            if not record.calls_ended:
                op.late_until_ms = op.deadline_ms + GRACE_MS  # a lost probe has no effect, so nobody waits for it
            op.doubt = True
            op.failure = Failure("driver_lost", "the driver ended before the answer was recorded")
        apply_event(saga, state, op, Event.LOST, record.at_ms)


def _on_step_decided(saga: Saga, state: RunState, record: StepDecided) -> None:
    step = step_state(state, record.step)
    if record.step not in state.undecided or step.decided:
        raise IllegalRecordError(f"{record.step} is not to be decided")
    require(state.direction is Direction.ACTION, "nothing new is decided while rolling back")
    if record.items is not None and len(record.items) > ITEMS_MAX:
        raise IllegalRecordError(f"more than {ITEMS_MAX} items")
    del state.undecided[record.step]
    step.decided = True
    if not record.runs:
        step.skipped = True
        if saga.by_id[record.step].klass is StepClass.PIVOT:
            state.pivot_passed = True
        finish_step(saga, state, record.step)
        return
    step.items = record.items
    if record.approval is None:
        begin_step(saga, state, record.step)
        return
    if saga.by_id[record.step].approval is None:
        raise IllegalRecordError(f"{record.step} takes no approval")
    require(len(record.arguments) == len(record.items or (None,)), "an approval is for all arguments")
    step.arguments = record.arguments
    step.asked = state.awaiting[record.step] = Awaited(record.approval, record.until_ms)


def _on_decision(saga: Saga, state: RunState, record: Decision) -> None:
    match record.kind:
        case DecisionKind.ROLLBACK:
            backward.begin_rollback(saga, state, record)
        case DecisionKind.REFUSED:
            _on_refused(saga, state, record)
        case DecisionKind.EXPIRED:
            _on_expired(saga, state, record)
        case DecisionKind.DEAD_LETTER:
            _on_dead_letter(saga, state, record)
        case DecisionKind.PIVOT_PASSED:
            require(state.pivot_passed and not state.pivot_announced, "the pivot is not passed")
            state.pivot_announced = True
        case DecisionKind.STUCK:
            require(bool(state.dead) and not state.in_flight, "not stuck while something goes on")
            state.stuck = record
            state.waiting = None
        case DecisionKind.WAITING:
            state.waiting = record
        case DecisionKind.ALERT:
            if record.operation is None:
                state.deadline_alerted = True
            else:
                state.alerts.pop(record.operation, None)
                state.troubled[record.operation] = None
                state.has_recovered = False
        case DecisionKind.RECOVERED:
            require(state.has_recovered, "nothing has kept failing and ended")
            state.has_recovered = False
        case _:
            assert_never(record.kind)


def _on_dead_letter(saga: Saga, state: RunState, record: Decision) -> None:
    assert record.operation is not None, "a dead letter names its operation"
    if state.failure is None:
        state.failure, state.failed_step = record.failure, record.operation.step
    apply_event(saga, state, operation_state(state, record.operation), Event.DEAD_LETTER, record.at_ms)


def _on_refused(saga: Saga, state: RunState, record: Decision) -> None:
    """E21: refused before an intent, so nothing was touched."""
    assert record.step is not None or record.operation is not None, "a refusal names its step"
    operation = record.operation or Operation(str(record.step), None, Direction.ACTION)
    if record.operation is None:
        if operation.step not in state.undecided:
            raise IllegalRecordError(f"{operation} is not to be decided")
    elif operation not in state.operations and not called.has_turn(state, operation):
        raise IllegalRecordError(f"the turn of {operation} has not come")
    op = operation_state(state, operation)
    op.failure = record.failure
    state.undecided.pop(operation.step, None)
    if operation.direction is Direction.COMPENSATION:
        backward.begin_undo(saga, state, operation.other, record.at_ms)
    elif operation.item is not None and operation.item >= step_state(state, operation.step).items_started:
        start_item(saga, state, operation)
    apply_event(saga, state, op, Event.REFUSED, record.at_ms)


def _on_expired(saga: Saga, state: RunState, record: Decision) -> None:
    if record.step is not None:
        require(record.step in state.awaiting and record.failure is not None, "no approval is awaited")
        assert record.failure is not None
        deny_step(saga, state, record.step, record.failure, record.at_ms)
        return
    if record.operation is None:
        is_turned = state.direction is Direction.COMPENSATION or state.failing is not None or state.terminating
        require(not is_turned and not state.pivot_passed, "the time of a run turns it around on the way forward only")
        fail_run(state, Cause.TIMEOUT, record.failure, None, record.at_ms)
        return
    op = operation_state(state, record.operation)
    if op.phase is Phase.READY and op.attempts == 0:
        raise IllegalRecordError(
            f"{Event.EXPIRED} can't happen to an operation that is {op.phase} and was never called"
        )
    if op.phase is Phase.PENDING:
        op.doubt = True  # asked, never answered: the effect may be there
    op.failure = record.failure
    apply_event(saga, state, op, Event.EXPIRED, record.at_ms)


def _on_operator(saga: Saga, state: RunState, record: Operator) -> None:
    operated.apply_request(saga, state, record)


def _on_ended(_saga: Saga, state: RunState, record: Ended) -> None:
    require(not state.in_flight, "a run doesn't end with a call under way")
    if not _may_end(state, record.status):
        raise IllegalRecordError(f"the run can't end {record.status} now")
    state.ended = record
    state.cause = record.cause
    state.waiting = None
    state.terminating = False
    state.failing = None
    state.awaiting.clear()
    state.dead.clear()  # a run at its end has no open dead letters: what they were about is listed as not undone


def _may_end(state: RunState, status: RunStatus) -> bool:
    match status:
        case RunStatus.SUCCEEDED:
            return state.unfinished == 0 and state.direction is Direction.ACTION
        case RunStatus.ROLLED_BACK:
            return state.backward is not None and state.backward.left == 0 and not state.abandoned
        case RunStatus.TERMINATED:
            return state.terminating or (state.backward is not None and state.backward.left == 0)
        case _:
            return False


_FOLDS: Final[dict[type, Callable[[Saga, RunState, Any], None]]] = {
    RunCreated: _on_created,
    DriverClaimed: _on_claimed,
    StepDecided: _on_step_decided,
    Intent: called.on_intent,
    Outcome: called.on_outcome,
    Probe: called.on_probe,
    Timer: called.on_timer,
    Decision: _on_decision,
    Operator: _on_operator,
    Ended: _on_ended,
}
