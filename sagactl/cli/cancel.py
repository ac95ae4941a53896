"""`sagactl cancel RUN`: turn a run around before its pivot."""

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
def cancel(
    context: typer.Context,
    run: RunArgument,
    reason: ReasonOption = None,
) -> int:
    """Turn a run around: nothing new starts, and what was done is undone.

    Behind the pivot it is refused. While the pivot's outcome is open the request waits for it.

    Examples:
      sagactl cancel 7kq2m9 --reason "customer withdrew"
    """
    guard_stdout()
    with open_session(context) as session:
        row = select_run(session.app.log(), run, changes=True)
        return ask(session, row, make_request(Verb.CANCEL, reason=reason))
