"""E7, E10-E12, E22: what is undone, in which order, and what a second rollback makes of the first."""

from __future__ import annotations

import pytest

from sagactl.core.records import (
    Cause,
    Decision,
    DecisionKind,
    Direction,
    Disposition,
    Failure,
    Intent,
    Resolution,
    RunStatus,
    Verb,
)
from sagactl.core.saga import CompensateFailed, StepClass
from sagactl.core.summary import step_rows
from sagactl.core.world import EndCalls, Wait
from tests.core.builders import Play, operation, saga, spell


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


def test_a_chain_is_undone_in_reverse() -> None:
    """E11, B15: each undo has ended before the next begins."""
    play = Play(saga("a -> b -> c -> d"))
    play.run({"d": ["reject"]})
    assert play.calls == ["a", "b", "c", "d", "c'", "b'", "a'"]


@pytest.mark.parametrize("slowest", ["b'", "c'"])
def test_a_diamond_is_undone_from_its_end_to_its_beginning(slowest: str) -> None:
    """E11, B15: the first step waits for both branches, whichever takes longer."""
    play = Play(saga("a -> [b | c] -> d -> e", saga_fields={"compensation_concurrency": 2}))
    play.turn()
    for name in ("a", "b", "c", "d"):
        play.answer(name, "ok")
    play.answer("e", "reject")
    play.answer("d'", "ok")
    assert set(play.calls[-2:]) == {"b'", "c'"}
    play.answer("c'" if slowest == "b'" else "b'", "ok")
    assert "a'" not in play.calls
    play.answer(slowest, "ok")
    assert play.calls[-1] == "a'"


def test_undos_run_one_at_a_time_by_default() -> None:
    """E11: `compensation_concurrency` is 1 unless the saga says more."""
    play = Play(saga("[a | b | c] -> d"))
    play.turn()
    for name in "abc":
        play.answer(name, "ok")
    play.answer("d", "reject")
    assert len(play.under_way) == 1


def test_among_undos_whose_turn_it_is_the_last_called_goes_first() -> None:
    """E11: the order comes from the log's sequence, not from time stamps: all three were called in one millisecond."""
    play = Play(saga("[a | b | c] -> d"))
    play.run({"d": ["reject"]}, ms=0)
    assert play.calls[-3:] == ["c'", "b'", "a'"]


def test_items_are_undone_in_reverse_order_of_their_first_intents() -> None:
    """F9, E11: the last item that was touched is the first to be undone, retries notwithstanding."""
    what = saga("f -> g", f={"foreach": "${{ input.xs }}", "concurrency": 2, "attempts": 3})
    play = Play(what, data={"xs": ["x", "x", "y"]})
    play.run({"f[0]": ["retry", "retry", "ok"], "g": ["reject"]})
    assert play.calls[-3:] == ["f[2]'", "f[1]'", "f[0]'"]


def test_a_failed_item_starts_no_more_and_lets_the_others_settle() -> None:
    """F9, E10: before the pivot the items that run are awaited, then all touched ones are undone."""
    what = saga("f", f={"foreach": "${{ input.xs }}", "concurrency": 2})
    play = Play(what, data={"xs": [1, 2, 3, 4]})
    play.turn()
    play.answer("f[1]", "reject")
    assert list(map(spell, play.under_way)) == ["f[0]"]
    play.answer("f[0]", "ok")
    play.run()
    assert play.calls == ["f[0]", "f[1]", "f[0]'"]


def test_the_undo_begins_when_the_last_call_has_settled() -> None:
    """E10, B41: no compensation while a sibling is still at work."""
    play = Play(saga("[a | b | c]"))
    play.turn()
    play.now = 1_000
    play.answer("b", "reject")
    play.now = 4_000
    play.answer("c", "reject")
    assert play.calls == ["a", "b", "c"]
    play.now = 5_000
    play.answer("a", "ok")
    assert play.calls == ["a", "b", "c", "a'"]
    assert play.summary.failed_step == "b"


def test_a_call_that_does_not_settle_is_ended_and_is_in_doubt() -> None:
    """E10, E14, B41: at settle_timeout the driver is told to end it; unknown, so it is compensated."""
    play = Play(saga("[a | b]", saga_fields={"settle_timeout_ms": 8_000}))
    play.turn()
    play.now = 1_000
    turn = play.answer("b", "reject")
    assert turn.then == Wait("settling", 9_000)
    play.now = 9_000
    assert play.turn().then == EndCalls((operation("a"),))
    play.answer("a", "lost")
    assert play.calls == ["a", "b", "a'"]


def test_the_decision_to_roll_back_names_what_it_will_look_at() -> None:
    """E10: one record holds the decision and its plan; what was skipped or failed cleanly isn't in it."""
    play = Play(saga("a -> b -> c -> d", b={"when": "${{ input.on }}"}, c={"schedule": 60_000}), data={"on": False})
    play.turn()
    play.answer("a", "ok")
    play.answer("c", "pending")
    play.ask(Verb.CANCEL)
    (decision,) = [record for record in play.of(Decision) if record.kind is DecisionKind.ROLLBACK]
    assert [spell(op) for op in decision.plan] == ["c", "a"]


def test_a_retry_that_was_due_is_not_made_once_the_run_turns_back() -> None:
    """E10, B01: the decision drops the timers of the way forward, also over a restart."""
    play = Play(saga("[a | b]", a={"attempts": 2, "interval": 5_000}))
    play.turn()
    play.answer("a", "retry")
    play.now = 1_000
    play.answer("b", "reject")
    play.now = 20_000
    play.claim()
    assert play.run().status is RunStatus.ROLLED_BACK
    assert play.calls == ["a", "b"]


def test_a_rollback_that_is_asked_for_drops_a_retry_too() -> None:
    """E22, B01: the same when an operator turns the run around."""
    play = Play(saga("a", a={"attempts": 2, "interval": 5_000}))
    play.turn()
    play.answer("a", "retry")
    play.ask(Verb.ROLLBACK)
    play.now = 20_000
    play.turn()
    assert play.calls == ["a"]
    assert play.status() is RunStatus.ROLLED_BACK


def test_a_second_call_that_was_begun_is_settled_first() -> None:
    """E10, B01: a call that has its intent is awaited and then undone."""
    play = Play(saga("[a | b]", a={"attempts": 2, "interval": 100}))
    play.turn()
    play.answer("a", "retry")
    play.now = 100
    play.turn()
    play.answer("b", "reject")
    play.answer("a", "ok")
    assert play.calls == ["a", "b", "a", "a'"]


def test_the_end_of_a_runs_time_undoes_what_is_in_doubt() -> None:
    """E14, B03: cause timeout; the unknown step is compensated, and the rollback itself isn't cut short."""
    play = Play(saga("a -> b", b={"attempts": 1000, "cap": 2_000}), deadline=10_000)
    summary = play.run({"b": ["lost"]}, ms=100)
    assert summary.status is RunStatus.ROLLED_BACK
    assert summary.cause is Cause.TIMEOUT
    assert play.calls[-2:] == ["b'", "a'"]
    undos = [intent for intent in play.of(Intent) if intent.operation.direction is Direction.COMPENSATION]
    assert all(intent.deadline_ms == intent.at_ms + 30_000 for intent in undos)


def test_cancelling_settles_the_call_and_undoes_with_a_scope_of_its_own() -> None:
    """E22, B05: the undo of a cancelled run isn't cancelled with it."""
    play = Play(saga("a -> b"))
    play.turn()
    play.answer("a", "ok")
    play.now = 1_000
    assert play.ask(Verb.CANCEL).disposition is Disposition.ACCEPTED
    play.answer("b", "lost")
    play.now = 3_000
    assert play.run().cause is Cause.CANCELLED
    assert play.calls == ["a", "b", "b'", "a'"]


def test_an_undo_sees_the_output_of_its_own_action() -> None:
    """E1, B45: what a later step returned under the same name changes nothing about what is recorded."""
    play = Play(saga("a -> b -> c"))
    play.turn()
    play.answer("a", "ok", output={"id": 1})
    play.answer("b", "ok", output={"id": 2})
    play.run({"c": ["reject"]})
    undos = [intent.arguments for intent in play.of(Intent) if intent.operation.direction is Direction.COMPENSATION]
    assert undos == [{"id": 2}, {"id": 1}]


def test_an_undo_that_is_rejected_is_a_dead_letter_at_once() -> None:
    """E12, B49: rejected means *not* undone; what waits for it waits, and after the repair the rollback goes on."""
    play = Play(saga("a -> b -> c", b={"undo_attempts": 5}))
    summary = play.run({"c": ["reject"], "b'": ["reject"]})
    assert (summary.status, summary.cause) == (RunStatus.STUCK, Cause.COMPENSATION_FAILED)
    assert play.calls == ["a", "b", "c", "b'"]
    play.ask(Verb.RETRY, "b'")
    assert play.run().status is RunStatus.ROLLED_BACK
    assert play.calls[-2:] == ["b'", "a'"]


def test_what_does_not_depend_on_a_dead_undo_is_still_undone() -> None:
    """E12: only the ancestors of the step wait."""
    play = Play(saga("a -> [b | c] -> d"))
    assert play.run({"d": ["reject"], "c'": ["reject"]}).status is RunStatus.STUCK
    assert play.calls[-2:] == ["c'", "b'"]
    assert "a'" not in play.calls


@pytest.mark.parametrize("is_killed", [False, True])
@pytest.mark.parametrize("word", ["ok", "reject"])
def test_the_first_error_is_never_overwritten(word: str, is_killed: bool) -> None:
    """S11, B89: the run tells why it was rolled back, whatever its undo says and however often it is resumed."""
    play = Play(saga("a -> b", a={"undo_attempts": 2}))
    play.turn()
    play.answer("a", "ok")
    play.answer("b", "reject", failure=Failure("rejected", "no seats"))
    if is_killed:
        play.claim()
        play.now += 10_000
        play.turn()
    play.answer("a'", word, **({"failure": Failure("rejected", "too late")} if word == "reject" else {}))
    assert play.summary.failure == Failure("rejected", "no seats")
    assert play.summary.failed_step == "b"


def test_a_crash_in_an_undo_repeats_it_under_the_same_key_with_the_same_arguments() -> None:
    """E12: a compensation has its own attempts; a crash uses one up and changes nothing else."""
    play = Play(saga("a -> b", a={"undo_attempts": 3}))
    play.turn()
    play.answer("a", "ok")
    play.answer("b", "reject")
    play.claim()
    play.run()
    first, second = [intent for intent in play.of(Intent) if spell(intent.operation) == "a'"]
    assert (first.attempt, second.attempt) == (1, 2)
    assert first.key == second.key == "r1/a/compensation"
    assert (first.arguments, second.arguments) == ({"id": "a"}, None)


@pytest.mark.parametrize(
    ("policy", "answers", "status"), [("probe", ["not", "ok"], "rolled_back"), ("ask", [], "stuck")]
)
def test_an_undo_has_its_own_policy_for_doubt(policy: str, answers: list[str], status: str) -> None:
    """E12: a compensation in doubt is retried, probed or asked about, as it says itself."""
    fields = {"undo_attempts": 2, "undo_probe": policy == "probe", "undo_on_unknown": policy}
    play = Play(saga("a -> b", a=fields))
    assert play.run({"b": ["reject"], "a'": ["lost", "ok"], "a'?": answers}).status == status


def test_an_undo_that_is_refused_is_a_dead_letter() -> None:
    """E21: an undo whose arguments can't be evaluated was never called, and waits for a person."""
    play = Play(saga("a -> b", a={"undo_arguments": {"id": "${{ output.nothing }}"}}))
    assert play.run({"b": ["reject"]}).status is RunStatus.STUCK
    assert "a'" not in play.calls
    assert play.summary.dead_letters == 1


def test_a_run_without_any_effect_is_rolled_back_without_a_call() -> None:
    """E1: what had no intent isn't undone."""
    play = Play(saga("a -> b"))
    play.run({"a": ["reject"]})
    assert play.calls == ["a"]
    assert play.status() is RunStatus.ROLLED_BACK


def test_a_second_rollback_leaves_alone_what_the_first_has_undone() -> None:
    """E22: who rolls a terminated run back undoes what is left, and nothing twice."""
    play = Play(saga("a -> b -> c"))
    play.turn()
    for name in "ab":
        play.answer(name, "ok")
    play.answer("c", "reject")
    play.answer("b'", "ok")
    play.ask(Verb.TERMINATE)
    play.answer("a'", "retry")
    assert play.status() is RunStatus.TERMINATED
    assert [left.step for left in play.summary.not_undone] == ["a"]
    play.ask(Verb.ROLLBACK)
    assert play.run().status is RunStatus.ROLLED_BACK
    assert play.calls == ["a", "b", "c", "b'", "a'", "a'"]
    plans = [each.plan for each in play.of(Decision) if each.kind is DecisionKind.ROLLBACK]
    assert [[spell(action) for action in plan] for plan in plans] == [["b", "a"], ["a"]]


def test_an_item_that_only_a_person_knows_of_does_not_hold_back_the_items_before_it() -> None:
    """E7, F9: its dead letter says what its call failed with, and the others are undone meanwhile."""
    what = saga("f", f={"foreach": "${{ input.xs }}", "concurrency": 3, "null_safe": False})
    play = Play(what, data={"xs": [1, 2, 3]})
    play.turn()
    play.answer("f[0]", "ok")
    play.answer("f[1]", "ok")
    play.answer("f[2]", "lost")
    assert play.run().status is RunStatus.STUCK
    assert play.calls[3:] == ["f[1]'", "f[0]'"]
    (letter,) = [each for each in play.of(Decision) if each.kind is DecisionKind.DEAD_LETTER]
    assert (letter.operation, letter.cause) == (operation("f[2]'"), Cause.IN_DOUBT)
    assert letter.failure == Failure("lost", "f[2] lost 1")


def test_what_stays_has_its_own_reason() -> None:
    """E7: that it was told never to be undone is the reason for a doubt only, not for what can't be undone anyhow."""
    fields = {"klass": StepClass.NOT_UNDOABLE, "undo": False, "not_undoable_reason": "mail can't be unsent"}
    for never in (CompensateFailed.AUTO, CompensateFailed.NEVER):
        play = Play(saga("a -> b", a={**fields, "compensate_failed": never}))
        play.run({"b": ["reject"]})
        assert [each.reason for each in play.summary.not_undone] == ["mail can't be unsent"]
    play = Play(saga("a", a={"on_unknown": "compensate", "compensate_failed": CompensateFailed.NEVER}))
    play.run({"a": ["lost"]})
    assert [each.reason for each in play.summary.not_undone] == ["in doubt, and compensate_failed is never"]


def test_what_said_pending_when_the_run_turned_around_may_have_happened() -> None:
    """E5, E7: nobody asks again, so its undo is called; what waited for another try has failed."""
    play = Play(saga("[a | b | c | d]", a={"schedule": 90_000}, c={"attempts": 3}))
    play.turn()
    play.answer("d", "ok")
    play.answer("a", "pending", after_ms=60_000)
    play.answer("c", "retry")
    play.answer("b", "reject")
    assert [spell(each) for each in play.under_way] == ["d'"]
    status = {row.id: row.status.value for row in step_rows(play.saga, play.state)}
    assert status == {"a": "in_doubt", "b": "failed", "c": "failed", "d": "compensating"}
    assert play.run().status is RunStatus.ROLLED_BACK
    assert play.calls[4:] == ["d'", "a'"]


def test_a_second_rollback_passes_over_what_has_no_undo() -> None:
    """E22: every undo that was left open gets a fresh budget, wherever it stands among the others."""
    play = Play(saga("a -> b -> c", a={"klass": StepClass.READ_ONLY, "undo": False}, b={"undo_attempts": 2}))
    play.run({"c": ["reject"], "b'": ["retry"]})
    (letter,) = [each for each in play.of(Decision) if each.kind is DecisionKind.DEAD_LETTER]
    assert letter.cause is Cause.COMPENSATION_FAILED
    play.ask(Verb.TERMINATE)
    play.ask(Verb.ROLLBACK)
    assert play.run({"b'": ["retry", "ok"]}).status is RunStatus.ROLLED_BACK
    assert play.calls[-4:] == ["b'", "b'", "b'", "b'"]
