"""What a new run begins with: a saga and inputs, given, or taken from another run."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from sagactl.cli.inputs import read_inputs
from sagactl.cli.load import load_to_run
from sagactl.cli.session import Session, find_file
from sagactl.core.canonical import Json
from sagactl.core.records import NO_ORIGIN, Origin
from sagactl.core.saga import Saga
from sagactl.dataclass import dataclass
from sagactl.errors import NotFoundError, UsageError
from sagactl.log.base import RunRow
from sagactl.usecases.select import select_run, short_id


@dataclass(frozen=True, slots=True)
class Given:
    """What the command line says of a new run."""

    file: str | None
    inputs: Sequence[str]
    inputs_file: str | None
    from_run: str | None = None
    plan_file: str | None = None


@dataclass(frozen=True, slots=True)
class Beginning:
    """A saga, the input of its run, and where that came from."""

    saga: Saga
    input: Json
    origin: Origin = NO_ORIGIN


def check_given(given: Given) -> None:
    """Raise UsageError where the options don't go together."""
    if given.from_run is not None and given.inputs_file is not None:
        raise UsageError("--from gives all inputs, and so does --inputs", hint="change some of them with -i")
    if given.plan_file is not None and (given.inputs or given.inputs_file is not None or given.from_run is not None):
        raise UsageError("a plan has its input: --plan goes with no other", hint="sagactl run --plan PLAN")
    if given.file is None and given.from_run is None and given.plan_file is None:
        raise UsageError("missing argument 'FILE'", hint="sagactl run --help")


def begin(session: Session, given: Given) -> Beginning:
    """Return what the run begins with; raises UsageError, NotFoundError, InvalidError."""
    beginning = _begin(session, given)
    traceparent = os.environ.get("TRACEPARENT")
    if not traceparent:
        return beginning
    from sagactl.core.tracing import read_traceparent

    if read_traceparent(traceparent) is None:
        session.say("warning: TRACEPARENT names no span, so this run's trace is linked to none")
        return beginning
    return replace(beginning, origin=replace(beginning.origin, traceparent=traceparent))


def _begin(session: Session, given: Given) -> Beginning:
    if given.plan_file is not None:
        return _begin_planned(session, given.file, given.plan_file)
    if given.from_run is not None:
        return _begin_from(session, given, given.from_run)
    assert given.file is not None, "checked before"
    value = read_inputs(given.inputs, given.inputs_file)
    return Beginning(load_to_run(session, given.file), value)


def _begin_from(session: Session, given: Given, from_run: str) -> Beginning:
    """Take the inputs of another run, whatever became of it, and a saga file as it is now."""
    log = session.app.log(read_only=True)
    row = select_run(log, from_run, changes=True)
    known = session.app.read(row.run_id)
    assert known.state.created is not None, "a run begins with its first record"
    value = read_inputs(given.inputs, None, known.state.created.input)
    file = given.file if given.file is not None else _find_file(session, row, known.saga)
    saga = load_to_run(session, file)
    shown = short_id(log, row.run_id)
    session.say(f"inputs of run {shown} of {row.saga}; definition of {saga.source or file}, as it is now")
    return Beginning(saga, value, Origin(forked_from=row.run_id))


def _begin_planned(session: Session, file: str | None, plan_file: str) -> Beginning:
    """Take the input of a plan, where a run of it would be what was planned."""
    from sagactl.cli.plan_file import find_planned_file, read_plan_file, refuse_other_plan

    planned = read_plan_file(plan_file)
    saga = load_to_run(session, file if file is not None else find_planned_file(session, planned))
    refuse_other_plan(session, plan_file, planned, saga)
    session.say(session.progress_style.show(f"plan {planned.digest[:12]} of {planned.saga}, by {planned.planned_by}"))
    return Beginning(saga, planned.input, Origin(plan=planned.digest))


def _find_file(session: Session, row: RunRow, saga: Saga) -> str:
    """Return the file that a run's saga came from, or else the one that has its name; raises NotFoundError."""
    source = session.app.config.project / (saga.source or "")
    if saga.source and source.is_file():
        return str(source)
    try:
        return str(session.app.find_saga(row.saga))
    except NotFoundError as error:
        hint = f"sagactl run FILE --from {row.run_id}"
        raise NotFoundError(f"{error.message}, which run {row.run_id} was of", code=error.code, hint=hint) from error


def path_of(file: str | None) -> Path | None:
    """Return the file whose project a command works in, where FILE is a path."""
    return find_file(file)
