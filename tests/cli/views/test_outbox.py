"""Golden files of `sagactl outbox`, and of what alerts say; see `test_golden` for how they are written anew."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from sagactl.cli.views.outbox import (
    Held,
    Tally,
    render_messages,
    render_sent,
    render_tallies,
    write_messages,
    write_sent,
    write_tallies,
)
from sagactl.cli.views.spelling import spell
from sagactl.cli.views.style import Style
from sagactl.cli.views.text import width_of
from sagactl.core.alerting import Reason
from sagactl.core.outbox import Cursor, Delivery, DeliveryState, Message, Sent
from tests.cli.views.scripted import HOLDER, RUN_ID, SHORT_ID, START_MS

GOLDEN = Path(__file__).parent / "golden"
NOW_MS = START_MS + 120_000
HOSTILE = "answered 500: \x1b[2J\u202egone"


def _message(number: int, reason: Reason, *deliveries: Delivery, **changes: object) -> Message:
    values: dict[str, object] = {
        "number": number,
        "run_id": RUN_ID,
        "saga": "onboarding",
        "seq": 10 + number,
        "reason": reason,
        "step": "",
        "opened_seq": 10 + number,
        "created_at_ms": START_MS + number * 1_000,
        "is_open": True,
        "finished_at_ms": None,
        "deliveries": deliveries,
    }
    return Message(**{**values, **changes})  # type: ignore[arg-type]


def _delivery(channel: str, state: DeliveryState, **changes: object) -> Delivery:
    return Delivery(channel, state, **{"attempts": 1, "due_ms": 0, **changes})  # type: ignore[arg-type]


MESSAGES = [
    _message(1, Reason.DEAD_LETTER, _delivery("ops", DeliveryState.NOT_NEEDED, attempts=0)),
    _message(
        2,
        Reason.STUCK,
        _delivery("chat", DeliveryState.WAITING, attempts=3, due_ms=NOW_MS + 3_100, error=HOSTILE),
        _delivery("ops", DeliveryState.DELIVERED, delivered_at_ms=NOW_MS),
        _delivery("pager-of-the-night", DeliveryState.GIVEN_UP, attempts=24, error="not reached: Connection refused"),
    ),
    _message(
        3,
        Reason.APPROVAL,
        _delivery("ops", DeliveryState.SENDING, due_ms=NOW_MS + 60_000, claimant=HOLDER),
        step="contract",
    ),
    _message(4, Reason.STUCK, opened_seq=12, is_open=False),
    _message(5, Reason.KEEPS_FAILING, finished_at_ms=NOW_MS, is_open=False),
]
BEHIND = [
    Cursor("file:events.jsonl", RUN_ID, "onboarding", 3, 19, 2, NOW_MS + 4_000, "events.jsonl can't be written"),
    Cursor("file:events.jsonl", "another", "onboarding", 0, 2),
]
SENT = [
    Sent("ops", "alert_run_12_stuck", RUN_ID),
    Sent("chat", "alert_run_12_stuck", RUN_ID, HOSTILE, NOW_MS + 3_100),
    Sent("chat", "alert_run_12_stuck", RUN_ID, "not reached: Connection refused"),
]


def _tallies() -> list[Tally]:
    tallies = [
        Tally("ops"),
        Tally("chat", error="not reached: Connection refused", due_ms=NOW_MS + 3_100),
        Tally("events", delivered=12_000),
    ]
    for sent in SENT:
        tallies[0 if sent.lane == "ops" else 1].count(sent)
    return tallies


def _views(style: Style) -> Iterator[tuple[str, str]]:
    short_ids = {RUN_ID: SHORT_ID}
    yield "list", render_messages(MESSAGES, BEHIND, short_ids=short_ids, now_ms=NOW_MS, style=style)
    yield "list, nothing", render_messages([], [], short_ids={}, now_ms=NOW_MS, style=style)
    yield "list, events only", render_messages([], BEHIND[1:], short_ids={}, now_ms=NOW_MS, style=style)
    held = {"chat": Held(replace(HOLDER, host=HOSTILE), NOW_MS + 42_000)}
    yield "deliver", render_tallies(_tallies(), {}, NOW_MS, style)
    yield "deliver, held by another process", render_tallies(_tallies(), held, NOW_MS, style)
    waiting = [Tally("ops", error="not reached: Connection refused", due_ms=NOW_MS + 3_100)]
    yield "deliver, nothing due yet", render_tallies(waiting, {}, NOW_MS, style)
    yield "deliver, tries that failed", "\n".join(render_sent(sent, NOW_MS, style) for sent in SENT[1:])


def _compare(name: str, text: str) -> None:
    file = GOLDEN / name
    if os.environ.get("SAGACTL_REWRITE_GOLDEN"):
        file.write_text(text, encoding="utf-8")
    assert text == file.read_text(encoding="utf-8")


@pytest.mark.parametrize("kind", ["", "-ascii"])
def test_the_views_are_as_they_were_reviewed(kind: str) -> None:
    """What waits, what was sent and what failed read as the golden file says."""
    style = Style(unicode=not kind)
    _compare(f"outbox{kind}.txt", "\n".join(f"==== {name}\n{text}\n" for name, text in _views(style)))


def test_the_documents_are_as_they_were_reviewed() -> None:
    """The JSON of `list` and `deliver` is a contract: what the golden file has."""
    documents = [write_messages(MESSAGES, BEHIND), write_tallies(_tallies()), *map(write_sent, SENT)]
    _compare("outbox-json.txt", "\n".join(json.dumps(json.loads(spell(each)), indent=1) for each in documents) + "\n")


@pytest.mark.parametrize("width", [40, 80, 132])
def test_no_line_is_wider_than_the_terminal(width: int) -> None:
    """Tables fit, and nothing in them steers the terminal."""
    for _, text in _views(Style(width=width)):
        for line in text.splitlines():
            assert line.isprintable()
            assert width_of(line) <= width or "sagactl " in line or "refused" in line or "answered" in line, line
