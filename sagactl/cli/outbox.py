"""`sagactl outbox`: alerts and events on their way out, and sending what waits."""

from __future__ import annotations

import os
from dataclasses import replace
from typing import Annotated

import typer

from sagactl.cli.answer import write_document
from sagactl.cli.delivery import Delivery
from sagactl.cli.options import Output, make_app
from sagactl.cli.session import Session, now_ms, open_session
from sagactl.cli.streams import answer_stream, write_line
from sagactl.cli.views.outbox import Held, Tally, render_messages, render_tallies, write_messages, write_tallies
from sagactl.core.outbox import DeliveryState, Message, is_unheard
from sagactl.errors import ExitCode, InvalidError
from sagactl.log.base import Log
from sagactl.log.holder import is_dead
from sagactl.usecases.select import select_run, short_ids

app = make_app("Alerts and events: what waits to be sent, and sending it.")


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
        found = log.outbox.messages(run_id=run_id, is_pending=not everything)
        messages = [_without_the_dead(message) for message in found]
        behind = [] if target is None else log.outbox.cursors(target.key)
        behind = [cursor for cursor in behind if run_id in {None, cursor.run_id}]
        if session.output is Output.TEXT:
            shown = short_ids(log, [message.run_id for message in messages])
            unheard = 0 if everything else _count_unheard(log, run_id)
            text = render_messages(
                messages, behind, short_ids=shown, now_ms=now_ms(), style=session.style, unheard=unheard
            )
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
        delivery = Delivery(session, session.app.make_lanes(), watches=watch)
        code = delivery.work()
        _note_troubles(session, delivery.tallies)
        tallies, held = list(delivery.tallies.values()), _find_holders(session)
        if session.output is Output.TEXT and session.settings.quiet < 2:
            write_line(answer_stream(), render_tallies(tallies, held, now_ms(), session.style))
        elif session.output is Output.JSON:
            write_document(write_tallies(tallies))
        return code


def _count_unheard(log: Log, run_id: str | None) -> int:
    return sum(is_unheard(message) for message in log.outbox.messages(run_id=run_id, is_pending=False))


def _without_the_dead(message: Message) -> Message:
    """Return *message* as whoever delivers next will find it: what a dead process was sending is due."""
    deliveries = [
        replace(each, state=DeliveryState.WAITING, due_ms=0, claimant=None)
        if each.claimant is not None and is_dead(each.claimant)
        else each
        for each in message.deliveries
    ]
    return replace(message, deliveries=tuple(deliveries))


def _note_troubles(session: Session, tallies: dict[str, Tally]) -> None:
    """Note what a channel said last to what it is sent again later: nothing was due, and it isn't well all the same."""
    for message in session.app.log().outbox.messages():
        for each in message.deliveries:
            tally = tallies.get(each.channel)
            if tally is not None and not tally.failed and each.state is DeliveryState.WAITING:
                tally.error = each.error or tally.error


def _find_holders(session: Session) -> dict[str, Held]:
    """Return which other process has claimed what waits, by channel and for events, and until when at most."""
    outbox, target = session.app.log().outbox, session.app.ways.target
    held = {
        each.channel: Held(each.claimant, each.due_ms)
        for message in outbox.messages()
        for each in message.deliveries
        if each.state is DeliveryState.SENDING
    }
    for cursor in outbox.cursors(target.key) if target is not None else ():
        if cursor.claimant is not None:
            held["events"] = Held(cursor.claimant, cursor.due_ms)
    return {name: each for name, each in held.items() if each.holder is not None and each.holder.pid != os.getpid()}
