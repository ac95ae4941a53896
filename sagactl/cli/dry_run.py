"""`--dry-run` of a command that drives a run: what it would call, from the log alone; nothing is written or called."""

from __future__ import annotations

from sagactl.cli.answer import write_document
from sagactl.cli.follow import make_scene
from sagactl.cli.options import Output
from sagactl.cli.session import Session, now_ms
from sagactl.cli.streams import answer_stream, write_line
from sagactl.cli.views.foresight import render_foresight, write_foresight
from sagactl.core.foresight import Foresight, Situation, foresee_resume, foresee_rollback
from sagactl.core.records import Disposition, Request
from sagactl.core.state import RunState
from sagactl.engine.ending import make_refusal
from sagactl.errors import BusyError, ExitCode
from sagactl.log.base import RunRow
from sagactl.log.holder import is_dead


def foresee(session: Session, row: RunRow, request: Request | None) -> Foresight:
    """Return what asking *request* of a run, or resuming it, would lead to; raises BusyError where that would (E15)."""
    project = session.app
    saga = project.saga_of(row)
    is_driven = row.holder is not None and not is_dead(row.holder)
    if is_driven and request is None:
        assert row.holder is not None, "somebody drives it"
        message = f"run {row.run_id} is driven by process {row.holder.pid} on {row.holder.host}"
        raise BusyError(message, hint=f"sagactl show {row.run_id}")
    situation = survey(session, row)
    state, evaluator = _read(session, row), project.evaluator(saga)
    if request is None:
        return foresee_resume(saga, state, evaluator, situation)
    return foresee_rollback(saga, state, request, evaluator, situation)


def survey(session: Session, row: RunRow) -> Situation:
    """Return what a driver of the run would find here and now besides its log."""
    from sagactl.engine.missing import find_missing_tools

    project = session.app
    saga = project.saga_of(row)
    return Situation(
        now_ms=now_ms(),
        slots=project.config.calls_max,
        missing_tools=frozenset(find_missing_tools(saga, project.toolbox)),
        missing_secrets=frozenset(project.toolbox.missing_secrets(saga.secrets_needed)),
        is_driven=row.holder is not None and not is_dead(row.holder),
    )


def _read(session: Session, row: RunRow) -> RunState:
    """Return the run's state; each caller gets its own, as a foresight consumes it."""
    return session.app.read(row.run_id).state


def show_foresight(session: Session, row: RunRow, request: Request | None) -> ExitCode:
    """Write what would be called; raises RefusedError where the request itself would be refused."""
    foresight = foresee(session, row, request)
    answer = foresight.answer
    if answer is not None and answer.disposition is Disposition.REFUSED:
        raise make_refusal(row.run_id, answer.detail)
    scene = make_scene(session, session.app.saga_of(row), _read(session, row))
    verb = None if request is None else request.verb
    if session.output is Output.TEXT:
        write_line(answer_stream(), render_foresight(scene, foresight, verb=verb))
    else:
        write_document(write_foresight(scene, foresight, verb=verb))
    return ExitCode.OK


def describe_foresight(session: Session, row: RunRow, foresight: Foresight, *, shown_max: int) -> str:
    """Return what a rollback would call as text for stderr."""
    from dataclasses import replace

    scene = make_scene(session, session.app.saga_of(row), _read(session, row))
    return render_foresight(replace(scene, style=session.progress_style), foresight, shown_max=shown_max)
