"""What others read of an operation's output, and whether an output that a person gives has it (rule E23).

A tool's reply is held against its schema; a person's word for it must do more, as nobody can ask the tool again. What
the undo or a later step can't read would be found out when it is too late: in a rollback that gets stuck.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Final, NamedTuple

from sagactl.core.canonical import Json
from sagactl.core.records import Direction, Operation
from sagactl.core.saga import Saga, Step
from sagactl.core.scope import undo_scope
from sagactl.core.state import RunState
from sagactl.core.template import (
    Evaluator,
    Expression,
    ExpressionError,
    Path,
    Reference,
    Template,
    follow_path,
    references,
    render,
)

_OUTPUT_OF_STEP: Final = 3
"""So many members of a path name the output of a step: `steps`, its id, `output`."""


class Need(NamedTuple):
    """Something that reads an output: who, what of it, and how that is written in the saga."""

    reader: str
    path: Path
    text: str
    is_undo: bool = False


def find_needs(saga: Saga, operation: Operation) -> Iterator[Need]:
    """Yield what plainly reads the output of an action: its undo, other steps, the run's own output.

    What stands in an expression of CEL isn't among them: it may ask first whether something is there.
    """
    compensation = saga.by_id[operation.step].compensation
    if compensation is not None:
        for found in references(compensation.arguments):
            if isinstance(found, Reference) and found.path[0] == "output":
                yield Need(f"the undo of {operation.step}", found.path[1:], found.text, is_undo=True)
    for reader, template in _readers(saga):
        for found in references(template):
            path = _inside(operation, found)
            if path is not None:
                yield Need(reader, path, found.text)


def _readers(saga: Saga) -> Iterator[tuple[str, Template]]:
    """Yield every template that reads outputs of steps; what a step with `when` reads may never be read."""
    for step in saga.steps:
        yield from ((step.id, each) for each in _templates_of(step) if each is not None)
    if saga.output is not None:
        yield "the output of the run", saga.output


def _templates_of(step: Step) -> Iterator[Template | None]:
    if step.when is not None:
        yield step.when
        return
    yield from (step.foreach, step.guard, step.action.arguments)
    yield step.compensation.arguments if step.compensation is not None else None


def _inside(operation: Operation, found: Reference | Expression) -> Path | None:
    """Return what *found* reads of the output of *operation*; None where it doesn't, or only as a whole."""
    if isinstance(found, Expression) or found.path[:_OUTPUT_OF_STEP] != ("steps", operation.step, "output"):
        return None
    path = found.path[_OUTPUT_OF_STEP:]
    if operation.item is None:
        return path or None
    return path[1:] or None if path[:1] == (operation.item,) else None


def find_objections(
    saga: Saga, state: RunState, operation: Operation, output: Json, evaluator: Evaluator
) -> Iterator[str]:
    """Yield what is wrong with *output* as that of an action, for whoever reads it."""
    readers: dict[str, list[str]] = {}
    for need in dict.fromkeys(find_needs(saga, operation)):
        # Without any output the undo is told so by nulls (E7): its own schema says whether it takes them.
        reason = None if need.is_undo and output is None else _object(need, output)
        if reason is not None:
            readers.setdefault(reason, []).append(need.reader)
    for reason, names in readers.items():
        yield f"{reason}, which {' and '.join(dict.fromkeys(names))} {'needs' if len(set(names)) == 1 else 'need'}"
    if not readers:
        yield from _object_of_undo(saga, state, operation, output, evaluator)


def _object(need: Need, output: Json) -> str | None:
    try:
        follow_path(Reference(("output", *need.path), need.text), output)
    except ExpressionError as error:
        return str(error).partition(", in ")[0]
    return None


def _object_of_undo(
    saga: Saga, state: RunState, operation: Operation, output: Json, evaluator: Evaluator
) -> Iterator[str]:
    """Yield why the undo could not be called with what it would make of *output*."""
    compensation = saga.by_id[operation.step].compensation
    if compensation is None or operation.direction is Direction.COMPENSATION:
        return
    action = replace(state.operations[operation], output=output)
    try:
        arguments = render(compensation.arguments, undo_scope(saga, state, action), evaluator)
    except ExpressionError as error:
        yield f"the undo of {operation.step} can't read it: {error}"
        return
    objection = evaluator.check_arguments(compensation.tool, arguments)
    if objection is not None:
        yield f"{compensation.tool}, the undo of {operation.step}, would refuse its arguments: {objection}"
