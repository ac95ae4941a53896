"""E1, E14, E16, E20, E21, F7-F9: how a run goes forward, what its intents say, and what stops it."""

from __future__ import annotations

from typing import Any

import pytest

from sagactl.core.canonical import Json
from sagactl.core.records import (
    Cause,
    Decision,
    DecisionKind,
    DriverClaimed,
    Ended,
    Intent,
    Resolution,
    RunCreated,
    RunStatus,
    StepDecided,
    Verb,
)
from sagactl.core.saga import ITEMS_MAX, PAYLOAD_BYTES_MAX
from sagactl.core.template import parse_template
from sagactl.core.world import MakeCall, Wait
from tests.core.builders import Plain, Play, saga, spell


def test_the_first_record_comes_before_any_call() -> None:
    """E1: a log begins with the input, the definition and who asked; then a driver claims it."""
    play = Play(saga("a"), data={"x": 1})
    play.run()
    created, claimed, intent = play.records[:3]
    assert isinstance(created, RunCreated)
    assert (created.input, created.definition, created.requested_by) == ({"x": 1}, "digest", "me")
    assert isinstance(claimed, DriverClaimed)
    assert isinstance(intent, Intent)


def test_an_intent_says_all_about_its_call() -> None:
    """E1: arguments, key, attempt, deadline and fence are recorded before the call is made."""
    play = Play(saga("a", a={"arguments": {"x": "${{ input.x }}"}, "timeout": 7_000}), data={"x": 2**70})
    play.now = 1_000
    (call,) = play.turn().calls
    assert isinstance(call, MakeCall)
    (intent,) = play.of(Intent)
    assert call.intent is intent
    assert (intent.tool, intent.key, intent.attempt, intent.asking) == ("do.a", "r1/a/action", 1, 1)
    assert (intent.deadline_ms, intent.fence, intent.arguments) == (8_000, 1, {"x": 2**70})


def test_arguments_are_evaluated_once_for_an_operation() -> None:
    """E20: an expression that would yield something else is not asked again, by no attempt and no driver."""
    count = iter(range(100))
    what = saga("a", a={"attempts": 3, "interval": 1, "arguments": {"n": "${{ next() }}"}})
    play = Play(what, evaluator=Plain({"next()": lambda _: next(count)}))
    play.turn()
    seen = [_arguments(play)]
    play.answer("a", "retry")
    play.claim()
    play.now += 1
    play.turn()
    seen.append(_arguments(play))
    assert seen == [{"n": 0}, {"n": 0}]
    assert [intent.arguments for intent in play.of(Intent)] == [{"n": 0}, None]


def _arguments(play: Play) -> Json:
    (call,) = play.under_way.values()
    return call.arguments


def test_the_same_log_and_time_always_lead_to_the_same_decision() -> None:
    """E20: two drivers that see the same records want the same."""
    play = Play(saga("[a | b] -> c", a={"attempts": 3}))
    play.turn()
    play.answer("a", "retry")
    twin = Play(play.saga)
    twin.state, twin.records, twin.under_way = play.fold(), list(play.records), dict(play.under_way)
    play.now = twin.now = 1_000
    assert play.turn() == twin.turn()


# -- the graph --------------------------------------------------------------------------------------------------------


def test_a_step_starts_when_all_that_it_needs_is_done() -> None:
    """F7: the list of needs is exactly that list."""
    play = Play(saga("a -> [b | c] -> d"))
    play.turn()
    assert play.calls == ["a"]
    play.answer("a", "ok")
    assert play.calls == ["a", "b", "c"]
    play.answer("c", "ok")
    assert play.calls == ["a", "b", "c"]
    play.answer("b", "ok")
    assert play.calls == ["a", "b", "c", "d"]


def test_no_more_calls_are_made_at_once_than_there_are_slots() -> None:
    """E2: an intent is written only for a call that is made right after the commit, so it waits for a slot."""
    play = Play(saga("[a | b | c]"), slots=2)
    assert play.turn().then == Wait("slot")
    assert len(play.of(Intent)) == 2
    play.answer("a", "ok")
    assert play.calls == ["a", "b", "c"]


def test_an_outcome_and_the_intents_after_it_are_decided_in_one_turn() -> None:
    """E2: what follows an answer is known at once, so one commit holds it all."""
    play = Play(saga("a -> [b | c]"))
    play.turn()
    turn = play.answer("a", "ok")
    assert [spell(record.operation) for record in turn.records if isinstance(record, Intent)] == ["b", "c"]


@pytest.mark.parametrize("is_on", [True, False])
def test_when_is_decided_once_and_recorded(is_on: bool) -> None:
    """F8: a skipped step satisfies needs, has a null output, and is never undone."""
    what = saga(
        "a -> b -> c -> d",
        b={"when": "${{ input.on }}"},
        c={"arguments": {"b": "${{ steps.b.output }}", "was": "${{ steps.b.status }}"}},
    )
    play = Play(what, data={"on": is_on})
    play.run({"d": ["reject"]})
    assert [record.runs for record in play.of(StepDecided)] == [is_on]
    (call,) = [intent for intent in play.of(Intent) if spell(intent.operation) == "c"]
    assert call.arguments == ({"b": {"id": "b"}, "was": "succeeded"} if is_on else {"b": None, "was": "skipped"})
    assert ("b'" in play.calls) is is_on


def test_when_is_decided_before_foreach() -> None:
    """F8: the list of a step that is skipped is never looked at."""
    play = Play(saga("f", f={"when": "${{ input.on }}", "foreach": "${{ input.missing }}"}), data={"on": False})
    assert play.run().status is RunStatus.SUCCEEDED


def test_a_skipped_pivot_counts_as_passed() -> None:
    """F8: behind a pivot that was skipped the run only goes forward."""
    play = Play(saga("a -> p* -> b", p={"when": "${{ input.on }}"}), data={"on": False})
    play.turn()
    play.answer("a", "ok")
    assert play.of(Decision)[-1].kind is DecisionKind.PIVOT_PASSED
    assert play.ask(Verb.CANCEL).detail == "the pivot has passed: the run only goes forward"


def test_items_run_in_list_order_one_at_a_time_by_default() -> None:
    """F9: an item is its index, so the same value may occur twice; the output is in item order."""
    what = saga("f -> g", f={"foreach": "${{ input.xs }}", "arguments": {"x": "${{ item }}", "n": "${{ index }}"}})
    play = Play(what, data={"xs": ["x", "x"]})
    play.turn()
    assert play.calls == ["f[0]"]
    play.answer("f[0]", "ok", output=10)
    play.answer("f[1]", "ok", output=11)
    assert [intent.arguments for intent in play.of(Intent)[:2]] == [{"x": "x", "n": 0}, {"x": "x", "n": 1}]
    assert [intent.key for intent in play.of(Intent)[:2]] == ["r1/f/0/action", "r1/f/1/action"]
    assert play.state.steps["f"].output == [10, 11]


def test_items_run_at_once_as_far_as_concurrency_allows_and_outputs_keep_their_order() -> None:
    """F9: a finished item makes room for the next."""
    what = saga("f -> g", f={"foreach": "${{ input.xs }}", "concurrency": 2})
    play = Play(what, data={"xs": [1, 2, 3]})
    play.turn()
    assert play.calls == ["f[0]", "f[1]"]
    play.answer("f[1]", "ok", output="one")
    play.answer("f[2]", "ok", output="two")
    play.answer("f[0]", "ok", output="nought")
    assert play.state.steps["f"].output == ["nought", "one", "two"]
    assert play.calls[-1] == "g"


def test_an_item_that_waits_for_its_retry_keeps_its_place() -> None:
    """F9: `concurrency: 1` means list order, retries included."""
    play = Play(saga("f", f={"foreach": "${{ input.xs }}", "attempts": 2}), data={"xs": [1, 2]})
    play.run({"f[0]": ["retry", "ok"]})
    assert play.calls == ["f[0]", "f[0]", "f[1]"]


def test_an_empty_list_is_done_with_an_empty_output() -> None:
    """F9: no item, no call, `[]`."""
    play = Play(saga("f -> g", f={"foreach": "${{ input.xs }}"}, g={"arguments": {"f": "${{ steps.f.output }}"}}))
    play.state.created = None
    play = Play(play.saga, data={"xs": []})
    assert play.run().status is RunStatus.SUCCEEDED
    assert play.calls == ["g"]
    assert play.of(Intent)[0].arguments == {"f": []}


def test_behind_the_pivot_the_other_items_go_on() -> None:
    """F9, E13: a dead letter per item; the step is done when each of them is settled."""
    what = saga("p* -> f -> g", f={"foreach": "${{ input.xs }}"})
    play = Play(what, data={"xs": [1, 2, 3]})
    assert play.run({"f[0]": ["reject"], "f[2]": ["reject"]}).status is RunStatus.STUCK
    assert play.calls == ["p", "f[0]", "f[1]", "f[2]"]
    assert play.summary.dead_letters == 2
    play.resolve("f[0]", Resolution.SKIP)
    play.resolve("f[2]", Resolution.DONE, output={"id": "by hand"})
    assert play.state.steps["f"].output == [None, {"id": "f[1]"}, {"id": "by hand"}]
    assert play.run().status is RunStatus.SUCCEEDED


# -- refused ----------------------------------------------------------------------------------------------------------

REFUSALS: dict[str, tuple[dict[str, Any], str]] = {
    "an expression": ({"arguments": {"x": "${{ input.missing }}"}}, "input has no missing, in input.missing"),
    "a guard that is false": ({"guard": "${{ input.no }}"}, "the guard is false"),
    "a guard that is no boolean": ({"guard": "${{ input.one }}"}, "guard must be true or false"),
    "a schema": ({"arguments": {"bad": True}}, "no such thing"),
    "a when that is no boolean": ({"when": "${{ input.one }}"}, "when must be true or false"),
    "a foreach that is no list": ({"foreach": "${{ input.one }}"}, "foreach must be a list"),
    "too many items": ({"foreach": "${{ input.many }}"}, f"foreach has {ITEMS_MAX + 1} items, more than {ITEMS_MAX}"),
    "arguments that are too large": (
        {"arguments": {"x": "${{ input.large }}"}},
        f"the arguments are larger than {PAYLOAD_BYTES_MAX} bytes",
    ),
    "a list that is too large": (
        {"foreach": ["${{ input.large }}"]},
        f"the list of foreach is larger than {PAYLOAD_BYTES_MAX} bytes",
    ),
}
DATA: dict[str, Json] = {"no": False, "one": 1, "many": [0] * (ITEMS_MAX + 1), "large": "x" * (PAYLOAD_BYTES_MAX + 1)}


@pytest.mark.parametrize("case", REFUSALS)
def test_a_step_that_is_refused_before_the_pivot_fails_without_a_call(case: str) -> None:
    """E21: no intent, no attempt, not compensated; the run is rolled back and says why."""
    fields, message = REFUSALS[case]
    evaluator = Plain(objections={"do.b": "no such thing"} if case == "a schema" else {})
    play = Play(saga("a -> b", b=fields), data=DATA, evaluator=evaluator)
    summary = play.run()
    assert (summary.status, summary.failed_step) == (RunStatus.ROLLED_BACK, "b")
    assert summary.failure is not None
    assert (summary.failure.type, summary.failure.message) == ("refused", message)
    assert play.calls == ["a", "a'"]


@pytest.mark.parametrize("case", REFUSALS)
def test_a_step_that_is_refused_behind_the_pivot_is_a_dead_letter(case: str) -> None:
    """E21, E13: behind the pivot a person must mend it; then it is evaluated again."""
    fields, message = REFUSALS[case]
    evaluator = Plain(objections={"do.b": "no such thing"} if case == "a schema" else {})
    play = Play(saga("p* -> b", b=fields), data=DATA, evaluator=evaluator)
    summary = play.run()
    assert (summary.status, summary.cause) == (RunStatus.STUCK, Cause.FORWARD_STUCK)
    assert play.calls == ["p"]
    letter = play.of(Decision)[-2]
    assert letter.failure is not None
    assert letter.failure.message == message
    name = spell(letter.operation) if letter.operation is not None else "b"
    assert play.resolve(name, Resolution.DONE).detail == "it was never called, so it can't have happened"
    play.ask(Verb.RETRY, name)
    assert play.status() is RunStatus.STUCK
    play.resolve(name, Resolution.SKIP)
    assert play.run().status is RunStatus.SUCCEEDED


def test_a_pivot_that_is_refused_fails_and_the_run_is_rolled_back() -> None:
    """E21: up to and at the pivot a refusal turns the run around."""
    play = Play(saga("a -> p*", p={"guard": "${{ input.no }}"}), data=DATA)
    assert play.run().status is RunStatus.ROLLED_BACK
    assert play.calls == ["a", "a'"]


def test_an_output_that_fails_leaves_the_run_succeeded_with_a_warning() -> None:
    """E21: what was done stays done."""
    what = saga("a", saga_fields={"output": parse_template("${{ steps.a.output.nothing }}")})
    play = Play(what)
    assert play.run().status is RunStatus.SUCCEEDED
    (ended,) = play.of(Ended)
    assert ended.output is None
    assert ended.output_failure is not None
    assert ended.output_failure.message == "steps.a.output has no nothing, in steps.a.output.nothing"


def test_an_output_that_is_too_large_is_a_warning_too() -> None:
    """E21: a limit at the end of a run undoes nothing."""
    what = saga("a", saga_fields={"output": parse_template("${{ input.large }}")})
    play = Play(what, data=DATA)
    assert play.run().status is RunStatus.SUCCEEDED
    (ended,) = play.of(Ended)
    assert ended.output_failure is not None
    assert ended.output_failure.message == f"the output is larger than {PAYLOAD_BYTES_MAX} bytes"


def test_a_run_has_the_output_that_its_saga_describes() -> None:
    """F1: `output` is evaluated when all steps are done."""
    output = parse_template({"a": "${{ steps.a.output.id }}", "run": "${{ run.id }}"})
    play = Play(saga("a", saga_fields={"output": output}))
    assert play.run().output == {"a": "a", "run": "r1"}


# -- time -------------------------------------------------------------------------------------------------------------

DEADLINES = {
    "start_to_close alone": ({}, None, 30_000),
    "schedule_to_close is sooner": ({"schedule": 4_000}, None, 4_000),
    "the run's time is sooner": ({}, 9_000, 9_000),
    "the nearest of three": ({"schedule": 8_000, "timeout": 5_000}, 9_000, 5_000),
}


@pytest.mark.parametrize("case", DEADLINES)
def test_a_call_has_the_nearest_of_its_deadlines(case: str) -> None:
    """E14: per call, per step, and before the pivot per run."""
    fields, deadline, expected = DEADLINES[case]
    play = Play(saga("a", a=fields), deadline=deadline)
    play.turn()
    assert play.of(Intent)[0].deadline_ms == expected


@pytest.mark.parametrize("name", ["p", "b"])
def test_the_runs_time_does_not_cut_the_pivot_or_what_follows_it(name: str) -> None:
    """E13, E14: from the pivot on the run's time only alerts."""
    play = Play(saga("p* -> b"), deadline=1_000)
    play.turn()
    if name == "b":
        play.answer("p", "ok")
    assert play.of(Intent)[-1].deadline_ms == 30_000


def test_schedule_to_close_counts_from_the_first_intent_over_all_tries() -> None:
    """E14: deadlines are absolute; downtime counts."""
    play = Play(saga("a", a={"attempts": 10, "interval": 3_000, "schedule": 10_000}))
    play.turn()
    play.now = 1_000
    play.answer("a", "retry")
    play.now = 4_000
    play.turn()
    assert play.of(Intent)[-1].deadline_ms == 10_000
    play.answer("a", "retry")
    assert play.waits[-1] == 6_000
    play.now = 50_000
    play.claim()
    assert play.status() is RunStatus.ROLLED_BACK
    assert play.calls == ["a", "a"]


@pytest.mark.parametrize("attempts", [1, 4])
@pytest.mark.parametrize("is_killed", [False, True])
def test_the_end_of_a_runs_time_before_the_pivot_rolls_it_back(attempts: int, is_killed: bool) -> None:
    """E14, B37: a call that hangs ends with the run's time; cause timeout, also when nobody drove it just then."""
    play = Play(saga("a -> b", b={"attempts": attempts}), deadline=5_000)
    play.turn()
    play.answer("a", "ok")
    if is_killed:
        play.now = 60_000
        play.claim()
    else:
        play.now = 5_000
        play.answer("b", "lost")
    assert play.run().cause is Cause.TIMEOUT
    assert play.calls == ["a", "b", "b'", "a'"]


def test_the_end_of_a_runs_time_behind_the_pivot_is_an_alert_and_no_more() -> None:
    """E14, X03: once, and the run goes on."""
    play = Play(saga("p* -> b"), deadline=5_000)
    play.turn()
    play.answer("p", "ok")
    play.now = 6_000
    play.turn()
    play.now = 7_000
    play.turn()
    alerts = [record for record in play.of(Decision) if record.kind is DecisionKind.ALERT]
    assert [(alert.cause, alert.operation) for alert in alerts] == [(Cause.TIMEOUT, None)]
    assert play.run().status is RunStatus.SUCCEEDED


def test_the_end_of_a_runs_time_waits_for_the_pivots_fate() -> None:
    """E13, E14: while the pivot is under way nobody knows on which side the run stands."""
    play = Play(saga("a -> p*", p={"attempts": 2}), deadline=5_000)
    play.turn()
    play.answer("a", "ok")
    play.now = 6_000
    assert not [record for record in play.turn().records if isinstance(record, Decision)]
    play.answer("p", "retry")
    assert play.run().cause is Cause.TIMEOUT
    assert play.calls == ["a", "p", "a'"]


def test_time_in_which_only_a_person_is_awaited_does_not_count() -> None:
    """E14: deadlines move by as long as the run was stuck, in each fold alike."""
    play = Play(saga("[a | b]", a={"idempotent": False}, b={"attempts": 5, "schedule": 20_000}), deadline=40_000)
    play.turn()
    play.now = 1_000
    play.answer("b", "retry")
    play.answer("a", "lost")
    assert play.status() is RunStatus.STUCK
    play.now = 3_601_000
    play.resolve("a", Resolution.DONE, output={"id": "a"})
    assert play.fold() == play.state
    assert play.of(Intent)[-1].deadline_ms == 3_600_000 + 20_000
    assert play.state.deadline_ms == 3_640_000
    assert play.run().status is RunStatus.SUCCEEDED


# -- missing tools ----------------------------------------------------------------------------------------------------


def test_a_missing_tool_makes_the_run_wait_and_not_fail() -> None:
    """E16: the run says what it waits for, and goes on where the tool is."""
    play = Play(saga("a -> b"))
    play.missing = frozenset({"do.b"})
    play.turn()
    assert play.answer("a", "ok").then == Wait("missing_tool", None, "do.b")
    play.missing = frozenset()
    assert play.run().status is RunStatus.SUCCEEDED


def test_what_needs_no_missing_tool_goes_on() -> None:
    """E16: another branch isn't held up, and neither is a timer of it."""
    play = Play(saga("[a | b]", b={"attempts": 2}))
    play.missing = frozenset({"do.a"})
    play.turn()
    play.answer("b", "retry")
    play.now = 500
    assert play.turn().then == Wait("timer", 1_000)
    play.now = 1_000
    play.turn()
    assert play.answer("b", "ok").then == Wait("missing_tool", None, "do.a")
    assert play.calls == ["b", "b"]


@pytest.mark.parametrize("tool", ["undo.a", "probe.a"])
def test_a_missing_tool_holds_up_a_rollback_too(tool: str) -> None:
    """E16, B21: the undo waits for its tool, and nothing is called in its place."""
    play = Play(saga("a", a={"probe": True, "on_unknown": "compensate"}))
    play.turn()
    play.missing = frozenset({tool})
    play.answer("a", "lost")
    summary = play.run({"a?": ["ok"]})
    assert summary.status is RunStatus.ROLLING_BACK
    assert play.last is not None
    assert play.last.then == Wait("missing_tool", None, tool)


def test_nothing_is_called_whose_undo_is_missing() -> None:
    """E1, E16: how a call is undone is known before it is made, and what needs other tools goes on."""
    play = Play(saga("[a | f] -> c", f={"foreach": "${{ [1, 2] }}"}), evaluator=Plain({"[1, 2]": [1, 2]}))
    play.turn()
    play.missing = frozenset({"undo.f"})
    play.answer("f[0]", "ok")
    assert play.answer("a", "ok").then == Wait("missing_tool", None, "undo.f")
    assert play.calls == ["a", "f[0]"]
    play.missing = frozenset()
    assert play.run().status is RunStatus.SUCCEEDED


@pytest.mark.parametrize("word", ["retry", "lost"])
def test_a_further_try_waits_for_the_undo_too(word: str) -> None:
    """E16: each try may be the one that has an effect; a rollback goes on with the tools that are there."""
    play = Play(saga("a -> b", b={"attempts": 3}))
    play.turn()
    play.answer("a", "ok")
    play.answer("b", word)
    play.missing = frozenset({"undo.b"})
    play.now += 5_000
    assert play.turn().then == Wait("missing_tool", None, "undo.b")
    play.missing = frozenset({"do.b"})
    play.ask(Verb.CANCEL)
    assert play.run().status is RunStatus.ROLLED_BACK


def test_what_begins_nothing_new_needs_no_undo() -> None:
    """E5, E6, E16: who asks whether it is done by now, or how it stands, leaves nothing that isn't there already."""
    polled = Play(saga("a", a={"schedule": 60_000}))
    polled.turn()
    polled.missing = frozenset({"undo.a"})
    polled.answer("a", "pending", after_ms=1_000)
    assert polled.run().status is RunStatus.SUCCEEDED
    assert polled.calls == ["a", "a"]
    probed = Play(saga("a", a={"probe": True}))
    probed.turn()
    probed.missing = frozenset({"undo.a"})
    probed.answer("a", "lost")
    assert probed.run({"a?": ["ok"]}).status is RunStatus.SUCCEEDED


def test_at_and_behind_the_pivot_no_undo_is_waited_for() -> None:
    """E13, E16: nothing goes back from there by itself, so a run isn't kept from its only way on."""
    play = Play(saga("a -> p* -> b", p={"with_undo": True}, b={"with_undo": True}))
    play.missing = frozenset({"undo.p", "undo.b"})
    assert play.run().status is RunStatus.SUCCEEDED


def test_a_timer_behind_a_missing_tool_is_still_waited_for() -> None:
    """E16: a call that is due but has no tool doesn't hide a later one that has."""
    play = Play(saga("[a | b]", a={"attempts": 2}, b={"attempts": 2, "interval": 5_000}))
    play.turn()
    play.answer("a", "retry")
    play.answer("b", "retry")
    play.missing = frozenset({"do.a"})
    play.now = 1_000
    assert play.turn().then == Wait("timer", 5_000)


def test_lists_and_outputs_may_be_as_large_as_their_limits() -> None:
    """Limits: so many items and bytes, and not one more; in the log as in the decision."""
    most = Play(saga("f", f={"foreach": "${{ input.xs }}"}), data={"xs": [0] * ITEMS_MAX})
    most.turn()
    assert most.calls == ["f[0]"]
    room = PAYLOAD_BYTES_MAX - len('[""]')
    for size, calls in ((room, ["f[0]"]), (room + 1, [])):
        play = Play(saga("f", f={"foreach": "${{ input.xs }}"}), data={"xs": ["x" * size]})
        play.turn()
        assert play.calls == calls
    room = PAYLOAD_BYTES_MAX - len('""')
    for size, is_refused in ((room, False), (room + 1, True)):
        fields = {"output": parse_template("${{ input.text }}")}
        play = Play(saga("a", saga_fields=fields), data={"text": "x" * size})
        play.run()
        ended = play.records[-1]
        assert isinstance(ended, Ended)
        assert (ended.output is None) is is_refused
        assert (ended.output_failure is not None) is is_refused
        assert ended.output_failure is None or ended.output_failure.type == "refused"


def test_only_doubt_at_the_end_of_the_runs_time_is_a_timeout() -> None:
    """E14: a call that was cut off by it; not one that failed for certain, nor a doubt before."""
    late = Play(saga("a"), deadline=5_000)
    late.turn()
    late.now = 5_000
    late.answer("a", "reject")
    assert late.summary.cause is Cause.STEP_FAILED
    early = Play(saga("a", a={"on_unknown": "compensate"}), deadline=5_000)
    early.turn()
    early.answer("a", "lost")
    assert early.summary.cause is Cause.STEP_FAILED
    both = Play(saga("a", a={"on_unknown": "compensate"}), deadline=5_000)
    both.turn()
    both.now = 5_000
    both.answer("a", "lost")
    assert both.summary.cause is Cause.TIMEOUT
