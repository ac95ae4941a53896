"""Moving an operation from phase to phase, and what that makes possible next.

The only place that changes a phase, but for the beginning of a rollback (see `backward`). Each phase has its container
in the state (see `state`), so that `decide` finds what is ready, due, in doubt or used up without looking for it.
"""

from __future__ import annotations

from typing import Final

from sagactl.core import backward
from sagactl.core.canonical import Json
from sagactl.core.policy import Zone, judge, policy_in_doubt, zone_of
from sagactl.core.records import Cause, Direction, Failure, Operation, TimerKind
from sagactl.core.retry import delay_range_ms
from sagactl.core.saga import ALERT_AFTER_ATTEMPTS, PROBE_RETRY, OnUnknown, Saga, StepClass
from sagactl.core.state import (
    OperationState,
    RunState,
    call_of,
    is_plain,
    make_ready,
    operation_state,
    step_state,
)
from sagactl.core.transitions import Event, Phase, next_phases

_SETTLED: Final = frozenset({Phase.SUCCEEDED, Phase.FAILED, Phase.CLOSED})


def apply_event(saga: Saga, state: RunState, op: OperationState, event: Event, at_ms: int) -> None:
    """Move *op* by *event*, as the table and the policy say; raises IllegalRecordError."""
    allowed = next_phases(op.phase, event)
    if event is Event.TIMER:
        return
    phase = allowed[0] if len(allowed) == 1 else _choose(saga, state, op, event, at_ms)
    assert phase in allowed, f"{op.operation} is {op.phase}: {event} can't make it {phase}"
    _leave(saga, state, op)
    op.phase = phase
    _enter(saga, state, op, at_ms)
    if phase in _SETTLED and op.operation in state.troubled:
        del state.troubled[op.operation]
        state.has_recovered = not state.troubled


def _choose(saga: Saga, state: RunState, op: OperationState, event: Event, at_ms: int) -> Phase:
    if event is Event.PENDING:
        if state.failing is None and state.direction is op.operation.direction:
            return Phase.PENDING
        op.doubt = True  # nobody will ask again, so its effect may come or not
        return Phase.FAILED
    if event is Event.RETRIED:
        # A fresh budget begins with the question whether it has happened by now: never a blind retry (E6).
        asks_first = op.doubt and policy_in_doubt(saga, op, at_ms) is OnUnknown.PROBE
        return Phase.IN_DOUBT if asks_first else Phase.READY
    if event is Event.RESOLVED_NOT_DONE:
        return Phase.READY if zone_of(saga, op.operation) is Zone.BEHIND else Phase.FAILED
    return judge(saga, state, op, event, at_ms)


def _leave(saga: Saga, state: RunState, op: OperationState) -> None:
    operation = op.operation
    op.due_ms = None
    match op.phase:
        case Phase.READY:
            state.ready.pop(operation, None)
        case Phase.RETRYING | Phase.PENDING | Phase.FAILED:
            state.undrawn.pop(operation, None)
        case Phase.IN_DOUBT:
            state.undrawn.pop(operation, None)
            state.doubtful.pop(operation, None)
        case Phase.EXHAUSTED:
            state.exhausted.pop(operation, None)
        case Phase.DEAD:
            state.troubled.pop(operation, None)  # the answer to its letter says that this is over
            state.dead.pop(operation, None)
            _count_open(saga, state, operation, 1)
        case _:
            pass


def _enter(saga: Saga, state: RunState, op: OperationState, at_ms: int) -> None:
    operation = op.operation
    match op.phase:
        case Phase.READY:
            make_ready(state, op, at_ms)
        case Phase.RETRYING:
            _enter_retrying(saga, state, op, at_ms)
        case Phase.PENDING:
            state.undrawn[operation] = None
        case Phase.IN_DOUBT:
            _enter_in_doubt(state, op, at_ms)
        case Phase.EXHAUSTED:
            state.exhausted[operation] = None
        case Phase.DEAD:
            state.dead[operation] = None
            _count_open(saga, state, operation, -1)
        case Phase.SUCCEEDED | Phase.FAILED | Phase.CLOSED:
            _enter_settled(saga, state, op, at_ms)
        case _:
            assert op.phase in {Phase.CALLING, Phase.PROBING}, "whatever isn't under way has its container"


def _enter_retrying(saga: Saga, state: RunState, op: OperationState, at_ms: int) -> None:
    named_ms = None if op.not_before_ms is None else max(0, op.not_before_ms - at_ms)
    if op.attempts_in_budget == 0:
        named_ms = 0  # a person ordered the retry, and a probe has only made sure of it
    floor_ms, ceiling_ms = delay_range_ms(call_of(saga, op.operation).retry, op.attempts_in_budget, named_ms)
    held_ms = max(0, op.late_until_ms - at_ms)  # never two calls at once: the old one may still run (E9)
    op.delay = TimerKind.RETRY, max(floor_ms, held_ms), max(ceiling_ms, held_ms)
    state.undrawn[op.operation] = None
    if op.attempts_in_budget == ALERT_AFTER_ATTEMPTS and zone_of(saga, op.operation) in {Zone.BEHIND, Zone.UNDO}:
        state.alerts[op.operation] = None


def _enter_in_doubt(state: RunState, op: OperationState, at_ms: int) -> None:
    held_ms = max(0, op.late_until_ms - at_ms)
    if op.probes == 0 and held_ms == 0:
        state.doubtful[op.operation] = None
        return
    op.delay = probe_delay(op, held_ms)
    state.undrawn[op.operation] = None


def probe_delay(op: OperationState, held_ms: int) -> tuple[TimerKind, int, int]:
    """Return the delay before the next probe of *op*."""
    floor_ms, ceiling_ms = delay_range_ms(PROBE_RETRY, max(1, op.probes), None) if op.probes else (0, 0)
    return TimerKind.PROBE, max(floor_ms, held_ms), max(ceiling_ms, held_ms)


def _enter_settled(saga: Saga, state: RunState, op: OperationState, at_ms: int) -> None:
    if op.operation.direction is Direction.COMPENSATION:
        backward.settle_undo(saga, state, op, at_ms)
    elif state.direction is Direction.COMPENSATION:
        backward.reconsider(saga, state, op, at_ms)
    elif op.phase is Phase.FAILED:
        fail_run(state, _why_failed(state, op, at_ms), op.failure, op.operation.step, at_ms)
    else:
        _finish_operation(saga, state, op)


def _why_failed(state: RunState, op: OperationState, at_ms: int) -> Cause:
    """E14: a call that the end of the run's time cut off failed for that reason, not for one of its own."""
    if op.cause is Cause.DENIED:
        return Cause.DENIED
    is_over = state.deadline_ms is not None and at_ms >= state.deadline_ms
    return Cause.TIMEOUT if is_over and op.doubt else Cause.STEP_FAILED


def fail_run(state: RunState, cause: Cause, failure: Failure | None, step: str | None, at_ms: int) -> None:
    """Turn the run around: nothing new starts. The first cause and the first error stay (S11)."""
    if state.failing is None:
        state.failing = cause
        state.failing_since_ms = at_ms
    if state.failure is None and failure is not None:
        state.failure = failure
        state.failed_step = step


def _finish_operation(saga: Saga, state: RunState, op: OperationState) -> None:
    operation = op.operation
    step = step_state(state, operation.step)
    output: Json = op.output if op.phase is Phase.SUCCEEDED else None
    step.items_done += 1
    if saga.by_id[operation.step].klass is StepClass.PIVOT:
        state.pivot_passed = True
    if operation.item is None:
        step.output = output
        step.skipped = op.phase is Phase.CLOSED
        finish_step(saga, state, operation.step)
        return
    step.outputs[operation.item] = output
    _count_open(saga, state, operation, -1)
    if step.items is not None and step.items_done == len(step.items):
        step.output = [step.outputs[index] for index in range(len(step.items))]
        step.outputs.clear()
        finish_step(saga, state, operation.step)


def start_item(saga: Saga, state: RunState, operation: Operation) -> None:
    """Note that the next item of a `foreach` was touched; its turn came in list order (F9)."""
    step = step_state(state, operation.step)
    assert step.items is not None, "a step with items has its list"
    assert operation.item == step.items_started, "items start in list order"
    step.items_started += 1
    _count_open(saga, state, operation, 1)


def _count_open(saga: Saga, state: RunState, operation: Operation, change: int) -> None:
    """Keep the number of items under way, and with it whether the step may start another."""
    if operation.item is None or operation.direction is Direction.COMPENSATION:
        return
    step = step_state(state, operation.step)
    step.items_open += change
    can_start = step.items is not None and step.items_started < len(step.items)
    if can_start and step.items_open < saga.by_id[operation.step].concurrency:
        state.startable[operation.step] = None
    else:
        state.startable.pop(operation.step, None)


def finish_step(saga: Saga, state: RunState, step_id: str) -> None:
    """Mark a step as done or skipped and release the steps that need it."""
    step = step_state(state, step_id)
    step.finished = True
    step.decided = True
    state.unfinished -= 1
    for dependent in saga.dependents[step_id]:
        left = state.needs_left.get(dependent)
        left = len(saga.by_id[dependent].needs) - 1 if left is None else left - 1
        state.needs_left[dependent] = left
        if left == 0:
            del state.needs_left[dependent]
            make_available(saga, state, dependent)


def begin_step(saga: Saga, state: RunState, step_id: str) -> None:
    """Let a decided step start: its call, its items, or, where there are none of these, what follows it."""
    step = step_state(state, step_id)
    if step.items is None:
        operation = Operation(step_id, None, Direction.ACTION)
        operation_state(state, operation)
        state.ready[operation] = None
    elif step.items:
        state.startable[step_id] = None
    else:
        step.output = []
        finish_step(saga, state, step_id)


def deny_step(saga: Saga, state: RunState, step_id: str, failure: Failure, at_ms: int) -> None:
    """Let a step fail that a person didn't agree to: no call was made, so there is nothing to undo (E21)."""
    del state.awaiting[step_id]
    op = operation_state(state, Operation(step_id, None, Direction.ACTION))
    op.failure = failure
    apply_event(saga, state, op, Event.DENIED, at_ms)


def make_available(saga: Saga, state: RunState, step_id: str) -> None:
    """Put a step whose needs are met where `decide` finds it."""
    if not is_plain(saga.by_id[step_id]):
        state.undecided[step_id] = None
        return
    step_state(state, step_id).decided = True
    operation = Operation(step_id, None, Direction.ACTION)
    operation_state(state, operation)
    state.ready[operation] = None
