"""E4, E6, E9: what is in doubt, what clears it, and who must wait for it."""

from __future__ import annotations

from sagactl.core.records import Cause, Intent, RunStatus, Verb
from sagactl.core.world import MakeCall
from tests.core.builders import Play, saga, spell


def test_a_dead_letter_before_the_pivot_makes_the_run_stuck_though_another_step_waits_for_its_retry() -> None:
    """E6: `ask` ends as stuck; a timer of a step that may not start any more doesn't keep the run waiting for ever."""
    play = Play(saga("[a | b]", a={"idempotent": False}, b={"attempts": 3}))
    play.turn()
    play.answer("b", "retry")
    play.answer("a", "lost")
    assert play.status() is RunStatus.STUCK


def test_a_retry_by_a_person_waits_until_a_lost_drivers_call_cannot_land_any_more() -> None:
    """E9: calls of one operation never overlap, whoever orders the second one."""
    play = Play(saga("a", a={"idempotent": False, "timeout": 5_000}))
    play.turn()
    play.now = 1_000
    play.claim(calls_ended=False)
    assert play.status() is RunStatus.STUCK
    play.ask(Verb.RETRY, "a")
    assert play.under_way == {}
    play.now = 14_999
    assert not play.turn().calls
    play.now = 15_000
    assert [spell(call.intent.operation) for call in play.turn().calls if isinstance(call, MakeCall)] == ["a"]


def test_a_fresh_budget_of_time_begins_with_the_first_call_it_pays_for() -> None:
    """E14, E23: schedule_to_close counts from an intent, so an order that waits for a slot doesn't use it up."""
    play = Play(saga("p* -> a", a={"schedule": 5_000}))
    play.run({"a": ["reject"]})
    play.missing = frozenset({"do.a"})
    play.ask(Verb.RETRY, "a")
    play.now += 60_000
    play.missing = frozenset()
    play.turn()
    assert play.of(Intent)[-1].deadline_ms == play.now + 5_000


def test_a_retry_that_comes_after_the_key_retention_is_not_made() -> None:
    """E6: what counts is when the call would be made; a driver that was down for a week doesn't charge twice."""
    play = Play(saga("a", a={"attempts": 3, "key_retention": 60_000}))
    play.turn()
    play.answer("a", "lost")
    play.now = 60_000
    play.claim()
    assert play.calls == ["a"]
    assert play.status() is RunStatus.STUCK
    assert play.summary.cause is Cause.IN_DOUBT


def test_a_step_without_doubt_is_retried_past_the_key_retention() -> None:
    """E6: `unavailable` leaves no effect, so there is nothing that a forgotten key could double."""
    play = Play(saga("a", a={"attempts": 3, "key_retention": 60_000}))
    play.turn()
    play.answer("a", "retry")
    play.now = 600_000
    assert play.run().status is RunStatus.SUCCEEDED


def test_no_timeout_of_a_step_cuts_short_the_wait_for_a_late_call() -> None:
    """E9, E14: a retry isn't due before an old call is over, also where schedule_to_close would end sooner."""
    play = Play(saga("a", a={"attempts": 3, "schedule": 6_000, "timeout": 5_000}))
    play.turn()
    play.claim(calls_ended=False)
    assert play.waits == [15_000]
