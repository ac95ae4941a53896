"""`sagactl unpause RUN`: let a paused run go on."""

from __future__ import annotations

import typer

from sagactl.app import guard_stdout
from sagactl.cli.operate import ask
from sagactl.cli.options import ReasonOption, RunArgument, make_app
from sagactl.cli.session import open_session
from sagactl.core.records import Verb
from sagactl.requests import make_request
from sagactl.usecases.select import select_run

app = make_app()


@app.command()
def unpause(
    context: typer.Context,
    run: RunArgument,
    reason: ReasonOption = None,
) -> int:
    """Let a paused run go on from where it stood.

    Examples:
      sagactl unpause 7kq2m9
    """
    guard_stdout()
    with open_session(context) as session:
        row = select_run(session.app.log(), run, changes=True)
        return ask(session, row, make_request(Verb.UNPAUSE, reason=reason))
