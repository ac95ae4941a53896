"""`sagactl watch RUN`: follow a run that another process drives, from its log alone."""

from __future__ import annotations

from typing import Annotated

import typer

from sagactl.cli.attend import attend
from sagactl.cli.follow import code_of_status, write_ending
from sagactl.cli.options import make_app
from sagactl.cli.session import Session, open_session
from sagactl.core.records import AT_REST
from sagactl.engine.ending import Ending, Why
from sagactl.errors import ExitCode, UsageError
from sagactl.usecases.following import PATIENCE_SECONDS, PATIENCE_SECONDS_MAX
from sagactl.usecases.select import select_run

app = make_app()


@app.command()
def watch(
    context: typer.Context,
    run: Annotated[
        str | None, typer.Argument(metavar="RUN", help="A run: id, prefix, @latest (the default), @latest:SAGA.")
    ] = None,
    everything: Annotated[bool, typer.Option("--all", help="All runs that are not at rest, as a table.")] = False,
    patience: Annotated[
        float,
        typer.Option(
            "--patience", metavar="SECONDS", min=0, max=PATIENCE_SECONDS_MAX, help="How long to stay if nobody drives."
        ),
    ] = PATIENCE_SECONDS,
) -> int:
    """Follow a run that another process drives.

    Only its log is read. Ends with the run's exit code when the run rests or waits for a person, and with 12 when
    nobody has driven it for a while. Ctrl-C stops watching, not the run.

    Examples:
      sagactl watch

      sagactl watch 7kq2m9 --progress plain

      sagactl watch --all --patience 0
    """
    if everything and run is not None:
        raise UsageError("watch takes a run or --all", hint="sagactl watch --help")
    with open_session(context) as session:
        try:
            if everything:
                from sagactl.cli.watch_all import watch_all

                return watch_all(session, patience_seconds=patience)
            return _watch_one(session, run or "@latest", patience)
        except KeyboardInterrupt:
            session.say("stopped watching; nothing else was stopped")
            return ExitCode.INTERRUPTED


def _watch_one(session: Session, text: str, patience_seconds: float) -> int:
    row = select_run(session.app.log(read_only=True), text)
    if text.startswith("@"):
        session.say(f"{text} is run {row.run_id} of {session.progress_style.show(row.saga)}")
    last = attend(session, row, patience_seconds=patience_seconds, writes_records=True)
    summary = last.summary
    why = Why.AT_REST if summary.status in AT_REST else Why.WAITING
    write_ending(session, Ending(row.run_id, summary, why), last)
    return code_of_status(summary.status)
