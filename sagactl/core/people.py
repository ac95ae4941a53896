"""What waits for people: approvals, pauses, and the time that they take (rules E14, E22).

An approval belongs to a step as a whole, its items included: asked once, when everything that the step will be called
with is known, and answered once. Its arguments are evaluated then, recorded, and used by its calls as they stand. What
is approved is told by a digest of the run's definition, the step, and these arguments; an answer carries the digest
that its author has seen, and one that differs is refused. So nobody approves one thing and gets another.

An approval's own time runs while the run waits for its answer, and stands still while an operator has paused the run
or it is stuck: the answer would begin nothing then.

A run in which nothing but a person's answer is awaited holds nothing: no slot, no lease, no process. Such time doesn't
count against its deadlines: `people_since_ms` says since when it runs.
"""

from __future__ import annotations

from sagactl.core.canonical import Json, canonical, digest
from sagactl.core.records import Direction
from sagactl.core.saga import PAYLOAD_BYTES_MAX, Saga, Step
from sagactl.core.scope import run_scope
from sagactl.core.state import Awaited, RunState, next_timer
from sagactl.core.template import Evaluator, ExpressionError, Scope, render
from sagactl.core.transitions import SETTLED_PHASES


def needs_approval(saga: Saga, state: RunState, step: Step, evaluator: Evaluator) -> bool:
    """Tell whether a person must agree to *step*; raises ExpressionError."""
    if step.approval is None or step.approval.required is None:
        return step.approval is not None
    value = render(step.approval.required, run_scope(saga, state), evaluator)
    if not isinstance(value, bool):
        raise ExpressionError("approval must be true or false")
    return value


def arguments_of(
    saga: Saga, state: RunState, step: Step, items: tuple[Json, ...] | None, evaluator: Evaluator
) -> tuple[Json, ...]:
    """Return the arguments of the step's call, or of each item's in list order; raises ExpressionError."""
    scopes: list[Scope] = [run_scope(saga, state)]
    if items is not None:
        scopes = [{**scopes[0], "item": item, "index": index} for index, item in enumerate(items)]
    arguments = tuple([_evaluate(step, scope, evaluator) for scope in scopes])
    if len(canonical(list(arguments))) > PAYLOAD_BYTES_MAX:
        raise ExpressionError(f"what is to be approved is larger than {PAYLOAD_BYTES_MAX} bytes")
    return arguments


def _evaluate(step: Step, scope: Scope, evaluator: Evaluator) -> Json:
    arguments = render(step.action.arguments, scope, evaluator)
    objection = evaluator.check_arguments(step.action.tool, arguments)
    if objection is not None:
        raise ExpressionError(objection)
    return arguments


def digest_of_approval(state: RunState, step_id: str, arguments: tuple[Json, ...]) -> str:
    """Return what an approval of a step is bound to."""
    return digest([state.definition, step_id, list(arguments)])


def renew_approvals(state: RunState) -> None:
    """Ask anew, for the same arguments, what was asked under another definition: an answer to that is void (E22)."""
    for step_id, step in state.steps.items():
        if step.asked is None:
            continue
        found = digest_of_approval(state, step_id, step.arguments)
        step.asked = step.asked._replace(digest=found)
        if step_id in state.awaiting:
            state.awaiting[step_id] = state.awaiting[step_id]._replace(digest=found)


def approval_until_ms(state: RunState, awaited: Awaited, at_ms: int) -> int | None:
    """Return until when an approval can be given, if nothing holds its run up from *at_ms* on."""
    since_ms = held_since_ms(state)
    return awaited.until_ms if awaited.until_ms is None or since_ms is None else awaited.until_ms + at_ms - since_ms


def held_since_ms(state: RunState) -> int | None:
    """Return since when the time to answer stands still, as the run is paused or stuck; None where it goes on."""
    return state.paused_since_ms if state.stuck is None else state.stuck.at_ms


def prolong_approvals(state: RunState, at_ms: int) -> None:
    """Give back what the pause that ends now, or the time in which the run was stuck, took of the time to answer."""
    for step_id, awaited in state.awaiting.items():
        state.awaiting[step_id] = awaited._replace(until_ms=approval_until_ms(state, awaited, at_ms))


def note_people(state: RunState, at_ms: int) -> None:
    """Note whether from *at_ms* on only people are awaited; what that took until now is added to the deadlines."""
    if _awaits_only_people(state):
        if state.people_since_ms is None:
            state.people_since_ms = at_ms
        return
    if state.people_since_ms is not None:
        since_ms, state.people_since_ms = state.people_since_ms, None
        prolong(state, at_ms - since_ms)


def _awaits_only_people(state: RunState) -> bool:
    if state.in_flight or state.stuck is not None or state.ended is not None:
        return False
    if state.paused:
        return True
    is_turned = state.direction is Direction.COMPENSATION or state.failing is not None or state.terminating
    if is_turned or not state.awaiting:
        return False
    busy = (state.ready, state.startable, state.undecided, state.doubtful, state.undrawn, state.exhausted)
    return not any(busy) and next_timer(state) is None


def prolong(state: RunState, idle_ms: int) -> None:
    """E14: time in which only a person was awaited doesn't count against deadlines."""
    if state.deadline_ms is not None:
        state.deadline_ms += idle_ms
    for op in state.operations.values():
        if op.schedule_deadline_ms is not None and op.phase not in SETTLED_PHASES:
            op.schedule_deadline_ms += idle_ms
