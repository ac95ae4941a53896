"""Mistakes that are planted into the core at run time, to see whether they are found.

Each takes a patch and changes one function of the core, or of what stands for the log and the engine. The simulation
and the exploration of all states are judged by them.
"""

from __future__ import annotations

import dataclasses
import heapq
import itertools
from collections.abc import Callable
from typing import Any

import pytest

from sagactl.core import backward, called, calls, evolve, frontier, machine, operators, policy
from sagactl.core.keys import idempotency_key
from sagactl.core.records import (
    Decision,
    DecisionKind,
    Direction,
    DriverClaimed,
    Ended,
    Operation,
    Probe,
    ProbeAnswer,
    RunStatus,
    StepDecided,
)
from sagactl.core.saga import CompensateFailed, OnUnknown, StepClass
from sagactl.core.state import due_timers, operation_state
from sagactl.core.transitions import Event, Phase
from sagactl.core.world import Write
from tests.core.simulation import trial
from tests.core.simulation.drive import Simulation
from tests.core.simulation.drivers import SimLog

Patch = pytest.MonkeyPatch
Plant = Callable[[Patch], None]


def wrap_fold(patch: Patch, kind: type[Any], around: Callable[..., Any]) -> None:
    """Replace the fold of one kind of record by *around*, which gets the original first."""
    original = evolve._FOLDS[kind]
    patch.setitem(evolve._FOLDS, kind, lambda saga, state, record: around(original, saga, state, record))


# -- retries ----------------------------------------------------------------------------------------------------------


def shift_limit(by: int) -> Plant:
    """Let each budget hold *by* attempts more."""

    def plant(patch: Patch) -> None:
        original = policy._may_try_again

        def may_try_again(saga: Any, op: Any, at_ms: int) -> bool:
            return original(saga, dataclasses.replace(op, attempts=op.attempts - by), at_ms)

        patch.setattr(policy, "_may_try_again", may_try_again)

    return plant


def redraw_delay(patch: Patch) -> None:
    """Draw the delay of what waits for its retry anew in each resume."""

    def around(original: Any, saga: Any, state: Any, record: Any) -> None:
        original(saga, state, record)
        for op in state.operations.values():
            if op.phase is Phase.RETRYING and op.due_ms is not None:
                frontier._enter_retrying(saga, state, op, record.at_ms)

    wrap_fold(patch, DriverClaimed, around)


def forget_attempts(patch: Patch) -> None:
    """Count attempts anew in each resume."""

    def around(original: Any, saga: Any, state: Any, record: Any) -> None:
        for op in state.operations.values():
            op.attempts_before_retry = op.attempts
        original(saga, state, record)

    wrap_fold(patch, DriverClaimed, around)


def fire_early(patch: Patch) -> None:
    """Take each timer for due."""
    patch.setattr(calls, "due_timers", lambda state, now_ms: due_timers(state, now_ms + 10**9))


def vary_key(which: str) -> Plant:
    """Give each call in one direction a key of its own."""

    def plant(patch: Patch) -> None:
        count = itertools.count()

        def vary(run_id: str, op: Operation) -> str:
            key = idempotency_key(run_id, op)
            return f"{key}/{next(count)}" if op.direction == which else key

        patch.setattr(calls, "idempotency_key", vary)

    return plant


def reevaluate(patch: Patch) -> None:
    """Evaluate the arguments for each attempt."""
    original = calls._arguments

    def evaluate(saga: Any, state: Any, world: Any, op: Any) -> Any:
        return original(saga, state, world, dataclasses.replace(op, attempts=0))

    patch.setattr(calls, "_arguments", evaluate)


# -- doubt ------------------------------------------------------------------------------------------------------------


def clear_doubt(patch: Patch) -> None:
    """Let a rejection clear the doubt that an earlier call left."""
    original = called._take_in

    def take_in(saga: Any, op: Any, record: Any, event: Event) -> None:
        original(saga, op, record, event)
        if event is Event.REJECTED:
            op.doubt = False

    patch.setattr(called, "_take_in", take_in)


def retry_blindly(patch: Patch) -> None:
    """Retry what is in doubt, whatever its policy says."""
    patch.setattr(policy, "policy_in_doubt", lambda saga, op, at_ms: OnUnknown.RETRY)


def forget_retention(patch: Patch) -> None:
    """Trust keys for ever."""
    for module in (policy, machine):
        patch.setattr(module, "has_key_expired", lambda saga, op, at_ms: False)


def let_retries_land_late(patch: Patch) -> None:
    """Give a retry all its time, however near the end of the retention it begins."""
    original = policy._may_outlast_key
    patch.setattr(policy, "_may_outlast_key", lambda saga, op, call_ms, at_ms: original(saga, op, 1, at_ms))


def look_by_a_forgotten_key(patch: Patch) -> None:
    """Let an undo without output look by a key that may be forgotten."""
    for module in (policy, machine):
        patch.setattr(module, "has_trail_expired", lambda saga, state, undo, at_ms: False)


def order_unawares(patch: Patch) -> None:
    """Take an order of what may happen twice without a reason."""
    patch.setattr(operators, "_object_to_unawares", lambda saga, op, request, at_ms: None)


def believe_probe(patch: Patch) -> None:
    """Take "can't tell" for "not done"."""

    def around(original: Any, saga: Any, state: Any, record: Any) -> None:
        if record.answer is ProbeAnswer.CANNOT_TELL:
            record = dataclasses.replace(record, answer=ProbeAnswer.NOT_DONE)
        original(saga, state, record)

    wrap_fold(patch, Probe, around)


def forget_late_calls(patch: Patch) -> None:
    """Believe that the calls of a lost driver have ended."""

    def around(original: Any, saga: Any, state: Any, record: Any) -> None:
        original(saga, state, dataclasses.replace(record, calls_ended=True))

    wrap_fold(patch, DriverClaimed, around)


def trust_lost_calls(patch: Patch) -> None:
    """Take a call that was lost with its driver for one that had no effect."""

    def around(original: Any, saga: Any, state: Any, record: Any) -> None:
        doubts = {operation: state.operations[operation].doubt for operation in state.in_flight}
        original(saga, state, record)
        for operation, doubt in doubts.items():
            state.operations[operation].doubt = doubt

    wrap_fold(patch, DriverClaimed, around)


# -- the way back -----------------------------------------------------------------------------------------------------


def treat_otherwise(choose: Callable[[Any, Any, backward.Treatment], backward.Treatment]) -> Plant:
    """Change what a rollback does about an action."""

    def plant(patch: Patch) -> None:
        original = backward.treat

        def treat(saga: Any, action: Any) -> backward.Treatment:
            return choose(saga, action, original(saga, action))

        for module in (backward, calls):
            patch.setattr(module, "treat", treat)

    return plant


def _compensate_clean(saga: Any, action: Any, right: backward.Treatment) -> backward.Treatment:
    step = saga.by_id[action.operation.step]
    is_clean = action.attempts > 0 and action.phase is not Phase.SUCCEEDED and not action.doubt
    is_undoable = step.compensation is not None and step.klass is not StepClass.READ_ONLY
    return backward.Treatment.COMPENSATE if is_clean and is_undoable else right


def _ignore_doubt(saga: Any, action: Any, right: backward.Treatment) -> backward.Treatment:
    in_doubt = action.doubt and action.phase is not Phase.SUCCEEDED
    return backward.Treatment.NOTHING if in_doubt else right


def _undo_blindly(saga: Any, action: Any, right: backward.Treatment) -> backward.Treatment:
    return backward.Treatment.COMPENSATE if right is backward.Treatment.BURY else right


def _skip_probe(saga: Any, action: Any, right: backward.Treatment) -> backward.Treatment:
    step = saga.by_id[action.operation.step]
    is_null_safe = step.compensation is not None and saga.tools[step.compensation.tool].null_safe
    never = step.compensate_failed is CompensateFailed.NEVER
    return backward.Treatment.COMPENSATE if right is backward.Treatment.PROBE and is_null_safe and not never else right


def undo_by_timestamp(patch: Patch) -> None:
    """Undo by the time of the first intent, and not by the graph and the log."""
    original = backward.begin_rollback

    def begin(saga: Any, state: Any, record: Any) -> None:
        original(saga, state, record)
        found = state.backward
        found.heap.clear()
        for items in found.open_items.values():
            for operation in items:
                heapq.heappush(found.heap, (-state.operations[operation].first_intent_ms, operation))

    patch.setattr(backward, "begin_rollback", begin)
    patch.setattr(called, "has_turn", lambda state, operation: True)


def undo_in_list_order(patch: Patch) -> None:
    """Undo the items of a step in the order in which they were called."""
    original = backward._offer_next

    def offer_next(saga: Any, state: Any, step_id: str, at_ms: int) -> None:
        state.backward.waiting[step_id].reverse()
        original(saga, state, step_id, at_ms)
        state.backward.waiting[step_id].reverse()

    patch.setattr(backward, "_offer_next", offer_next)


def undo_skipped(patch: Patch) -> None:
    """Take a skipped step for one that ran."""

    def around(original: Any, saga: Any, state: Any, record: Any) -> None:
        original(saga, state, record)
        if not record.runs and saga.by_id[record.step].foreach is None:
            op = operation_state(state, Operation(record.step, None, Direction.ACTION))
            op.phase, op.attempts, op.arguments = Phase.SUCCEEDED, 1, {"who": "nobody"}
            state.touched.append(op.operation)

    wrap_fold(patch, StepDecided, around)


def roll_back_at_once(patch: Patch) -> None:
    """Decide the rollback while calls are under way."""
    original, begin = machine._turn_around, backward.begin_rollback

    def turn_around(turn: Any) -> Any:
        if turn.state.terminating or turn.state.failing is None:
            return original(turn)
        flight, turn.state.in_flight = turn.state.in_flight, {}
        found = original(turn)
        turn.state.in_flight = flight
        return found

    def begin_hastily(saga: Any, state: Any, record: Any) -> None:
        state.in_flight = {}
        begin(saga, state, record)

    rules = tuple(turn_around if rule is original else rule for rule in machine._RULES)
    patch.setattr(machine, "_RULES", rules)
    patch.setattr(backward, "begin_rollback", begin_hastily)


def cut_undos_short(patch: Patch) -> None:
    """Let the run's deadline end the calls of its rollback."""
    original = calls._deadline

    def deadline(saga: Any, state: Any, world: Any, op: Any) -> int:
        return min(original(saga, state, world, op), state.deadline_ms or 10**15)

    patch.setattr(calls, "_deadline", deadline)


def give_up_the_rollback(patch: Patch) -> None:
    """Stop at the first dead letter, although other steps could still be undone."""

    def stop(turn: Any) -> Any:
        state = turn.state
        if state.direction is Direction.ACTION or not state.dead or state.in_flight or state.ended or state.stuck:
            return None
        return Write(Decision(turn.world.now_ms, DecisionKind.STUCK))

    patch.setattr(machine, "_RULES", (machine._RULES[0], machine._RULES[1], stop, *machine._RULES[2:]))


def forget_what_is_left(patch: Patch) -> None:
    """Don't list what has no compensation."""
    patch.setattr(backward, "_leave_behind", lambda saga, state, action: None)


def forget_what_terminates(patch: Patch) -> None:
    """List nothing when an operator ends a run."""
    patch.setattr(machine, "_leave_all", lambda turn: ())


def call_it_rolled_back(patch: Patch) -> None:
    """Report a rollback with an open dead letter as complete."""
    original = machine._finish

    def finish(turn: Any) -> Any:
        found = original(turn)
        is_stuck = isinstance(found, Write) and getattr(found.record, "kind", None) is DecisionKind.STUCK
        if is_stuck and turn.state.direction is Direction.COMPENSATION:
            return Write(Ended(turn.world.now_ms, RunStatus.ROLLED_BACK, turn.state.cause))
        return found

    patch.setattr(machine, "_RULES", (*machine._RULES[:-1], finish))
    patch.setattr(evolve, "_may_end", lambda state, status: True)


# -- the pivot, people, and drivers -----------------------------------------------------------------------------------


def turn_back_behind_the_pivot(patch: Patch) -> None:
    """Let a step behind the pivot that used up its policy turn the run around."""
    original = policy.zone_of

    def zone_of(saga: Any, operation: Operation) -> policy.Zone:
        found = original(saga, operation)
        return policy.Zone.BEFORE if found is policy.Zone.BEHIND else found

    patch.setattr(policy, "zone_of", zone_of)


def give_up_a_doubtful_pivot(patch: Patch) -> None:
    """Roll back although the pivot may have happened."""
    original = policy._give_up

    def give_up(op: Any, zone: policy.Zone, cause: Any, **rest: Any) -> Phase:
        found = original(op, zone, cause, **rest)
        return Phase.FAILED if zone is policy.Zone.PIVOT else found

    patch.setattr(policy, "_give_up", give_up)


def lose_deferred(patch: Patch) -> None:
    """Never answer what waited for the pivot."""
    rules = tuple(rule for rule in machine._RULES if rule is not machine._answer_deferred)
    patch.setattr(machine, "_RULES", rules)


def overwrite_error(patch: Patch) -> None:
    """Let a later error take the place of the first."""
    original = evolve._on_dead_letter

    def on_dead_letter(saga: Any, state: Any, record: Any) -> None:
        original(saga, state, record)
        state.failure = record.failure

    patch.setattr(evolve, "_on_dead_letter", on_dead_letter)


def ignore_concurrency(patch: Patch) -> None:
    """Start all items of a step at once."""
    original = frontier._count_open

    def count_open(saga: Any, state: Any, operation: Operation, change: int) -> None:
        original(saga, state, operation, change)
        step = state.steps[operation.step]
        if operation.direction is Direction.ACTION and step.items and step.items_started < len(step.items):
            state.startable[operation.step] = None

    patch.setattr(frontier, "_count_open", count_open)


def leave_fence_open(patch: Patch) -> None:
    """Let the log take what a driver without the lease writes."""

    def append(log: SimLog, batch: Any, fence: int, after_seq: int) -> bool:
        log.keep(batch, fence)
        return True

    patch.setattr(SimLog, "append", append)


def call_before_commit(patch: Patch) -> None:
    """Make the calls before their intents are durable."""
    commit, start = Simulation.commit, Simulation._start

    def commit_late(simulation: Any, driver: Any, turn: Any) -> bool:
        is_alive = start(simulation, driver, turn)
        for job in driver.flight.values():
            simulation.world.begin(job)
        return is_alive and commit(simulation, driver, turn)

    patch.setattr(Simulation, "commit", commit_late)
    patch.setattr(Simulation, "_start", lambda simulation, driver, turn: True)


def count_twice(patch: Patch) -> None:
    """Let the state that lives on differ from the one that the log gives."""
    original = trial._fold

    def fold(simulation: Simulation) -> Any:
        state = original(simulation)
        if state is not None:
            state.touched.append(Operation("nobody", None, Direction.ACTION))
        return state

    patch.setattr(trial, "_fold", fold)
