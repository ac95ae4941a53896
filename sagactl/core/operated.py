"""What an operator's record does to a run: the fold of requests that were answered (rules E13, E16, E22, E23)."""

from __future__ import annotations

from typing import Final

from sagactl.core.frontier import apply_event, begin_step, deny_step, fail_run
from sagactl.core.people import prolong, prolong_approvals, renew_approvals
from sagactl.core.records import (
    Cause,
    Direction,
    Disposition,
    Failure,
    Operation,
    Operator,
    Request,
    Resolution,
    Verb,
)
from sagactl.core.saga import Saga
from sagactl.core.stands import EFFECTS, Effect, stand_of
from sagactl.core.state import OperationState, RunState, refill_budget, step_state
from sagactl.core.transitions import Event, IllegalRecordError, Phase


def apply_request(saga: Saga, state: RunState, record: Operator) -> None:
    """Fold what an operator asked for and got."""
    request = record.request
    if request.id in state.answered:
        raise IllegalRecordError(f"the request {request.id} was answered before")
    if record.disposition is Disposition.DEFERRED:
        if request in state.deferred:
            raise IllegalRecordError(f"the request {request.id} is deferred already")
        state.deferred.append(request)
        return
    state.deferred = [other for other in state.deferred if other.id != request.id]
    state.answered.add(request.id)
    if record.disposition is Disposition.ACCEPTED:
        _apply_accepted(saga, state, request, record.at_ms)


def _apply_accepted(saga: Saga, state: RunState, request: Request, at_ms: int) -> None:
    match request.verb:
        case Verb.RETRY | Verb.RESOLVE:
            _apply_to_letter(saga, state, request, at_ms)
        case Verb.APPROVE | Verb.DENY:
            _apply_answer(saga, state, request, at_ms)
        case Verb.UNPAUSE:
            _lift_pause(state, at_ms)
        case Verb.REBIND:
            _apply_rebinding(state, request)
        case _:
            _apply_effect(state, request, at_ms)


def _apply_effect(state: RunState, request: Request, at_ms: int) -> None:
    effect, _ = EFFECTS[request.verb][stand_of(state)]
    if effect is Effect.PAUSE:
        state.paused_since_ms = at_ms if state.paused_since_ms is None else state.paused_since_ms
        return
    if effect is not Effect.NOTHING:  # who turns a run around wants it to go on
        _lift_pause(state, at_ms)
    if effect is Effect.END:
        state.terminating = True
        state.failing_since_ms = at_ms
        _wake(state, at_ms)
    elif effect in {Effect.TURN_BACK, Effect.TURN_BACK_PAST_PIVOT}:
        _turn_back(state, request, at_ms)


def _lift_pause(state: RunState, at_ms: int) -> None:
    if state.paused:
        prolong_approvals(state, at_ms)
        state.paused_since_ms = None


def _apply_rebinding(state: RunState, request: Request) -> None:
    """E16: the whole log is a log of the new definition too, so no more changes than what people are asked (E22)."""
    if state.in_flight or state.ended is not None:
        raise IllegalRecordError("a run is bound to another definition between two calls, before its end")
    if request.digest is None or request.replaces != state.definition:
        raise IllegalRecordError(f"the run is bound to {state.definition}, not to {request.replaces}")
    state.definition = request.digest
    renew_approvals(state)


def _apply_answer(saga: Saga, state: RunState, request: Request, at_ms: int) -> None:
    assert request.operation is not None, "the request names its step"
    step_id = request.operation.step
    _wake(state, at_ms)
    if request.verb is Verb.APPROVE:
        del state.awaiting[step_id]
        step_state(state, step_id).asked = None
        begin_step(saga, state, step_id)
        return
    because = f": {request.reason}" if request.reason else ""
    deny_step(saga, state, step_id, Failure("denied", f"denied by {request.who}{because}"), at_ms)


def _turn_back(state: RunState, request: Request, at_ms: int) -> None:
    if state.ended is not None:
        state.ended = None
        state.backward = None
    _wake(state, at_ms)
    cause = Cause.CANCELLED if request.verb is Verb.CANCEL else Cause.REQUESTED
    failure = Failure(
        cause.value, f"{request.verb} by {request.who}" + (f": {request.reason}" if request.reason else "")
    )
    fail_run(state, cause, failure, None, at_ms)


def _wake(state: RunState, at_ms: int) -> None:
    """Leave `stuck`; the time in which only a person was awaited doesn't count against deadlines (E14)."""
    if state.stuck is None:
        return
    prolong(state, at_ms - state.stuck.at_ms)
    prolong_approvals(state, at_ms)
    state.stuck = None


def _apply_to_letter(saga: Saga, state: RunState, request: Request, at_ms: int) -> None:
    operation = request.operation
    assert operation is not None, "the request names its dead letter"
    op = state.operations[operation]
    _wake(state, at_ms)
    if request.verb is Verb.RETRY:
        refill_budget(op)
        apply_event(saga, state, op, Event.RETRIED, at_ms)
    else:
        _resolve(saga, state, op, request, at_ms)
    if op.phase is Phase.READY and not _is_decided(state, operation):
        del state.ready[operation]  # its `when` or `foreach` was refused: evaluated again
        del state.operations[operation]
        state.undecided[operation.step] = None
    asked = step_state(state, operation.step).asked
    if op.phase is Phase.READY and operation.direction is Direction.ACTION and asked is not None:
        del state.ready[operation]  # it was denied, behind the pivot: asked again, without a limit
        del state.operations[operation]
        state.awaiting[operation.step] = asked._replace(until_ms=None)


def _resolve(saga: Saga, state: RunState, op: OperationState, request: Request, at_ms: int) -> None:
    if request.resolution is not Resolution.SKIP:  # to go on without a step says nothing about its effect (E4)
        op.doubt = False
    if request.resolution is Resolution.DONE and op.operation.direction is Direction.ACTION:
        op.output = request.output
    if request.resolution is Resolution.NOT_DONE:
        refill_budget(op)
        if op.operation.direction is Direction.COMPENSATION:
            state.operations[op.operation.other].doubt = False  # what a person says of the undo is about the action
    op.settled = request
    assert request.resolution is not None, "a resolution says how"
    apply_event(saga, state, op, _RESOLUTION_EVENTS[request.resolution], at_ms)


_RESOLUTION_EVENTS: Final = {
    Resolution.DONE: Event.RESOLVED_DONE,
    Resolution.NOT_DONE: Event.RESOLVED_NOT_DONE,
    Resolution.SKIP: Event.SKIPPED,
    Resolution.ABANDON: Event.ABANDONED,
}


def _is_decided(state: RunState, operation: Operation) -> bool:
    return operation.direction is Direction.COMPENSATION or step_state(state, operation.step).decided
