"""Which calls could be made now, and the intents they are made from (rules E1, E7, E9, E20, E21)."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import chain
from typing import NamedTuple

from sagactl.core.backward import Treatment, next_undo, treat
from sagactl.core.canonical import Json, NotJsonError, canonical
from sagactl.core.keys import idempotency_key
from sagactl.core.policy import Zone, zone_of
from sagactl.core.records import Decision, DecisionKind, Direction, Failure, Intent, Operation, Probe
from sagactl.core.saga import PAYLOAD_BYTES_MAX, Saga, ToolFacts
from sagactl.core.scope import action_scope, undo_scope
from sagactl.core.secrets import secrets_in, secrets_named
from sagactl.core.state import OperationState, RunState, call_of, due_timers
from sagactl.core.template import ExpressionError, render
from sagactl.core.transitions import Phase
from sagactl.core.world import AskProbe, MakeCall, World, Write


class Candidate(NamedTuple):
    """A call or probe that nothing but a slot, or its missing tool or secret, keeps from being made."""

    op: OperationState
    tool: str
    is_probe: bool = False


def candidates(saga: Saga, state: RunState, world: World) -> Iterator[Candidate]:
    """Yield what could start now, first what has waited; leaves out what needs a tool or a secret that is missing."""
    found = _forward(saga, state, world) if state.direction is Direction.ACTION else _backward(saga, state, world)
    for candidate in found:
        if missing_tool(saga, world, candidate) is None and missing_secret(saga, state, world, candidate) is None:
            yield candidate


def missing_tool(saga: Saga, world: World, candidate: Candidate) -> str | None:
    """Return a tool that *candidate* needs and that isn't here, if any: no intent without it (E16)."""
    if candidate.tool in world.missing_tools or candidate.tool in world.unasked_tools:
        return candidate.tool
    if not world.missing_tools:
        return None
    undo = _undo_of(saga, candidate)
    return undo if undo in world.missing_tools else None


def _undo_of(saga: Saga, candidate: Candidate) -> str | None:
    """Return the tool that undoes what the call of *candidate* begins, where a failure would have it undone."""
    op = candidate.op
    compensation = saga.by_id[op.operation.step].compensation
    # What is only looked at, or was begun by an earlier call and is asked after, brings nothing new into the world.
    is_new = not candidate.is_probe and op.phase is not Phase.PENDING
    if compensation is None or not is_new or zone_of(saga, op.operation) is not Zone.BEFORE:
        return None
    return compensation.tool


def missing_secret(saga: Saga, state: RunState, world: World, candidate: Candidate) -> str | None:
    """Return a secret that *candidate* needs and that can't be resolved, if any: no intent without it (E19)."""
    if not world.missing_secrets:
        return None
    return next((name for name in _needed_secrets(saga, state, candidate) if name in world.missing_secrets), None)


def _needed_secrets(saga: Saga, state: RunState, candidate: Candidate) -> Iterator[str]:
    """Yield those of the tool itself, and those in its arguments: recorded ones say it, others by their template."""
    return chain(saga.tools[candidate.tool].secrets, _secrets_given(saga, state, candidate))


def _secrets_given(saga: Saga, state: RunState, candidate: Candidate) -> Iterator[str]:
    op = candidate.op
    if candidate.is_probe:
        return secrets_in(_probe_arguments(saga, candidate.tool, op))
    if op.attempts > 0:
        return secrets_in(op.arguments)
    is_undo = op.operation.direction is Direction.COMPENSATION
    args = state.operations[op.operation.other].arguments if is_undo else None
    return secrets_named(call_of(saga, op.operation).arguments, args)


def _forward(saga: Saga, state: RunState, world: World) -> Iterator[Candidate]:
    if state.failing is not None or state.terminating or state.is_halted:
        return
    for operation in due_timers(state, world.now_ms):
        yield _of(saga, state.operations[operation])
    for operation in state.doubtful:
        yield _of(saga, state.operations[operation])
    for operation in state.ready:
        yield _of(saga, state.operations[operation])
    for step_id in state.startable:
        operation = Operation(step_id, state.steps[step_id].items_started, Direction.ACTION)
        yield _of(saga, OperationState(operation))


def _of(saga: Saga, op: OperationState) -> Candidate:
    if op.phase is Phase.IN_DOUBT:
        return Candidate(op, _probe_of(saga, op), is_probe=True)
    return Candidate(op, call_of(saga, op.operation).tool)


def _probe_of(saga: Saga, op: OperationState) -> str:
    probe = saga.tools[call_of(saga, op.operation).tool].probe
    assert probe is not None, f"{op.operation} can't be probed"
    return probe


def _backward(saga: Saga, state: RunState, world: World) -> Iterator[Candidate]:
    if state.terminating or len(state.in_flight) >= saga.compensation_concurrency:
        return
    for operation in due_timers(state, world.now_ms):
        yield _of_backward(saga, state.operations[operation])
    for operation in state.doubtful:
        yield _of(saga, state.operations[operation])
    for operation in state.ready:
        yield _of(saga, state.operations[operation])
    action = next_undo(state)
    if action is not None:
        yield _of_backward(saga, action)


def _of_backward(saga: Saga, op: OperationState) -> Candidate:
    """An action whose turn has come is probed or compensated; an undo under way goes on."""
    if op.operation.direction is Direction.COMPENSATION:
        return _of(saga, op)
    if treat(saga, op) is Treatment.PROBE:
        return Candidate(op, _probe_of(saga, op), is_probe=True)
    undo = OperationState(op.operation.other)
    return Candidate(undo, call_of(saga, undo.operation).tool)


def make_call(saga: Saga, state: RunState, world: World, op: OperationState) -> MakeCall | Write:
    """Return the intent of the next call of *op*, or the record that it is refused (E21)."""
    try:
        arguments = _arguments(saga, state, world, op)
    except (ExpressionError, NotJsonError) as error:
        failure = Failure("refused", str(error))
        return Write(Decision(world.now_ms, DecisionKind.REFUSED, operation=op.operation, failure=failure))
    repeated = op.phase is Phase.PENDING
    intent = Intent(
        at_ms=world.now_ms,
        operation=op.operation,
        attempt=op.attempts if repeated else op.attempts + 1,
        asking=op.asking + 1 if repeated else 1,
        fence=state.fence,
        tool=call_of(saga, op.operation).tool,
        key=idempotency_key(state.run_id, op.operation),
        deadline_ms=_deadline(saga, state, world, op),
        arguments=arguments if op.attempts == 0 else None,
    )
    forward_key, begun_ms = _identify_action(state, op.operation, world.now_ms)
    return MakeCall(intent, arguments, forward_key, begun_ms, op.token, _raw_for(state, op))


def _identify_action(state: RunState, operation: Operation, now_ms: int) -> tuple[str, int]:
    """Return the key of the action, and when it began: who looks for its effect looks no further back."""
    action = operation if operation.direction is Direction.ACTION else operation.other
    found = state.operations.get(action)
    begun_ms = now_ms if found is None or found.attempts == 0 else found.first_intent_ms
    return idempotency_key(state.run_id, action), begun_ms


def _raw_for(state: RunState, op: OperationState) -> Json:
    if op.operation.direction is Direction.ACTION:
        return None
    return state.operations[op.operation.other].raw


def _deadline(saga: Saga, state: RunState, world: World, op: OperationState) -> int:
    """E14: the nearest of the call's, the step's and, before the pivot, the run's."""
    call = call_of(saga, op.operation)
    times = [world.now_ms + call.start_to_close_ms]
    if op.schedule_deadline_ms is not None:
        times.append(op.schedule_deadline_ms)
    elif call.schedule_to_close_ms is not None:
        times.append(world.now_ms + call.schedule_to_close_ms)
    if state.deadline_ms is not None and zone_of(saga, op.operation) is Zone.BEFORE:
        times.append(state.deadline_ms)
    return min(times)


def _arguments(saga: Saga, state: RunState, world: World, op: OperationState) -> Json:
    """E20: evaluated once for an operation; later attempts get what was recorded."""
    if op.attempts > 0:
        return op.arguments
    if op.operation.direction is Direction.COMPENSATION:
        arguments = _undo_arguments(saga, state, world, op)
    else:
        _check_guard(saga, state, world, op)
        arguments = _action_arguments(saga, state, world, op.operation)
    if len(canonical(arguments)) > PAYLOAD_BYTES_MAX:
        raise ExpressionError(f"the arguments are larger than {PAYLOAD_BYTES_MAX} bytes")
    objection = world.evaluator.check_arguments(call_of(saga, op.operation).tool, arguments)
    if objection is not None:
        raise ExpressionError(objection)
    return arguments


def _action_arguments(saga: Saga, state: RunState, world: World, operation: Operation) -> Json:
    approved = state.steps[operation.step].arguments
    if approved:
        return approved[operation.item or 0]
    scope = action_scope(saga, state, operation)
    return render(saga.by_id[operation.step].action.arguments, scope, world.evaluator)


def _undo_arguments(saga: Saga, state: RunState, world: World, op: OperationState) -> Json:
    """E7: without an output, arguments that come out as null are left out."""
    action = state.operations[op.operation.other]
    arguments = render(
        call_of(saga, op.operation).arguments,
        undo_scope(saga, state, action),
        world.evaluator,
    )
    if action.phase is not Phase.SUCCEEDED and isinstance(arguments, dict):
        return {name: value for name, value in arguments.items() if value is not None}
    return arguments


def _check_guard(saga: Saga, state: RunState, world: World, op: OperationState) -> None:
    guard = saga.by_id[op.operation.step].guard
    if guard is None:
        return
    value = render(guard, action_scope(saga, state, op.operation), world.evaluator)
    if not isinstance(value, bool):
        raise ExpressionError("guard must be true or false")
    if not value:
        raise ExpressionError("the guard is false")


def make_probe(saga: Saga, state: RunState, world: World, op: OperationState) -> AskProbe:
    """Return the question whether the effect of *op* is there (E6)."""
    call = call_of(saga, op.operation)
    name = saga.tools[call.tool].probe
    assert name is not None, f"{op.operation} can't be probed"
    probe = Probe(
        at_ms=world.now_ms,
        operation=op.operation,
        number=op.probes + 1,
        fence=state.fence,
        tool=name,
        deadline_ms=world.now_ms + call.start_to_close_ms,
    )
    key = idempotency_key(state.run_id, op.operation)
    forward_key, begun_ms = _identify_action(state, op.operation, world.now_ms)
    return AskProbe(probe, _probe_arguments(saga, name, op), key, forward_key, begun_ms, op.raw)


def _probe_arguments(saga: Saga, name: str, op: OperationState) -> Json:
    return choose_probe_arguments(saga.tools[name], op.arguments)


def choose_probe_arguments(probe: ToolFacts, arguments: Json) -> dict[str, Json]:
    """Return those of the call's recorded arguments that a probe knows by name; all of them where it names none."""
    if not isinstance(arguments, dict):
        return {}
    known = probe.arguments_schema.get("properties")
    if not isinstance(known, dict):
        return {} if probe.arguments_schema.get("additionalProperties") is False else arguments
    return {key: value for key, value in arguments.items() if key in known}
