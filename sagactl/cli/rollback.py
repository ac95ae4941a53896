"""`sagactl rollback RUN`: undo what a run has done."""

from __future__ import annotations

import sys
from typing import Annotated

import typer

from sagactl.app import guard_stdout
from sagactl.cli.operate import ask
from sagactl.cli.options import make_app
from sagactl.cli.select import select_run
from sagactl.cli.session import Session, now_ms, open_session
from sagactl.core.backward import plan_rollback
from sagactl.core.evolve import replay
from sagactl.core.operators import answer_request
from sagactl.core.records import Disposition, Request, RunStatus, Verb
from sagactl.driving import make_request
from sagactl.errors import UsageError
from sagactl.log.base import RunRow

app = make_app()


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
    if past_pivot and not reason:
        raise UsageError("--past-pivot takes a --reason", code="reason-needed")
    with open_session(context) as session:
        row = select_run(session.app.log(), run, changes=True)
        request = make_request(Verb.ROLLBACK, reason=reason, past_pivot=past_pivot)
        if row.status is RunStatus.SUCCEEDED and not yes:
            _confirm(session, row, request)
        return ask(session, row, request)


def _confirm(session: Session, row: RunRow, request: Request) -> None:
    """Ask before a success is undone, with what will be called; what would be refused isn't asked about."""
    saga = session.app.saga_of(row)
    state = replay(saga, (stored.record for stored in session.app.log().read(row.run_id)))
    if answer_request(saga, state, request, now_ms()).disposition is not Disposition.ACCEPTED:
        return
    undos = [operation for operation in plan_rollback(saga, state) if saga.by_id[operation.step].compensation]
    noun = "call" if len(undos) == 1 else "calls"
    question = f"run {row.run_id} of {row.saga} succeeded: undo it with {len(undos)} {noun}?"
    if session.settings.no_input or not (sys.stdin.isatty() and sys.stderr.isatty()):
        raise UsageError(
            f"{question} nobody can be asked", code="confirmation-needed", hint=f"sagactl rollback {row.run_id} --yes"
        )
    sys.stderr.write(f"{question} [y/N] ")
    sys.stderr.flush()
    if sys.stdin.readline().strip().lower() not in {"y", "yes"}:
        raise UsageError("not confirmed: nothing was done", code="confirmation-needed")
