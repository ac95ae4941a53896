"""`sagactl pause RUN`: let a run begin nothing new."""

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
def pause(
    context: typer.Context,
    run: RunArgument,
    reason: ReasonOption = None,
) -> int:
    """Let a run begin nothing new, forward or back, until it is unpaused; calls under way settle.

    The time of the pause doesn't count against the run's deadlines. cancel, rollback and terminate lift it.

    Examples:
      sagactl pause 7kq2m9 --reason "the bank has an outage"
    """
    guard_stdout()
    with open_session(context) as session:
        row = select_run(session.app.log(), run, changes=True)
        return ask(session, row, make_request(Verb.PAUSE, reason=reason))
