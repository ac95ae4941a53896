"""E13, X01, X03: the point of no return."""

from __future__ import annotations

from typing import Any

import pytest

from sagactl.core.records import (
    Cause,
    Decision,
    Operator,
    Resolution,
    RunStatus,
    Verb,
)
from sagactl.core.world import Rest, Wait
from tests.core.builders import Play, saga


def test_a_step_behind_the_pivot_is_tried_and_then_waits_for_a_person() -> None:
    """E13, X01: one alert after the fifth failure, forward_stuck at the end; nothing before it is ever undone."""
    play = Play(saga("a -> p* -> c", c={"attempts": 7}))
    summary = play.run({"c": ["retry"]})
    assert (summary.status, summary.cause) == (RunStatus.STUCK, Cause.FORWARD_STUCK)
    assert play.calls == ["a", "p", *["c"] * 7]
    assert [record.kind for record in play.of(Decision)] == ["pivot_passed", "alert", "dead_letter", "stuck"]


@pytest.mark.parametrize("how", ["ok", "dead, then resolved", "rolled back"])
def test_what_keeps_failing_is_over_when_the_last_of_it_has_ended(how: str) -> None:
    """E12, E13: a person who was told that something keeps failing is told when nothing does any more, once."""
    if how == "rolled back":
        play = Play(saga("a -> b", a={"undo_attempts": 9}))
        play.run({"b": ["reject"], "a'": [*["retry"] * 5, "ok"]})
        assert [record.kind for record in play.of(Decision)] == ["rollback", "alert", "recovered"]
        return
    play = Play(saga("p* -> [b | c] -> d", b={"attempts": 9}, c={"attempts": 7}))
    last = "ok" if how == "ok" else "retry"
    summary = play.run({"b": [*["retry"] * 5, "ok"], "c": [*["retry"] * 6, last]})
    kinds = [record.kind for record in play.of(Decision)]
    if how == "ok":
        assert summary.status is RunStatus.SUCCEEDED
        assert kinds == ["pivot_passed", "alert", "alert", "recovered"]
        return
    assert kinds == ["pivot_passed", "alert", "alert", "dead_letter", "stuck"], "its letter is what it waits for now"
    play.ask(Verb.RETRY, "c")
    assert play.run().status is RunStatus.SUCCEEDED
    assert "recovered" not in [record.kind for record in play.of(Decision)], "the answer has said it"


def test_behind_the_pivot_only_the_descendants_of_a_dead_letter_stop() -> None:
    """E13: another branch goes on to its end."""
    play = Play(saga("p* -> [b | c] -> d"))
    assert play.run({"b": ["reject"]}).status is RunStatus.STUCK
    assert play.calls == ["p", "b", "c"]
    play.ask(Verb.RETRY, "b")
    assert play.run().status is RunStatus.SUCCEEDED
    assert play.calls == ["p", "b", "c", "b", "d"]


PIVOTS: dict[str, tuple[dict[str, Any], dict[str, list[str]], str, Cause | None]] = {
    "succeeded": ({}, {"p": ["ok"]}, "succeeded", None),
    "rejected": ({}, {"p": ["reject"]}, "rolled_back", Cause.STEP_FAILED),
    "used up without doubt": ({"attempts": 2}, {"p": ["retry"]}, "rolled_back", Cause.STEP_FAILED),
    "verified absent": ({"probe": True}, {"p": ["lost"], "p?": ["not"]}, "rolled_back", Cause.STEP_FAILED),
    "verified done": ({"probe": True}, {"p": ["lost"], "p?": ["ok"]}, "succeeded", None),
    "doubt that outlasts its probes": ({"probe": True}, {"p": ["lost"], "p?": ["dunno"]}, "stuck", Cause.IN_DOUBT),
    "doubt that outlasts its retries": ({"attempts": 3}, {"p": ["lost"]}, "stuck", Cause.IN_DOUBT),
    "rejected after doubt": ({"attempts": 3}, {"p": ["lost", "reject"]}, "stuck", Cause.IN_DOUBT),
    "asked about": ({"on_unknown": "ask"}, {"p": ["lost"]}, "stuck", Cause.IN_DOUBT),
}


@pytest.mark.parametrize("case", PIVOTS)
def test_each_fate_of_the_pivot_has_its_consequence(case: str) -> None:
    """E13: rolled back only without doubt; a pivot in doubt belongs to a person."""
    fields, script, status, cause = PIVOTS[case]
    play = Play(saga("a -> p* -> b", p=fields))
    summary = play.run(script)
    assert (summary.status, summary.cause) == (status, cause)
    assert ("a'" in play.calls) is (status == "rolled_back")


@pytest.mark.parametrize("word", ["ok", "reject", "lost"])
@pytest.mark.parametrize("verb", [Verb.CANCEL, Verb.ROLLBACK])
def test_a_request_during_the_pivot_waits_for_its_fate(verb: Verb, word: str) -> None:
    """E13, X03: recorded at once; void when the pivot succeeded, done when it didn't happen, open while in doubt."""
    play = Play(saga("a -> p* -> b", p={"on_unknown": "ask"}))
    play.turn()
    play.answer("a", "ok")
    assert play.ask(verb).disposition == "deferred"
    play.answer("p", word)
    answers = [record.disposition for record in play.of(Operator)]
    assert answers == {"ok": ["deferred", "void"], "reject": ["deferred", "accepted"], "lost": ["deferred"]}[word]
    assert ("a'" in play.calls) is (word == "reject")
    if word == "lost":
        play.resolve("p", Resolution.NOT_DONE)
        assert [record.disposition for record in play.of(Operator)][-1] == "accepted"
        assert "a'" in play.calls


def test_a_pivot_that_waits_for_its_retry_without_doubt_can_be_cancelled() -> None:
    """E13: nothing has happened, so the run stands before the point of no return."""
    play = Play(saga("a -> p*", p={"attempts": 3}))
    play.turn()
    play.answer("a", "ok")
    play.answer("p", "retry")
    assert play.ask(Verb.CANCEL).disposition == "accepted"
    assert play.run().status is RunStatus.ROLLED_BACK


def test_cancelling_before_the_pivot_rolls_back_and_behind_it_is_refused() -> None:
    """E22, X03: (a) and (c) of the three moments."""
    play = Play(saga("a -> p* -> b"))
    play.turn()
    assert play.ask(Verb.CANCEL).disposition == "accepted"
    play = Play(saga("a -> p* -> b"))
    play.turn()
    play.answer("a", "ok")
    play.answer("p", "ok")
    assert play.ask(Verb.CANCEL).disposition == "refused"
    assert isinstance(play.last and play.last.then, Wait)
    assert play.run().status is RunStatus.SUCCEEDED
    assert play.last is not None
    assert isinstance(play.last.then, Rest)
