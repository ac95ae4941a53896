"""What a run leaves behind: effects that are not undone, and why; shown before anything else."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from sagactl.cli.views.words import name_failure, name_place
from sagactl.core.canonical import Json
from sagactl.core.records import Cause, Direction, NotUndone, Operation
from sagactl.core.saga import Saga
from sagactl.core.state import RunState
from sagactl.core.transitions import Phase


@dataclass(frozen=True, slots=True)
class Left:
    """An effect that stays for now or for good, why, and what the action returned."""

    step: str
    item: int | None
    reason: str
    output: Json = None

    @property
    def place(self) -> str:
        """Return the step, with its item."""
        return name_place(self.step, self.item)


def find_left(saga: Saga, state: RunState) -> list[Left]:
    """List what isn't undone, the latest first; empty while the run has no reason to undo anything."""
    if state.ended is not None:
        return [_from_record(state, each) for each in state.ended.not_undone]
    if state.backward is None or state.direction is Direction.ACTION:
        return []
    found = []
    for operation in reversed(state.touched):
        kept = state.not_undone.get(operation)
        if kept is not None:
            found.append(_from_record(state, kept))
        elif operation in state.backward.open_items.get(operation.step, ()):
            output = state.operations[operation].output
            found.append(Left(operation.step, operation.item, _why_open(saga, state, operation), output))
    return found


def _from_record(state: RunState, each: NotUndone) -> Left:
    action = state.operations.get(Operation(each.step, each.item, Direction.ACTION))
    return Left(each.step, each.item, each.reason, None if action is None else action.output)


def _why_open(saga: Saga, state: RunState, action: Operation) -> str:
    undo = state.operations.get(action.other)
    if undo is not None and undo.phase in {Phase.DEAD, Phase.EXHAUSTED}:
        if undo.cause is Cause.IN_DOUBT:
            return "nobody knows whether it happened"
        return f"its undo failed: {name_failure(undo.failure)}"
    if undo is not None:
        return "its undo is under way"
    blocking = _blocking_steps(saga, state, action.step)
    if blocking:
        return f"waits for {', '.join(blocking)}"
    return "in doubt" if state.operations[action].doubt else "its undo is due"


def _blocking_steps(saga: Saga, state: RunState, step_id: str) -> list[str]:
    """Return the later steps whose open undo this one waits for: those that are stuck, else all that are open."""
    assert state.backward is not None
    open_steps = [step for step in _later_steps(saga, step_id) if state.backward.open_items.get(step)]
    dead = {operation.step for operation in state.dead}
    return [step for step in open_steps if step in dead] or open_steps


def _later_steps(saga: Saga, step_id: str) -> Iterator[str]:
    """Yield all steps that needed this one, directly or not, each once."""
    seen = {step_id}
    stack = [step_id]
    while stack:
        for dependent in saga.dependents[stack.pop()]:
            if dependent not in seen:
                seen.add(dependent)
                stack.append(dependent)
                yield dependent


def count_undone(state: RunState) -> int:
    """Return how many touched actions a compensation has undone."""
    undos = (state.operations.get(operation.other) for operation in state.touched)
    return sum(undo is not None and undo.phase is Phase.SUCCEEDED for undo in undos)
