"""The way back: what is undone, in which order, and what is left (rules E7, E9-E12).

A rollback looks at every action that had an intent, and at nothing else (E1). The order comes from the graph: a step's
turn comes when all steps that needed it are settled backward; among those whose turn it is, the one that was first
called last goes first (E11), and the items of one step strictly so (F9). Time stamps play no part.

What is done about one action depends on what the log knows of it:

* it succeeded: its compensation is called with the recorded arguments and output;
* it failed and no call of it is in doubt: there is nothing to undo;
* it is in doubt: a probe is asked first; where none can tell, a compensation that finds the effect by the forward key
  (`null_safe`) is called without output; where there is neither, only a person can know: a dead letter.
"""

from __future__ import annotations

import heapq
from enum import StrEnum

from sagactl.core.records import (
    Cause,
    Decision,
    Direction,
    NotUndone,
    Operation,
    TimerKind,
)
from sagactl.core.retry import delay_range_ms
from sagactl.core.saga import PROBE_ATTEMPTS_MAX, PROBE_RETRY, CompensateFailed, Saga, StepClass
from sagactl.core.state import Backward, OperationState, RunState, make_ready, operation_state, refill_budget, set_timer
from sagactl.core.transitions import SETTLED_PHASES, IllegalRecordError, Phase


class Treatment(StrEnum):
    """What the rollback does about one action."""

    NOTHING = "nothing"
    LEAVE = "leave"
    PROBE = "probe"
    COMPENSATE = "compensate"
    BURY = "bury"


def treat(saga: Saga, action: OperationState) -> Treatment:
    """Return what is to be done about *action* by what is known of it now."""
    step = saga.by_id[action.operation.step]
    in_doubt = action.doubt or action.phase is Phase.PENDING  # nobody will ask again, so its effect may come or not
    if action.attempts == 0 or (action.phase is not Phase.SUCCEEDED and not in_doubt):
        wanted = step.compensate_failed is CompensateFailed.ALWAYS and action.attempts > 0
        return Treatment.COMPENSATE if wanted and step.compensation is not None else Treatment.NOTHING
    if step.klass is StepClass.READ_ONLY:
        return Treatment.NOTHING
    if action.phase is Phase.SUCCEEDED:
        return Treatment.LEAVE if step.compensation is None else Treatment.COMPENSATE
    return _treat_doubt(saga, action)


def _treat_doubt(saga: Saga, action: OperationState) -> Treatment:
    step = saga.by_id[action.operation.step]
    if step.compensate_failed is CompensateFailed.NEVER:
        return Treatment.LEAVE
    if saga.tools[step.action.tool].probe is not None and action.probes < PROBE_ATTEMPTS_MAX:
        return Treatment.PROBE
    if step.compensation is None:
        return Treatment.LEAVE
    always = step.compensate_failed is CompensateFailed.ALWAYS
    return Treatment.COMPENSATE if always or saga.tools[step.compensation.tool].null_safe else Treatment.BURY


def why_left(saga: Saga, action: OperationState) -> str:
    """Say why the effect of *action* stays."""
    step = saga.by_id[action.operation.step]
    reason = step.not_undoable_reason or "it has no compensation"
    if step.compensate_failed is CompensateFailed.NEVER and action.doubt:
        reason = "compensate_failed is never"
    return f"in doubt, and {reason}" if action.doubt else reason


def plan_rollback(saga: Saga, state: RunState) -> tuple[Operation, ...]:
    """List the touched actions that a rollback has something to do about, the last first."""
    return tuple(
        operation
        for operation in reversed(state.touched)
        if not is_undone(state, operation) and treat(saga, state.operations[operation]) is not Treatment.NOTHING
    )


def begin_rollback(saga: Saga, state: RunState, record: Decision) -> None:
    """Turn the state backward: timers are cancelled, what is open is settled, the frontier of the undo is built."""
    if state.in_flight:
        raise IllegalRecordError("a rollback is decided when nothing is under way")
    if state.failing is None:
        raise IllegalRecordError("nothing turned the run around")
    assert state.backward is None, "what is rolling back isn't turned around again"
    state.direction = Direction.COMPENSATION
    state.cause = record.cause
    state.failing = None
    state.stuck = None
    state.waiting = None
    state.abandoned = False
    state.not_undone.clear()
    _cancel_forward(state)
    _restart_undos(state)
    frontier = Backward(blockers={step.id: len(saga.dependents[step.id]) for step in saga.steps})
    for operation in state.touched:
        if not is_undone(state, operation):
            frontier.open_items.setdefault(operation.step, {})[operation] = None
            frontier.left += 1
    state.backward = frontier
    for step_id in [step.id for step in reversed(saga.steps) if not saga.dependents[step.id]]:
        _unlock(saga, state, step_id, record.at_ms)


def is_undone(state: RunState, operation: Operation) -> bool:
    """Tell whether nothing of an action is left: it was undone, or a person said that it never happened."""
    undo = state.operations.get(operation.other)
    return undo is not None and undo.phase in {Phase.SUCCEEDED, Phase.FAILED}


def _cancel_forward(state: RunState) -> None:
    for container in (
        state.ready,
        state.startable,
        state.undecided,
        state.awaiting,
        state.undrawn,
        state.doubtful,
        state.exhausted,
        state.dead,
        state.alerts,
        state.troubled,
    ):
        container.clear()
    state.has_recovered = False
    state.timers.clear()
    for op in state.operations.values():
        op.due_ms = None
        op.delay = None
        if op.phase in {Phase.SUCCEEDED, Phase.FAILED}:
            continue
        if op.operation.direction is Direction.COMPENSATION:
            continue
        if op.phase is Phase.PENDING:
            op.doubt = True
        op.phase = Phase.FAILED
    # Probes asked on the way forward don't count against those of the way back.
    for op in state.operations.values():
        op.probes = 0


def _restart_undos(state: RunState) -> None:
    """Give each undo that an earlier rollback, ended by an operator, left open or abandoned a fresh start (E22)."""
    for action in state.touched:
        undo = state.operations.get(action.other)
        if undo is None or is_undone(state, action):
            continue
        if undo.attempts == 0:
            del state.operations[undo.operation]  # what there is to do is judged anew
        else:
            undo.phase = Phase.READY
            refill_budget(undo)


def _unlock(saga: Saga, state: RunState, first: str, at_ms: int) -> None:
    """Let the turn come to a step, and to those it needed as far as nothing of theirs is open."""
    frontier = state.backward
    assert frontier is not None
    stack = [first]
    while stack:
        step_id = stack.pop()
        frontier.waiting[step_id] = list(frontier.open_items.get(step_id, ()))
        _offer_next(saga, state, step_id, at_ms)
        if frontier.open_items.get(step_id):
            continue
        for need in saga.by_id[step_id].needs:
            frontier.blockers[need] -= 1
            if frontier.blockers[need] == 0:
                stack.append(need)


def _offer_next(saga: Saga, state: RunState, step_id: str, at_ms: int) -> None:
    """F9: let the turn come to the item that was called last, and to the one before it only once that has begun."""
    frontier = state.backward
    assert frontier is not None
    frontier.next_item.pop(step_id, None)
    waiting = frontier.waiting[step_id]
    while waiting:
        operation = waiting.pop()
        if _offer(saga, state, state.operations[operation], at_ms):
            frontier.next_item[step_id] = operation
            return


def begin_undo(saga: Saga, state: RunState, action: Operation, at_ms: int) -> None:
    """Note that the undo of *action* begins: its waiting is over, and the turn of the item before it has come."""
    state.operations[action].due_ms = None
    if state.backward is not None and state.backward.next_item.get(action.step) == action:
        _offer_next(saga, state, action.step, at_ms)


def _offer(saga: Saga, state: RunState, action: OperationState, at_ms: int) -> bool:
    """Put *action* where `decide` finds it and tell whether its undo has yet to begin.

    Where there is nothing to do it is taken off the list; where only a person knows, a dead letter is due.
    """
    frontier = state.backward
    assert frontier is not None
    treatment = treat(saga, action)
    if treatment in {Treatment.NOTHING, Treatment.LEAVE}:
        if treatment is Treatment.LEAVE:
            _leave_behind(saga, state, action)
        del frontier.open_items[action.operation.step][action.operation]
        frontier.left -= 1
        return False
    undo = state.operations.get(action.operation.other)
    if undo is not None:
        make_ready(state, undo, at_ms)
        return False
    if treatment is Treatment.BURY:
        undo = operation_state(state, action.operation.other)
        undo.phase = Phase.EXHAUSTED
        undo.cause = Cause.IN_DOUBT
        undo.failure = action.failure
        state.exhausted[undo.operation] = None
        return False
    if action.late_until_ms > at_ms and (treatment is Treatment.PROBE or not _is_late_safe(saga, action)):
        set_timer(state, action, action.late_until_ms)
    else:
        heapq.heappush(frontier.heap, (-action.first_seq, action.operation))
    return True


def _is_late_safe(saga: Saga, action: OperationState) -> bool:
    """E9: an undo with a tombstone may precede a late call; a probe's "not done" leaves none and waits."""
    step = saga.by_id[action.operation.step]
    tools = [step.action.tool] if step.compensation is None else [step.action.tool, step.compensation.tool]
    return any(saga.tools[tool].late_safe for tool in tools)


def _leave_behind(saga: Saga, state: RunState, action: OperationState) -> None:
    operation = action.operation
    state.not_undone[operation] = NotUndone(operation.step, operation.item, why_left(saga, action))


def reconsider(saga: Saga, state: RunState, action: OperationState, at_ms: int) -> None:
    """Go on with an action of which a probe has said something (or could not)."""
    frontier = state.backward
    assert frontier is not None, "an action settles backward only in a rollback"
    if treat(saga, action) is Treatment.PROBE:
        floor_ms, ceiling_ms = delay_range_ms(PROBE_RETRY, max(1, action.probes), None)
        action.delay = TimerKind.PROBE, floor_ms, ceiling_ms
        state.undrawn[action.operation] = None
        return
    if not _offer(saga, state, action, at_ms):
        _offer_next(saga, state, action.operation.step, at_ms)
    if not frontier.open_items.get(action.operation.step):
        _release(saga, state, action.operation.step, at_ms)


def settle_undo(saga: Saga, state: RunState, undo: OperationState, at_ms: int) -> None:
    """Take an action off the list whose compensation succeeded, or was settled by a person."""
    frontier = state.backward
    assert frontier is not None, "an undo settles only in a rollback"
    action = undo.operation.other
    if undo.phase is Phase.CLOSED:
        state.abandoned = True
        state.not_undone[action] = NotUndone(action.step, action.item, "its compensation was abandoned")
    del frontier.open_items[action.step][action]
    frontier.left -= 1
    if not frontier.open_items[action.step]:
        _release(saga, state, action.step, at_ms)


def _release(saga: Saga, state: RunState, step_id: str, at_ms: int) -> None:
    frontier = state.backward
    assert frontier is not None
    for need in saga.by_id[step_id].needs:
        frontier.blockers[need] -= 1
        if frontier.blockers[need] == 0:
            _unlock(saga, state, need, at_ms)


def next_undo(state: RunState) -> OperationState | None:
    """Return the action whose turn it is, the latest first intent first, and drop stale entries."""
    frontier = state.backward
    while frontier is not None and frontier.heap:
        action = state.operations[frontier.heap[0][1]]
        if is_due_for_undo(state, action):
            return action
        heapq.heappop(frontier.heap)
    return None


def is_due_for_undo(state: RunState, action: OperationState) -> bool:
    """Tell whether nothing of *action*'s way back has begun or is waited for."""
    return (
        action.phase in SETTLED_PHASES
        and action.due_ms is None
        and action.operation not in state.undrawn
        and action.operation.other not in state.operations
        and state.backward is not None
        and action.operation in state.backward.open_items.get(action.operation.step, ())
    )
