"""What a run begins with, checked: the input as JSON, by the schema of its saga, with the defaults."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from sagactl.errors import InvalidError

if TYPE_CHECKING:
    from sagactl.core.canonical import Json
    from sagactl.core.saga import Saga
    from sagactl.core.template import Evaluator

INPUT_PROBLEMS_SHOWN_MAX: Final = 20


def as_json(value: object) -> Json:
    """Return *value* as JSON; raises InvalidError."""
    from sagactl.core.canonical import NotJsonError
    from sagactl.tools.convert import write_json

    try:
        return write_json(value)
    except NotJsonError as error:
        raise InvalidError(f"the input is no JSON: {error}", code="invalid-input") from error


def check_input(saga: Saga, value: Json) -> Json:
    """Return *value* with the defaults of the saga's input schema; raises InvalidError naming all that is wrong."""
    from sagactl.spec.inputs import check_input as check

    checked, problems = check(saga.input_schema, value)
    if problems:
        wrong = "; ".join(problem.message for problem in problems[:INPUT_PROBLEMS_SHOWN_MAX])
        hint = problems[0].hint or f"the input of saga {saga.name} stands in its file under `input`"
        raise InvalidError(wrong, code="invalid-input", hint=hint)
    return checked


def object_to_input(saga: Saga, value: Json) -> str | None:
    """Return what *saga* finds wrong with the input of a run that is under way: it stays as it was checked."""
    try:
        checked = check_input(saga, value)
    except InvalidError as error:
        return f"the run's input doesn't fit: {error.message}"
    if checked == value or not isinstance(checked, dict) or not isinstance(value, dict):
        return None if checked == value else "the run's input doesn't have all its defaults"
    missing = next((name for name in checked if name not in value), None)
    return f"the run's input has no {missing}" if missing else "the run's input doesn't have all its defaults"


def read_run_key(saga: Saga, value: Json, evaluator: Evaluator) -> str | None:
    """Return the key that *saga* gives a run with the checked input *value*, or None; raises InvalidError."""
    from sagactl.core.canonical import canonical
    from sagactl.core.template import ExpressionError, render
    from sagactl.identity import check_key

    if saga.run_key is None:
        return None
    try:
        key = render(saga.run_key, {"input": value}, evaluator)
    except ExpressionError as error:
        raise InvalidError(f"run_key: {error}", code="invalid-input") from error
    if not isinstance(key, str | int) or isinstance(key, bool):
        raise InvalidError(f"run_key came out as {canonical(key)}, not as a text", code="invalid-input")
    check_key(str(key), "run_key")
    return str(key)
