"""What calls do to the state of a run: the fold of intents, outcomes, probes and the delays between attempts.

Which of them may follow is decided here; what phase an operation comes to is the table's in `transitions`.
"""

from __future__ import annotations

from typing import Final

from sagactl.core import backward
from sagactl.core.frontier import apply_event, start_item
from sagactl.core.records import (
    Direction,
    Failure,
    Intent,
    Operation,
    Outcome,
    OutcomeKind,
    Probe,
    ProbeAnswer,
    Timer,
    TimerKind,
)
from sagactl.core.saga import INTERVAL_MS_MAX, POLL_MS_MIN, Saga, StepClass
from sagactl.core.state import (
    OperationState,
    RunState,
    call_of,
    operation_state,
    set_timer,
    step_state,
)
from sagactl.core.transitions import Event, IllegalRecordError, Phase, require


def on_intent(saga: Saga, state: RunState, record: Intent) -> None:
    """Fold a call that is about to be made: its turn must have come (E1, E9)."""
    operation = record.operation
    if operation not in state.operations and not has_turn(state, operation):
        raise IllegalRecordError(f"the turn of {operation} has not come")
    op = operation_state(state, operation)
    if record.fence != state.fence:
        raise IllegalRecordError(f"an intent under fence {record.fence}, not {state.fence}")
    if operation in state.undrawn:
        raise IllegalRecordError(f"the delay of {operation} is not drawn yet")
    _check_direction(state, op)
    require(not state.paused, "nothing is called while the run is paused")
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


def has_turn(state: RunState, operation: Operation) -> bool:
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
        require(not is_turned and not state.is_halted, "no action starts in a run that turns around or is held up")
        return
    action = state.operations.get(op.operation.other)
    assert action is not None, "an undo comes to be from its action"
    assert action.attempts > 0, "what was never called has no undo (E9)"
    require(state.direction is Direction.COMPENSATION, "nothing is undone on the way forward")


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


def on_outcome(saga: Saga, state: RunState, record: Outcome) -> None:
    """Fold what a call came to (E3, E4)."""
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


def on_probe(saga: Saga, state: RunState, record: Probe) -> None:
    """Fold a question whether a call in doubt is done, or the answer to it (E6)."""
    op = state.operations.get(record.operation)
    if op is None:
        raise IllegalRecordError(f"{record.operation} was never called, so nothing is in doubt")
    if record.answer is None:
        require(not state.paused, "nothing is asked while the run is paused")
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
    require(op.phase is Phase.PROBING and record.operation in state.in_flight, "no probe is under way")
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


def on_timer(saga: Saga, state: RunState, record: Timer) -> None:
    """Fold a delay that was drawn (E5)."""
    op = state.operations.get(record.operation)
    if op is None or record.operation not in state.undrawn:
        raise IllegalRecordError(f"no delay of {record.operation} is to be drawn")
    del state.undrawn[record.operation]
    op.delay = None
    apply_event(saga, state, op, Event.TIMER, record.at_ms)
    set_timer(state, op, record.due_ms)
