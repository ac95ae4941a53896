"""What a run begins with, checked: the input as JSON, by the schema of its saga, with the defaults."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from sagactl.errors import InvalidError

if TYPE_CHECKING:
    from sagactl.core.canonical import Json
    from sagactl.core.definition import Snapshot
    from sagactl.core.records import Origin
    from sagactl.core.saga import Saga
    from sagactl.core.template import Evaluator
    from sagactl.log.base import NewRun

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


def make_run(
    saga: Saga,
    inputs: object,
    evaluator: Evaluator,
    *,
    definition: Snapshot,
    key: str | None,
    requested_by: str,
    origin: Origin | None,
    project: str | None,
) -> NewRun:
    """Return what a run of *saga* begins with; raises InvalidError where the inputs or the key don't fit (E8)."""
    from sagactl.core.records import NO_ORIGIN
    from sagactl.engine.clock import SystemClock
    from sagactl.identity import check_key, make_run_id
    from sagactl.log.base import NewRun

    value = check_input(saga, as_json(inputs))
    if key is not None:
        check_key(key, "an idempotency key")
    origin = origin or NO_ORIGIN
    return NewRun(
        run_id=make_run_id(),
        saga=saga.name,
        definition=definition,
        input=value,
        requested_by=requested_by,
        key=key if key is not None else read_run_key(saga, value, evaluator) or origin.key,
        key_is_explicit=key is not None,
        deadline_ms=None if saga.run_timeout_ms is None else SystemClock().now_ms() + saga.run_timeout_ms,
        origin=origin,
        project=project,
    )
