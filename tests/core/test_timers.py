"""E5, E9: which timers are due, whatever stale ones lie among them."""

from __future__ import annotations

from sagactl.core.state import due_timers, first_timer_after, next_timer
from tests.core.builders import Play, operation, saga


def _three_retries() -> Play:
    waits = {"attempts": 3, "interval": 1_000}
    play = Play(saga("[a | b | c]", a=waits, b={**waits, "interval": 2_000}, c={**waits, "interval": 3_000}))
    play.turn()
    for name in "abc":
        play.answer(name, "retry")
    return play


def test_a_timer_that_is_over_hides_none_of_those_behind_it() -> None:
    """E5: what was called meanwhile isn't due again, and what is due beside it is."""
    play = _three_retries()
    play.missing = frozenset({"do.a"})
    play.now = 10_000
    play.turn()
    assert list(play.under_way) == [operation("b"), operation("c")]
    assert list(due_timers(play.state, play.now)) == [operation("a")]
    play.missing = frozenset()
    play.turn()
    assert list(play.under_way) == [operation("b"), operation("c"), operation("a")]
    assert next_timer(play.state) is None
    assert first_timer_after(play.state, play.now) is None


def test_the_next_timer_is_the_first_that_has_not_come() -> None:
    """E14: a driver wakes when the next timer comes, not for one that is due and held up by something else."""
    play = _three_retries()
    assert [first_timer_after(play.state, now_ms) for now_ms in (0, 1_000, 2_500, 3_000)] == [1_000, 2_000, 3_000, None]
    assert list(due_timers(play.state, 2_000)) == [operation("a"), operation("b")]
    assert list(due_timers(play.state, 999)) == []
    assert next_timer(play.state) == (1_000, operation("a"))
