"""What an alert says: where the run stands, bounded and harmless."""

from __future__ import annotations

import pytest

from sagactl.alerts.compose import LISTED_MAX, TEXT_LENGTH_MAX, Look, describe, tame, tame_text, write_text, write_title
from sagactl.core.alerting import AlertBook, Reason
from sagactl.core.canonical import Json, canonical
from sagactl.core.outbox import Message
from tests.cli.views.situations import SITUATIONS


def alerts_of(situation: str) -> list[tuple[Message, dict[str, Json]]]:
    """Return each alert of a scripted run with its document."""
    stage = SITUATIONS[situation]()
    records = [stored.record for stored in stage.stored]
    book = AlertBook()
    for stored in stage.stored:
        book.take(stored.seq, stored.record, has_letters=False)
    look = Look(stage.saga, records, stage.state)
    found = []
    for row in book.rows:
        message = Message(
            number=1,
            run_id=stage.stored[0].run_id,
            saga=stage.saga.name,
            seq=row.seq,
            reason=row.reason,
            step=row.step,
            opened_seq=row.opened_seq,
            created_at_ms=row.created_at_ms,
            is_open=row.is_open,
            finished_at_ms=None,
        )
        tamed = tame(describe(message, look, "/srv/shop"))
        assert isinstance(tamed, dict)
        found.append((message, tamed))
    return found


def test_an_alert_of_a_failed_undo_says_what_is_left() -> None:
    """E12: who is told that an undo failed reads what is left, why, the first error, and what to type."""
    message, document = alerts_of("undo_failed")[-1]
    assert message.reason is Reason.STUCK
    assert document["state"] == "raised"
    assert document["not_undone"]
    commands = document["commands"]
    assert isinstance(commands, list)
    assert f"sagactl -C /srv/shop show {message.run_id}" in commands
    assert str(commands[0]).startswith(f"sagactl -C /srv/shop dlq show {message.run_id} ")
    text = write_text(document)
    for each in ("error ", "left ", "open ", "since ", *map(str, commands)):
        assert each in text
    assert write_title(document).startswith(f"{message.saga} {message.run_id}: stuck")


def test_an_alert_of_a_call_that_cannot_be_ended_says_what_to_end_and_where() -> None:
    """E14: who is told can type what he reads: the process to end, on which host, and the resume after it."""
    message, document = alerts_of("hanging")[-1]
    assert (message.reason, message.step) == (Reason.CANNOT_END, "deposit")
    assert document["says"] == "deposit is past its time and has not returned: end the process that drives the run"
    commands = document["commands"]
    assert isinstance(commands, list)
    assert commands[:2] == ["kill 4711  # on worker-2", f"sagactl -C /srv/shop resume {message.run_id}"]
    assert write_title(document).endswith("end the process that drives the run")


@pytest.mark.parametrize("situation", sorted(SITUATIONS))
def test_every_alert_is_json_and_bounded(situation: str) -> None:
    """Whatever happened, an alert is one JSON value of some kilobytes, and its text is printable."""
    for _, document in alerts_of(situation):
        assert len(canonical(document)) < 100_000
        text = write_title(document) + write_text(document)
        assert all(line.isprintable() for line in text.splitlines())
        for key in ("not_undone", "dead_letters"):
            found = document[key]
            assert isinstance(found, list)
            assert len(found) <= LISTED_MAX


def test_text_from_tools_is_tamed() -> None:
    """What steers a terminal, calls everybody in a chat or hides is made visible, and a text is bounded."""
    assert tame_text("a\x1b[2Jb\r\u202ec\u200bd\x00") == r"a\u{1b}[2Jb\u{d}\u{202e}c\u{200b}d\u{0}"
    assert tame_text("two\nlines") == "two lines"
    assert (
        tame_text("@everyone <!channel> <@U1> me@example.com @HERE")
        == "@ everyone < !channel> < @U1> me@example.com @ HERE"
    )
    assert len(tame_text("x" * 9_999)) == TEXT_LENGTH_MAX
    assert tame({"a": ["\x07", 1, None, True]}) == {"a": [r"\u{7}", 1, None, True]}
