"""The fold: what each record does to the state of a run.

`evolve` takes one record at a time and refuses what can't follow; `replay` folds a whole log. Read `state` first: its
essay says what the state may hold and why one record costs only what it changes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, Final, assert_never

from sagactl.core import backward, operators
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
    OutcomeKind,
    Probe,
    ProbeAnswer,
    Record,
    RunCreated,
    RunStatus,
    StepDecided,
    Timer,
    TimerKind,
)
from sagactl.core.saga import GRACE_MS, INTERVAL_MS_MAX, ITEMS_MAX, POLL_MS_MIN, Saga, StepClass
from sagactl.core.state import (
    Awaited,
    OperationState,
    RunState,
    call_of,
    operation_state,
    set_timer,
    step_state,
)
from sagactl.core.transitions import Event, IllegalRecordError, Phase


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


def _require(condition: bool, message: str) -> None:
    if not condition:
        raise IllegalRecordError(message)


def _on_created(saga: Saga, state: RunState, record: RunCreated) -> None:
    _require(state.created is None, "a run is created once")
    state.created = record
    state.definition = record.definition
    state.deadline_ms = record.deadline_ms
    state.unfinished = len(saga.steps)
    for step_id in saga.roots:
        make_available(saga, state, step_id)


def _on_claimed(saga: Saga, state: RunState, record: DriverClaimed) -> None:
    _require(record.fence > state.fence, "a fence only grows")
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
    _require(state.direction is Direction.ACTION, "nothing new is decided while rolling back")
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
    _require(len(record.arguments) == len(record.items or (None,)), "an approval is for all arguments")
    step.arguments = record.arguments
    step.asked = state.awaiting[record.step] = Awaited(record.approval, record.until_ms)


def _on_intent(saga: Saga, state: RunState, record: Intent) -> None:
    operation = record.operation
    if operation not in state.operations and not _has_turn(state, operation):
        raise IllegalRecordError(f"the turn of {operation} has not come")
    op = operation_state(state, operation)
    if record.fence != state.fence:
        raise IllegalRecordError(f"an intent under fence {record.fence}, not {state.fence}")
    if operation in state.undrawn:
        raise IllegalRecordError(f"the delay of {operation} is not drawn yet")
    _check_direction(state, op)
    _require(not state.paused, "nothing is called while the run is paused")
    repeated = op.phase is Phase.PENDING
    if record.attempt != op.attempts + (0 if repeated else 1):
        raise IllegalRecordError(f"attempt {record.attempt} after {op.attempts}")
    if op.attempts == 0:
        _begin(saga, state, op, record)
    if operation.direction is Direction.COMPENSATION:
        backward.begin_undo(saga, state, operation.other, record.at_ms)
    limit_ms = call_of(saga, operation).schedule_to_close_ms
    if limit_ms is not None and op.schedule_deadline_ms is None:
        op.schedule_deadline_ms = record.at_ms + limit_ms
    op.attempts = record.attempt
    op.asking = record.asking
    op.deadline_ms = record.deadline_ms
    op.is_final = False
    op.not_before_ms = op.delay = None
    state.in_flight[operation] = None
    apply_event(saga, state, op, Event.INTENT, record.at_ms)


def _has_turn(state: RunState, operation: Operation) -> bool:
    """Tell whether an operation that was never heard of may be called: the next item, or an undo that is due."""
    if operation.direction is Direction.COMPENSATION:
        return state.backward is not None and state.backward.next_item.get(operation.step) == operation.other
    return operation.step in state.startable and operation.item == state.steps[operation.step].items_started


def _check_direction(state: RunState, op: OperationState) -> None:
    if op.operation.direction is Direction.ACTION:
        undo = state.operations.get(op.operation.other)
        if undo is not None and undo.attempts > 0:
            raise IllegalRecordError(f"{op.operation} can't start: its compensation has begun")  # E9
        is_turned = state.direction is Direction.COMPENSATION or state.failing is not None or state.terminating
        _require(not is_turned and not state.is_halted, "no action starts in a run that turns around or is held up")
        return
    action = state.operations.get(op.operation.other)
    assert action is not None, "an undo comes to be from its action"
    assert action.attempts > 0, "what was never called has no undo (E9)"
    _require(state.direction is Direction.COMPENSATION, "nothing is undone on the way forward")


def _begin(saga: Saga, state: RunState, op: OperationState, record: Intent) -> None:
    op.arguments = record.arguments
    op.first_seq = state.seq
    op.first_intent_ms = record.at_ms
    if op.operation.direction is Direction.COMPENSATION:
        return
    state.touched.append(op.operation)
    if saga.by_id[op.operation.step].klass is StepClass.PIVOT:
        state.pivot = op.operation
    item = op.operation.item
    if item is not None and item >= step_state(state, op.operation.step).items_started:
        start_item(saga, state, op.operation)


_EVENTS: Final = {
    OutcomeKind.SUCCEEDED: Event.SUCCEEDED,
    OutcomeKind.REJECTED: Event.REJECTED,
    OutcomeKind.UNAVAILABLE: Event.UNAVAILABLE,
    OutcomeKind.UNKNOWN: Event.UNKNOWN,
    OutcomeKind.PENDING: Event.PENDING,
}


def _on_outcome(saga: Saga, state: RunState, record: Outcome) -> None:
    op = state.operations.get(record.operation)
    if op is None or record.operation not in state.in_flight:
        raise IllegalRecordError(f"no call of {record.operation} is under way")
    if op.phase is not Phase.CALLING or record.attempt != op.attempts:
        raise IllegalRecordError(f"no attempt {record.attempt} is under way")
    del state.in_flight[record.operation]
    state.waiting = None
    event = _EVENTS[record.kind]
    if event is Event.PENDING and op.schedule_deadline_ms is None:
        event = Event.UNKNOWN  # asking for ever needs a bound (E5)
    _take_in(saga, op, record, event)
    apply_event(saga, state, op, event, record.at_ms)


def _poll_delay(saga: Saga, op: OperationState, after_ms: int | None) -> tuple[TimerKind, int, int]:
    longest = saga.tools[call_of(saga, op.operation).tool].pending_max_ms or INTERVAL_MS_MAX
    exact = min(max(after_ms or 0, POLL_MS_MIN), longest)
    return TimerKind.POLL, exact, exact


_UNBOUNDED: Final = Failure("pending_unbounded", "the tool said Pending, and the step has no schedule_to_close_timeout")


def _take_in(saga: Saga, op: OperationState, record: Outcome, event: Event) -> None:
    if event is Event.SUCCEEDED:
        op.output, op.doubt, op.failure = record.output, False, None
        return
    op.failure = record.failure
    if record.kind is OutcomeKind.PENDING and event is Event.UNKNOWN:
        op.failure, op.doubt, op.is_final = _UNBOUNDED, True, True  # a further try would only say the same
        return
    if event is Event.PENDING:
        op.token = record.token
        op.delay = _poll_delay(saga, op, record.after_ms)
        return
    named = record.failure is not None and record.failure.type in call_of(saga, op.operation).retry.non_retryable_errors
    op.is_final = named or event is Event.REJECTED
    op.delay = None
    if event is Event.UNKNOWN:
        op.doubt = True
        op.raw = record.raw if record.raw is not None else op.raw
    if record.after_ms is not None:
        op.not_before_ms = record.at_ms + min(max(record.after_ms, 0), INTERVAL_MS_MAX)


def _on_probe(saga: Saga, state: RunState, record: Probe) -> None:
    op = state.operations.get(record.operation)
    if op is None:
        raise IllegalRecordError(f"{record.operation} was never called, so nothing is in doubt")
    if record.answer is None:
        _require(not state.paused, "nothing is asked while the run is paused")
        if not op.doubt or record.fence != state.fence:
            raise IllegalRecordError(f"{record.operation} is not to be probed")
        op.probes += 1
        if record.number != op.probes:
            raise IllegalRecordError(f"probe {record.number} after {op.probes - 1}")
        op.deadline_ms = record.deadline_ms
        op.delay = None
        state.in_flight[record.operation] = None
        apply_event(saga, state, op, Event.PROBE_ASKED, record.at_ms)
        return
    _require(op.phase is Phase.PROBING and record.operation in state.in_flight, "no probe is under way")
    if record.number != op.probes:
        raise IllegalRecordError(f"an answer to probe {record.number}, not {op.probes}")
    del state.in_flight[record.operation]
    event = {
        ProbeAnswer.DONE: Event.PROBE_DONE,
        ProbeAnswer.NOT_DONE: Event.PROBE_NOT_DONE,
        ProbeAnswer.CANNOT_TELL: Event.PROBE_CANNOT_TELL,
    }[record.answer]
    if event is Event.PROBE_DONE:
        op.output, op.doubt, op.failure = record.output, False, None
    elif event is Event.PROBE_NOT_DONE:
        op.doubt = False
        op.probes = 0
    apply_event(saga, state, op, event, record.at_ms)


def _on_timer(saga: Saga, state: RunState, record: Timer) -> None:
    op = state.operations.get(record.operation)
    if op is None or record.operation not in state.undrawn:
        raise IllegalRecordError(f"no delay of {record.operation} is to be drawn")
    del state.undrawn[record.operation]
    op.delay = None
    apply_event(saga, state, op, Event.TIMER, record.at_ms)
    set_timer(state, op, record.due_ms)


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
            _require(state.pivot_passed and not state.pivot_announced, "the pivot is not passed")
            state.pivot_announced = True
        case DecisionKind.STUCK:
            _require(bool(state.dead) and not state.in_flight, "not stuck while something goes on")
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
            _require(state.has_recovered, "nothing has kept failing and ended")
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
    elif operation not in state.operations and not _has_turn(state, operation):
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
        _require(record.step in state.awaiting and record.failure is not None, "no approval is awaited")
        assert record.failure is not None
        deny_step(saga, state, record.step, record.failure, record.at_ms)
        return
    if record.operation is None:
        is_turned = state.direction is Direction.COMPENSATION or state.failing is not None or state.terminating
        _require(not is_turned and not state.pivot_passed, "the time of a run turns it around on the way forward only")
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
    operators.apply_request(saga, state, record)


def _on_ended(_saga: Saga, state: RunState, record: Ended) -> None:
    _require(not state.in_flight, "a run doesn't end with a call under way")
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
    Intent: _on_intent,
    Outcome: _on_outcome,
    Probe: _on_probe,
    Timer: _on_timer,
    Decision: _on_decision,
    Operator: _on_operator,
    Ended: _on_ended,
}
