"""E7, E10-E12, E22: what is undone, in which order, and what a second rollback makes of the first."""

from __future__ import annotations

from sagactl.core.records import Resolution, RunStatus, Verb
from tests.core.builders import Play, saga


def test_a_rollback_of_a_terminated_run_gives_each_open_undo_a_fresh_budget() -> None:
    """E22: an operator's new rollback isn't bound by what the one that was terminated had used up."""
    play = Play(saga("a -> b", a={"undo_attempts": 2}))
    play.run({"b": ["reject"], "a'": ["retry"]})
    assert play.status() is RunStatus.STUCK
    play.ask(Verb.TERMINATE)
    assert play.status() is RunStatus.TERMINATED
    play.ask(Verb.ROLLBACK)
    play.run({"a'": ["retry", "ok"]})
    assert play.status() is RunStatus.ROLLED_BACK
    assert play.calls == ["a", "b", "a'", "a'", "a'", "a'"]
    assert play.summary.not_undone == ()


def test_a_rollback_of_a_terminated_run_undoes_what_was_abandoned() -> None:
    """E22, E23: `abandon` ends a rollback; a person who asks for another one wants it done after all."""
    play = Play(saga("a -> b"))
    play.run({"b": ["reject"], "a'": ["reject"]})
    play.resolve("a'", Resolution.ABANDON)
    assert [left.step for left in play.summary.not_undone] == ["a"]
    play.ask(Verb.ROLLBACK)
    assert play.run().status is RunStatus.ROLLED_BACK
    assert play.calls[-1] == "a'"
    assert play.summary.not_undone == ()


def test_a_second_rollback_buries_anew_what_only_a_person_can_know() -> None:
    """E7: a compensation that isn't null-safe is never called without output, in a second rollback neither."""
    play = Play(saga("a", a={"null_safe": False}))
    play.run({"a": ["lost"]})
    play.ask(Verb.TERMINATE)
    play.ask(Verb.ROLLBACK)
    assert play.run().status is RunStatus.STUCK
    assert play.calls == ["a"]


def test_an_item_that_must_be_probed_first_holds_back_the_items_before_it() -> None:
    """F9: items are undone in reverse order of their first intents, also where the last one takes its time."""
    what = saga("f", f={"foreach": "${{ input.xs }}", "concurrency": 3, "probe": True})
    play = Play(what, data={"xs": [1, 2, 3]})
    play.turn()
    play.answer("f[0]", "ok")
    play.answer("f[2]", "lost")
    play.answer("f[1]", "reject")
    play.answer("f[2]?".rstrip("?"), "dunno")
    play.run({"f[2]?": ["dunno", "ok"]})
    assert play.status() is RunStatus.ROLLED_BACK
    assert play.calls[-3:] == ["f[2]?", "f[2]'", "f[0]'"]


def test_a_dead_letter_of_an_item_does_not_hold_back_the_items_before_it() -> None:
    """E12, F9: what doesn't depend on a dead letter is still undone."""
    play = Play(saga("f -> g", f={"foreach": "${{ input.xs }}"}), data={"xs": [1, 2, 3]})
    assert play.run({"g": ["reject"], "f[1]'": ["reject"]}).status is RunStatus.STUCK
    assert play.calls[-3:] == ["f[2]'", "f[1]'", "f[0]'"]
