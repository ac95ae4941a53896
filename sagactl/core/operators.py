"""What operators may ask of a run, and what becomes of it (rules E13, E22, E23).

`answer_request` turns a request into a record, refusals included; `apply_request` folds that record. The table below
says by the run's stand which verb does what; the words of a refusal name the command that helps.

Between the pivot's intent and its outcome nobody knows on which side of the point of no return the run stands, so a
request to turn back is deferred: recorded, and answered when the pivot's fate is known.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from typing import Final

from sagactl.core.frontier import apply_event, begin_step, deny_step, fail_run
from sagactl.core.people import prolong
from sagactl.core.policy import Zone, has_key_expired, policy_in_doubt, zone_of
from sagactl.core.records import (
    Cause,
    Direction,
    Disposition,
    Failure,
    Operation,
    Operator,
    Request,
    Resolution,
    RunStatus,
    Verb,
)
from sagactl.core.saga import OnUnknown, Saga
from sagactl.core.state import OperationState, RunState, call_of, refill_budget, step_state
from sagactl.core.transitions import Event, IllegalRecordError, Phase

A_RESUME_DOES: Final = "a resume carries that out"
"""What a refusal ends with that names what to do instead."""


class Stand(StrEnum):
    """Where a run stands as far as an operator's verb is concerned."""

    FORWARD = "forward"
    ENDING = "ending"
    PIVOT_OPEN = "pivot_open"
    BEHIND = "behind"
    BACKWARD = "backward"
    STUCK_BEFORE = "stuck_before"
    STUCK_PIVOT = "stuck_pivot"
    STUCK_BEHIND = "stuck_behind"
    STUCK_BACKWARD = "stuck_backward"
    SUCCEEDED = "succeeded"
    SUCCEEDED_PAST_PIVOT = "succeeded_past_pivot"
    ROLLED_BACK = "rolled_back"
    TERMINATED = "terminated"
    TERMINATED_PAST_PIVOT = "terminated_past_pivot"


class Effect(StrEnum):
    """What a verb does at a stand."""

    TURN_BACK = "turn_back"
    TURN_BACK_PAST_PIVOT = "turn_back_past_pivot"
    END = "end"
    DEFER = "defer"
    PAUSE = "pause"
    NOTHING = "nothing"
    REFUSE = "refuse"


_S = Stand
_E = Effect
EFFECTS: Final[Mapping[Verb, Mapping[Stand, tuple[Effect, str]]]] = {
    Verb.CANCEL: {
        _S.FORWARD: (_E.TURN_BACK, ""),
        _S.ENDING: (_E.REFUSE, "the run is being terminated"),
        _S.PIVOT_OPEN: (_E.DEFER, "the pivot's outcome is open"),
        _S.BEHIND: (_E.REFUSE, "the pivot has passed: the run only goes forward"),
        _S.BACKWARD: (_E.NOTHING, "the run is rolling back already"),
        _S.STUCK_BEFORE: (_E.TURN_BACK, ""),
        _S.STUCK_PIVOT: (_E.REFUSE, "the pivot is in doubt: say first whether it happened"),
        _S.STUCK_BEHIND: (_E.REFUSE, "the pivot has passed: the run only goes forward"),
        _S.STUCK_BACKWARD: (_E.REFUSE, "the rollback waits for a person: see the dead letters"),
        _S.SUCCEEDED: (_E.REFUSE, "the run has succeeded"),
        _S.SUCCEEDED_PAST_PIVOT: (_E.REFUSE, "the run has succeeded"),
        _S.ROLLED_BACK: (_E.REFUSE, "the run is rolled back"),
        _S.TERMINATED: (_E.REFUSE, "the run is terminated"),
        _S.TERMINATED_PAST_PIVOT: (_E.REFUSE, "the run is terminated"),
    },
    Verb.ROLLBACK: {
        _S.FORWARD: (_E.TURN_BACK, ""),
        _S.ENDING: (_E.REFUSE, "the run is being terminated: roll it back when it has ended"),
        _S.PIVOT_OPEN: (_E.DEFER, "the pivot's outcome is open"),
        _S.BEHIND: (_E.TURN_BACK_PAST_PIVOT, "the pivot has passed"),
        _S.BACKWARD: (_E.NOTHING, "the run is rolling back already"),
        _S.STUCK_BEFORE: (_E.TURN_BACK, ""),
        _S.STUCK_PIVOT: (_E.REFUSE, "the pivot is in doubt: say first whether it happened"),
        _S.STUCK_BEHIND: (_E.TURN_BACK_PAST_PIVOT, "the pivot has passed"),
        _S.STUCK_BACKWARD: (_E.REFUSE, "the rollback waits for a person: see the dead letters"),
        _S.SUCCEEDED: (_E.TURN_BACK, ""),
        _S.SUCCEEDED_PAST_PIVOT: (_E.TURN_BACK_PAST_PIVOT, "the pivot has passed"),
        _S.ROLLED_BACK: (_E.REFUSE, "the run is rolled back already"),
        _S.TERMINATED: (_E.TURN_BACK, ""),
        _S.TERMINATED_PAST_PIVOT: (_E.TURN_BACK_PAST_PIVOT, "the pivot has passed"),
    },
    Verb.TERMINATE: {
        _S.FORWARD: (_E.END, ""),
        _S.ENDING: (_E.NOTHING, "the run is being terminated already"),
        _S.PIVOT_OPEN: (_E.END, ""),
        _S.BEHIND: (_E.END, ""),
        _S.BACKWARD: (_E.END, ""),
        _S.STUCK_BEFORE: (_E.END, ""),
        _S.STUCK_PIVOT: (_E.END, ""),
        _S.STUCK_BEHIND: (_E.END, ""),
        _S.STUCK_BACKWARD: (_E.END, ""),
        _S.SUCCEEDED: (_E.REFUSE, "the run has succeeded"),
        _S.SUCCEEDED_PAST_PIVOT: (_E.REFUSE, "the run has succeeded"),
        _S.ROLLED_BACK: (_E.REFUSE, "the run is rolled back"),
        _S.TERMINATED: (_E.REFUSE, "the run is terminated already"),
        _S.TERMINATED_PAST_PIVOT: (_E.REFUSE, "the run is terminated already"),
    },
    Verb.PAUSE: {
        _S.FORWARD: (_E.PAUSE, ""),
        _S.ENDING: (_E.REFUSE, "the run is being terminated"),
        _S.PIVOT_OPEN: (_E.PAUSE, ""),
        _S.BEHIND: (_E.PAUSE, ""),
        _S.BACKWARD: (_E.PAUSE, ""),
        _S.STUCK_BEFORE: (_E.REFUSE, "the run is stuck: nothing goes on anyhow"),
        _S.STUCK_PIVOT: (_E.REFUSE, "the run is stuck: nothing goes on anyhow"),
        _S.STUCK_BEHIND: (_E.REFUSE, "the run is stuck: nothing goes on anyhow"),
        _S.STUCK_BACKWARD: (_E.REFUSE, "the run is stuck: nothing goes on anyhow"),
        _S.SUCCEEDED: (_E.REFUSE, "the run has succeeded"),
        _S.SUCCEEDED_PAST_PIVOT: (_E.REFUSE, "the run has succeeded"),
        _S.ROLLED_BACK: (_E.REFUSE, "the run is rolled back"),
        _S.TERMINATED: (_E.REFUSE, "the run is terminated"),
        _S.TERMINATED_PAST_PIVOT: (_E.REFUSE, "the run is terminated"),
    },
}
"""Each verb at each stand: complete, so that nothing is decided by omission."""


def stand_of(state: RunState) -> Stand:
    """Return where the run stands."""
    if state.ended is not None:
        return _stand_ended(state)
    if state.terminating:
        return Stand.ENDING
    if state.stuck is not None:
        return _stand_stuck(state)
    if state.direction is Direction.COMPENSATION or state.failing is not None:
        return Stand.BACKWARD
    if state.pivot_passed:
        return Stand.BEHIND
    return Stand.PIVOT_OPEN if state.is_pivot_open else Stand.FORWARD


def _stand_ended(state: RunState) -> Stand:
    assert state.ended is not None
    past = state.pivot_passed
    match state.ended.status:
        case RunStatus.SUCCEEDED:
            return Stand.SUCCEEDED_PAST_PIVOT if past else Stand.SUCCEEDED
        case RunStatus.ROLLED_BACK:
            return Stand.ROLLED_BACK
        case _:
            past = past or state.is_pivot_open
            return Stand.TERMINATED_PAST_PIVOT if past and state.backward is None else Stand.TERMINATED


def _stand_stuck(state: RunState) -> Stand:
    if state.direction is Direction.COMPENSATION:
        return Stand.STUCK_BACKWARD
    if state.pivot_passed:
        return Stand.STUCK_BEHIND
    return Stand.STUCK_PIVOT if state.is_pivot_open else Stand.STUCK_BEFORE


def answer_request(saga: Saga, state: RunState, request: Request, at_ms: int) -> Operator:
    """Return the record that *request* becomes here and now."""
    if request.verb in {Verb.RETRY, Verb.RESOLVE}:
        objection = _object_to_letter(saga, state, request, at_ms)
        disposition = Disposition.REFUSED if objection else Disposition.ACCEPTED
        return Operator(at_ms, request, disposition, objection)
    if request.verb in {Verb.APPROVE, Verb.DENY, Verb.UNPAUSE}:
        is_lifting = request.verb is Verb.UNPAUSE
        objection = _object_to_unpausing(state) if is_lifting else _object_to_answer(saga, state, request, at_ms)
        return Operator(at_ms, request, Disposition.REFUSED if objection else Disposition.ACCEPTED, objection)
    if request.verb is Verb.REBIND:
        return Operator(at_ms, request, Disposition.REFUSED, "only resume --definition binds a run to another one")
    effect, detail = EFFECTS[request.verb][stand_of(state)]
    if effect is Effect.TURN_BACK_PAST_PIVOT:
        effect, detail = _past_pivot(request, detail)
    disposition = {
        Effect.REFUSE: Disposition.REFUSED,
        Effect.DEFER: Disposition.DEFERRED,
    }.get(effect, Disposition.ACCEPTED)
    return Operator(at_ms, request, disposition, detail or None)


def _object_to_unpausing(state: RunState) -> str | None:
    return None if state.paused else "the run is not paused"


def _object_to_answer(saga: Saga, state: RunState, request: Request, at_ms: int) -> str | None:
    """Return why an approval can't be given or denied as asked, or None."""
    name = None if request.operation is None else request.operation.step
    if state.ended is not None:
        return f"the run has ended {state.ended.status}"
    if state.terminating or state.direction is Direction.COMPENSATION or state.failing is not None:
        return "the run goes back: nothing is approved any more"
    if name is None or name not in state.awaiting:
        return "no step waits for an approval" if name is None else f"{name} waits for no approval"
    return _object_to_author(saga, state, request, name, at_ms)


def _object_to_author(saga: Saga, state: RunState, request: Request, step_id: str, at_ms: int) -> str | None:
    """Return why this person can't answer for the step now, or with this digest."""
    approval, awaited = saga.by_id[step_id].approval, state.awaiting[step_id]
    assert approval is not None, "what is awaited was asked for"
    if approval.by and request.who not in approval.by:
        return f"only {', '.join(approval.by)} may answer for {step_id}, not {request.who}"
    if awaited.until_ms is not None and at_ms >= awaited.until_ms:
        return f"the time to answer for {step_id} is over: it counts as denied, and {A_RESUME_DOES}"
    if request.verb is Verb.APPROVE and request.digest != awaited.digest:
        return f"what {step_id} would do is not what was approved: look at it again"
    return None


def _past_pivot(request: Request, detail: str) -> tuple[Effect, str]:
    if not request.past_pivot:
        return Effect.REFUSE, f"{detail}: only --past-pivot with a --reason goes back"
    if not request.reason:
        return Effect.REFUSE, "--past-pivot takes a --reason"
    return Effect.TURN_BACK, ""


def _object_to_letter(saga: Saga, state: RunState, request: Request, at_ms: int) -> str | None:
    """Return why a dead letter can't be retried or resolved as asked, or None."""
    operation = request.operation
    if state.ended is not None:
        return f"the run has ended {state.ended.status}: it has no open dead letters"
    if state.terminating:
        return "the run is being terminated"
    if operation is None or operation not in state.dead:
        return f"{operation or 'the run'} has no open dead letter"
    op = state.operations[operation]
    if request.verb is Verb.RETRY:
        return _object_to_old_key(saga, op, request, at_ms) or _object_to_retry(saga, op, at_ms)
    if not request.reason:
        return "a resolution takes a --reason"
    zone = zone_of(saga, operation)
    action = op if op.operation.direction is Direction.ACTION else state.operations[op.operation.other]
    says_gone = request.resolution is Resolution.NOT_DONE or (
        action is not op and request.resolution is Resolution.DONE
    )
    objection = _object_to_resolution(zone, op, request.resolution)
    return objection or (_object_to_haste(action, at_ms) if says_gone else None)


def _object_to_old_key(saga: Saga, op: OperationState, request: Request, at_ms: int) -> str | None:
    """E6: past its `key_retention` another try may have a second effect, so nobody orders it unawares."""
    if request.reason or not may_act_twice(saga, op, at_ms):
        return None
    tool = call_of(saga, op.operation).tool
    return (
        f"{op.operation} is in doubt, and {tool} may have forgotten its key: another try can be a second effect; "
        "see whether it happened and resolve it, or order it with a --reason"
    )


def may_act_twice(saga: Saga, op: OperationState, at_ms: int) -> bool:
    """Tell whether another try now could have a second effect, as the tool may have forgotten the key (E6)."""
    return has_key_expired(saga, op, at_ms) and not _is_probed(saga, op, at_ms)


def _is_probed(saga: Saga, op: OperationState, at_ms: int) -> bool:
    return policy_in_doubt(saga, op, at_ms) is OnUnknown.PROBE


def _object_to_retry(saga: Saga, op: OperationState, at_ms: int) -> str | None:
    """E9: who orders another try of what neither key nor probe protects says "not done", and waits like that."""
    if op.operation.direction is Direction.COMPENSATION:
        asks_person = op.cause is Cause.IN_DOUBT
        return "nobody can tell whether there is anything to undo: resolve it" if asks_person else None
    has_key = saga.tools[call_of(saga, op.operation).tool].idempotent and not has_key_expired(saga, op, at_ms)
    is_protected = has_key or _is_probed(saga, op, at_ms)
    return None if is_protected or not op.doubt else _object_to_haste(op, at_ms)


def _object_to_haste(action: OperationState, at_ms: int) -> str | None:
    """E9: nobody can say "not done", or "undone by hand", while a call of the action may still land."""
    if at_ms >= action.late_until_ms:
        return None
    seconds = -(-(action.late_until_ms - at_ms) // 1000)
    return f"a call of {action.operation} by a driver that was lost may still land: look again in {seconds} s"


def _object_to_resolution(zone: Zone, op: OperationState, resolution: Resolution | None) -> str | None:
    never_called = op.attempts == 0 and zone is not Zone.UNDO
    objections = {
        Resolution.SKIP: (zone is not Zone.BEHIND, "only a step behind the pivot can be skipped"),
        Resolution.ABANDON: (zone is not Zone.UNDO, "only an undo can be abandoned"),
        Resolution.DONE: (never_called, "it was never called, so it can't have happened"),
        Resolution.NOT_DONE: (
            zone is Zone.UNDO and op.cause is not Cause.IN_DOUBT,
            "the action is known to have happened: --done or --abandon",
        ),
    }
    if resolution is None:
        return "say how it is resolved"
    stands, objection = objections[resolution]
    return objection if stands else None


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
            state.paused = False
        case Verb.REBIND:
            _apply_rebinding(state, request)
        case _:
            _apply_effect(state, request, at_ms)


def _apply_effect(state: RunState, request: Request, at_ms: int) -> None:
    effect, _ = EFFECTS[request.verb][stand_of(state)]
    if effect is Effect.PAUSE:
        state.paused = True
        return
    state.paused = state.paused and effect is Effect.NOTHING  # who turns a run around wants it to go on
    if effect is Effect.END:
        state.terminating = True
        state.failing_since_ms = at_ms
        _wake(state, at_ms)
    elif effect in {Effect.TURN_BACK, Effect.TURN_BACK_PAST_PIVOT}:
        _turn_back(state, request, at_ms)


def _apply_rebinding(state: RunState, request: Request) -> None:
    """E16: from its first record on the log is a log of the new definition too, so nothing else changes here."""
    if state.in_flight or state.ended is not None:
        raise IllegalRecordError("a run is bound to another definition between two calls, before its end")
    if request.digest is None or request.replaces != state.definition:
        raise IllegalRecordError(f"the run is bound to {state.definition}, not to {request.replaces}")
    state.definition = request.digest


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
