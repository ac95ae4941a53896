"""`resume --definition`: show what another definition would change for a run, and bind the run to it."""

from __future__ import annotations

from sagactl.cli.answer import complete_hints, write_document
from sagactl.cli.load import load_to_run
from sagactl.cli.options import Output
from sagactl.cli.session import Session
from sagactl.cli.streams import answer_stream, write_line
from sagactl.cli.views.rebinding import Proposal, render_rebinding, write_rebinding
from sagactl.core.definition import take_snapshot
from sagactl.core.rebinding import Rebinding
from sagactl.core.saga import Saga
from sagactl.engine.rebind import refuse_objections
from sagactl.errors import ExitCode, RefusedError
from sagactl.log.base import RunRow
from sagactl.usecases.errors import write_error
from sagactl.usecases.select import short_id


def show_binding(session: Session, row: RunRow, file: str) -> ExitCode:
    """Write what would change; where it would be refused, end as the real command would."""
    saga = session.app.load_saga(session.app.find_saga(file)).saga
    proposal = _propose(session, row, saga, file, session.app.plan_rebinding(row.run_id, saga))
    if session.output is Output.TEXT:
        write_line(answer_stream(), render_rebinding(proposal, session.style))
        refuse_objections(row.run_id, proposal.rebinding)
        return ExitCode.OK
    try:
        refuse_objections(row.run_id, proposal.rebinding)
    except RefusedError as error:
        complete_hints(error, session.settings)
        write_document(write_rebinding(proposal, write_error(error)["error"]))
        return error.exit_code
    write_document(write_rebinding(proposal, None))
    return ExitCode.OK


def bind_run(session: Session, row: RunRow, file: str, reason: str | None) -> None:
    """Show what changes and bind the run; raises RefusedError with all that forbids it."""
    saga = load_to_run(session, file)
    rebinding = session.app.plan_rebinding(row.run_id, saga)
    session.say(render_rebinding(_propose(session, row, saga, file, rebinding), session.progress_style))
    refuse_objections(row.run_id, rebinding)
    session.app.rebind(row.run_id, saga, reason=reason)


def _propose(session: Session, row: RunRow, saga: Saga, file: str, rebinding: Rebinding) -> Proposal:
    shown = short_id(session.app.log(read_only=True), row.run_id)
    digest = take_snapshot(saga).digest
    return Proposal(row.run_id, shown, row.saga, row.definition, digest, saga.source or file, rebinding)
