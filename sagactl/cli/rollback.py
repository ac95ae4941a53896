"""`sagactl rollback RUN`: undo what a run has done."""

from __future__ import annotations

import shlex
import sys
from typing import Annotated, Final

import typer

from sagactl.app import guard_stdout
from sagactl.cli.operate import ask
from sagactl.cli.options import ReasonOption, RunArgument, make_app
from sagactl.cli.session import Session, open_session
from sagactl.cli.streams import write_line
from sagactl.cli.views.text import plural
from sagactl.core.records import Request, RunStatus, Verb
from sagactl.errors import UsageError
from sagactl.log.base import RunRow
from sagactl.requests import make_request
from sagactl.usecases.select import select_run

CALLS_SHOWN_BEFORE_ASKING: Final = 20

app = make_app()


@app.command()
def rollback(
    context: typer.Context,
    run: RunArgument,
    reason: ReasonOption = None,
    past_pivot: Annotated[
        bool, typer.Option("--past-pivot", help="Also behind the point of no return; needs --reason.")
    ] = False,
    yes: Annotated[bool, typer.Option("--yes", help="Don't ask before undoing a run that succeeded.")] = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only show what would be called.")] = False,
) -> int:
    """Undo what a run has done, the last first.

    Allowed for a run that is not at rest, that succeeded without a pivot, that was terminated, or that is stuck in
    doubt. Behind a pivot only with --past-pivot and a reason.

    With --dry-run each call is shown, in order and with its arguments; nothing is called, nothing is written.

    Examples:
      sagactl rollback 7kq2m9 --dry-run

      sagactl rollback 7kq2m9 --reason "wrong customer"

      sagactl rollback 7kq2m9 --past-pivot --reason "contract void" --yes
    """
    guard_stdout()
    if past_pivot and not reason and not dry_run:
        raise UsageError("--past-pivot takes a --reason", code="reason-needed")
    with open_session(context) as session:
        row = select_run(session.app.log(read_only=dry_run), run, changes=not dry_run)
        if dry_run:
            from sagactl.cli.dry_run import show_foresight

            why = reason or "dry run"
            return show_foresight(session, row, make_request(Verb.ROLLBACK, reason=why, past_pivot=past_pivot))
        request = make_request(Verb.ROLLBACK, reason=reason, past_pivot=past_pivot)
        if row.status is RunStatus.SUCCEEDED and not yes:
            _confirm(session, row, request)
        return ask(session, row, request)


def _confirm(session: Session, row: RunRow, request: Request) -> None:
    """Ask before a success is undone, with what will be called; what would be refused isn't asked about."""
    from sagactl.cli.dry_run import describe_foresight
    from sagactl.usecases.foreseeing import foresee

    foresight = foresee(session.app, row, request)
    if not foresight.is_accepted:
        return
    calls = sum(each.objection is None for each in foresight.calls)
    question = f"run {row.run_id} of {row.saga} succeeded: undo it with {plural(calls, 'call')}?"
    if session.settings.no_input or not (sys.stdin.isatty() and sys.stderr.isatty()):
        message = f"{question} nobody can be asked, and --dry-run would show the calls"
        raise UsageError(message, code="confirmation-needed", hint=_type_again(row, request))
    write_line(sys.stderr, describe_foresight(session, row, foresight, shown_max=CALLS_SHOWN_BEFORE_ASKING))
    sys.stderr.write(f"{question} [y/N] ")
    sys.stderr.flush()
    if sys.stdin.readline().strip().lower() not in {"y", "yes"}:
        raise UsageError("not confirmed: nothing was done", code="confirmation-needed")


def _type_again(row: RunRow, request: Request) -> str:
    """Return the same command with `--yes`, everything that was said included."""
    past_pivot = ["--past-pivot"] if request.past_pivot else []
    reason = ["--reason", request.reason] if request.reason else []
    return shlex.join(["sagactl", "rollback", row.run_id, *past_pivot, *reason, "--yes"])
