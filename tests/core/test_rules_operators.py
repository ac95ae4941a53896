"""E13, E22, E23: what operators may ask of a run, and what becomes of it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from sagactl.core.records import Disposition, Failure, Intent, Operator, Resolution, RunStatus, Verb
from sagactl.core.stands import EFFECTS, Stand, stand_of
from sagactl.core.transitions import IllegalRecordError
from sagactl.core.world import Rest
from tests.core.builders import Play, operation, saga, spell


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


def test_nobody_can_let_try_again_what_may_still_land_and_would_happen_twice() -> None:
    """E9, E23: where neither a key nor a probe protects it, a retry says "not done", and waits like that."""
    play = Play(saga("a", a={"idempotent": False, "timeout": 5_000}))
    play.turn()
    play.claim(calls_ended=False)
    answer = play.ask(Verb.RETRY, "a")
    assert answer.disposition is Disposition.REFUSED
    assert answer.detail == "a call of a by a driver that was lost may still land: look again in 15 s"
    play.now = 15_000
    unaware = play.ask(Verb.RETRY, "a")
    assert (unaware.disposition, unaware.detail) == (
        Disposition.REFUSED,
        (
            "a is in doubt, and do.a is not idempotent: another try can be a second effect; "
            "see whether it happened and resolve it, or order it with a --reason"
        ),
    )
    assert play.ask(Verb.RETRY, "a", reason="the bank has nothing").disposition is Disposition.ACCEPTED
    assert play.calls == ["a", "a"]


def test_a_key_or_a_probe_lets_try_again_at_once_and_the_call_waits_for_the_earlier_one() -> None:
    """E9, E23: what can't happen twice need not be refused."""
    play = Play(saga("a", a={"on_unknown": "ask", "timeout": 5_000}))
    play.turn()
    play.claim(calls_ended=False)
    assert play.ask(Verb.RETRY, "a").disposition is Disposition.ACCEPTED
    assert play.wake_ms() == 15_000


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


# -- the whole table --------------------------------------------------------------------------------------------------


def _forward() -> Play:
    play = Play(saga("a -> b"))
    play.turn()
    play.answer("a", "ok")
    return play


def _ending() -> Play:
    play = _forward()
    play.ask(Verb.TERMINATE)
    return play


def _pivot_open() -> Play:
    play = Play(saga("a -> p* -> b", p={"on_unknown": "ask", "with_undo": True}))
    play.turn()
    play.answer("a", "ok")
    return play


def _behind() -> Play:
    play = _pivot_open()
    play.answer("p", "ok")
    return play


def _backward() -> Play:
    play = _forward()
    play.answer("b", "reject")
    return play


def _stuck_before() -> Play:
    play = Play(saga("a -> b", b={"on_unknown": "ask"}))
    play.run({"b": ["lost"]})
    return play


def _stuck_pivot() -> Play:
    play = _pivot_open()
    play.answer("p", "lost")
    return play


def _stuck_behind() -> Play:
    play = _behind()
    play.answer("b", "reject")
    return play


def _stuck_backward() -> Play:
    play = _backward()
    play.answer("a'", "reject")
    return play


def _succeeded() -> Play:
    play = _forward()
    play.answer("b", "ok")
    return play


def _succeeded_past_pivot() -> Play:
    play = _behind()
    play.answer("b", "ok")
    return play


def _rolled_back() -> Play:
    play = _backward()
    play.answer("a'", "ok")
    return play


def _terminated() -> Play:
    play = _ending()
    play.answer("b", "ok")
    return play


def _terminated_past_pivot() -> Play:
    play = _behind()
    play.ask(Verb.TERMINATE)
    play.answer("b", "ok")
    return play


STANDS: dict[Stand, tuple[Callable[[], Play], str, str, str, str]] = {
    # stand: how it is reached; what becomes of cancel, rollback, rollback past the pivot, terminate
    Stand.FORWARD: (_forward, "accepted", "accepted", "accepted", "accepted"),
    Stand.ENDING: (_ending, "refused", "refused", "refused", "accepted"),
    Stand.PIVOT_OPEN: (_pivot_open, "deferred", "deferred", "deferred", "accepted"),
    Stand.BEHIND: (_behind, "refused", "refused", "accepted", "accepted"),
    Stand.BACKWARD: (_backward, "accepted", "accepted", "accepted", "accepted"),
    Stand.STUCK_BEFORE: (_stuck_before, "accepted", "accepted", "accepted", "accepted"),
    Stand.STUCK_PIVOT: (_stuck_pivot, "refused", "refused", "refused", "accepted"),
    Stand.STUCK_BEHIND: (_stuck_behind, "refused", "refused", "accepted", "accepted"),
    Stand.STUCK_BACKWARD: (_stuck_backward, "refused", "refused", "refused", "accepted"),
    Stand.SUCCEEDED: (_succeeded, "refused", "accepted", "accepted", "refused"),
    Stand.SUCCEEDED_PAST_PIVOT: (_succeeded_past_pivot, "refused", "refused", "accepted", "refused"),
    Stand.ROLLED_BACK: (_rolled_back, "refused", "refused", "refused", "refused"),
    Stand.TERMINATED: (_terminated, "refused", "accepted", "accepted", "refused"),
    Stand.TERMINATED_PAST_PIVOT: (_terminated_past_pivot, "refused", "refused", "accepted", "refused"),
}
REQUESTS: list[tuple[Verb, dict[str, Any]]] = [
    (Verb.CANCEL, {}),
    (Verb.ROLLBACK, {}),
    (Verb.ROLLBACK, {"past_pivot": True, "reason": "the customer withdrew"}),
    (Verb.TERMINATE, {}),
]


@pytest.mark.parametrize("stand", Stand)
def test_each_stand_is_reached_by_a_run(stand: Stand) -> None:
    """E22: the table speaks of situations that there are."""
    assert stand_of(STANDS[stand][0]().state) is stand


@pytest.mark.parametrize("stand", Stand)
@pytest.mark.parametrize("column", range(len(REQUESTS)))
def test_each_verb_at_each_stand_is_answered_with_a_reason(stand: Stand, column: int) -> None:
    """E22, B97: done, deferred or refused, and never an internal error; what isn't simply done says why."""
    play = STANDS[stand][0]()
    verb, fields = REQUESTS[column]
    before = play.status()
    answer = play.ask(verb, **fields)
    assert answer.disposition == STANDS[stand][1 + column]
    if answer.disposition == "refused":
        assert answer.detail
        assert play.status() is before
    assert play.fold() == play.state


@pytest.mark.parametrize("stand", Stand)
@pytest.mark.parametrize("verb", [Verb.RETRY, Verb.RESOLVE])
def test_a_dead_letter_that_is_not_there_is_refused_at_each_stand(stand: Stand, verb: Verb) -> None:
    """E23, B97: nobody retries or resolves what doesn't wait for a person."""
    play = STANDS[stand][0]()
    answer = play.ask(verb, "a", resolution=Resolution.DONE if verb is Verb.RESOLVE else None, reason="so")
    assert answer.disposition is Disposition.REFUSED
    assert answer.detail


def test_the_table_is_complete() -> None:
    """E22: nothing is decided by omission."""
    assert set(EFFECTS) == {Verb.CANCEL, Verb.ROLLBACK, Verb.TERMINATE, Verb.PAUSE}
    assert all(set(row) == set(Stand) for row in EFFECTS.values())


@pytest.mark.parametrize(
    ("stand", "status"),
    [
        (Stand.FORWARD, "rolled_back"),
        (Stand.STUCK_BEFORE, "rolled_back"),
        (Stand.SUCCEEDED, "rolled_back"),
        (Stand.TERMINATED, "rolled_back"),
        (Stand.BEHIND, "rolled_back"),
        (Stand.STUCK_BEHIND, "rolled_back"),
        (Stand.SUCCEEDED_PAST_PIVOT, "rolled_back"),
        (Stand.TERMINATED_PAST_PIVOT, "rolled_back"),
    ],
)
def test_a_rollback_that_is_accepted_is_carried_out(stand: Stand, status: str) -> None:
    """E22: what was there is undone, behind a pivot too where a person insists with a reason."""
    play = STANDS[stand][0]()
    play.ask(Verb.ROLLBACK, past_pivot=True, reason="we must")
    assert play.run().status == status
    assert play.calls[-1] == "a'"
    if "pivot" in stand or "behind" in stand:
        assert "p'" in play.calls


def test_going_back_past_the_pivot_takes_the_flag_and_a_reason() -> None:
    """E22: both, or the answer says which is missing."""
    play = _behind()
    assert (
        play.ask(Verb.ROLLBACK, reason="so").detail
        == "the pivot has passed: only --past-pivot with a --reason goes back"
    )
    assert play.ask(Verb.ROLLBACK, past_pivot=True).detail == "--past-pivot takes a --reason"


def test_a_request_is_answered_once() -> None:
    """E22: the same id twice is once."""
    play = _forward()
    record = play.ask(Verb.CANCEL)
    with pytest.raises(IllegalRecordError, match="was answered before"):
        play.put(record)


# -- resolutions ------------------------------------------------------------------------------------------------------


def _dead_before() -> tuple[Play, str]:
    play = Play(saga("a -> b -> c", b={"on_unknown": "ask"}))
    play.run({"b": ["lost"]})
    return play, "b"


def _dead_pivot() -> tuple[Play, str]:
    play = Play(saga("a -> p* -> c", p={"on_unknown": "ask"}))
    play.run({"p": ["lost"]})
    return play, "p"


def _dead_behind() -> tuple[Play, str]:
    play = Play(saga("a -> p* -> c"))
    play.run({"c": ["reject"]})
    return play, "c"


def _dead_undo() -> tuple[Play, str]:
    play = Play(saga("a -> b"))
    play.run({"b": ["reject"], "a'": ["reject"]})
    return play, "a'"


def _dead_unknowable() -> tuple[Play, str]:
    play = Play(saga("a -> b", b={"null_safe": False}))
    play.run({"b": ["lost"]})
    return play, "b'"


RESOLUTIONS = [
    # where, how: accepted, and the status and calls that follow; or refused
    (_dead_before, Resolution.DONE, "succeeded", ["c"]),
    (_dead_before, Resolution.NOT_DONE, "rolled_back", ["a'"]),
    (_dead_before, Resolution.SKIP, "only a step behind the pivot can be skipped", []),
    (_dead_before, Resolution.ABANDON, "only an undo can be abandoned", []),
    (_dead_before, None, "stuck", ["b"]),
    (_dead_pivot, Resolution.DONE, "succeeded", ["c"]),
    (_dead_pivot, Resolution.NOT_DONE, "rolled_back", ["a'"]),
    (_dead_pivot, Resolution.SKIP, "only a step behind the pivot can be skipped", []),
    (_dead_pivot, Resolution.ABANDON, "only an undo can be abandoned", []),
    (_dead_pivot, None, "stuck", ["p"]),
    (_dead_behind, Resolution.DONE, "succeeded", []),
    (_dead_behind, Resolution.NOT_DONE, "succeeded", ["c"]),
    (_dead_behind, Resolution.SKIP, "succeeded", []),
    (_dead_behind, Resolution.ABANDON, "only an undo can be abandoned", []),
    (_dead_behind, None, "succeeded", ["c"]),
    (_dead_undo, Resolution.DONE, "rolled_back", []),
    (_dead_undo, Resolution.NOT_DONE, "the action is known to have happened: --done or --abandon", []),
    (_dead_undo, Resolution.SKIP, "only a step behind the pivot can be skipped", []),
    (_dead_undo, Resolution.ABANDON, "terminated", []),
    (_dead_undo, None, "rolled_back", ["a'"]),
    (_dead_unknowable, Resolution.DONE, "rolled_back", ["a'"]),
    (_dead_unknowable, Resolution.NOT_DONE, "rolled_back", ["a'"]),
    (_dead_unknowable, Resolution.SKIP, "only a step behind the pivot can be skipped", []),
    (_dead_unknowable, Resolution.ABANDON, "terminated", ["a'"]),
    (_dead_unknowable, None, "nobody can tell whether there is anything to undo: resolve it", []),
]


@pytest.mark.parametrize(("where", "how", "expected", "calls"), RESOLUTIONS)
def test_each_resolution_in_each_zone_does_what_it_says_or_says_why_not(
    where: Callable[[], tuple[Play, str]], how: Resolution | None, expected: str, calls: list[str]
) -> None:
    """E23: done, not done, skip, abandon and retry (None), before, at and behind the pivot and in an undo."""
    play, name = where()
    before = len(play.calls)
    answer = play.ask(Verb.RETRY, name) if how is None else play.resolve(name, how, output={"id": "by hand"})
    if answer.disposition is Disposition.REFUSED:
        assert answer.detail == expected
        assert play.status() is RunStatus.STUCK
    else:
        script = {"p": ["lost"], "b": ["reject"]} if how is None else {}
        assert play.run(script).status == expected
    assert play.calls[before:] == calls


def test_a_step_resolved_as_done_has_the_output_that_a_person_gave() -> None:
    """E23: its dependents and its undo see it."""
    play, name = _dead_before()
    play.resolve(name, Resolution.DONE, output={"id": "by hand"})
    play.run({"c": ["reject"]})
    undo = next(intent for intent in play.of(Intent) if spell(intent.operation) == "b'")
    assert undo.arguments == {"id": "by hand"}


def test_what_was_abandoned_is_listed_as_not_undone() -> None:
    """E23: the run ends terminated, and says what stays."""
    play, name = _dead_undo()
    play.resolve(name, Resolution.ABANDON)
    (left,) = play.summary.not_undone
    assert (left.step, left.reason) == ("a", "its compensation was abandoned")


def test_a_resolution_takes_a_reason_and_says_how() -> None:
    """E23: who settles something by hand says why."""
    play, name = _dead_undo()
    assert play.ask(Verb.RESOLVE, name, resolution=Resolution.DONE).detail == "a resolution takes a --reason"
    assert play.ask(Verb.RESOLVE, name, reason="so").detail == "say how it is resolved"
    assert play.ask(Verb.RETRY).detail == "the run has no open dead letter"


def test_resuming_a_stuck_run_calls_nothing() -> None:
    """E23: without a decision nothing happens, however often it is resumed."""
    for where in (_dead_before, _dead_pivot, _dead_behind, _dead_undo, _dead_unknowable):
        play, _ = where()
        before = list(play.calls)
        play.now += 10**7
        assert isinstance(play.claim().then, Rest)
        assert play.calls == before


def test_with_two_dead_letters_open_the_run_stays_stuck_until_both_are_settled() -> None:
    """E23, E6: before the pivot one open question keeps everything from starting."""
    play = Play(saga("[a | b] -> c", a={"on_unknown": "ask"}, b={"on_unknown": "ask"}))
    play.run({"a": ["lost"], "b": ["lost"]})
    play.resolve("a", Resolution.DONE, output={"id": 1})
    assert play.status() is RunStatus.STUCK
    play.resolve("b", Resolution.DONE, output={"id": 2})
    assert play.run().status is RunStatus.SUCCEEDED


def test_skipping_a_step_in_doubt_does_not_say_that_it_never_happened() -> None:
    """E4, E23: to go on without a step clears no doubt; a rollback past the pivot still looks for its effect."""
    play = Play(saga("a -> p* -> c", c={"on_unknown": "ask", "with_undo": True}))
    play.run({"c": ["lost"]})
    play.resolve("c", Resolution.SKIP)
    assert play.run().status is RunStatus.SUCCEEDED
    play.ask(Verb.ROLLBACK, past_pivot=True, reason="we must")
    play.run()
    assert play.calls[-2:] == ["c'", "a'"]


def test_terminating_lists_a_skipped_step_that_is_in_doubt() -> None:
    """E22, E23: what a person went on without is listed as long as nobody knows that it isn't there."""
    play = Play(saga("p* -> c -> d", c={"on_unknown": "ask"}))
    play.run({"c": ["lost"]})
    play.resolve("c", Resolution.SKIP)
    play.ask(Verb.TERMINATE)
    play.answer("d", "reject")
    assert [(left.step, left.reason) for left in play.summary.not_undone] == [
        ("c", "in doubt when the run was terminated"),
        ("p", "the run was terminated"),
    ]


def test_a_retry_of_what_is_in_doubt_begins_with_the_probe() -> None:
    """E6, E23: a fresh budget is never a blind retry: where a probe can tell by now, no call is made again."""
    play = Play(saga("a", a={"probe": True, "on_unknown": "probe", "idempotent": False, "attempts": 3}))
    play.run({"a": ["lost"], "a?": ["dunno"] * 4})
    stuck = play.summary.status
    assert play.ask(Verb.RETRY, "a").disposition is Disposition.ACCEPTED
    play.run({"a": [], "a?": ["ok"]})
    assert (stuck, play.summary.status) == (RunStatus.STUCK, RunStatus.SUCCEEDED)
    assert play.calls.count("a") == 1


def test_a_request_that_turns_a_run_around_is_its_first_error() -> None:
    """E22, S11: by whom and why, in words, and no word where no reason was given."""
    for reason, said in (("too slow", "cancel by eva: too slow"), (None, "cancel by eva")):
        play = Play(saga("a -> b"))
        play.turn()
        play.ask(Verb.CANCEL, reason=reason)
        play.answer("a", "ok")
        assert play.run().failure == Failure("cancelled", said)
        assert play.summary.failed_step is None
    done = Play(saga("a"))
    done.run()
    done.ask(Verb.ROLLBACK, reason="by mistake")
    assert done.run().failure == Failure("requested", "rollback by eva: by mistake")


def test_what_is_done_as_asked_needs_no_words() -> None:
    """E22: a record that says yes says nothing else; one that says no always says why."""
    play = Play(saga("a -> p*"))
    play.run()
    assert play.ask(Verb.ROLLBACK).detail == "the pivot has passed: only --past-pivot with a --reason goes back"
    assert play.ask(Verb.ROLLBACK, past_pivot=True).detail == "--past-pivot takes a --reason"
    record = play.ask(Verb.ROLLBACK, past_pivot=True, reason="it was the wrong one")
    assert (record.disposition, record.detail) == (Disposition.ACCEPTED, None)
    other = Play(saga("a"))
    other.turn()
    assert other.ask(Verb.REBIND, digest="next").detail == "only resume --definition binds a run to another one"


def test_who_says_that_it_happened_need_not_wait_for_a_late_call() -> None:
    """E9: only "it isn't there" can be made wrong by a call that lands later; the time left is rounded up."""
    play = Play(saga("a -> b", a={"on_unknown": "ask", "timeout": 5_000}))
    play.turn()
    play.claim(calls_ended=False)
    play.now = 15_000 - 1_001
    refused = play.resolve("a", Resolution.NOT_DONE)
    assert refused.detail == "a call of a by a driver that was lost may still land: look again in 2 s"
    assert play.resolve("a", Resolution.DONE, output={"id": 7}).disposition is Disposition.ACCEPTED
    assert play.calls == ["a", "b"]


def test_an_undo_that_was_done_by_hand_takes_no_output() -> None:
    """E23: what an undo returned is nobody's input; the record keeps what was said, and who said it."""
    play = Play(saga("a -> b"))
    play.run({"b": ["reject"], "a'": ["reject"]})
    play.resolve("a'", Resolution.DONE, output={"x": 1})
    undo = play.state.operations[operation("a'")]
    assert undo.output is None
    assert undo.settled is not None
    assert (undo.settled.who, undo.settled.resolution) == ("eva", Resolution.DONE)
