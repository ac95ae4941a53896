"""Who is told what: the outbox of a simulated run, a courier with bad luck, and a judge of both.

The rows come from the shipped alert book and outbox, as the log writes them with each record. Between any two records a
courier may claim messages for two channels; it dies before it sends, or after it has sent and before that is written
down; the channel fails, or takes the message. In the end the channels are back, and everything left is sent.

The judge tells anew, from plain records, which alerts there must be: one exists if and only if its cause does (L6).
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

from sagactl.core.alerting import AlertBook, Reason
from sagactl.core.evolve import evolve
from sagactl.core.outbox import Channels, Delivery, DeliveryState, Message
from sagactl.core.records import Direction, RunStatus
from sagactl.core.state import RunState
from sagactl.log.base import RunRow
from sagactl.log.memory_outbox import MemoryOutbox
from tests.core.simulation.drive import Simulation
from tests.core.simulation.evidence import Evidence, Plain
from tests.core.simulation.reading import Reading
from tests.core.simulation.trial import gather

CHANNELS: Channels = {
    "all": frozenset(Reason),
    "some": frozenset({Reason.STUCK, Reason.APPROVAL, Reason.KEEPS_FAILING}),
    "letters": frozenset({Reason.DEAD_LETTER}),
}
RETRY_MS = 700
ROUNDS_MAX = 10_000

Row = tuple[int, str, str, int, bool]
"""Record, reason, step, the record that raised what it is about, and whether it is an alert that is still open."""


class _Lock:
    """Nobody else is here."""

    def __enter__(self) -> None:
        pass

    def __exit__(self, *_: object) -> None:
        pass


@dataclass
class Post:
    """What has been sent of one run, and what the outbox holds of it."""

    outbox: MemoryOutbox
    rng: random.Random
    now_ms: int = 0

    def __post_init__(self) -> None:
        self.arrived: list[tuple[str, Message]] = []
        self.happened: Counter[str] = Counter()

    def carry(self, channel: str, *, is_calm: bool) -> bool:
        """Let a courier claim one message for *channel* and do something with it; False where there is none."""
        message = self.outbox.claim(CHANNELS, channel, self.now_ms)
        if message is None:
            return False
        luck = "arrived" if is_calm else self.rng.choice(["arrived", "failed", "died before", "died after"])
        self.happened[luck] += 1
        if luck in {"arrived", "died after"}:
            self.arrived.append((channel, message))
        if luck in {"arrived", "failed"}:
            self._settle(channel, message, has_failed=luck == "failed")
        return True

    def _settle(self, channel: str, message: Message, *, has_failed: bool) -> None:
        claimed = message.at(channel)
        assert claimed is not None, "whoever claims a message has it"
        after = replace(claimed, state=DeliveryState.DELIVERED, delivered_at_ms=self.now_ms)
        if has_failed:
            after = replace(claimed, state=DeliveryState.WAITING, due_ms=self.now_ms + RETRY_MS, error="down")
        self.outbox.settle(message.number, after, CHANNELS, self.now_ms)

    def times_of(self, channel: str, message_id: str) -> list[int]:
        """Return at which places of the order of arrivals a message arrived at *channel*."""
        return [place for place, (to, sent) in enumerate(self.arrived) if (to, sent.id) == (channel, message_id)]

    def finish(self) -> None:
        """The channels are back: send what is left, as soon as it is due."""
        for _ in range(ROUNDS_MAX):
            due = [found for name in CHANNELS if (found := self.outbox.next_due_ms(CHANNELS, name)) is not None]
            if not due:
                return
            self.now_ms = max(self.now_ms, *due) if min(due) > self.now_ms else self.now_ms + 1
            for name in CHANNELS:
                while self.carry(name, is_calm=True):
                    pass


def send(simulation: Simulation) -> Post:
    """Write the outbox of a simulated run record by record, with a courier at work in between."""
    lock: Any = _Lock()
    post = Post(MemoryOutbox(lock, list, lambda run_id, seq: []), random.Random(f"post of {simulation.plan.seed}"))
    state, book = RunState(), AlertBook()
    for seq, record in enumerate(simulation.log.records, start=1):
        state = evolve(simulation.saga, state, record)
        before = len(book.rows), sum(row.is_open for row in book.rows)
        book.take(seq, record, has_letters=bool(state.dead))
        if before != (len(book.rows), sum(row.is_open for row in book.rows)):
            post.outbox.note(_row(seq), book)
        post.now_ms = max(post.now_ms, record.at_ms)
        if post.rng.random() < 0.3:
            post.carry(post.rng.choice(list(CHANNELS)), is_calm=False)
    post.finish()
    return post


def _row(seq: int) -> RunRow:
    """Return the row of the run, of which an outbox takes the ids alone."""
    return RunRow(
        run_id="r1",
        saga="sim",
        definition="",
        status=RunStatus.RUNNING,
        direction=Direction.ACTION,
        cause=None,
        failure=None,
        failed_step=None,
        waiting_for=None,
        waiting_until_ms=None,
        key=None,
        input_digest="",
        created_at_ms=0,
        updated_at_ms=0,
        ended_at_ms=None,
        steps_total=0,
        steps_done=0,
        dead_letters=0,
        seq=seq,
        head="",
    )


# -- the judge --------------------------------------------------------------------------------------------------------


def judge_post(simulation: Simulation, post: Post) -> list[str]:
    """Return what is wrong with the alerts of a run and with what was sent of them."""
    messages = post.outbox.messages(is_pending=False)
    found = sorted((each.seq, str(each.reason), each.step, each.opened_seq, each.is_open) for each in messages)
    expected = sorted(expect(gather(simulation)))
    findings = [] if found == expected else [f"L6: the outbox holds {found}, not {expected}"]
    for message in messages:
        for channel, reasons in CHANNELS.items():
            if message.reason in reasons:
                findings += _judge_delivery(post, messages, message, channel)
    return findings


def _judge_delivery(post: Post, messages: list[Message], message: Message, channel: str) -> Iterator[str]:
    name = f"{message.id} at {channel}"
    times = post.times_of(channel, message.id)
    delivery = message.at(channel)
    if delivery is None or delivery.state not in {DeliveryState.DELIVERED, DeliveryState.NOT_NEEDED}:
        yield f"V4: {name} is left {None if delivery is None else delivery.state}"
        return
    if delivery.state is DeliveryState.DELIVERED and not times:
        yield f"V3: {name} counts as delivered and never arrived"
    if delivery.state is DeliveryState.NOT_NEEDED and not _may_be_spared(messages, message, channel):
        yield f"V3: {name} was never sent"
    if message.is_resolution and times:
        raised = [
            place for place, (to, sent) in enumerate(post.arrived) if (to, sent.id) == (channel, message.alert_id)
        ]
        if not raised or raised[0] > times[0]:
            yield f"V4: {name} arrived before what it ends"


def _may_be_spared(messages: list[Message], message: Message, channel: str) -> bool:
    """Tell whether a channel need not be told: it never heard of the alert, or it hears that the run is stuck."""
    if message.is_resolution:
        alert = next(each for each in messages if each.id == message.alert_id)
        return not _has_arrived(alert, channel)
    stuck = [each for each in messages if each.reason is Reason.STUCK and not each.is_resolution]
    is_told = any(_has_arrived(each, channel) and (each.is_open or not message.is_open) for each in stuck)
    return message.reason is Reason.DEAD_LETTER and is_told


def _has_arrived(message: Message, channel: str) -> bool:
    delivery: Delivery | None = message.at(channel)
    return delivery is not None and delivery.state is DeliveryState.DELIVERED


def expect(evidence: Evidence) -> list[Row]:
    """Tell from the records alone which messages there must be."""
    reading = Reading(replace(evidence, records=[], writers=[]))
    told: list[Row] = []
    raised: dict[tuple[str, str], int] = {}
    for seq, (record, writer) in enumerate(zip(evidence.records, evidence.writers, strict=True), start=1):
        reading.read_one(record, writer)
        has_letters = any(known.is_dead for known in reading.known.values())
        for place in [each for each in raised if _is_over(each, record, has_letters)]:
            if place[0] != "request_void":
                told.append((seq, *place, raised[place], False))
            told.append((raised[place], *place, raised.pop(place), False))
        cause = _cause_of(record)
        if cause is not None:
            raised.setdefault(cause, seq)
    return [*told, *((seq, *place, seq, True) for place, seq in raised.items())]


def _cause_of(record: Plain) -> tuple[str, str] | None:
    match record["type"]:
        case "decision" if record["kind"] in {"stuck", "dead_letter"}:
            return str(record["kind"]), ""
        case "decision" if record["kind"] == "alert":
            return ("keeps_failing" if record["operation"] else "run_timeout"), ""
        case "operator" if record["disposition"] == "void":
            return "request_void", ""
        case "step_decided" if record["approval"] is not None:
            return "approval", record["step"]
        case _:
            return None


def _is_over(alert: tuple[str, str], record: Plain, has_letters: bool) -> bool:
    reason, step = alert
    if record["type"] == "ended" or (record["type"] == "decision" and record["kind"] == "rollback"):
        return True
    if record["type"] == "decision":
        is_late = record["kind"] == "expired" and (reason, step) == ("approval", record["step"])
        return is_late or (record["kind"] == "recovered" and reason == "keeps_failing")
    if record["type"] != "operator" or record["disposition"] != "accepted":
        return False
    request = record["request"]
    verb = request["verb"]
    if reason == "stuck":
        return verb not in {"pause", "unpause", "rebind"}
    if reason in {"dead_letter", "keeps_failing"}:
        return verb in {"retry", "resolve"} and not has_letters
    return reason == "approval" and verb in {"approve", "deny"} and request["operation"][0] == step
