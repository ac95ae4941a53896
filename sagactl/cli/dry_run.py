"""`--dry-run` of a command that drives a run: what it would call, from the log alone; nothing is written or called."""

from __future__ import annotations

from sagactl.cli.answer import write_document
from sagactl.cli.follow import make_scene
from sagactl.cli.options import Output
from sagactl.cli.session import Session
from sagactl.cli.streams import answer_stream, write_line
from sagactl.cli.views.foresight import render_foresight, write_foresight
from sagactl.core.foresight import Foresight
from sagactl.core.records import Disposition, Request
from sagactl.engine.ending import make_refusal
from sagactl.errors import ExitCode
from sagactl.log.base import RunRow
from sagactl.usecases.foreseeing import foresee


def show_foresight(session: Session, row: RunRow, request: Request | None) -> ExitCode:
    """Write what would be called; raises RefusedError where the request itself would be refused."""
    foresight = foresee(session.app, row, request)
    answer = foresight.answer
    if answer is not None and answer.disposition is Disposition.REFUSED:
        raise make_refusal(row.run_id, answer.detail)
    scene = make_scene(session, session.app.saga_of(row), session.app.read(row.run_id).state)
    verb = None if request is None else request.verb
    if session.output is Output.TEXT:
        write_line(answer_stream(), render_foresight(scene, foresight, verb=verb))
    else:
        write_document(write_foresight(scene, foresight, verb=verb))
    return ExitCode.OK


def describe_foresight(session: Session, row: RunRow, foresight: Foresight, *, shown_max: int) -> str:
    """Return what a rollback would call as text for stderr."""
    from dataclasses import replace

    scene = make_scene(session, session.app.saga_of(row), session.app.read(row.run_id).state)
    return render_foresight(replace(scene, style=session.progress_style), foresight, shown_max=shown_max)
