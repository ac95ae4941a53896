"""What a run leaves behind: effects that are not undone, and why; shown before anything else."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Final

from sagactl.core.canonical import Json
from sagactl.core.records import Cause, Direction, NotUndone, Operation
from sagactl.core.transitions import Phase
from sagactl.dataclass import dataclass

if TYPE_CHECKING:
    from sagactl.core.saga import Saga
    from sagactl.core.state import RunState

NAMED_MAX: Final = 5
"""Steps that are named as what an undo waits for."""


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
        return str(Operation(self.step, self.item, Direction.ACTION))


def find_left(saga: Saga, state: RunState) -> list[Left]:
    """List what isn't undone, the latest first; empty while the run has no reason to undo anything."""
    if state.ended is not None:
        return [_from_record(state, each) for each in state.ended.not_undone]
    if state.backward is None or state.direction is Direction.ACTION:
        return []
    held_up = _find_held_up(saga, state)
    found = []
    for operation in reversed(state.touched):
        kept = state.not_undone.get(operation)
        if kept is not None:
            found.append(_from_record(state, kept))
        elif operation in state.backward.open_items.get(operation.step, ()) and _has_effect(saga, state, operation):
            reason = _why_open(state, operation) or _why_waiting(saga, state, operation, held_up)
            found.append(Left(operation.step, operation.item, reason, state.operations[operation].output))
    return found


def _has_effect(saga: Saga, state: RunState, operation: Operation) -> bool:
    """Tell whether there may be something to undo: an action that only looked has left nothing."""
    from sagactl.core.backward import Treatment, treat

    return treat(saga, state.operations[operation]) is not Treatment.NOTHING


def _find_held_up(saga: Saga, state: RunState) -> dict[str, list[str]]:
    """Map each step to the later ones that are stuck and that its own undo must wait for."""
    held_up: dict[str, list[str]] = {}
    for stuck in dict.fromkeys(operation.step for operation in state.dead):
        stack, seen = [stuck], {stuck}
        while stack:
            for need in saga.by_id[stack.pop()].needs:
                if need not in seen:
                    seen.add(need)
                    stack.append(need)
                    held_up.setdefault(need, []).append(stuck)
    return held_up


def _from_record(state: RunState, each: NotUndone) -> Left:
    action = state.operations.get(Operation(each.step, each.item, Direction.ACTION))
    return Left(each.step, each.item, each.reason, None if action is None else action.output)


def _why_open(state: RunState, action: Operation) -> str:
    """Return what keeps an undo that has begun, or nothing."""
    undo = state.operations.get(action.other)
    if undo is None:
        return ""
    if undo.phase not in {Phase.DEAD, Phase.EXHAUSTED}:
        return "its undo is under way"
    if undo.cause is Cause.IN_DOUBT:
        return "nobody knows whether it happened"
    return f"its undo failed: {undo.failure or ''}"


def _why_waiting(saga: Saga, state: RunState, action: Operation, held_up: Mapping[str, list[str]]) -> str:
    assert state.backward is not None, "undos wait in a rollback only"
    open_steps = [step for step in saga.dependents[action.step] if state.backward.open_items.get(step)]
    blocking = held_up.get(action.step) or open_steps
    if blocking:
        more = f" and {len(blocking) - NAMED_MAX:,} more" if len(blocking) > NAMED_MAX else ""
        return f"waits for {', '.join(blocking[:NAMED_MAX])}{more}"
    return "in doubt" if state.operations[action].doubt else "its undo is due"


def count_undone(state: RunState) -> int:
    """Return how many touched actions a compensation has undone."""
    undos = (state.operations.get(operation.other) for operation in state.touched)
    return sum(undo is not None and undo.phase is Phase.SUCCEEDED for undo in undos)
