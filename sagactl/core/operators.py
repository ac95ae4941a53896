"""What operators are answered: a request becomes a record, refusals included (rules E13, E22, E23).

What a verb does hangs on where the run stands (see `stands`), what is said of an approval or a dead letter on these
themselves; the words of a refusal name the command that helps. What the record does to the run is another matter: see
`operated`.
"""

from __future__ import annotations

from typing import Final

from sagactl.core.people import approval_until_ms
from sagactl.core.policy import Zone, has_key_expired, policy_in_doubt, zone_of
from sagactl.core.records import (
    Cause,
    Direction,
    Disposition,
    Operator,
    Request,
    Resolution,
    Verb,
)
from sagactl.core.saga import OnUnknown, Saga
from sagactl.core.stands import EFFECTS, Effect, stand_of
from sagactl.core.state import OperationState, RunState, call_of

A_RESUME_DOES: Final = "a resume carries that out"
AN_UNPAUSE_DOES: Final = "an unpause carries that out"
"""What a refusal ends with that names what to do instead."""


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
    until_ms = approval_until_ms(state, awaited, at_ms)
    if until_ms is not None and at_ms >= until_ms:
        return f"the time to answer for {step_id} is over: it counts as denied, and {_say_what_denies(state)}"
    if request.verb is Verb.APPROVE and request.digest != awaited.digest:
        return f"what {step_id} would do is not what was approved: look at it again"
    return None


def _say_what_denies(state: RunState) -> str:
    if state.stuck is not None:
        return "that is carried out once the dead letters are answered"
    return AN_UNPAUSE_DOES if state.paused else A_RESUME_DOES


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
        return _object_to_retry(saga, op, at_ms) or _object_to_unawares(saga, op, request, at_ms)
    if not request.reason:
        return "a resolution takes a --reason"
    zone = zone_of(saga, operation)
    action = op if op.operation.direction is Direction.ACTION else state.operations[op.operation.other]
    says_gone = request.resolution is Resolution.NOT_DONE or (
        action is not op and request.resolution is Resolution.DONE
    )
    objection = _object_to_resolution(zone, op, request.resolution)
    return objection or (_object_to_haste(action, at_ms) if says_gone else None)


def _object_to_unawares(saga: Saga, op: OperationState, request: Request, at_ms: int) -> str | None:
    """E6: where another try may have a second effect, nobody orders it unawares."""
    if request.reason or not may_act_twice(saga, op, at_ms):
        return None
    tool = call_of(saga, op.operation).tool
    why = "may have forgotten its key" if has_key_expired(saga, op, at_ms) else "is not idempotent"
    return (
        f"{op.operation} is in doubt, and {tool} {why}: another try can be a second effect; "
        "see whether it happened and resolve it, or order it with a --reason"
    )


def may_act_twice(saga: Saga, op: OperationState, at_ms: int) -> bool:
    """Tell whether another try now could have a second effect: in doubt, and neither key nor probe protects (E6)."""
    return op.doubt and not _is_protected(saga, op, at_ms)


def _is_protected(saga: Saga, op: OperationState, at_ms: int) -> bool:
    has_key = saga.tools[call_of(saga, op.operation).tool].idempotent and not has_key_expired(saga, op, at_ms)
    return has_key or _is_probed(saga, op, at_ms)


def _is_probed(saga: Saga, op: OperationState, at_ms: int) -> bool:
    return policy_in_doubt(saga, op, at_ms) is OnUnknown.PROBE


def _object_to_retry(saga: Saga, op: OperationState, at_ms: int) -> str | None:
    """E9: who orders another try of what neither key nor probe protects says "not done", and waits like that."""
    if op.operation.direction is Direction.COMPENSATION:
        asks_person = op.cause is Cause.IN_DOUBT
        return "nobody can tell whether there is anything to undo: resolve it" if asks_person else None
    return _object_to_haste(op, at_ms) if may_act_twice(saga, op, at_ms) else None


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
