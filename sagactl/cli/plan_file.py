"""Plans in files: written once, read strictly, and compared with what would be run now."""

from __future__ import annotations

import os
from pathlib import Path

from sagactl.cli.session import Session
from sagactl.cli.views.spelling import spell
from sagactl.core.canonical import Json, NotJsonError, parse
from sagactl.core.filled import fill_in
from sagactl.core.planned import (
    DIFFERENCES_MAX,
    PLAN_BYTES_MAX,
    BadPlanError,
    Planned,
    find_differences,
    make_planned,
    read_planned,
)
from sagactl.core.preview import read_given
from sagactl.core.saga import Saga
from sagactl.core.template import Scope
from sagactl.errors import InvalidError, NotFoundError, RefusedError, UsageError
from sagactl.inputs import check_input


def write_plan_file(name: str, planned: Planned) -> None:
    """Write a plan to a new file that only its owner reads; raises UsageError where there is one of that name."""
    data = (spell(planned.write()) + "\n").encode()
    if len(data) > PLAN_BYTES_MAX:
        raise InvalidError(f"the plan has more than {PLAN_BYTES_MAX} bytes", code="invalid-plan")
    try:
        descriptor = os.open(name, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    except FileExistsError:
        hint = "name another file: a plan that somebody may have agreed to is never overwritten"
        raise UsageError(f"{name} is there already", code="exists", hint=hint) from None
    except OSError as error:
        raise UsageError(f"{name} can't be written: {error.strerror}", code="bad-output") from error
    try:
        with os.fdopen(descriptor, "wb") as file:
            file.write(data)
    except OSError as error:
        Path(name).unlink(missing_ok=True)
        raise UsageError(f"{name} can't be written: {error.strerror}", code="bad-output") from error


def read_plan_file(name: str) -> Planned:
    """Return the plan in a file; raises UsageError, or InvalidError where it is none, or was changed."""
    try:
        with Path(name).open("rb") as file:
            data = file.read(PLAN_BYTES_MAX + 1)
    except OSError as error:
        raise UsageError(f"{name} can't be read: {error.strerror}", code="bad-input") from error
    hint = "sagactl plan FILE -i name=text --out PLAN"
    if len(data) > PLAN_BYTES_MAX:
        raise InvalidError(f"{name} has more than {PLAN_BYTES_MAX} bytes", code="invalid-plan", hint=hint)
    try:
        return read_planned(parse(data.decode("utf-8")))
    except (BadPlanError, NotJsonError, UnicodeDecodeError) as error:
        raise InvalidError(f"{name}: {error}", code="invalid-plan", hint=hint) from None


def find_planned_file(session: Session, planned: Planned) -> str:
    """Return the saga file that a plan names, which must lie in the project; raises NotFoundError.

    A plan may come from anybody: it doesn't choose files elsewhere.
    """
    project = session.app.config.project.resolve()
    found = project if "\0" in planned.file else (project / planned.file).resolve()
    if found.is_relative_to(project) and found.is_file():
        return str(found)
    message = f"the plan's saga file {planned.file} is not in this project"
    raise NotFoundError(message, code="no-such-saga", hint="sagactl run FILE --plan PLAN")


def refuse_other_plan(session: Session, name: str, planned: Planned, saga: Saga) -> None:
    """Raise RefusedError with all in which a run of *saga* now would differ from the plan."""
    value = check_input(saga, planned.input)
    now = plan_now(session, saga, value, plan_id=planned.plan_id, planned_by=planned.planned_by)
    found = find_differences(planned, now)
    if not found:
        return
    listed = "; ".join(found[:DIFFERENCES_MAX])
    more = f"; and {len(found) - DIFFERENCES_MAX:,} more" if len(found) > DIFFERENCES_MAX else ""
    hint = f"look at what it would be now: sagactl plan {Path(saga.source or saga.name)} --show-inputs"
    raise RefusedError(f"{name} is not what would be run now: {listed}{more}", code="plan-differs", hint=hint)


def plan_now(session: Session, saga: Saga, value: Json, *, plan_id: str, planned_by: str) -> Planned:
    """Return the plan of a run of *saga* with the checked input *value*."""
    scope: Scope = {"input": value}
    evaluator = session.app.evaluator(saga)
    filled = fill_in(saga, read_given(saga, scope, evaluator), scope, evaluator)
    return make_planned(saga, value, filled, plan_id=plan_id, planned_by=planned_by)
