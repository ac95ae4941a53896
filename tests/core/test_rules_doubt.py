"""E4, E6, E9: what is in doubt, what clears it, and who must wait for it."""

from __future__ import annotations

from typing import Any

import pytest

from sagactl.core.calls import choose_probe_arguments
from sagactl.core.records import Cause, Disposition, Intent, Resolution, RunStatus, Verb
from sagactl.core.saga import CompensateFailed, StepClass, ToolFacts
from sagactl.core.world import AskProbe, MakeCall
from tests.core.builders import Play, operation, saga, spell


def test_a_dead_letter_before_the_pivot_makes_the_run_stuck_though_another_step_waits_for_its_retry() -> None:
    """E6: `ask` ends as stuck; a timer of a step that may not start any more doesn't keep the run waiting for ever."""
    play = Play(saga("[a | b]", a={"idempotent": False}, b={"attempts": 3}))
    play.turn()
    play.answer("b", "retry")
    play.answer("a", "lost")
    assert play.status() is RunStatus.STUCK


def test_a_retry_by_a_person_waits_until_a_lost_drivers_call_cannot_land_any_more() -> None:
    """E9: calls of one operation never overlap, whoever orders the second one."""
    play = Play(saga("a", a={"on_unknown": "ask", "timeout": 5_000}))
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


def test_a_rejection_after_an_unknown_outcome_does_not_clear_the_doubt() -> None:
    """E4: the first call may have had its effect, whatever the second one says."""
    play = Play(saga("a -> b", b={"attempts": 3}))
    play.run({"b": ["lost", "reject"]})
    assert play.calls == ["a", "b", "b", "b'", "a'"]


def test_unavailable_after_an_unknown_outcome_does_not_clear_the_doubt() -> None:
    """E4: neither does a call that had no effect."""
    play = Play(saga("a -> b", b={"attempts": 2}))
    play.run({"b": ["lost", "retry"]})
    assert play.calls == ["a", "b", "b", "b'", "a'"]


@pytest.mark.parametrize("word", ["reject", "retry"])
def test_a_call_lost_with_its_driver_leaves_doubt_until_it_is_cleared(word: str) -> None:
    """E4: an intent without an outcome is unknown; what later calls say doesn't clear it."""
    play = Play(saga("a -> b", b={"attempts": 2}))
    play.turn()
    play.answer("a", "ok")
    play.claim()
    play.run({"b": [word]})
    assert play.calls == ["a", "b", "b", "b'", "a'"]


def test_a_success_clears_the_doubt() -> None:
    """E4: what succeeded is known to be there, and is undone with its output."""
    play = Play(saga("a -> b -> c", b={"attempts": 2}))
    play.run({"b": ["lost", "ok"], "c": ["reject"]})
    assert play.calls == ["a", "b", "b", "c", "b'", "a'"]
    (undo,) = [intent for intent in play.of(Intent) if spell(intent.operation) == "b'"]
    assert undo.arguments == {"id": "b"}


def test_a_probe_that_finds_nothing_clears_the_doubt() -> None:
    """E4, E6: verified absent and no attempts left: failed, and not compensated."""
    play = Play(saga("a -> b", b={"probe": True}))
    play.run({"b": ["lost"], "b?": ["not"]})
    assert play.calls == ["a", "b", "b?", "a'"]
    assert play.summary.failed_step == "b"


POLICIES: dict[str, tuple[dict[str, Any], list[str], str]] = {
    "retry": ({"on_unknown": "retry", "attempts": 2}, ["b", "b", "b'"], "rolled_back"),
    "retry of an idempotent tool is the default": ({"attempts": 2}, ["b", "b", "b'"], "rolled_back"),
    "compensate": ({"on_unknown": "compensate", "attempts": 9}, ["b", "b'"], "rolled_back"),
    "ask": ({"on_unknown": "ask", "attempts": 9}, ["b"], "stuck"),
    "ask is the default of what is neither idempotent nor probed": ({"idempotent": False}, ["b"], "stuck"),
    "probe": ({"probe": True, "attempts": 9}, ["b", "b?", "b?", "b?", "b?"], "stuck"),
}


@pytest.mark.parametrize("case", POLICIES)
def test_each_policy_for_doubt_does_what_it_says(case: str) -> None:
    """E6: retry with the same key, undo, ask a person, or probe and then ask; never a blind retry."""
    fields, calls, status = POLICIES[case]
    play = Play(saga("a -> b", b=fields))
    assert play.run({"b": ["lost"], "b?": ["dunno"]}).status == status
    expected = ["a", *calls] + (["a'"] if status == "rolled_back" else [])
    assert play.calls == expected
    if status == "stuck":
        assert play.summary.cause is Cause.IN_DOUBT


PROBES = {
    "done": (["ok"], ["b", "b?", "c"], "succeeded"),
    "not done, and tries left": (["not"], ["b", "b?", "b", "c"], "succeeded"),
    "can't tell at first": (["dunno", "dunno", "ok"], ["b", "b?", "b?", "b?", "c"], "succeeded"),
}


@pytest.mark.parametrize("case", PROBES)
def test_a_probe_decides_what_becomes_of_doubt(case: str) -> None:
    """E6: done goes on with the probe's output; not done is tried again while the policy allows."""
    answers, calls, status = PROBES[case]
    play = Play(saga("b -> c", b={"probe": True, "attempts": 2}))
    assert play.run({"b": ["lost", "ok"], "b?": answers}).status == status
    assert play.calls == calls


def test_a_probe_is_asked_with_the_forward_key_and_the_arguments_that_it_knows() -> None:
    """E6: a probe looks for the effect by its key; of the recorded arguments it gets those in its schema."""
    play = Play(saga("a", a={"probe": True, "arguments": {"who": "eva", "odd": 1}}))
    play.turn()
    play.answer("a", "lost", raw={"half": "a reply"})
    (call,) = play.under_way.values()
    assert isinstance(call, AskProbe)
    assert (call.key, call.forward_key, call.arguments) == ("r1/a/action", "r1/a/action", {"who": "eva"})
    assert call.raw == {"half": "a reply"}


def test_a_probe_and_an_undo_are_told_when_the_action_began() -> None:
    """E6, E7: who looks for an effect by its key looks no further back than the first intent of the action."""
    play = Play(saga("a -> b", a={"probe": True}))
    play.turn()
    began, seen = play.now, []
    for name, word in (("a", "lost"), ("a", "ok"), ("b", "reject"), ("a'", "ok")):
        (call,) = play.under_way.values()
        seen.append(call.begun_ms - began)
        play.now += 5_000
        play.answer(name, word)
    assert seen == [0, 0, 10_000, 0]


@pytest.mark.parametrize("arguments", [[1, 2], "${{ input.x }}"])
def test_a_probe_gets_no_arguments_that_have_no_names(arguments: Any) -> None:
    """E6: what isn't a map has nothing that the probe knows by name; the key is enough."""
    play = Play(saga("a", a={"probe": True, "arguments": arguments}), data={"x": "text"})
    play.turn()
    play.answer("a", "lost")
    (call,) = play.under_way.values()
    assert call.arguments == {}


@pytest.mark.parametrize(
    ("schema", "given"),
    [
        ({"type": "object"}, {"who": "eva", "odd": 1}),
        ({}, {"who": "eva", "odd": 1}),
        ({"properties": {}}, {}),
        ({"properties": {"who": {}}}, {"who": "eva"}),
        ({"type": "object", "additionalProperties": False}, {}),
    ],
)
def test_a_probe_that_names_no_arguments_is_told_all(schema: Any, given: Any) -> None:
    """E6: whoever doesn't say which arguments it knows may need any of them; without them it would find nothing."""
    facts = ToolFacts("a.find", read_only=True, arguments_schema=schema)
    assert choose_probe_arguments(facts, {"who": "eva", "odd": 1}) == given


def test_a_probe_lost_with_its_driver_counts_as_asked() -> None:
    """E5, E6: a probe that kills its driver is asked four times and no more."""
    play = Play(saga("a", a={"probe": True, "attempts": 3}))
    play.turn()
    play.answer("a", "lost")
    for _ in range(8):
        play.now += 60_000
        play.claim()
        play.now += 60_000
        play.turn()
    assert play.calls == ["a", "a?", "a?", "a?", "a?"]
    assert play.status() is RunStatus.STUCK


def test_no_action_is_probed_or_retried_as_an_action_once_the_run_turns_back() -> None:
    """E6: backward, E7 alone decides what is done about doubt."""
    play = Play(saga("[a | b]", a={"attempts": 5, "on_unknown": "ask"}))
    play.turn()
    play.answer("b", "reject")
    play.answer("a", "lost")
    assert play.calls == ["a", "b", "a'"]


def test_a_key_past_its_retention_is_probed_where_there_is_a_probe() -> None:
    """E6: `retry` becomes `probe` when the tool may have forgotten the key."""
    play = Play(saga("a", a={"on_unknown": "retry", "probe": True, "attempts": 3, "key_retention": 5}))
    assert play.run({"a": ["lost", "ok"], "a?": ["not"]}).status is RunStatus.SUCCEEDED
    assert play.calls == ["a", "a?", "a"]


TREATMENTS: dict[str, tuple[dict[str, Any], str, list[str], list[str], str]] = {
    "succeeded": ({}, "ok", [], ["b'"], "rolled_back"),
    "failed without doubt": ({}, "reject", [], [], "rolled_back"),
    "failed without doubt, always": ({"compensate_failed": "always"}, "reject", [], ["b'"], "rolled_back"),
    "in doubt, null safe": ({}, "lost", [], ["b'"], "rolled_back"),
    "in doubt, neither probed nor null safe": ({"null_safe": False}, "lost", [], [], "stuck"),
    "in doubt, never": ({"compensate_failed": "never"}, "lost", [], [], "rolled_back"),
    "succeeded, never": ({"compensate_failed": "never"}, "ok", [], ["b'"], "rolled_back"),
    "in doubt, the probe finds it": ({"probe": True, "null_safe": False}, "lost", ["ok"], ["b?", "b'"], "rolled_back"),
    "in doubt, the probe finds nothing": ({"probe": True, "null_safe": False}, "lost", ["not"], ["b?"], "rolled_back"),
    "in doubt, the probe can't tell": ({"probe": True}, "lost", ["dunno"], [*["b?"] * 4, "b'"], "rolled_back"),
    "in doubt, and nobody can tell": ({"probe": True, "null_safe": False}, "lost", ["dunno"], ["b?"] * 4, "stuck"),
    "in doubt, nothing to undo it with": ({"undo": False}, "lost", [], [], "rolled_back"),
    "read only": ({"klass": "read_only"}, "lost", [], [], "rolled_back"),
}


@pytest.mark.parametrize("case", TREATMENTS)
def test_each_knowledge_of_an_action_has_its_treatment(case: str) -> None:
    """E7: what is done about a touched action depends on what the log knows of it, and of nothing else."""
    fields, word, probe, calls, status = TREATMENTS[case]
    fields = {"on_unknown": "compensate", **fields}
    if "compensate_failed" in fields:
        fields["compensate_failed"] = CompensateFailed(fields["compensate_failed"])
    if "klass" in fields:
        fields["klass"] = StepClass(fields["klass"])
    play = Play(saga("a -> b -> c", b=fields))
    play.turn()
    play.answer("a", "ok")
    play.answer("b", word)
    if word == "ok":
        play.answer("c", "reject")
    assert play.run({"b?": probe or ["dunno"]}).status == status
    undone = [*calls, "a'"] if status == "rolled_back" else calls
    assert [call for call in play.calls if call not in {"a", "b", "c"}] == undone


def test_what_stays_is_listed_with_its_reason() -> None:
    """E7, E22: `rolled_back` carries what is not undone, and says why."""
    never = {"compensate_failed": CompensateFailed.NEVER, "on_unknown": "compensate"}
    what = saga("a -> b", a={"undo": False, "not_undoable_reason": "mail can't be unsent"}, b=never)
    play = Play(what)
    play.run({"b": ["lost"]})
    assert [(left.step, left.reason) for left in play.summary.not_undone] == [
        ("b", "in doubt, and compensate_failed is never"),
        ("a", "mail can't be unsent"),
    ]


def test_without_output_the_arguments_that_come_out_as_null_are_left_out() -> None:
    """E7, B17: a null-safe compensation finds the effect by the forward key, and sees no null that it can't use."""
    undo = {"id": "${{ output.id }}", "who": "${{ args.who }}", "sum": "${{ f(output.id) }}"}
    play = Play(saga("a", a={"arguments": {"who": "eva"}, "undo_arguments": undo, "on_unknown": "compensate"}))
    play.turn()
    play.answer("a", "lost", raw="half")
    (call,) = play.under_way.values()
    assert isinstance(call, MakeCall)
    assert call.arguments == {"who": "eva"}
    assert (call.intent.key, call.forward_key, call.raw) == ("r1/a/compensation", "r1/a/action", "half")


def test_in_no_case_is_the_undo_of_an_earlier_step_lost() -> None:
    """E7, B17: a dead letter of the failed step holds up only what it depends on."""
    play = Play(saga("[a | b]", b={"null_safe": False, "on_unknown": "compensate"}))
    play.turn()
    play.answer("a", "ok")
    play.answer("b", "lost")
    play.answer("a'", "ok")
    assert play.status() is RunStatus.STUCK
    assert play.resolve("b'", Resolution.NOT_DONE).disposition is Disposition.ACCEPTED
    assert play.status() is RunStatus.ROLLED_BACK


@pytest.mark.parametrize("policy", ["retry", "probe"])
def test_neither_retry_nor_probe_comes_before_a_late_call_is_over(policy: str) -> None:
    """E9: until deadline and grace have passed, "not done" isn't believed and no second call is made."""
    play = Play(saga("a", a={"probe": True, "on_unknown": policy, "timeout": 5_000, "attempts": 3}))
    play.turn()
    play.now = 1_000
    assert not play.claim(calls_ended=False).calls
    assert play.wake_ms() == 15_000
    play.now = 15_000
    assert len(play.turn().calls) == 1


@pytest.mark.parametrize(
    ("late_safe", "probe", "waits"), [(False, False, True), (True, False, False), (True, True, True)]
)
def test_an_undo_waits_for_a_late_call_unless_the_tool_keeps_a_tombstone(
    late_safe: bool, probe: bool, waits: bool
) -> None:
    """E9: `late_safe` exempts the undo, and nothing but the undo: a probe leaves no tombstone."""
    fields = {"late_safe": late_safe, "probe": probe, "timeout": 5_000, "on_unknown": "compensate"}
    play = Play(saga("a", a=fields))
    play.turn()
    turn = play.claim(calls_ended=False)
    assert bool(turn.calls) is not waits
    play.now = 15_000
    play.turn()
    assert play.calls == ["a", "a?" if probe else "a'"]


def test_a_second_loss_does_not_shorten_the_wait_for_the_first() -> None:
    """E9: who took over from a dead process knows nothing about the one before it."""
    play = Play(saga("a", a={"timeout": 5_000, "on_unknown": "compensate"}))
    play.turn()
    play.claim(calls_ended=False)
    play.now = 2_000
    assert not play.claim(calls_ended=True).calls
    assert play.wake_ms() == 15_000


def test_nothing_is_waited_for_when_the_calls_are_known_to_have_ended() -> None:
    """E15: the process of the earlier driver is dead on this host, so its calls are too."""
    play = Play(saga("a", a={"attempts": 2, "interval": 1}))
    play.turn()
    play.claim(calls_ended=True)
    assert play.waits == [1]


def test_what_a_person_has_retried_is_called_at_once_when_a_probe_is_sure_that_it_is_not_there() -> None:
    """E6, E23: the question comes first, and its answer costs no delay of a back-off that hasn't begun."""
    play = Play(saga("a", a={"probe": True, "attempts": 3, "interval": 60_000}))
    assert play.run({"a": ["lost"], "a?": ["dunno"]}).status is RunStatus.STUCK
    play.ask(Verb.RETRY, "a")
    assert play.calls[-1] == "a?"
    before = play.now
    play.answer("a", "not")
    play.turn()
    assert (play.waits[-1], play.now) == (0, before)
    assert list(play.under_way) == [operation("a")]


def test_the_first_question_is_asked_at_once_and_each_next_one_after_a_longer_while() -> None:
    """E6: on the way forward and on the way back, as `probe_retry` says; no timer stands before the first."""
    forward = Play(saga("a", a={"probe": True}))
    forward.run({"a": ["lost"], "a?": ["dunno"]})
    assert forward.calls == ["a", "a?", "a?", "a?", "a?"]
    assert forward.waits == [200, 400, 800]
    back = Play(saga("a -> b", b={"probe": True, "on_unknown": "compensate"}))
    back.run({"b": ["lost"], "b?": ["dunno"]})
    assert back.calls == ["a", "b", "b?", "b?", "b?", "b?", "b'", "a'"]
    assert back.waits == [200, 400, 800]


def test_a_question_about_a_lost_drivers_call_waits_exactly_until_it_cannot_land_any_more() -> None:
    """E9: the deadline of the call and a grace, neither drawn nor doubled."""
    play = Play(saga("a", a={"probe": True, "timeout": 5_000}))
    play.turn()
    play.now = 1_000
    assert play.claim(calls_ended=False).calls == ()
    assert play.waits == [14_000]
    play.run()
    assert (play.calls, play.now) == (["a", "a?"], 15_010)


def test_a_question_that_was_answered_begins_anew_with_the_next_doubt() -> None:
    """E6: "not there" settles a doubt; the next one is asked about as often as the first."""
    play = Play(saga("a", a={"probe": True, "attempts": 2}))
    play.run({"a": ["lost"], "a?": ["dunno", "dunno", "dunno", "not", "dunno"]})
    assert play.calls == ["a", *["a?"] * 4, "a", *["a?"] * 4]
    assert play.status() is RunStatus.STUCK


def test_what_a_probe_has_found_is_in_doubt_no_more() -> None:
    """E4, E6: a run that is terminated later leaves an effect that is known, not one that may be there."""
    play = Play(saga("a -> b", a={"probe": True}))
    play.turn()
    play.answer("a", "lost")
    play.answer("a", "ok")
    play.ask(Verb.TERMINATE)
    play.answer("b", "reject")
    assert [(each.step, each.reason) for each in play.summary.not_undone] == [("a", "the run was terminated")]
