"""`sagactl rollback RUN`: undo what a run has done."""

from __future__ import annotations

import sys
from typing import Annotated

import typer

from sagactl.app import guard_stdout
from sagactl.cli.operate import ask, make_request
from sagactl.cli.select import select_run
from sagactl.cli.session import Session, open_session
from sagactl.core.records import RunStatus, Verb
from sagactl.errors import UsageError
from sagactl.log.base import RunRow

app = typer.Typer()


@app.command()
def rollback(
    context: typer.Context,
    run: Annotated[str, typer.Argument(metavar="RUN", help="A run's id or a prefix of it.")],
    reason: Annotated[str | None, typer.Option("--reason", help="Why; recorded with your name.")] = None,
    past_pivot: Annotated[
        bool, typer.Option("--past-pivot", help="Also behind the point of no return; needs --reason.")
    ] = False,
    yes: Annotated[bool, typer.Option("--yes", help="Don't ask before undoing a run that succeeded.")] = False,
) -> int:
    """Undo what a run has done, the last first.

    Allowed for a run that is not at rest, that succeeded without a pivot, that was terminated, or that is stuck in
    doubt. Behind a pivot only with --past-pivot and a reason.

    Examples:
      sagactl rollback 7kq2m9 --reason "wrong customer"

      sagactl rollback 7kq2m9 --past-pivot --reason "contract void" --yes
    """
    guard_stdout()
    with open_session(context) as session:
        row = select_run(session.app.log(), run, changes=True)
        if row.status is RunStatus.SUCCEEDED and not yes:
            _confirm(session, row)
        request = make_request(Verb.ROLLBACK, reason=reason, past_pivot=past_pivot)
        return ask(session, row, request)


def _confirm(session: Session, row: RunRow) -> None:
    question = f"run {row.run_id} of {row.saga} succeeded: undo its {row.steps_done} steps?"
    if session.settings.no_input or not (sys.stdin.isatty() and sys.stderr.isatty()):
        raise UsageError(
            f"{question} nobody can be asked", code="confirmation-needed", hint=f"sagactl rollback {row.run_id} --yes"
        )
    sys.stderr.write(f"{question} [y/N] ")
    sys.stderr.flush()
    if sys.stdin.readline().strip().lower() not in {"y", "yes"}:
        raise UsageError("not confirmed: nothing was done", code="confirmation-needed")
