"""Spans are a fold over the records: the same whoever reads them, and however often."""

from __future__ import annotations

from typing import Any

from sagactl.core.records import Direction, Operation, Resolution, Verb
from sagactl.core.tracing import call_span_id, run_span_id
from sagactl.telemetry.spans import EVENTS_MAX, RunTrace, Span, spans_of
from tests.core.builders import Play, saga

ROOT = run_span_id("r1")


def _outcomes(spans: list[Span]) -> list[tuple[str, Any]]:
    return [
        (span.name, span.attributes.get("sagactl.outcome", span.attributes.get("sagactl.run.status"))) for span in spans
    ]


def test_every_attempt_is_a_span_below_the_run() -> None:
    """E5: two attempts are two spans with ids of their own and one key; the delay between them is an event."""
    play = Play(saga("a", a={"attempts": 3}))
    play.run({"a": ["retry", "ok"]})
    spans = spans_of(play.records)
    assert _outcomes(spans) == [("do.a a", "unavailable"), ("do.a a", "succeeded"), ("saga test", "succeeded")]
    first, second, root = spans
    assert (first.attributes["sagactl.attempt"], second.attributes["sagactl.attempt"]) == (1, 2)
    assert first.attributes["sagactl.idempotency_key"] == second.attributes["sagactl.idempotency_key"]
    assert (first.error, second.error, root.error) == ("retry", None, None)
    assert first.span_id == call_span_id("r1", Operation("a", None, Direction.ACTION), 1) != second.span_id
    assert {first.parent_id, second.parent_id} == {root.span_id} == {ROOT}
    assert [event.name for event in root.events] == ["retry_timer"]
    assert (first.end_ms - first.start_ms, second.start_ms - first.end_ms) == (10, 1_000)
    assert (root.start_ms, root.end_ms) == (0, second.end_ms)
    assert (root.attributes["sagactl.calls"], root.attributes["sagactl.retries"]) == (2, 1)


def test_an_undo_is_linked_to_what_it_undoes() -> None:
    """E12: a compensation is a span of its own, with a link to the action's last attempt; the decision is an event."""
    play = Play(saga("a -> b", a={"attempts": 2}))
    play.run({"a": ["retry", "ok"], "b": ["reject"]})
    spans = spans_of(play.records)
    undo = next(span for span in spans if span.name == "undo.a a")
    assert undo.links == (call_span_id("r1", Operation("a", None, Direction.ACTION), 2),)
    assert undo.attributes["sagactl.direction"] == "compensation"
    assert [event.name for event in spans[-1].events] == ["retry_timer", "rollback"]
    assert (spans[-1].error, spans[-1].attributes["sagactl.run.status"]) == ("step_failed", "rolled_back")
    assert spans[-1].attributes["sagactl.compensations"] == 1


def test_a_pending_call_is_one_span_however_often_it_is_asked_about() -> None:
    """E5: pending, asked again with the same attempt, also by another driver."""
    play = Play(saga("a", a={"schedule": 100_000}))
    play.turn()
    play.answer("a", "pending", after_ms=50)
    play.claim()
    play.now = play.wake_ms() or 0
    play.turn()
    play.now += 10
    play.answer("a", "ok")
    calls = [span for span in spans_of(play.records) if span.span_id != ROOT]
    assert [(span.start_ms, span.end_ms, span.attributes["sagactl.askings"]) for span in calls] == [(0, play.now, 2)]


def test_a_probe_is_a_span_linked_to_the_call_in_doubt() -> None:
    """E6: what was asked, and what the answer was."""
    play = Play(saga("a", a={"attempts": 2, "on_unknown": "probe", "probe": True}))
    play.run({"a": ["lost", "ok"], "a?": ["not"]})
    spans = spans_of(play.records)
    assert [outcome for _, outcome in _outcomes(spans)] == ["unknown", "not_done", "succeeded", "succeeded"]
    assert spans[1].links == (spans[0].span_id,)
    assert spans[1].attributes["sagactl.call"] == "probe"


def test_what_a_killed_driver_may_not_have_sent_is_given_again_as_the_same_spans() -> None:
    """E17: the next driver gives what ended under the killed one, and the call it left; of an orderly one nothing."""
    play = Play(saga("a -> b -> c", b={"attempts": 2}))
    play.turn()
    play.answer("a", "ok")
    live = RunTrace().take(play.records)
    play.claim()
    again = RunTrace().replay(play.records)
    assert [span.span_id for span in again[:1]] == [live[0].span_id]
    assert again[0] == live[0]
    assert [(span.name, span.error) for span in again] == [("do.a a", None), ("do.b b", "driver_lost")]
    known = RunTrace()
    known.replay(play.records)
    count = len(play.records)
    play.now = play.wake_ms() or 0
    play.turn()
    play.answer("b", "ok")
    rest = known.take(play.records[count:])
    assert [span.name for span in rest] == ["do.b b"]
    assert rest[0].attributes["sagactl.attempt"] == 2


def test_a_driver_that_let_go_in_order_has_sent_all() -> None:
    """A resume after a wait doesn't send what was sent: nothing was under way when the run was taken over."""
    play = Play(saga("a -> b", b={"attempts": 2}))
    play.turn()
    play.answer("a", "ok")
    play.answer("b", "retry")
    play.claim()
    assert RunTrace().replay(play.records) == []


def test_the_run_ends_whenever_it_rests_and_its_span_stays_the_same() -> None:
    """E23: a stuck run rests; when a person has answered it goes on, and its one span ends later."""
    play = Play(saga("a -> p* -> b"))
    play.run({"b": ["reject"]})
    play.resolve("b", Resolution.SKIP)
    roots = [span for span in spans_of(play.records) if span.span_id == ROOT]
    assert [root.attributes["sagactl.run.status"] for root in roots] == ["stuck", "succeeded"]
    assert [event.name for event in roots[0].events] == ["pivot_passed", "dead_letter", "stuck"]
    assert [event.name for event in roots[1].events][3:] == ["operator_resolve"]
    assert roots[0].error == "forward_stuck"


def test_what_operators_ask_for_is_an_event_without_who_and_why() -> None:
    """X3: a reason may hold anything, so it stays in the log."""
    play = Play(saga("a -> b"))
    play.turn()
    play.ask(Verb.CANCEL, reason="Eva was here")
    play.answer("a", "ok")
    play.run()
    root = spans_of(play.records)[-1]
    asked = next(event for event in root.events if event.name == "operator_cancel")
    assert asked.attributes == {"sagactl.request.id": "q1", "sagactl.request.disposition": "accepted"}
    assert "Eva" not in repr(spans_of(play.records))


def test_no_argument_output_or_message_is_in_any_span() -> None:
    """X3: only names, ids, counts and types of errors leave by this way."""
    play = Play(saga("a -> b", a={"arguments": {"card": "4111"}}), data={"email": "ada@example.com"})
    play.run({"a": ["ok"], "b": ["reject"]})
    text = repr(spans_of(play.records))
    assert "4111" not in text
    assert "ada@" not in text
    assert "b reject 1" not in text  # the message


def test_events_are_bounded_and_counted() -> None:
    """A run that retries for ever keeps the latest timers, and each other turn it took."""
    play = Play(saga("a", a={"attempts": EVENTS_MAX + 100}))
    play.run({"a": ["retry"]})
    root = spans_of(play.records)[-1]
    names = [event.name for event in root.events]
    assert (names.count("retry_timer"), names.count("rollback")) == (EVENTS_MAX, 1)
    assert root.attributes["sagactl.events"] == EVENTS_MAX + 100


def every_attribute() -> set[str]:
    """Return the names of all attributes of spans that there are."""
    play = Play(saga("a -> b", a={"attempts": 2, "on_unknown": "probe", "probe": True}, b={"schedule": 100_000}))
    play.turn()
    play.answer("a", "lost")
    play.answer("a", "not")
    play.now = play.wake_ms() or 0
    play.turn()
    play.answer("a", "ok")
    play.answer("b", "pending", after_ms=50)
    play.now = play.wake_ms() or 0
    play.turn()
    play.answer("b", "reject")
    play.run()
    return {name for span in spans_of(play.records) for name in span.attributes} | {"sagactl.item"}


def test_every_kind_of_attribute_is_there() -> None:
    """Of calls, probes, and the run."""
    assert {"sagactl.askings", "sagactl.probe.number", "sagactl.run.status", "error.type"} <= every_attribute()
