"""Approvals and pauses: a run waits for people without holding anything, and does nothing behind their backs."""

from __future__ import annotations

from typing import Any

import pytest

from sagactl.core.canonical import Json
from sagactl.core.operators import answer_request
from sagactl.core.records import (
    Cause,
    Disposition,
    DriverClaimed,
    Ended,
    Failure,
    Intent,
    Operation,
    Operator,
    Request,
    Resolution,
    RunStatus,
    StepDecided,
    Verb,
)
from sagactl.core.saga import PAYLOAD_BYTES_MAX, Approval
from sagactl.core.template import parse_template
from sagactl.core.transitions import IllegalRecordError
from sagactl.core.world import Rest, Wait
from tests.core.builders import HOLDER, Plain, Play, operation, saga

ASKS = {"approval": Approval()}


def digest(play: Play, step: str) -> str:
    """Return what an approval of *step* is bound to now."""
    return play.state.awaiting[step].digest


def approve(play: Play, step: str, **fields: Any) -> Operator:
    """Let a person agree to what *step* would do."""
    return play.ask(Verb.APPROVE, step, **{"digest": digest(play, step), **fields})


def test_a_step_starts_when_a_person_agrees() -> None:
    """E22: nothing is called before the answer, the run waits for it by name, and then goes on."""
    play = Play(saga("a -> b", b={**ASKS, "arguments": {"to": "ada"}}))
    play.run()
    assert play.calls == ["a"]
    assert play.summary.status is RunStatus.WAITING
    assert play.summary.waiting_for is not None
    assert (play.summary.waiting_for.what, play.summary.waiting_for.detail) == ("approval", "b")
    assert approve(play, "b").disposition is Disposition.ACCEPTED
    assert play.run().status is RunStatus.SUCCEEDED
    assert play.calls == ["a", "b"]


def test_what_is_approved_is_what_is_called() -> None:
    """E20: arguments are evaluated once, when the approval is asked for, and called as they stand."""
    drawn = iter(range(100))
    evaluator = Plain({"draw()": lambda _: next(drawn)})
    play = Play(saga("a", a={**ASKS, "arguments": {"n": "${{ draw() }}"}}), evaluator=evaluator)
    play.turn()
    (decided,) = play.of(StepDecided)
    assert decided.arguments == ({"n": 0},)
    approve(play, "a")
    (intent,) = play.of(Intent)
    assert intent.arguments == {"n": 0}


def test_an_answer_to_something_else_is_refused() -> None:
    """E22: an approval is bound to the digest of definition, step and arguments that its author has seen."""
    play = Play(saga("a", a=ASKS))
    play.turn()
    answer = play.ask(Verb.APPROVE, "a", digest="0" * 64)
    assert (answer.disposition, answer.detail) == (
        Disposition.REFUSED,
        "what a would do is not what was approved: look at it again",
    )
    assert play.ask(Verb.APPROVE, "a").disposition is Disposition.REFUSED
    assert play.calls == []


@pytest.mark.parametrize("data", [{"x": 1}, {"x": 2}])
def test_the_digest_tells_arguments_apart(data: dict[str, Json]) -> None:
    """E22: other arguments, another digest; the same ones, the same."""
    what = saga("a", a={**ASKS, "arguments": {"x": "${{ input.x }}"}})
    plays = [Play(what, data=data), Play(what, data={"x": 1})]
    for play in plays:
        play.turn()
    assert (digest(plays[0], "a") == digest(plays[1], "a")) is (data == {"x": 1})


def test_a_denied_step_was_never_called_and_what_came_before_is_undone() -> None:
    """E21: denied before the pivot is a failure without a call, cause `denied`."""
    play = Play(saga("a -> b -> c", b=ASKS))
    play.run()
    assert play.ask(Verb.DENY, "b", reason="too expensive").disposition is Disposition.ACCEPTED
    ended = play.run()
    assert (ended.status, ended.cause, ended.failed_step) == (RunStatus.ROLLED_BACK, Cause.DENIED, "b")
    assert ended.failure is not None
    assert (ended.failure.type, ended.failure.message) == ("denied", "denied by eva: too expensive")
    assert play.calls == ["a", "a'"]


def test_behind_the_pivot_a_denial_is_a_dead_letter_and_can_be_asked_again() -> None:
    """E13: there is no way back; a person may skip the step, or have it asked for once more."""
    play = Play(saga("p* -> a -> b", a=ASKS))
    play.run()
    play.ask(Verb.DENY, "a")
    assert (play.run().status, play.summary.cause) == (RunStatus.STUCK, Cause.FORWARD_STUCK)
    play.ask(Verb.RETRY, "a")
    assert play.summary.waiting_for is not None
    assert play.summary.waiting_for.what == "approval"
    assert play.calls == ["p"]
    approve(play, "a")
    assert play.run().status is RunStatus.SUCCEEDED
    assert play.calls == ["p", "a", "b"]


def test_a_denied_step_behind_the_pivot_can_be_skipped() -> None:
    """E23: `--skip` goes on without it."""
    play = Play(saga("p* -> a -> b", a=ASKS))
    play.run()
    play.ask(Verb.DENY, "a")
    play.resolve("a", Resolution.SKIP)
    assert play.run().status is RunStatus.SUCCEEDED
    assert play.calls == ["p", "b"]


def test_nobody_answers_in_time() -> None:
    """A `timeout` makes silence a denial, also where nobody drove the run meanwhile."""
    play = Play(saga("a -> b", b={"approval": Approval(timeout_ms=60_000)}))
    play.run(until=1_000)
    assert play.last is not None
    assert isinstance(play.last.then, Wait)
    assert play.last.then.until_ms == 60_010
    play.now = 99_999
    play.claim()
    ended = play.run()
    assert (ended.status, ended.cause) == (RunStatus.ROLLED_BACK, Cause.DENIED)
    assert ended.failure is not None
    assert ended.failure.message == "nobody answered in time"


def test_an_answer_that_comes_too_late_is_refused() -> None:
    """What counts as denied stays denied, also where nobody drove the run when its time was over."""
    play = Play(saga("a -> b", b={"approval": Approval(timeout_ms=60_000)}))
    play.run(until=1_000)
    seen = digest(play, "b")
    play.now = 99_999
    play.put(DriverClaimed(play.now, play.state.fence + 1, HOLDER, calls_ended=True))
    answer = play.ask(Verb.APPROVE, "b", digest=seen)
    assert (answer.disposition, answer.detail) == (
        Disposition.REFUSED,
        "the time to answer for b is over: it counts as denied, and a resume carries that out",
    )
    assert play.run().cause is Cause.DENIED


@pytest.mark.parametrize("needed", [True, False])
def test_a_condition_says_when_a_person_is_needed(needed: bool) -> None:
    """`required` is evaluated once, when the needs are met."""
    approval = Approval(required=parse_template("${{ input.large }}"))
    play = Play(saga("a", a={"approval": approval}), data={"large": needed})
    play.run()
    assert (play.calls == []) is needed
    assert (play.summary.status is RunStatus.WAITING) is needed


def test_only_those_named_may_answer() -> None:
    """`by` is checked for approvals and denials alike."""
    play = Play(saga("a", a={"approval": Approval(by=("ana", "finance"))}))
    play.turn()
    for verb in (Verb.APPROVE, Verb.DENY):
        answer = play.ask(verb, "a", digest=digest(play, "a"))
        assert (answer.disposition, answer.detail) == (
            Disposition.REFUSED,
            "only ana, finance may answer for a, not eva",
        )
    assert "a" in play.state.awaiting


def test_one_answer_is_for_all_items() -> None:
    """F9: a step with `foreach` is asked for once, with the arguments of every item."""
    items = {**ASKS, "foreach": "${{ input.xs }}", "arguments": {"x": "${{ item }}"}, "concurrency": 2}
    play = Play(saga("f", f=items), data={"xs": [7, 8, 9]})
    play.turn()
    (decided,) = play.of(StepDecided)
    assert decided.arguments == ({"x": 7}, {"x": 8}, {"x": 9})
    approve(play, "f")
    assert play.run().status is RunStatus.SUCCEEDED
    assert [intent.arguments for intent in play.of(Intent)] == [{"x": 7}, {"x": 8}, {"x": 9}]


def test_an_empty_list_asks_nobody() -> None:
    """F9: where nothing is called there is nothing to approve."""
    play = Play(saga("f", f={**ASKS, "foreach": "${{ input.xs }}"}), data={"xs": []})
    assert play.run().status is RunStatus.SUCCEEDED


def test_others_go_on_while_one_step_waits_for_a_person() -> None:
    """E22: an approval holds up what depends on it, and no slot."""
    play = Play(saga("[a | b] -> c", a=ASKS), slots=1)
    play.run()
    assert play.calls == ["b"]
    approve(play, "a")
    assert play.run().status is RunStatus.SUCCEEDED


@pytest.mark.parametrize("verb", [Verb.CANCEL, Verb.ROLLBACK])
def test_a_run_that_waits_for_an_approval_can_be_turned_around(verb: Verb) -> None:
    """E22: nothing is asked any more then, and an answer that comes late is refused."""
    play = Play(saga("a -> p*", p=ASKS))
    play.run()
    seen = digest(play, "p")
    play.ask(verb)
    assert play.ask(Verb.APPROVE, "p", digest=seen).disposition is Disposition.REFUSED
    assert play.run().status is RunStatus.ROLLED_BACK
    assert play.calls == ["a", "a'"]


def test_people_cost_a_run_no_time() -> None:
    """E14: while only a person is awaited, the run's time stands still."""
    play = Play(saga("a -> b -> c", b=ASKS), deadline=10_000)
    play.run()
    play.now += 1_000_000
    play.turn()
    assert play.summary.status is RunStatus.WAITING
    approve(play, "b")
    assert play.state.deadline_ms == 10_000 + 1_000_000
    assert play.run().status is RunStatus.SUCCEEDED


def test_a_paused_run_begins_nothing() -> None:
    """E22: what runs settles, nothing new begins, and the run waits; unpausing goes on."""
    play = Play(saga("a -> b"))
    play.turn()
    assert play.ask(Verb.PAUSE).disposition is Disposition.ACCEPTED
    assert play.status() is RunStatus.RUNNING
    play.answer("a", "ok")
    assert play.calls == ["a"]
    assert play.status() is RunStatus.WAITING
    assert play.last is not None
    assert play.last.then == Wait("paused")
    play.claim()
    assert play.calls == ["a"]
    play.ask(Verb.UNPAUSE)
    assert play.run().status is RunStatus.SUCCEEDED


def test_a_rollback_can_be_paused() -> None:
    """E22: an undo that does harm can be held up; the run is still rolling back."""
    play = Play(saga("a -> b -> c"))
    play.turn()
    play.answer("a", "ok")
    play.answer("b", "ok")
    play.answer("c", "reject")
    play.ask(Verb.PAUSE)
    play.answer("b'", "ok")
    assert (play.calls[-1], play.status()) == ("b'", RunStatus.ROLLING_BACK)
    assert play.summary.waiting_for is not None
    assert play.summary.waiting_for.what == "paused"
    play.ask(Verb.UNPAUSE)
    assert play.run().status is RunStatus.ROLLED_BACK


@pytest.mark.parametrize("verb", [Verb.CANCEL, Verb.ROLLBACK, Verb.TERMINATE])
def test_who_turns_a_paused_run_around_wants_it_to_go_on(verb: Verb) -> None:
    """E22: cancel, rollback and terminate lift a pause."""
    play = Play(saga("a -> b"))
    play.turn()
    play.ask(Verb.PAUSE)
    play.answer("a", "ok")
    play.ask(verb)
    assert play.run().status is (RunStatus.TERMINATED if verb is Verb.TERMINATE else RunStatus.ROLLED_BACK)


def test_a_pause_doesnt_count_against_time() -> None:
    """E14: neither the run's time nor a step's runs out while the run is paused."""
    play = Play(saga("a", a={"attempts": 3, "schedule": 30_000}), deadline=60_000)
    play.turn()
    play.ask(Verb.PAUSE)
    play.answer("a", "retry")
    play.now += 500_000
    play.turn()
    assert play.status() is RunStatus.WAITING
    play.ask(Verb.UNPAUSE)
    assert play.run().status is RunStatus.SUCCEEDED


@pytest.mark.parametrize("is_behind", [False, True])
def test_a_pause_takes_none_of_the_time_to_answer(is_behind: bool) -> None:
    """E22: what was left when the run was paused is left when it goes on, whoever drives it then."""
    limited = {"approval": Approval(timeout_ms=60_000)}
    play = Play(saga("p* -> b" if is_behind else "a -> b", b=limited))
    play.run(until=1_000)
    play.now = 40_010
    play.ask(Verb.PAUSE)
    play.now += 500_000
    play.ask(Verb.PAUSE)  # asking twice doesn't begin it anew
    play.claim()
    assert play.last is not None
    assert play.last.then == Wait("paused")
    play.ask(Verb.UNPAUSE)
    assert play.last.then == Wait("approval", play.now + 20_000, "b")
    assert play.fold() == play.state
    play.now += 20_000
    play.claim()
    if is_behind:
        assert play.status() is RunStatus.STUCK
    else:
        assert play.run().cause is Cause.DENIED


def test_a_paused_run_takes_answers_as_long_as_time_was_left() -> None:
    """E22: who comes before the time is over is heard; who comes too late is told what carries the denial out."""
    approval = Approval(timeout_ms=60_000)
    early, late = (Play(saga("a -> b", b={"approval": approval})) for _ in range(2))
    for play, at_ms in ((early, 60_009), (late, 60_010)):
        play.run(until=1_000)
        play.now = at_ms
        request = Request("q0", Verb.PAUSE, "eva")
        play.put(answer_request(play.saga, play.state, request, play.now))
        play.now = 600_000
    assert approve(early, "b").disposition is Disposition.ACCEPTED
    early.ask(Verb.UNPAUSE)
    assert early.run().status is RunStatus.SUCCEEDED
    answer = approve(late, "b")
    assert (answer.disposition, answer.detail) == (
        Disposition.REFUSED,
        "the time to answer for b is over: it counts as denied, and an unpause carries that out",
    )
    late.ask(Verb.UNPAUSE)
    assert late.run().cause is Cause.DENIED


def test_a_stuck_run_takes_none_of_the_time_to_answer() -> None:
    """E22: nothing would begin in it, so silence says nothing; an answer that comes too late waits for the decision."""
    play = Play(saga("[a | b] -> p*", a={"on_unknown": "ask"}, b={"approval": Approval(timeout_ms=60_000)}))
    play.turn()
    play.answer("a", "lost")
    assert play.status() is RunStatus.STUCK
    play.now += 59_999
    spare = play.fold()
    request = Request("q9", Verb.APPROVE, "eva", operation=operation("b"), digest=digest(play, "b"))
    assert answer_request(play.saga, spare, request, play.now).disposition is Disposition.ACCEPTED
    play.now += 600_000
    play.resolve("a", Resolution.DONE, output={"id": "a"})
    assert play.last is not None
    assert play.last.then == Wait("approval", play.now + 60_000, "b")
    assert approve(play, "b").disposition is Disposition.ACCEPTED
    assert play.run().status is RunStatus.SUCCEEDED


def test_an_answer_too_late_in_a_stuck_run_names_the_decision() -> None:
    """E22: a resume of a stuck run calls nothing, so it isn't what carries a denial out."""
    play = Play(saga("[a | b] -> p*", a={"on_unknown": "ask"}, b={"approval": Approval(timeout_ms=60_000)}))
    play.turn()
    play.now = 70_000
    play.claim()  # the call of `a` was lost with its driver
    assert play.status() is RunStatus.STUCK
    answer, once = approve(play, "b"), "that is carried out once the dead letters are answered"
    assert (answer.disposition, answer.detail) == (
        Disposition.REFUSED,
        f"the time to answer for b is over: it counts as denied, and {once}",
    )


def test_pausing_what_is_paused_and_unpausing_what_is_not() -> None:
    """E22: asking twice is harmless; there is nothing to lift where nothing was paused."""
    play = Play(saga("a"))
    play.turn()
    answer = play.ask(Verb.UNPAUSE)
    assert (answer.disposition, answer.detail) == (Disposition.REFUSED, "the run is not paused")
    for _ in range(2):
        assert play.ask(Verb.PAUSE).disposition is Disposition.ACCEPTED
    play.answer("a", "ok")
    play.ask(Verb.UNPAUSE)
    assert isinstance(play.records[-1], Ended)
    assert isinstance(play.turn().then, Rest)


def test_no_record_calls_what_a_person_holds_up() -> None:
    """L5: an intent of a paused run, or of a step that waits for its approval, is illegal."""
    play = Play(saga("a -> b", b=ASKS))
    play.turn()
    intent = play.of(Intent)[0]
    play.answer("a", "ok")
    for_b = Intent(play.now, Operation("b", None, intent.operation.direction), 1, 1, 1, "do.b", "k", 99)
    with pytest.raises(IllegalRecordError):
        play.put(for_b)
    other = Play(saga("a"))
    other.ask(Verb.PAUSE)
    with pytest.raises(IllegalRecordError):
        other.put(intent)


def test_who_must_agree_is_said_by_true_or_false() -> None:
    """E21, E22: `approval` with a condition that is neither refuses the step; false asks nobody."""
    condition = {"approval": Approval(required=parse_template("${{ input.ask }}"))}
    for value, status in ((True, RunStatus.WAITING), (False, RunStatus.SUCCEEDED), ("yes", RunStatus.ROLLED_BACK)):
        play = Play(saga("a", a=condition), data={"ask": value})
        assert play.run().status is status
    assert play.calls == []
    assert play.summary.failure is not None
    assert play.summary.failure.message == "approval must be true or false"


def test_nobody_is_asked_to_agree_to_what_would_be_refused() -> None:
    """E21, E22: arguments that don't fit the tool, or are too large to be shown, fail the step unseen."""
    play = Play(saga("a", a=ASKS), evaluator=Plain({}, {"do.a": "to: not a number"}))
    assert play.run().failure is not None
    assert play.summary.failure is not None
    assert play.summary.failure.message == "to: not a number"
    large = {"text": "x" * (PAYLOAD_BYTES_MAX // 2)}
    play = Play(saga("a", a={**ASKS, "foreach": [1, 2], "arguments": large}))
    assert play.run().status is RunStatus.ROLLED_BACK
    assert play.summary.failure is not None
    assert "larger than" in play.summary.failure.message
    assert play.of(StepDecided) == []


def test_an_answer_needs_a_run_that_waits_for_it_and_a_step() -> None:
    """E22: after the end, on the way back, and for no step at all, an answer is refused and says why."""
    play = Play(saga("a -> b", b=ASKS))
    play.run()
    assert play.ask(Verb.APPROVE).detail == "no step waits for an approval"
    assert play.ask(Verb.APPROVE, "a").detail == "a waits for no approval"
    play.ask(Verb.CANCEL)
    assert play.ask(Verb.APPROVE, "b").detail == "the run goes back: nothing is approved any more"
    play.run()
    assert play.ask(Verb.DENY, "b").detail == "the run has ended rolled_back"


def test_a_denial_without_a_reason_and_an_answer_in_the_last_moment() -> None:
    """E22: nothing is added to what was said, and the moment at which time is over is too late."""
    play = Play(saga("a", a={"approval": Approval(timeout_ms=60_000)}))
    play.turn()
    bound = digest(play, "a")
    play.now = 60_000
    late = Request("late", Verb.APPROVE, "eva", operation=operation("a"), digest=bound)
    assert answer_request(play.saga, play.state, late, 60_000).disposition is Disposition.REFUSED
    assert answer_request(play.saga, play.state, late, 59_999).disposition is Disposition.ACCEPTED
    other = Play(saga("a", a=ASKS))
    other.turn()
    other.ask(Verb.DENY, "a")
    assert other.summary.failure == Failure("denied", "denied by eva")


def test_items_that_wait_for_approval_know_their_place() -> None:
    """F9, E20: each item's arguments are evaluated with its value and its index, and called as they were shown."""
    arguments = {"x": "${{ item }}", "n": "${{ index }}"}
    play = Play(saga("f", f={**ASKS, "foreach": ["p", "q"], "arguments": arguments}))
    play.turn()
    (decided,) = play.of(StepDecided)
    assert decided.arguments == ({"x": "p", "n": 0}, {"x": "q", "n": 1})
    approve(play, "f")
    play.run()
    assert [intent.arguments for intent in play.of(Intent)] == list(decided.arguments)


class Watching(Plain):
    """An evaluator that objects to all arguments but one."""

    def check_arguments(self, tool: str, arguments: Json) -> str | None:
        """Object to what isn't as it was written."""
        return None if (tool, arguments) == ("do.a", {"x": 1}) else f"{tool} can't take {arguments}"


def test_what_a_person_is_shown_was_held_against_the_tool() -> None:
    """E21: the very arguments, with the tool that will be called."""
    play = Play(saga("a", a={**ASKS, "arguments": {"x": 1}}), evaluator=Watching())
    assert play.run().status is RunStatus.WAITING


def test_what_is_to_be_approved_may_be_as_large_as_the_limit() -> None:
    """Limits: the payload of all items together, to the byte."""
    room = PAYLOAD_BYTES_MAX - len('[{"text":""}]')
    for size, status in ((room, RunStatus.WAITING), (room + 1, RunStatus.ROLLED_BACK)):
        play = Play(saga("a", a={**ASKS, "arguments": {"text": "${{ input.text }}"}}), data={"text": "x" * size})
        assert play.run().status is status


def _deadline_after(play: Play) -> int:
    assert play.state.deadline_ms is not None
    return play.state.deadline_ms


def test_time_in_which_something_else_goes_on_counts_though_a_person_is_awaited_as_well() -> None:
    """E14: a call under way or a timer of another step is not a person's time."""
    play = Play(saga("[a | b]", a={"attempts": 2, "interval": 10_000}, b=ASKS), deadline=100_000)
    play.turn()
    play.now = 20_000
    play.answer("a", "retry")
    assert _deadline_after(play) == 100_000  # the call took these twenty seconds
    play.now = 30_000
    play.turn()
    assert _deadline_after(play) == 100_000  # and its timer ten more
    play.answer("a", "ok")
    play.now = 75_000
    approve(play, "b")
    assert _deadline_after(play) == 145_000  # then only a person was awaited, for 45 seconds


def test_time_in_which_a_run_is_stuck_is_given_back_once() -> None:
    """E14, E23: a dead letter and an approval that are open together are one wait for people, not two."""
    play = Play(saga("p* -> [a | b]", b=ASKS), deadline=100_000)
    play.turn()
    play.answer("p", "ok")
    play.now = 1_000
    play.answer("a", "reject")
    assert play.status() is RunStatus.STUCK
    play.now = 51_000
    play.ask(Verb.RETRY, "a")
    assert _deadline_after(play) == 150_000
    play.answer("a", "ok")
    assert _deadline_after(play) == 150_000


def test_time_does_not_stand_still_for_a_person_in_a_run_that_goes_back() -> None:
    """E14: what was asked for is void once the run turns around."""
    play = Play(saga("[a | b]", b=ASKS), deadline=100_000)
    play.turn()
    play.answer("a", "ok")
    play.now = 10_000
    play.ask(Verb.CANCEL)
    assert play.state.people_since_ms is None
    assert _deadline_after(play) == 110_000
    play.now = 50_000
    play.answer("a'", "ok")
    assert _deadline_after(play) == 110_000
