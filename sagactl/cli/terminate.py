"""`sagactl terminate RUN`: end a run as it stands."""

from __future__ import annotations

from typing import Annotated

import typer

from sagactl.app import guard_stdout
from sagactl.cli.operate import ask
from sagactl.cli.options import RunArgument, make_app
from sagactl.cli.session import open_session
from sagactl.core.records import Verb
from sagactl.requests import make_request
from sagactl.usecases.select import select_run

app = make_app()


@app.command()
def terminate(
    context: typer.Context,
    run: RunArgument,
    reason: Annotated[str, typer.Option("--reason", help="Why; recorded with your name.")],
) -> int:
    """End a run as it stands: calls settle, nothing is undone, what is left is listed.

    A terminated run can still be rolled back.

    Examples:
      sagactl terminate 7kq2m9 --reason "handled by hand, see ticket 4711"
    """
    guard_stdout()
    with open_session(context) as session:
        row = select_run(session.app.log(), run, changes=True)
        return ask(session, row, make_request(Verb.TERMINATE, reason=reason))
