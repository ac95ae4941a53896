"""`sagactl outbox`: alerts and events on their way out, and sending what waits."""

from __future__ import annotations

import signal
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Annotated, Final

import typer

from sagactl.cli.answer import write_document
from sagactl.cli.options import Output, make_app
from sagactl.cli.select import select_run, short_ids
from sagactl.cli.session import Session, now_ms, open_session
from sagactl.cli.streams import answer_stream, write_line
from sagactl.cli.views.outbox import (
    Tally,
    render_messages,
    render_sent,
    render_tallies,
    write_messages,
    write_sent,
    write_tallies,
)
from sagactl.core.outbox import Sent
from sagactl.errors import ExitCode, InvalidError

app = make_app("Alerts and events: what waits to be sent, and sending it.")

WATCH_SECONDS: Final = 1.0
"""How often `deliver --watch` looks for something to send."""


@app.command("list")
def list_messages(
    context: typer.Context,
    run: Annotated[str | None, typer.Option("--run", metavar="RUN", help="Only of this run.")] = None,
    everything: Annotated[bool, typer.Option("--all", help="Also those that are done with.")] = False,
) -> int:
    """List alerts, oldest first, with what came of them at each channel.

    Examples:
      sagactl outbox list

      sagactl outbox list --run 7kq2m9 --all -o json
    """
    with open_session(context) as session:
        log = session.app.log(read_only=True)
        target = session.app.ways.target
        run_id = None if run is None else select_run(log, run).run_id
        messages = log.outbox.messages(run_id=run_id, is_pending=not everything)
        behind = [] if target is None else log.outbox.cursors(target.key)
        behind = [cursor for cursor in behind if run_id in {None, cursor.run_id}]
        if session.output is Output.TEXT:
            shown = short_ids(log, [message.run_id for message in messages])
            text = render_messages(messages, behind, short_ids=shown, now_ms=now_ms(), style=session.style)
            write_line(answer_stream(), text)
        else:
            write_document(write_messages(messages, behind))
        return ExitCode.OK


@app.command()
def deliver(
    context: typer.Context,
    watch: Annotated[bool, typer.Option("--watch", help="Stay, and send whatever comes, until Ctrl-C.")] = False,
) -> int:
    """Send the alerts and events that are due; exit 1 where something could not be sent.

    Examples:
      sagactl outbox deliver

      sagactl outbox deliver --watch
    """
    with open_session(context) as session:
        if not session.app.ways:
            message = "no channel and no target of events is set, so there is nowhere to send to"
            raise InvalidError(message, code="no-channels", hint="sagactl help alerts")
        session.app.log(read_only=True)  # where there is no log there is nothing to send, and none is made
        tallies, code = _deliver(session, watch=watch)
        if session.output is Output.TEXT and session.settings.quiet < 2:
            write_line(answer_stream(), render_tallies(tallies, now_ms(), session.style))
        elif session.output is Output.JSON:
            write_document(write_tallies(tallies))
        return code


def _deliver(session: Session, *, watch: bool) -> tuple[list[Tally], int]:
    lanes = session.app.make_lanes()
    tallies = {lane.name: Tally(lane.name) for lane in lanes}

    def tell(sent: Sent) -> None:
        tallies[sent.lane].count(sent)
        if session.output is Output.JSONL:
            write_document(write_sent(sent))
        if session.shows_progress and sent.error is not None:
            write_line(sys.stderr, render_sent(sent, now_ms(), session.progress_style))

    with _until_signal() as stop:
        while True:
            for lane in lanes:
                tallies[lane.name].due_ms = lane.work(tell, stop.is_set)
            if not watch or stop.wait(WATCH_SECONDS):
                break
    has_failed = any(tally.failed for tally in tallies.values())
    code = stop.code if stop.is_set() else ExitCode.ERROR if has_failed and not watch else ExitCode.OK
    return list(tallies.values()), code


class _Stop(threading.Event):
    """Set by a signal, with the exit code that it means."""

    code: ExitCode = ExitCode.INTERRUPTED


@contextmanager
def _until_signal() -> Iterator[_Stop]:
    """Let SIGINT and SIGTERM end the work between two messages."""
    stop = _Stop()
    codes = {signal.SIGINT: ExitCode.INTERRUPTED, signal.SIGTERM: ExitCode.TERMINATED_BY_SIGNAL}

    def handle(number: int, _: object) -> None:
        stop.code = codes[signal.Signals(number)]
        stop.set()

    previous = {number: signal.signal(number, handle) for number in codes}
    try:
        yield stop
    finally:
        for number, handler in previous.items():
            signal.signal(number, handler)
