"""What expressions can see: views of a run's state by the names that sagas use (rule F3)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from sagactl.core.canonical import Json
from sagactl.core.records import Operation
from sagactl.core.saga import Saga
from sagactl.core.state import OperationState, RunState
from sagactl.core.template import Scope


class StepsView(Mapping[str, object]):
    """`steps` in an expression: made as it is looked at, so a large run costs nothing."""

    def __init__(self, saga: Saga, state: RunState) -> None:
        self._saga = saga
        self._state = state

    def __getitem__(self, step_id: str) -> object:
        if step_id not in self._saga.by_id:
            raise KeyError(step_id)
        step = self._state.steps.get(step_id)
        if step is None or not step.finished:
            return {"output": None, "status": "pending"}
        return {"output": step.output, "status": "skipped" if step.skipped else "succeeded"}

    def __iter__(self) -> Iterator[str]:
        return iter(self._saga.by_id)

    def __len__(self) -> int:
        return len(self._saga.by_id)


def run_scope(saga: Saga, state: RunState) -> dict[str, object]:
    """Return what every expression of a run can see."""
    assert state.created is not None, "a run begins with its first record"
    run: dict[str, Json] = {"id": state.created.run_id, "saga": saga.name, "key": state.created.run_key}
    return {"input": state.created.input, "steps": StepsView(saga, state), "run": run}


def action_scope(saga: Saga, state: RunState, operation: Operation) -> Scope:
    """Return what an action's `with` and `guard` can see."""
    scope = run_scope(saga, state)
    if operation.item is not None:
        items = state.steps[operation.step].items
        assert items is not None, "an item belongs to a list"
        scope["item"] = items[operation.item]
        scope["index"] = operation.item
    return scope


def undo_scope(saga: Saga, state: RunState, action: OperationState) -> Scope:
    """Return what a compensation's `with` can see: also that very action's arguments and output."""
    output = action.output
    return {**action_scope(saga, state, action.operation), "args": action.arguments, "output": output}
