"""The arguments of a run that hasn't begun, as far as its input says them (rules F3, F9, E21)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from sagactl.core.canonical import Json
from sagactl.core.partial import is_known, render_partly
from sagactl.core.preview import NOTHING_GIVEN, Given
from sagactl.core.saga import Call, Saga, Step
from sagactl.core.template import Evaluator, ExpressionError, Scope, write_template
from sagactl.dataclass import dataclass


@dataclass(frozen=True, slots=True)
class Filled:
    """One call and its undo; what isn't known yet stays as written. An `objection` is why it would be refused."""

    step: str
    item: int | None
    arguments: Json
    undo_arguments: Json = None
    objection: str | None = None


def fill_in(saga: Saga, given: Mapping[str, Given], scope: Scope, evaluator: Evaluator) -> dict[str, list[Filled]]:
    """Return for each step its calls: one, or one for each item that is known; *scope* is what is known of the run."""
    return {step.id: list(_fill_step(step, given.get(step.id, NOTHING_GIVEN), scope, evaluator)) for step in saga.steps}


def _fill_step(step: Step, given: Given, scope: Scope, evaluator: Evaluator) -> Iterator[Filled]:
    if given.items is None:
        yield _fill(step, None, scope, evaluator)
        return
    for index, item in enumerate(given.items):
        yield _fill(step, index, {**scope, "item": item, "index": index}, evaluator)


def _fill(step: Step, item: int | None, scope: Scope, evaluator: Evaluator) -> Filled:
    arguments, objection = _fill_call(step.action, scope, evaluator)
    if step.compensation is None:
        return Filled(step.id, item, arguments, None, objection)
    has_arguments = objection is None and is_known(step.action.arguments, scope)
    undo_scope = {**scope, "args": arguments} if has_arguments else scope
    undo_arguments, _ = _fill_call(step.compensation, undo_scope, evaluator)
    return Filled(step.id, item, arguments, undo_arguments, objection)


def _fill_call(call: Call, scope: Scope, evaluator: Evaluator) -> tuple[Json, str | None]:
    try:
        arguments = render_partly(call.arguments, scope, evaluator)
    except ExpressionError as error:
        return write_template(call.arguments), str(error)
    objection = evaluator.check_arguments(call.tool, arguments) if is_known(call.arguments, scope) else None
    return arguments, objection
