"""E5: how often and how fast a call is tried again, and what a resume may change about it (nothing)."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sagactl.core.records import Cause, Failure, Intent, RunStatus, Timer, TimerKind, Verb
from sagactl.core.retry import delay_ceiling_ms, delay_range_ms, pick_delay_ms
from sagactl.core.saga import ATTEMPTS_MAX, INTERVAL_MS_MAX, Jitter, Retry
from tests.core.builders import Play, operation, saga


def test_delays_double_from_the_initial_interval() -> None:
    """E5, B29: four attempts from 2 s wait 2, 4 and 8 s, and then the step is given up."""
    play = Play(saga("a", a={"attempts": 4, "interval": 2_000}))
    assert play.run({"a": ["retry"]}).status is RunStatus.ROLLED_BACK
    assert play.waits == [2_000, 4_000, 8_000]
    assert play.calls == ["a"] * 4


def test_a_resume_between_all_tries_changes_no_delay() -> None:
    """E5, B29: the delay is drawn once and recorded; whoever drives next waits it out."""
    play = Play(saga("a", a={"attempts": 4, "interval": 2_000}), draw=lambda floor, ceiling: ceiling - 7)
    play.turn()
    for _ in range(3):
        play.answer("a", "retry")
        due = play.of(Timer)[-1].due_ms
        play.now += 5
        assert not play.claim().calls
        assert play.wake_ms() == due
        play.now = due
        play.turn()
    assert play.waits == [1_993, 3_993, 7_993]


def test_a_crash_before_the_delay_was_durable_draws_it_anew_and_once() -> None:
    """E5: what isn't in the log hasn't happened."""
    play = Play(saga("a", a={"attempts": 2}))
    play.turn()
    play.answer("a", "retry")
    play.records.pop()
    play.state = play.fold()
    play.claim()
    assert len(play.of(Timer)) == 1


def test_jitter_is_drawn_between_nothing_and_the_capped_delay() -> None:
    """E5: full jitter comes after the cap."""
    bounds: list[tuple[int, int]] = []

    def draw(floor: int, ceiling: int) -> int:
        bounds.append((floor, ceiling))
        return floor

    play = Play(saga("a", a={"attempts": 5, "cap": 3_000, "jitter": Jitter.FULL}), draw=draw)
    play.run({"a": ["retry"]})
    assert bounds == [(0, 1_000), (0, 2_000), (0, 3_000), (0, 3_000)]


@pytest.mark.parametrize("coefficient", [100, 200, 1_000])
@pytest.mark.parametrize("cap", [300_000, 3_600_000, INTERVAL_MS_MAX])
def test_a_thousand_attempts_overflow_nothing(coefficient: int, cap: int) -> None:
    """E5, B27: the delay is an integer between nothing and the cap for each attempt."""
    retry = Retry(ATTEMPTS_MAX, 1_000, coefficient, cap)
    delays = [delay_ceiling_ms(retry, attempt) for attempt in range(1, ATTEMPTS_MAX + 1)]
    assert all(type(delay) is int for delay in delays)
    assert min(delays) >= 0
    assert max(delays) <= cap
    assert delays == sorted(delays)
    assert delays[0] == 1_000
    assert delays[-1] == (1_000 if coefficient == 100 else cap)


def test_a_coefficient_need_not_be_whole() -> None:
    """E5: 1.5 is 150 hundredths, exactly."""
    retry = Retry(9, 1_000, 150, 60_000)
    assert [delay_ceiling_ms(retry, attempt) for attempt in (1, 2, 3, 4)] == [1_000, 1_500, 2_250, 3_375]


@pytest.mark.parametrize(("named", "waits"), [(0, 0), (7_000, 7_000), (10**12, INTERVAL_MS_MAX), (-5, 0)])
def test_a_tool_may_name_the_next_delay(named: int, waits: int) -> None:
    """E5: `Unavailable(retry_after=...)` decides alone, within a day."""
    play = Play(saga("a", a={"attempts": 3, "jitter": Jitter.FULL}))
    play.turn()
    play.answer("a", "retry", after_ms=named)
    assert play.waits == [waits]
    assert delay_range_ms(Retry(3, 1, 200, 10), 1, named) == (waits, waits)


def test_a_delay_named_in_doubt_counts_too() -> None:
    """E5, E6: a server that answers 503 and `Retry-After` leaves doubt, and is asked again when it wants to be."""
    play = Play(saga("a", a={"attempts": 3, "jitter": Jitter.FULL}))
    play.turn()
    play.answer("a", "lost", after_ms=7_000)
    assert play.waits == [7_000]
    play.now += 7_000
    play.turn()
    play.answer("a", "lost")
    assert play.waits[-1] < 7_000


@pytest.mark.parametrize(("asked_for_ms", "waits"), [(0, 20_000), (8_000, 12_000), (30_000, 0)])
def test_a_delay_named_in_doubt_is_kept_while_a_probe_is_asked(asked_for_ms: int, waits: int) -> None:
    """E5, E6: the probe says that it isn't done, which doesn't make the server want the next call any sooner."""
    play = Play(saga("a", a={"attempts": 3, "probe": True, "jitter": Jitter.FULL}))
    play.turn()
    play.answer("a", "lost", after_ms=20_000)
    assert play.calls == ["a", "a?"]
    play.now += asked_for_ms
    play.answer("a", "not")
    assert (play.waits, play.fold()) == ([waits], play.state)
    play.now += waits
    play.turn()
    play.answer("a", "lost")
    play.answer("a", "not")
    assert play.waits == [waits, 2_000]  # the next answer named none
    assert play.run().status is RunStatus.SUCCEEDED


def test_a_named_delay_outlasts_a_driver_that_was_lost_while_it_probed() -> None:
    """E5, E20: what the server asked for stands in the log, so whoever drives next keeps to it."""
    play = Play(saga("a", a={"attempts": 3, "probe": True}))
    play.turn()
    play.answer("a", "lost", after_ms=20_000)
    play.claim()
    play.run({"a?": ["not"]}, until=play.now + 1_500)
    assert play.of(Timer)[-1].due_ms == 20_000


def test_a_named_delay_is_good_for_one_wait_only() -> None:
    """E5: what a tool named before a person's retry says nothing about what is lost after it."""
    play = Play(saga("p* -> a", a={"attempts": 2}))
    play.run({"a": ["retry"]})
    play.ask(Verb.RETRY, "a")
    play.answer("a", "retry", after_ms=50_000)
    play.now += 50_000
    play.turn()
    play.answer("a", "retry", after_ms=70_000)
    play.ask(Verb.RETRY, "a")
    play.claim()
    assert play.waits[-1] == 1_000


@given(st.integers(0, 10**9), st.integers(0, 10**9), st.floats(0, 1, exclude_max=True))
def test_a_drawn_delay_lies_between_its_bounds(one: int, two: int, fraction: float) -> None:
    """E5: both bounds are included and nothing lies outside."""
    floor, ceiling = min(one, two), max(one, two)
    assert floor <= pick_delay_ms(floor, ceiling, fraction) <= ceiling


@pytest.mark.parametrize("limit", [1, 2, 5])
def test_max_attempts_includes_the_first(limit: int) -> None:
    """E5: so many calls and not one more or less."""
    play = Play(saga("a", a={"attempts": limit}))
    play.run({"a": ["retry"]})
    assert len(play.of(Intent)) == limit


def test_attempts_are_counted_at_the_intent_and_a_crash_uses_one_up() -> None:
    """E5, B23: a step that kills its driver each time is called three times, however often it is resumed."""
    play = Play(saga("a", a={"attempts": 3}))
    play.turn()
    for _ in range(10):
        play.now += 400_000
        play.claim()
        play.now += 400_000
        play.turn()
    assert play.calls[:3] == ["a"] * 3
    assert play.calls[3:4] == ["a'"]
    assert play.status() in {RunStatus.ROLLED_BACK, RunStatus.STUCK}


def test_an_undo_that_kills_its_driver_ends_as_a_dead_letter() -> None:
    """E5, B23: the same for a compensation."""
    play = Play(saga("a -> b", a={"undo_attempts": 3}))
    play.turn()
    play.answer("a", "ok")
    play.answer("b", "reject")
    for _ in range(10):
        play.now += 400_000
        play.claim()
        play.now += 400_000
        play.turn()
    assert play.calls == ["a", "b", "a'", "a'", "a'"]
    assert play.status() is RunStatus.STUCK


@pytest.mark.parametrize("word", ["retry", "lost"])
def test_an_error_that_is_declared_non_retryable_is_not_retried(word: str) -> None:
    """E5: `non_retryable_errors` end the tries, whatever the outcome was."""
    play = Play(saga("a", a={"attempts": 5, "non_retryable": (word,)}))
    play.run({"a": [word]})
    assert play.calls.count("a") == 1


def test_a_rejection_is_never_retried() -> None:
    """E5: `rejected` is final."""
    play = Play(saga("a", a={"attempts": 5}))
    play.run({"a": ["reject"]})
    assert play.calls == ["a"]


def test_waiting_holds_no_slot() -> None:
    """E5, B43: with one slot, the others run while a step waits a minute for its retry."""
    play = Play(saga("[a | b | c]", a={"attempts": 2, "interval": 60_000}), slots=1)
    play.turn()
    play.answer("a", "retry")
    play.answer("b", "ok")
    play.answer("c", "ok")
    assert play.now == 0
    assert play.calls == ["a", "b", "c"]
    assert play.run().status is RunStatus.SUCCEEDED


def test_both_of_two_branches_use_all_their_tries() -> None:
    """E5, B33: a branch that fails for now doesn't end the other."""
    play = Play(saga("[a | b] -> c", a={"attempts": 3}, b={"attempts": 3}))
    assert play.run({"a": ["retry", "retry", "ok"], "b": ["retry", "retry", "ok"]}).status is RunStatus.SUCCEEDED
    assert play.calls[-1] == "c"


def test_a_branch_that_waits_when_the_other_has_failed_is_settled_without_another_call() -> None:
    """E10, B33: no new start; `unavailable` left no effect, so there is nothing to undo."""
    play = Play(saga("[a | b] -> c", a={"attempts": 1}, b={"attempts": 3}))
    play.turn()
    play.answer("b", "retry")
    play.answer("a", "retry")
    assert play.status() is RunStatus.ROLLED_BACK
    assert play.calls == ["a", "b"]


def test_an_undo_has_tries_of_its_own() -> None:
    """E12, B31: what the action used up isn't missing for its compensation."""
    play = Play(saga("a -> b", a={"attempts": 3, "undo_attempts": 3}))
    summary = play.run({"a": ["retry", "retry", "ok"], "b": ["reject"], "a'": ["retry", "retry", "ok"]})
    assert summary.status is RunStatus.ROLLED_BACK


def test_an_undo_that_always_fails_stops_at_its_limit() -> None:
    """E12, B35: three calls, one dead letter, and five resumes call nothing."""
    play = Play(saga("a -> b", a={"undo_attempts": 3}))
    assert play.run({"b": ["reject"], "a'": ["retry"]}).status is RunStatus.STUCK
    for _ in range(5):
        play.now += 10**6
        assert not play.claim().calls
        assert play.status() is RunStatus.STUCK
    assert play.calls.count("a'") == 3
    assert play.summary.dead_letters == 1


def test_a_person_hears_of_an_undo_after_its_fifth_failure_once() -> None:
    """E12: patient policies alert early, not at their end."""
    play = Play(saga("a -> b", a={"undo_attempts": 8}))
    play.run({"b": ["reject"], "a'": ["retry"]})
    alerts = [record for record in play.records if getattr(record, "kind", None) == "alert"]
    assert len(alerts) == 1
    assert play.records.index(alerts[0]) < play.records.index(play.of(Intent)[-2])


def test_pending_is_asked_again_under_the_same_attempt_and_key() -> None:
    """E5: `Pending` is no failure: the same attempt asks again, with the token, after the time that the tool named."""
    play = Play(saga("a", a={"schedule": 60_000}))
    play.turn()
    play.answer("a", "pending", after_ms=4_000, token={"job": 1})
    assert [(timer.kind, timer.due_ms) for timer in play.of(Timer)] == [(TimerKind.POLL, 4_000)]
    play.now = 4_000
    (call,) = play.turn().calls
    assert getattr(call, "token", None) == {"job": 1}
    first, second = play.of(Intent)
    assert (second.attempt, second.asking, second.key) == (first.attempt, 2, first.key)
    play.answer("a", "ok")
    assert play.status() is RunStatus.SUCCEEDED


def test_pending_ends_with_schedule_to_close_as_unknown() -> None:
    """E5, E14: what is still pending then may be done or not, so it is in doubt."""
    play = Play(saga("a", a={"schedule": 10_000}))
    play.run({"a": ["pending"], "a'": ["ok"]})
    assert play.status() is RunStatus.ROLLED_BACK
    assert play.calls[-1] == "a'"
    assert play.of(Intent)[-1].at_ms >= 10_000


def test_pending_without_a_bound_is_unknown() -> None:
    """E5: asking for ever needs schedule_to_close; without it the outcome is unknown, final, and says why."""
    play = Play(saga("a", a={"attempts": 4}))
    play.run({"a": ["pending"]})
    assert play.calls == ["a", "a'"]
    assert play.summary.failure is not None
    assert play.summary.failure.type == "pending_unbounded"


def test_no_poll_comes_sooner_than_a_tenth_of_a_second() -> None:
    """E5: a tool that says `Pending` without a time doesn't make the driver spin."""
    play = Play(saga("a", a={"schedule": 60_000}))
    play.turn()
    play.answer("a", "pending", after_ms=0)
    assert play.waits == [100]


def test_a_dead_letter_that_is_retried_has_a_fresh_budget() -> None:
    """E23: `dlq retry` counts from one again, under the same key and with the same arguments."""
    play = Play(saga("p* -> a", a={"attempts": 2}))
    play.run({"a": ["retry"]})
    play.ask(Verb.RETRY, "a")
    assert play.run({"a": ["retry"]}).status is RunStatus.STUCK
    intents = [intent for intent in play.of(Intent) if intent.operation.step == "a"]
    assert [intent.attempt for intent in intents] == [1, 2, 3, 4]
    assert len({intent.key for intent in intents}) == 1
    assert play.waits == [1_000, 1_000]


def test_a_delay_is_drawn_between_its_bounds_both_included() -> None:
    """E5: the smallest fraction is the floor, the largest below one the ceiling, and each between has its share."""
    assert [pick_delay_ms(0, 9, tenth / 10 + 0.05) for tenth in range(10)] == list(range(10))
    assert (pick_delay_ms(5, 5, 0.0), pick_delay_ms(5, 5, 0.999999)) == (5, 5)
    assert (pick_delay_ms(3, 7, 0.0), pick_delay_ms(3, 7, 0.999999)) == (3, 7)


def test_a_run_whose_time_is_over_says_so() -> None:
    """E14, S11: the first error names the deadline that passed: the run's, or the step's own."""
    play = Play(saga("a -> b", a={"attempts": 50}), deadline=5_000)
    assert play.run({"a": ["retry"]}).cause is Cause.TIMEOUT
    assert play.summary.failure == Failure("run_timeout", "the run's time is over")
    play = Play(saga("a -> b", a={"schedule": 5_000}))
    play.turn()
    play.answer("a", "pending", after_ms=4_000)
    play.run({"a": ["pending"]})
    assert play.summary.failure == Failure("timeout", "schedule_to_close_timeout is over")
    assert play.state.operations[operation("a")].failure == play.summary.failure


def test_no_try_begins_when_the_steps_own_time_is_over() -> None:
    """E14: the moment at which it ends is too late; one before is not."""
    for late_ms, status in ((0, RunStatus.ROLLED_BACK), (1, RunStatus.WAITING)):
        play = Play(saga("a", a={"attempts": 5, "schedule": 5_000, "interval": 1}))
        play.turn()
        play.now = 5_000 - late_ms
        play.answer("a", "retry")
        assert play.status() is status


def test_a_key_is_as_old_as_its_first_call() -> None:
    """E6: `key_retention` counts from the first intent, whatever the clock says."""
    for waited_ms, calls in ((9_000, ["a", "a"]), (10_000, ["a"])):
        play = Play(
            saga("a", a={"attempts": 2, "key_retention": 12_000, "timeout": 2_000, "interval": 1}), start=50_000_000
        )
        play.turn()
        play.now += waited_ms
        play.answer("a", "lost")
        play.now += 1
        play.turn()
        assert play.calls == calls
