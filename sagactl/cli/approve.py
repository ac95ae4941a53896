"""`sagactl approve RUN STEP`: agree to a step that waits for a person."""

from __future__ import annotations

import typer

from sagactl.app import guard_stdout
from sagactl.cli.answer_approval import answer_approval
from sagactl.cli.options import ApprovalArgument, NoResumeOption, ReasonOption, RunArgument, make_app
from sagactl.cli.session import open_session
from sagactl.core.records import Verb

app = make_app()


@app.command()
def approve(
    context: typer.Context,
    run: RunArgument,
    step: ApprovalArgument = None,
    reason: ReasonOption = None,
    no_resume: NoResumeOption = False,
) -> int:
    """Agree to what a step would do; the run goes on.

    What it would do is shown first: its tool, and all arguments. The answer is bound to exactly these.

    Examples:
      sagactl approve 7kq2m9 contract --reason "checked with legal"
    """
    guard_stdout()
    with open_session(context) as session:
        return answer_approval(session, Verb.APPROVE, run, step, reason=reason, only_record=no_resume)
