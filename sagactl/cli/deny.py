"""`sagactl deny RUN STEP`: refuse a step that waits for a person."""

from __future__ import annotations

from typing import Annotated

import typer

from sagactl.app import guard_stdout
from sagactl.cli.answer_approval import answer_approval
from sagactl.cli.options import make_app
from sagactl.cli.session import open_session
from sagactl.core.records import Verb

app = make_app()


@app.command()
def deny(
    context: typer.Context,
    run: Annotated[str, typer.Argument(metavar="RUN", help="A run's id or a prefix of it.")],
    step: Annotated[
        str | None, typer.Argument(metavar="STEP", help="The step; may be left out if only one waits.")
    ] = None,
    reason: Annotated[str | None, typer.Option("--reason", help="Why; recorded with your name.")] = None,
    no_resume: Annotated[bool, typer.Option("--no-resume", help="Only record it; don't carry the run on.")] = False,
) -> int:
    """Refuse a step, which is then never called; the run goes on without a way forward.

    Before the pivot the run is rolled back. Behind it there is no way back: the step becomes a dead letter.

    Examples:
      sagactl deny 7kq2m9 contract --reason "wrong customer"
    """
    guard_stdout()
    with open_session(context) as session:
        return answer_approval(session, Verb.DENY, run, step, reason=reason, only_record=no_resume)
