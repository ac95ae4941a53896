"""`sagactl outbox`: alerts with what came of them at each channel, and how far events have come."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Final, NamedTuple

from sagactl.cli.views.layout import Cell, Column, Fact, join_blocks, lay_out, list_facts, list_hints
from sagactl.cli.views.style import Hue, Style
from sagactl.cli.views.text import plural
from sagactl.cli.views.times import show_ago, show_rough
from sagactl.cli.views.words import name_holder, plain
from sagactl.core.alerting import Reason
from sagactl.core.outbox import Cursor, Delivery, DeliveryState, Message, Sent
from sagactl.core.records import Holder
from sagactl.dataclass import dataclass
from sagactl.documents import write_time
from sagactl.usecases.documents import Document, write_list

if TYPE_CHECKING:
    from sagactl.core.canonical import Json

MESSAGES_SCHEMA: Final = "sagactl.messages/1"
DELIVERIES_SCHEMA: Final = "sagactl.deliveries/1"
SENT_SCHEMA: Final = "sagactl.sent/1"

_COLUMNS: Final = (
    Column("run", is_whole=True),
    Column("alert", is_whole=True),
    Column("since", is_whole=True),
    Column("to"),
    Column("sent", is_whole=True),
)
_STATES: Final = {
    DeliveryState.SENDING: "under way",
    DeliveryState.WAITING: "retrying",
    DeliveryState.DELIVERED: "delivered",
    DeliveryState.GIVEN_UP: "given up",
    DeliveryState.NOT_NEEDED: "not needed",
}


@dataclass(slots=True)
class Tally:
    """What was sent to one channel, or as events."""

    name: str
    delivered: int = 0
    failed: int = 0
    error: str | None = None
    due_ms: int | None = None

    def count(self, sent: Sent) -> None:
        """Count one try."""
        if sent.error is None:
            self.delivered += 1
        else:
            self.failed += 1
            self.error = sent.error


class Held(NamedTuple):
    """What another process has claimed: which one, and until when at most."""

    holder: Holder | None
    until_ms: int


def render_messages(
    messages: Sequence[Message],
    behind: Sequence[Cursor],
    *,
    short_ids: Mapping[str, str],
    now_ms: int,
    style: Style,
    unheard: int = 0,
) -> str:
    """Return the table of alerts, how far events are behind, and the command that sends what waits.

    *unheard* alerts were given up, and aren't in the table.
    """
    pending = any(message.finished_at_ms is None for message in messages)
    rows = [row for message in messages for row in _lay_message(message, short_ids, now_ms, style)]
    counted = plural(len(messages), "alert") if messages else "no alert waits to be sent"
    events = sum(cursor.head - cursor.seq for cursor in behind)
    late = f"{plural(events, 'event')} of {plural(len(behind), 'run')} not sent yet"
    lost = f"{plural(unheard, 'alert')} given up: nobody was told of what still stands"
    commands = [
        *(["sagactl outbox deliver"] if pending or behind else []),
        *(["sagactl outbox list --all"] if unheard else []),
    ]
    return join_blocks(
        lay_out(_COLUMNS, rows, style) if rows else [],
        list_facts(_list_errors(messages, behind, style), style, hue=Hue.BAD),
        [counted, *([late] if behind else []), *([lost] if unheard else [])],
        list_hints(commands, style),
    )


def _list_errors(messages: Sequence[Message], behind: Sequence[Cursor], style: Style) -> list[Fact]:
    """Return what was last said by each channel that didn't take something, and about events."""
    said = {each.channel: each.error for message in messages for each in message.deliveries if each.error}
    errors = [cursor.error for cursor in behind if cursor.error]
    return [
        *((style.show(channel), style.show(error or "")) for channel, error in said.items()),
        *(("events", style.show(error)) for error in errors[:1]),
    ]


def _lay_message(
    message: Message, short_ids: Mapping[str, str], now_ms: int, style: Style
) -> Iterator[list[Cell | str]]:
    """Yield a line for each channel that the message came to, or one that says that nobody had it yet."""
    what = _name_alert(message)
    what += " over" if message.is_resolution else ""
    lead: list[Cell | str] = [
        Cell(short_ids.get(message.run_id, message.run_id), Hue.COMMAND),
        Cell(what, Hue.BAD if message.is_open else Hue.DIM),
        Cell(show_ago(message.created_at_ms, now_ms), Hue.DIM),
    ]
    if not message.deliveries:
        yield [*lead, "", "not sent yet" if message.finished_at_ms is None else "for no channel"]
    for number, each in enumerate(message.deliveries):
        yield [*(lead if number == 0 else ("", "", "")), style.show(each.channel), _say_state(each, now_ms)]


def _name_alert(message: Message) -> str:
    if message.reason is Reason.CANNOT_END:
        return f"{message.step} can't be ended"
    return plain(message.reason.value) + (f" of {message.step}" if message.step else "")


def _say_state(delivery: Delivery, now_ms: int) -> str:
    words = _STATES[delivery.state]
    if delivery.state is DeliveryState.SENDING and delivery.claimant is not None:
        words = f"pid {delivery.claimant.pid} sends it"
    if delivery.state is DeliveryState.WAITING and delivery.due_ms > now_ms:
        words += f" in {_show_wait(delivery.due_ms, now_ms)}"
    return words


def _show_wait(due_ms: int, now_ms: int) -> str:
    seconds = -(-max(1, due_ms - now_ms) // 1_000)  # upwards: after it something is due for sure
    return show_rough(seconds * 1_000)


def render_sent(sent: Sent, now_ms: int, style: Style) -> str:
    """Return the line about a try that failed."""
    again = "given up" if sent.due_ms is None else f"again in {_show_wait(sent.due_ms, now_ms)}"
    return f"{style.show(sent.lane)}: {style.show(sent.error or 'delivered')}; {again}"


def render_tallies(tallies: Sequence[Tally], held: Mapping[str, Held], now_ms: int, style: Style) -> str:
    """Return a line for each channel and for events; *held* says what another process has claimed."""
    return "\n".join(_render_tally(tally, held.get(tally.name), now_ms, style) for tally in tallies)


def _render_tally(tally: Tally, held: Held | None, now_ms: int, style: Style) -> str:
    parts = [f"{tally.delivered:,} sent"]
    if tally.failed:
        parts.append(f"{tally.failed:,} failed")
    if held is not None and held.holder is not None and held.until_ms > now_ms:
        who = style.show(name_holder(held.holder))
        parts.append(f"the rest is held by {who}, for {_show_wait(held.until_ms, now_ms)} at most")
    elif tally.due_ms is not None and tally.due_ms > now_ms:
        last = f" after: {style.show(tally.error)}" if tally.error and not tally.failed else ""
        parts.append(f"next try in {_show_wait(tally.due_ms, now_ms)}{last}")
    return f"{style.show(tally.name)}: {', '.join(parts)}"


def write_messages(messages: Sequence[Message], behind: Sequence[Cursor]) -> Document:
    """Return the document of alerts, and of the runs of which events wait."""
    document = write_list(MESSAGES_SCHEMA, [_write_message(message) for message in messages])
    document["events_behind"] = [_write_cursor(cursor) for cursor in behind]
    return document


def _write_message(message: Message) -> Document:
    deliveries: list[Json] = [_write_delivery(each) for each in message.deliveries]
    return {
        "id": message.id,
        "alert": message.alert_id,
        "run_id": message.run_id,
        "saga": message.saga,
        "seq": message.seq,
        "reason": message.reason.value,
        "step": message.step or None,
        "state": "resolved" if message.is_resolution else "raised",
        "open": message.is_open,
        "created_at": write_time(message.created_at_ms),
        "finished_at": write_time(message.finished_at_ms),
        "deliveries": deliveries,
    }


def _write_delivery(delivery: Delivery) -> Document:
    return {
        "channel": delivery.channel,
        "state": delivery.state.value,
        "attempts": delivery.attempts,
        "due_at": write_time(delivery.due_ms) if delivery.due_ms > 0 else None,
        "delivered_at": write_time(delivery.delivered_at_ms),
        "error": delivery.error,
        "claimant": _write_claimant(delivery.claimant),
    }


def _write_claimant(holder: Holder | None) -> Json:
    return None if holder is None else {"host": holder.host, "pid": holder.pid}


def _write_cursor(cursor: Cursor) -> Document:
    return {
        "run_id": cursor.run_id,
        "saga": cursor.saga,
        "seq": cursor.seq,
        "head": cursor.head,
        "attempts": cursor.attempts,
        "due_at": write_time(cursor.due_ms) if cursor.due_ms > 0 else None,
        "error": cursor.error,
        "claimant": _write_claimant(cursor.claimant),
    }


def write_tallies(tallies: Sequence[Tally]) -> Document:
    """Return the document of what was sent."""
    items: list[Document] = [
        {
            "name": tally.name,
            "delivered": tally.delivered,
            "failed": tally.failed,
            "last_error": tally.error,
            "due_at": write_time(tally.due_ms),
        }
        for tally in tallies
    ]
    return {**write_list(DELIVERIES_SCHEMA, items), "error": None}


def write_sent(sent: Sent) -> Document:
    """Return the document of one try."""
    return {
        "schema": SENT_SCHEMA,
        "name": sent.lane,
        "id": sent.id,
        "run_id": sent.run_id,
        "delivered": sent.error is None,
        "due_at": write_time(sent.due_ms),
        "error": sent.error,
    }
