"""E13, E22, E23: what operators may ask of a run, and what becomes of it."""

from __future__ import annotations

from sagactl.core.records import Disposition, Operator, Resolution, RunStatus, Verb
from tests.core.builders import Play, saga


def test_no_dead_letter_of_a_terminated_run_can_be_retried_or_resolved() -> None:
    """E22: a run that has ended takes no decision about a letter that it no longer has."""
    play = Play(saga("a", a={"idempotent": False}))
    play.run({"a": ["lost"]})
    play.ask(Verb.TERMINATE)
    assert play.summary.dead_letters == 0
    for answer in (play.ask(Verb.RETRY, "a"), play.resolve("a", Resolution.NOT_DONE)):
        assert answer.disposition is Disposition.REFUSED
        assert answer.detail == "the run has ended terminated: it has no open dead letters"
    assert play.calls == ["a"]


def test_a_run_that_is_being_terminated_takes_no_other_request() -> None:
    """E22: who cancels a run that somebody else is ending is told so, and not that it will be rolled back."""
    play = Play(saga("a -> b"))
    play.turn()
    play.ask(Verb.TERMINATE)
    assert play.ask(Verb.CANCEL).disposition is Disposition.REFUSED
    assert play.ask(Verb.TERMINATE).detail == "the run is being terminated already"
    play.answer("a", "ok")
    assert play.status() is RunStatus.TERMINATED


def test_a_request_deferred_at_the_pivot_is_answered_when_the_run_is_terminated() -> None:
    """E13, E22: every request gets an answer, also where the pivot's fate is never known."""
    play = Play(saga("a -> p*", p={"on_unknown": "ask"}))
    play.turn()
    play.answer("a", "ok")
    assert play.ask(Verb.CANCEL).disposition is Disposition.DEFERRED
    play.ask(Verb.TERMINATE)
    play.answer("p", "lost")
    assert play.status() is RunStatus.TERMINATED
    assert [record.disposition for record in play.of(Operator)] == ["deferred", "accepted", "void"]


def test_terminating_lists_an_operation_that_was_still_pending() -> None:
    """E22: what said `Pending` may be done by now, so it is in doubt when nobody asks again."""
    play = Play(saga("a", a={"schedule": 60_000}))
    play.turn()
    play.answer("a", "pending")
    play.ask(Verb.TERMINATE)
    (left,) = play.summary.not_undone
    assert (left.step, left.reason) == ("a", "in doubt when the run was terminated")


def test_terminating_lists_nothing_that_a_person_said_never_happened() -> None:
    """E22, E23: an undo resolved as not done leaves nothing behind."""
    play = Play(saga("a -> b", b={"null_safe": False}))
    play.run({"b": ["lost"], "a'": ["retry"]})
    play.resolve("b'", Resolution.NOT_DONE)
    play.turn()
    play.ask(Verb.TERMINATE)
    play.answer("a'", "lost")
    assert [left.step for left in play.summary.not_undone] == ["a"]


def test_nobody_can_say_not_done_while_a_lost_drivers_call_may_still_land() -> None:
    """E9: a person's belief waits like everybody's, and is told how long."""
    play = Play(saga("a", a={"idempotent": False, "timeout": 5_000}))
    play.turn()
    play.now = 2_000
    play.claim(calls_ended=False)
    answer = play.resolve("a", Resolution.NOT_DONE)
    assert answer.disposition is Disposition.REFUSED
    assert answer.detail == "a call of a by a driver that was lost may still land: look again in 13 s"
    play.now = 15_000
    assert play.resolve("a", Resolution.NOT_DONE).disposition is Disposition.ACCEPTED
    assert play.status() is RunStatus.ROLLED_BACK


def test_nobody_can_say_undone_by_hand_while_the_action_may_still_land() -> None:
    """E9: an effect that lands after the undo by hand would be left for ever."""
    play = Play(saga("a", a={"null_safe": False, "timeout": 5_000}))
    play.turn()
    play.claim(calls_ended=False)
    assert play.status() is RunStatus.STUCK
    assert play.resolve("a'", Resolution.DONE).disposition is Disposition.REFUSED
    play.now = 15_000
    assert play.resolve("a'", Resolution.DONE).disposition is Disposition.ACCEPTED


def test_an_item_can_be_refused_retried_and_refused_again() -> None:
    """E21, E23: a guard that stays false makes the same dead letter again, behind the pivot."""
    what = saga("p* -> f", f={"foreach": "${{ input.xs }}", "guard": "${{ input.open }}"})
    play = Play(what, data={"xs": [1, 2], "open": False})
    assert play.run().status is RunStatus.STUCK
    play.ask(Verb.RETRY, "f[0]")
    assert play.summary.dead_letters == 2
    assert play.status() is RunStatus.STUCK
