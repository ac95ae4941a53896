"""E6, E7, E23: what a target that forgets idempotency keys does to retries, to undos that look by a key, to orders."""

from __future__ import annotations

from typing import Any

import pytest

from sagactl.core.records import Cause, Disposition, Intent, Resolution, RunStatus, Verb
from tests.core.builders import Play, operation, saga

KEPT_MS = 10_000


def make_play(shape: str = "a", **fields: Any) -> Play:
    """Return a run whose step a has a target that keeps keys for ten seconds."""
    step = {
        "key_retention": KEPT_MS,
        "attempts": 9,
        "interval": 1,
        "cap": 1,
        "timeout": 4_000,
        "undo_timeout": 4_000,
        **fields,
    }
    return Play(saga(shape, a=step))


@pytest.mark.parametrize(("age_ms", "calls"), [(KEPT_MS - 4_001, ["a", "a"]), (KEPT_MS - 4_000, ["a"])])
def test_a_blind_retry_is_over_before_its_key_may_be_forgotten(age_ms: int, calls: list[str]) -> None:
    """E6: a call that begins in time may arrive as late as it may take, so it isn't made unless it is over by then."""
    play = make_play()
    play.turn()
    play.now = age_ms
    play.answer("a", "lost")
    play.now += 1
    play.turn()
    assert play.calls == calls
    assert (play.status() is RunStatus.STUCK) == (calls == ["a"])


def test_without_doubt_no_key_limits_a_call() -> None:
    """E6: `unavailable` has no effect that a forgotten key could double; neither has what a probe has cleared."""
    play = make_play(probe=True)
    play.turn()
    play.now = 9_000
    play.answer("a", "retry")
    play.now += 1
    play.turn()
    assert play.of(Intent)[-1].deadline_ms == play.now + 4_000
    play.answer("a", "lost")
    assert play.last is not None
    play.answer("a", "not")
    play.now += 1
    play.turn()
    assert play.of(Intent)[-1].deadline_ms == play.now + 4_000


def test_doubt_is_sticky_for_keys_too() -> None:
    """E4, E6: an `unavailable` after a lost call doesn't make the key young again."""
    play = make_play()
    play.turn()
    play.answer("a", "lost")
    play.now = 1
    play.turn()
    play.now = KEPT_MS
    play.answer("a", "retry")
    play.now += 1
    play.turn()
    assert (play.calls, play.status(), play.summary.cause) == (["a", "a"], RunStatus.STUCK, Cause.IN_DOUBT)


def test_an_old_key_is_no_reason_to_ask_where_the_answer_is_there() -> None:
    """E6: whatever the age, an answer is an answer."""
    play = make_play()
    play.turn()
    play.now = 5 * KEPT_MS
    play.answer("a", "ok")
    assert play.status() is RunStatus.SUCCEEDED


def test_an_undo_in_doubt_is_not_repeated_past_the_retention_of_its_own_key() -> None:
    """E6, E12: a second refund is a second effect as well; a probe of the undo would be asked first."""
    for fields, calls in (({}, ["a", "b", "a'"]), ({"undo_probe": True}, ["a", "b", "a'", "a'?"])):
        step = {"undo_key_retention": KEPT_MS, "undo_attempts": 9, "undo_on_unknown": "retry", **fields}
        play = Play(saga("a -> b", a=step))
        play.turn()
        play.answer("a", "ok")
        play.answer("b", "reject")
        play.now = KEPT_MS
        play.answer("a'", "lost")
        assert play.calls == calls
        assert (play.status() is RunStatus.STUCK) == (not fields)


def lose(play: Play) -> None:
    """Let the call of a be lost and its step fail, which turns the run around at once."""
    play.turn()
    play.answer("a", "lost")


@pytest.mark.parametrize(("age_ms", "calls"), [(KEPT_MS - 4_000, ["a", "a'"]), (KEPT_MS - 3_999, ["a"])])
def test_an_undo_that_looks_by_the_forward_key_is_not_called_once_that_is_forgotten(
    age_ms: int, calls: list[str]
) -> None:
    """E7: it would find nothing, and what is there would count as undone; a person is asked instead."""
    play = make_play(on_unknown="compensate")
    play.turn()
    play.now = age_ms
    play.answer("a", "lost")
    assert play.calls == calls
    if calls == ["a"]:
        assert (play.status(), list(play.state.dead)) == (RunStatus.STUCK, [operation("a'")])
        op = play.state.operations[operation("a'")]
        assert (op.cause, op.failure and op.failure.type) == (Cause.IN_DOUBT, "key_expired")
        assert play.ask(Verb.RETRY, "a'", reason="please").disposition is Disposition.REFUSED
        play.resolve("a'", Resolution.NOT_DONE)
        assert play.status() is RunStatus.ROLLED_BACK


@pytest.mark.parametrize("how", ["retry", "lost", "pending"])
def test_an_undo_that_looks_by_the_forward_key_is_not_tried_again_once_that_is_forgotten(how: str) -> None:
    """E7, E12: the second try would find nothing and succeed; the dead letter says that nobody knows."""
    play = make_play(on_unknown="compensate", undo_attempts=5, undo_schedule=60_000)
    lose(play)
    play.now = KEPT_MS - 1
    play.answer("a'", how, **({"after_ms": 100} if how == "pending" else {}))
    play.now = KEPT_MS + 30_000
    play.turn()
    assert (play.calls, play.status()) == (["a", "a'"], RunStatus.STUCK)
    assert play.state.operations[operation("a'")].cause is Cause.IN_DOUBT
    assert play.resolve("a'", Resolution.NOT_DONE).disposition is Disposition.ACCEPTED


def test_an_undo_with_the_output_of_its_action_needs_no_key() -> None:
    """E7: it knows what to undo, at any age; so does one whose probe found the output."""
    play = make_play("a -> b")
    play.turn()
    play.answer("a", "ok")
    play.now = 9 * KEPT_MS
    play.answer("b", "reject")
    assert play.calls == ["a", "b", "a'"]
    play = make_play(probe=True, on_unknown="compensate")
    play.turn()
    play.now = 9 * KEPT_MS
    play.answer("a", "lost")
    play.answer("a", "ok")
    assert play.calls == ["a", "a?", "a'"]


def test_a_probe_that_cannot_tell_leaves_an_old_key_to_a_person() -> None:
    """E7: after it the undo would look by the key, which is forgotten."""
    play = make_play(probe=True, on_unknown="compensate")
    play.turn()
    play.now = KEPT_MS
    play.answer("a", "lost")
    assert play.run({"a?": ["dunno"]}).status is RunStatus.STUCK
    assert (set(play.calls), "a'" in play.calls) == ({"a", "a?"}, False)


def be_stuck(**fields: Any) -> Play:
    """Return a run whose step a is in doubt, with a key that may be forgotten."""
    play = make_play(**fields)
    play.turn()
    play.now = KEPT_MS
    play.answer("a", "lost")
    return play


def test_a_person_orders_a_retry_under_an_old_key_knowingly_or_not_at_all() -> None:
    """E6, E23: refused without a reason, in words that say why; with one it is called, by its full time."""
    play = be_stuck()
    assert play.status() is RunStatus.STUCK
    refused = play.ask(Verb.RETRY, "a")
    assert refused.disposition is Disposition.REFUSED
    assert refused.detail == (
        "a is in doubt, and do.a may have forgotten its key: another try can be a second effect; "
        "see whether it happened and resolve it, or order it with a --reason"
    )
    assert play.ask(Verb.RETRY, "a", reason="the bank says no").disposition is Disposition.ACCEPTED
    assert play.of(Intent)[-1].deadline_ms == play.now + 4_000
    play.answer("a", "lost")
    assert (play.calls, play.status()) == (["a", "a"], RunStatus.STUCK)


def test_an_order_under_an_old_key_waits_for_a_call_that_may_still_land() -> None:
    """E9, E23: once the key protects nothing, two calls at once are two effects."""
    play = make_play(on_unknown="ask", timeout=30_000)
    play.turn()
    play.now = KEPT_MS
    play.claim(calls_ended=False)
    refused = play.ask(Verb.RETRY, "a", reason="sure")
    assert (refused.disposition, "may still land" in str(refused.detail)) == (Disposition.REFUSED, True)
    play.now = 40_000
    assert play.ask(Verb.RETRY, "a", reason="sure").disposition is Disposition.ACCEPTED


def test_a_retry_of_a_probed_step_asks_its_probe_first_and_needs_no_reason() -> None:
    """E6, E23: where a probe can tell, an old key is no danger, whatever `on_unknown` says."""
    play = make_play("p* -> a", probe=True, on_unknown="retry", attempts=1)
    play.turn()
    play.answer("p", "ok")
    play.answer("a", "lost")
    assert play.status() is RunStatus.STUCK
    play.now = 2 * KEPT_MS
    assert play.ask(Verb.RETRY, "a").disposition is Disposition.ACCEPTED
    assert play.calls == ["p", "a", "a?"]


def test_a_young_key_lets_a_person_order_a_retry_without_more_words() -> None:
    """E23: nothing changes where the key protects."""
    play = make_play("p* -> a", attempts=1)
    play.turn()
    play.answer("p", "ok")
    play.answer("a", "lost")
    assert play.ask(Verb.RETRY, "a").disposition is Disposition.ACCEPTED
    assert play.of(Intent)[-1].deadline_ms == play.now + 4_000


def test_a_retry_of_an_undo_under_an_old_key_takes_a_reason() -> None:
    """E12, E23: a second refund is a second effect."""
    play = Play(saga("a -> b", a={"undo_key_retention": KEPT_MS, "undo_attempts": 1}))
    play.turn()
    play.answer("a", "ok")
    play.answer("b", "reject")
    play.answer("a'", "lost")
    play.now = 2 * KEPT_MS
    assert play.ask(Verb.RETRY, "a'").disposition is Disposition.REFUSED
    assert play.ask(Verb.RETRY, "a'", reason="nothing was paid").disposition is Disposition.ACCEPTED
    assert play.calls[-1] == "a'"
