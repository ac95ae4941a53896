"""`sagactl deny RUN STEP`: refuse a step that waits for a person."""

from __future__ import annotations

import typer

from sagactl.app import guard_stdout
from sagactl.cli.answer_approval import answer_approval
from sagactl.cli.options import ApprovalArgument, NoResumeOption, ReasonOption, RunArgument, make_app
from sagactl.cli.session import open_session
from sagactl.core.records import Verb

app = make_app()


@app.command()
def deny(
    context: typer.Context,
    run: RunArgument,
    step: ApprovalArgument = None,
    reason: ReasonOption = None,
    no_resume: NoResumeOption = False,
) -> int:
    """Refuse a step, which is then never called; the run goes on without a way forward.

    Before the pivot the run is rolled back. Behind it there is no way back: the step becomes a dead letter.

    Examples:
      sagactl deny 7kq2m9 contract --reason "wrong customer"
    """
    guard_stdout()
    with open_session(context) as session:
        return answer_approval(session, Verb.DENY, run, step, reason=reason, only_record=no_resume)
