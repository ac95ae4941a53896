"""E4, E6, E9: what is in doubt, what clears it, and who must wait for it."""

from __future__ import annotations

from sagactl.core.records import RunStatus
from tests.core.builders import Play, saga


def test_a_dead_letter_before_the_pivot_makes_the_run_stuck_though_another_step_waits_for_its_retry() -> None:
    """E6: `ask` ends as stuck; a timer of a step that may not start any more doesn't keep the run waiting for ever."""
    play = Play(saga("[a | b]", a={"idempotent": False}, b={"attempts": 3}))
    play.turn()
    play.answer("b", "retry")
    play.answer("a", "lost")
    assert play.summary.status is RunStatus.STUCK
