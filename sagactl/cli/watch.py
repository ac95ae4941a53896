"""`sagactl watch RUN`: follow a run that another process drives, from its log alone."""

from __future__ import annotations

from typing import Annotated

import typer

from sagactl.cli.answer import write_document
from sagactl.cli.display import make_display
from sagactl.cli.follow import code_of_status, write_ending
from sagactl.cli.options import Output, make_app
from sagactl.cli.select import select_run, short_id
from sagactl.cli.session import Session, open_session
from sagactl.cli.tail import PATIENCE_SECONDS, PATIENCE_SECONDS_MAX, follow_run
from sagactl.cli.views.commands import type_resume
from sagactl.cli.views.documents import write_record
from sagactl.core.evolve import evolve
from sagactl.core.records import AT_REST
from sagactl.core.state import RunState
from sagactl.core.summary import summarize
from sagactl.engine.ending import Ending, Why
from sagactl.engine.settings import Committed
from sagactl.errors import ExitCode, UsageError
from sagactl.log.base import RunRow

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
    last = _follow(session, row, patience_seconds)
    summary = last.summary
    why = Why.AT_REST if summary.status in AT_REST else Why.WAITING
    write_ending(session, Ending(row.run_id, summary, why), last)
    return code_of_status(summary.status)


def _follow(session: Session, row: RunRow, patience_seconds: float) -> Committed:
    """Show the run until it is over for whoever watches; of one that rests already only the end is told."""
    log = session.app.log(read_only=True)
    saga, state = session.app.saga_of(row), RunState()
    hint = type_resume(short_id(log, row.run_id))
    settings = session.settings if row.status not in AT_REST else session.settings.without_progress()
    with make_display(settings, is_watching=True) as display:
        for look in follow_run(log, row.run_id, patience_seconds=patience_seconds):
            first_seq = state.seq + 1
            for stored in look.records:
                evolve(saga, state, stored.record)
                if session.output is Output.JSONL:
                    write_document(write_record(stored))
            records = tuple(stored.record for stored in look.records)
            display.show(Committed(row.run_id, saga, state, first_seq, records))
            is_left = not look.is_driven and not summarize(saga, state).is_at_rest
            display.note(f"nobody drives this run: {hint}" if is_left else "")
    return Committed(row.run_id, saga, state, state.seq + 1, ())
