"""What comes next: `decide`, a pure function of the saga, the state, and the world it is handed (rule E20).

How it is used
--------------
The driver asks `decide`, does the one thing it is told, folds the record that this makes, and asks again, until it is
told to wait or that the run is at rest. Everything decided between two waits is committed together (E2). A driver that
crashed in between loses nothing: the next one folds what is durable and is told the rest anew.

How it decides
--------------
The rules below are tried in order; the first that has something to say wins. The order is part of the meaning: what is
used up is buried before anything new is looked at, a run that turns around starts nothing, and only when no rule has
anything left is the run at its end or waiting.

No rule looks through the steps. Each looks at one container of the state, so what it costs to decide doesn't grow with
the saga.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, NamedTuple, TypeAlias

from sagactl.core import backward, people
from sagactl.core.calls import Candidate, candidates, make_call, make_probe, missing_secret, missing_tool
from sagactl.core.canonical import Json, NotJsonError, canonical
from sagactl.core.operators import answer_request
from sagactl.core.policy import KEY_EXPIRED, has_key_expired, has_trail_expired
from sagactl.core.records import (
    Cause,
    Decision,
    DecisionKind,
    Direction,
    Disposition,
    Ended,
    Failure,
    NotUndone,
    Operation,
    Operator,
    RunStatus,
    StepDecided,
)
from sagactl.core.saga import ITEMS_MAX, PAYLOAD_BYTES_MAX, Saga, Step, StepClass
from sagactl.core.scope import run_scope
from sagactl.core.state import OperationState, RunState, first_timer_after, next_timer
from sagactl.core.template import ExpressionError, Template, render
from sagactl.core.transitions import Phase
from sagactl.core.world import AskProbe, DrawDelay, EndCalls, MakeCall, Rest, Wait, World, Write

Next: TypeAlias = Write | MakeCall | AskProbe | DrawDelay | EndCalls | Wait | Rest


class _Turn(NamedTuple):
    saga: Saga
    state: RunState
    world: World


def decide(saga: Saga, state: RunState, world: World) -> Next:
    """Return the one thing to do next; changes nothing that a fold would notice."""
    turn = _Turn(saga, state, world)
    for rule in _RULES:
        found = rule(turn)
        if found is not None:
            return found
    return _wait(turn)


def _rest(turn: _Turn) -> Next | None:
    state = turn.state
    if state.ended is not None:
        return Rest(state.ended.status)
    return None if state.stuck is None else Rest(RunStatus.STUCK)


def _bury(turn: _Turn) -> Next | None:
    """A policy that is used up becomes a dead letter (E6, E12, E13)."""
    for operation in turn.state.exhausted:
        op = turn.state.operations[operation]
        return Write(
            Decision(
                turn.world.now_ms,
                DecisionKind.DEAD_LETTER,
                cause=op.cause,
                operation=operation,
                failure=op.failure,
            )
        )
    return None


def _announce_pivot(turn: _Turn) -> Next | None:
    state = turn.state
    if not state.pivot_passed or state.pivot_announced or state.direction is Direction.COMPENSATION:
        return None
    return Write(Decision(turn.world.now_ms, DecisionKind.PIVOT_PASSED))


def _answer_deferred(turn: _Turn) -> Next | None:
    """E13: what waited for the pivot's outcome is answered by it."""
    state = turn.state
    if not state.deferred or (state.is_pivot_open and not state.terminating):
        return None
    request = state.deferred[0]
    if state.pivot_passed or state.terminating:
        detail = "the pivot succeeded: the run only goes forward" if state.pivot_passed else "the run is terminated"
        return Write(Operator(turn.world.now_ms, request, Disposition.VOID, detail))
    return Write(answer_request(turn.saga, state, request, turn.world.now_ms))


def _alert(turn: _Turn) -> Next | None:
    for operation in turn.state.alerts:
        failure = turn.state.operations[operation].failure
        return Write(Decision(turn.world.now_ms, DecisionKind.ALERT, operation=operation, failure=failure))
    return Write(Decision(turn.world.now_ms, DecisionKind.RECOVERED)) if turn.state.has_recovered else None


def _draw(turn: _Turn) -> Next | None:
    for operation in turn.state.undrawn:
        op = turn.state.operations[operation]
        assert op.delay is not None, f"{operation} waits without a delay"
        kind, floor_ms, ceiling_ms = op.delay
        if op.schedule_deadline_ms is not None and op.phase in {Phase.RETRYING, Phase.PENDING}:
            left_ms = max(0, op.schedule_deadline_ms - turn.world.now_ms)
            held_ms = max(0, op.late_until_ms - turn.world.now_ms)  # not even the step's own time cuts this short (E9)
            floor_ms, ceiling_ms = max(min(floor_ms, left_ms), held_ms), max(min(ceiling_ms, left_ms), held_ms)
        return DrawDelay(operation, kind, floor_ms, ceiling_ms)
    return None


def _expire_run(turn: _Turn) -> Next | None:
    """E14: the run's time is over: before the pivot it turns around, behind it a person hears of it."""
    due_ms = _run_deadline(turn.state)
    if due_ms is None or turn.world.now_ms < due_ms:
        return None
    failure = Failure("run_timeout", "the run's time is over")
    if turn.state.pivot_passed:
        return Write(Decision(turn.world.now_ms, DecisionKind.ALERT, cause=Cause.TIMEOUT, failure=failure))
    return Write(Decision(turn.world.now_ms, DecisionKind.EXPIRED, cause=Cause.TIMEOUT, failure=failure))


def _run_deadline(state: RunState) -> int | None:
    """Return when the run's deadline must be acted on, or None where it has no say (now)."""
    is_turned = state.direction is Direction.COMPENSATION or state.failing is not None or state.terminating
    if is_turned or state.is_pivot_open or state.deadline_alerted or state.unfinished == 0:
        return None
    if state.people_since_ms is not None:
        return None
    return state.deadline_ms


def _hold(turn: _Turn) -> Next | None:
    """E22: in a run that an operator has paused nothing new begins, in either direction."""
    if not turn.state.paused:
        return None
    return Wait("call") if turn.state.in_flight else Wait("paused")


def _expire_approval(turn: _Turn) -> Next | None:
    """An approval that nobody has given in time counts as denied."""
    if not _may_go_forward(turn.state):
        return None
    for step_id, awaited in turn.state.awaiting.items():
        if awaited.until_ms is not None and awaited.until_ms <= turn.world.now_ms:
            failure = Failure("denied", "nobody answered in time")
            kind, cause = DecisionKind.EXPIRED, Cause.DENIED
            return Write(Decision(turn.world.now_ms, kind, cause=cause, step=step_id, failure=failure))
    return None


def _turn_around(turn: _Turn) -> Next | None:
    """E10: start nothing new, let what runs settle, then decide the rollback in one record."""
    state, now_ms = turn.state, turn.world.now_ms
    if state.failing is None and not state.terminating:
        return None
    if state.in_flight:
        until_ms = state.failing_since_ms + turn.saga.settle_timeout_ms
        if now_ms >= until_ms:
            return EndCalls(tuple(state.in_flight))
        return Wait("settling", until_ms)
    if state.terminating:
        return Write(Ended(now_ms, RunStatus.TERMINATED, Cause.TERMINATED, not_undone=_leave_all(turn)))
    plan = backward.plan_rollback(turn.saga, state)
    return Write(Decision(now_ms, DecisionKind.ROLLBACK, cause=state.failing, failure=state.failure, plan=plan))


def _leave_all(turn: _Turn) -> tuple[NotUndone, ...]:
    """List every effect that a run ended by an operator leaves behind (E22)."""
    left = []
    for operation in reversed(turn.state.touched):
        action = turn.state.operations[operation]
        in_doubt = action.doubt or action.phase is Phase.PENDING  # nobody will ask again whether it is done by now
        is_harmless = turn.saga.by_id[operation.step].klass is StepClass.READ_ONLY
        if is_harmless or backward.is_undone(turn.state, operation):
            continue
        if action.phase is not Phase.SUCCEEDED and not in_doubt:
            continue
        reason = "in doubt when the run was terminated" if in_doubt else "the run was terminated"
        left.append(NotUndone(operation.step, operation.item, reason))
    return tuple(left)


def _decide_step(turn: _Turn) -> Next | None:
    if not _may_go_forward(turn.state):
        return None
    for step_id in turn.state.undecided:
        return Write(_evaluate_step(turn, turn.saga.by_id[step_id]))
    return None


def _may_go_forward(state: RunState) -> bool:
    is_turned = state.direction is Direction.COMPENSATION or state.failing is not None or state.terminating
    return not is_turned and not state.is_halted


def _evaluate_step(turn: _Turn, step: Step) -> StepDecided | Decision:
    """F8, F9: `when` before `foreach`, each once; then who must agree."""
    now_ms = turn.world.now_ms
    try:
        if step.when is not None and not _evaluate_when(turn, step.when):
            return StepDecided(now_ms, step.id, runs=False)
        items = None if step.foreach is None else _evaluate_items(turn, step.foreach)
        arguments = _ask_approval(turn, step, items)
    except (ExpressionError, NotJsonError) as error:
        failure = Failure("refused", str(error))
        return Decision(now_ms, DecisionKind.REFUSED, step=step.id, failure=failure)
    if step.approval is None or not arguments:
        return StepDecided(now_ms, step.id, runs=True, items=items)
    approval = people.digest_of_approval(turn.state, step.id, arguments)
    until_ms = None if step.approval.timeout_ms is None else now_ms + step.approval.timeout_ms
    return StepDecided(now_ms, step.id, True, items, approval, until_ms, arguments)


def _ask_approval(turn: _Turn, step: Step, items: tuple[Json, ...] | None) -> tuple[Json, ...]:
    """Return the arguments that a person must agree to; none where nobody needs to, as for an empty list."""
    evaluator = turn.world.evaluator
    if items == () or not people.needs_approval(turn.saga, turn.state, step, evaluator):
        return ()
    return people.arguments_of(turn.saga, turn.state, step, items, evaluator)


def _evaluate_when(turn: _Turn, template: Template) -> bool:
    value = render(template, run_scope(turn.saga, turn.state), turn.world.evaluator)
    if not isinstance(value, bool):
        raise ExpressionError("when must be true or false")
    return value


def _evaluate_items(turn: _Turn, template: Template) -> tuple[Json, ...]:
    value = render(template, run_scope(turn.saga, turn.state), turn.world.evaluator)
    if not isinstance(value, list):
        raise ExpressionError("foreach must be a list")
    if len(value) > ITEMS_MAX:
        raise ExpressionError(f"foreach has {len(value)} items, more than {ITEMS_MAX}")
    if len(canonical(value)) > PAYLOAD_BYTES_MAX:
        raise ExpressionError(f"the list of foreach is larger than {PAYLOAD_BYTES_MAX} bytes")
    return tuple(value)


def _go_on(turn: _Turn) -> Next | None:
    """Make the next call or probe, if there is a slot for it."""
    candidate = next(candidates(turn.saga, turn.state, turn.world), None)
    if candidate is None:
        return None
    return Wait("slot", _run_deadline(turn.state)) if turn.world.slots <= 0 else _start(turn, candidate)


def _start(turn: _Turn, candidate: Candidate) -> Next:
    op = candidate.op
    if candidate.is_probe:
        return make_probe(turn.saga, turn.state, turn.world, op)
    if op.operation.direction is Direction.COMPENSATION and has_trail_expired(
        turn.saga, turn.state, op, turn.world.now_ms
    ):
        return _give_up_undo(turn, op)
    failure = _why_too_late(turn, op)
    if failure is not None:
        kind, cause = DecisionKind.EXPIRED, Cause.TIMEOUT
        return Write(Decision(turn.world.now_ms, kind, cause=cause, operation=op.operation, failure=failure))
    return make_call(turn.saga, turn.state, turn.world, op)


def _give_up_undo(turn: _Turn, op: OperationState) -> Next:
    """E7: what the undo would look by is forgotten, so it would find nothing and say that it is undone."""
    kind = DecisionKind.REFUSED if op.attempts == 0 else DecisionKind.EXPIRED
    message = "the action is in doubt, and the tool may have forgotten the key that its effect would be found by"
    failure, cause = Failure(KEY_EXPIRED, message), None if kind is DecisionKind.REFUSED else Cause.TIMEOUT
    return Write(Decision(turn.world.now_ms, kind, cause=cause, operation=op.operation, failure=failure))


def _why_too_late(turn: _Turn, op: OperationState) -> Failure | None:
    """Say why a call that its timer (and no person) calls for may not be made any more."""
    if op.phase not in {Phase.RETRYING, Phase.PENDING}:
        return None
    deadline_ms = op.schedule_deadline_ms
    if deadline_ms is not None and turn.world.now_ms >= deadline_ms:
        return op.failure or Failure("timeout", "schedule_to_close_timeout is over")
    if op.phase is Phase.RETRYING and has_key_expired(turn.saga, op, turn.world.now_ms):
        return op.failure or Failure(KEY_EXPIRED, "the tool may have forgotten the idempotency key")
    return None


def _finish(turn: _Turn) -> Next | None:
    """Nothing is under way and nothing can start: the run is at its end, or a person must act."""
    state, now_ms = turn.state, turn.world.now_ms
    # What a dead letter keeps from starting doesn't start when its timer comes either.
    if state.in_flight or (next_timer(state) is not None and not state.is_halted):
        return None
    if state.direction is Direction.ACTION and state.unfinished == 0:
        return Write(_succeed(turn))
    if state.backward is not None and state.direction is Direction.COMPENSATION and state.backward.left == 0:
        status = RunStatus.TERMINATED if state.abandoned else RunStatus.ROLLED_BACK
        left = tuple(state.not_undone[operation] for operation in sorted(state.not_undone, key=_order_of(state)))
        return Write(Ended(now_ms, status, state.cause, not_undone=left))
    if state.dead and not (_is_held_up(turn) and not state.is_halted):
        first = state.operations[next(iter(state.dead))]
        cause = Cause.COMPENSATION_FAILED if state.direction is Direction.COMPENSATION else first.cause
        return Write(Decision(now_ms, DecisionKind.STUCK, cause=cause))
    return None


def _is_held_up(turn: _Turn) -> bool:
    """Tell whether something could go on if only its tool, or its secret, were there."""
    return _find_missing(turn) is not None


def _order_of(state: RunState) -> Callable[[Operation], int]:
    return lambda operation: -state.operations[operation].first_seq


def _succeed(turn: _Turn) -> Ended:
    """E21: an output that can't be evaluated leaves the run succeeded, with a warning."""
    try:
        return Ended(turn.world.now_ms, RunStatus.SUCCEEDED, output=_evaluate_output(turn))
    except (ExpressionError, NotJsonError) as error:
        failure = Failure("refused", str(error))
        return Ended(turn.world.now_ms, RunStatus.SUCCEEDED, output_failure=failure)


def _evaluate_output(turn: _Turn) -> Json:
    if turn.saga.output is None:
        return None
    output = render(turn.saga.output, run_scope(turn.saga, turn.state), turn.world.evaluator)
    if len(canonical(output)) > PAYLOAD_BYTES_MAX:
        raise ExpressionError(f"the output is larger than {PAYLOAD_BYTES_MAX} bytes")
    return output


def _wait(turn: _Turn) -> Wait:
    state = turn.state
    if state.in_flight:
        return Wait("call", _next_wake(turn))
    until_ms = _next_wake(turn)
    missing = _find_missing(turn)
    if missing is not None and until_ms is None:
        return missing
    if state.people_since_ms is not None:
        return Wait("approval", until_ms, next(iter(state.awaiting)))
    return Wait("timer", until_ms)


def _find_missing(turn: _Turn) -> Wait | None:
    """Return what something ready waits for, a tool (E16) or a secret (E19), if anything."""
    if not turn.world.lacks_something:
        return None
    nothing: frozenset[str] = frozenset()
    everything = turn.world._replace(missing_tools=nothing, missing_secrets=nothing, unasked_tools=nothing)
    candidate = next(candidates(turn.saga, turn.state, everything), None)
    if candidate is None:
        return None
    tool = missing_tool(turn.saga, turn.world, candidate)
    if tool is not None:
        return Wait(Cause.MISSING_TOOL, None, tool)
    secret = missing_secret(turn.saga, turn.state, turn.world, candidate)
    assert secret is not None, "what lacks nothing would have been called"
    return Wait(Cause.MISSING_SECRET, None, secret)


def _next_wake(turn: _Turn) -> int | None:
    awaited = turn.state.awaiting.values() if _may_go_forward(turn.state) else ()
    known = (_run_deadline(turn.state), _next_timer(turn), *(each.until_ms for each in awaited))
    return min((due_ms for due_ms in known if due_ms is not None), default=None)


def _next_timer(turn: _Turn) -> int | None:
    """Return when a timer that has not come yet can change something.

    What is due and doesn't start waits for an answer, which wakes the driver anyhow. Only where something is missing
    must later timers be looked for behind those that are due, as what they need may be there.
    """
    first = next_timer(turn.state)
    if first is not None and first[0] <= turn.world.now_ms and not turn.world.lacks_something:
        return None
    return first_timer_after(turn.state, turn.world.now_ms)


_RULES: Final[tuple[Callable[[_Turn], Next | None], ...]] = (
    _rest,
    _bury,
    _announce_pivot,
    _answer_deferred,
    _hold,
    _alert,
    _draw,
    _expire_run,
    _expire_approval,
    _turn_around,
    _decide_step,
    _go_on,
    _finish,
)
