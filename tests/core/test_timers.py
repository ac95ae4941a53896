"""E5, E9: which timers are due, whatever stale ones lie among them."""

from __future__ import annotations

from sagactl.core.records import Cause, Decision, DecisionKind, Disposition, Failure, Operator, Resolution, Verb
from sagactl.core.saga import Approval
from sagactl.core.state import due_timers, first_timer_after, list_doubts, next_timer
from sagactl.core.summary import Waiting
from sagactl.core.world import Wait
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


def test_every_timer_that_is_due_is_found_however_many_there_are() -> None:
    """E5: the earliest first, none left out and none twice."""
    names = [f"s{place}" for place in range(11)]
    fields = {name: {"attempts": 3, "interval": 1_000 + 10 * place} for place, name in enumerate(names)}
    play = Play(saga(f"[{' | '.join(names)}]", **fields), slots=20)
    play.turn()
    for name in reversed(names):
        play.answer(name, "retry")
    found = list(due_timers(play.state, 1_070))
    assert sorted(found) == sorted(operation(name) for name in names[:8])
    assert found[0] == operation("s0")
    assert len(list(due_timers(play.state, 5_000))) == len(names)


def test_a_driver_is_told_for_what_and_until_when_it_waits() -> None:
    """E14, E22: for a call until the run's deadline, for a person by the step's name, and for a pause by its own."""
    play = Play(saga("a -> b", b={"approval": Approval(timeout_ms=7_000)}), deadline=90_000)
    assert play.turn().then == Wait("call", 90_000)
    play.ask(Verb.PAUSE)
    assert play.turn().then == Wait("call")
    play.ask(Verb.UNPAUSE)
    assert play.answer("a", "ok").then == Wait("approval", 7_000, "b")
    waiting = play.summary.waiting_for
    assert waiting is not None
    assert (waiting.what, waiting.detail, waiting.until_ms) == ("approval", "b", 7_000)
    play.ask(Verb.PAUSE)
    assert play.turn().then == Wait("paused")
    assert play.summary.waiting_for == Waiting("paused", None, None)


def test_an_approval_is_over_in_the_moment_its_time_is() -> None:
    """E22: silence counts as denied then, with its own word, and not a moment before."""
    play = Play(saga("a", a={"approval": Approval(timeout_ms=7_000)}))
    play.turn()
    play.now = 6_999
    assert play.turn().then == Wait("approval", 7_000, "a")
    play.now = 7_000
    play.turn()
    assert play.summary.failure == Failure("denied", "nobody answered in time")
    assert (play.summary.ended_at_ms, play.summary.waiting_for) == (7_000, None)


def test_an_approval_has_no_end_while_a_dead_letter_holds_everything() -> None:
    """E12, E22: nobody is woken for it again and again; when the run may go on, the time that went by counts."""
    shape = saga("[a | b | c]", a={"approval": Approval(timeout_ms=7_000)}, b={"on_unknown": "ask"})
    play = Play(shape)
    play.turn()
    assert play.answer("b", "lost").then == Wait("call")
    play.now = 7_000
    assert play.turn().then == Wait("call")
    play.resolve("b", Resolution.DONE)
    assert play.summary.cause is Cause.DENIED


def test_what_is_in_doubt_is_listed_until_it_is_settled() -> None:
    """E4: of what an answer was lost nobody knows; once a person has said what happened somebody does."""
    play = Play(saga("a", a={"on_unknown": "ask"}))
    play.turn()
    assert list_doubts(play.state) == []
    play.answer("a", "lost")
    assert list_doubts(play.state) == [operation("a")]
    play.resolve("a", Resolution.DONE)
    assert list_doubts(play.state) == []


def test_what_is_told_to_a_person_says_why() -> None:
    """L6, E13: an alert and a void request name their reason, so that nobody has to guess."""
    late = Play(saga("p* -> a"), deadline=5_000)
    late.turn()
    late.answer("p", "ok")
    late.now = 5_000
    late.turn()
    (alert,) = [each for each in late.of(Decision) if each.kind is DecisionKind.ALERT]
    assert (alert.cause, alert.failure) == (Cause.TIMEOUT, Failure("run_timeout", "the run's time is over"))
    failing = Play(saga("p* -> a", a={"attempts": 7}))
    failing.run({"a": ["retry"]})
    (alert,) = [each for each in failing.of(Decision) if each.kind is DecisionKind.ALERT]
    assert (alert.operation, alert.failure) == (operation("a"), Failure("retry", "a retry 5"))
    void = Play(saga("p* -> a"))
    void.turn()
    void.ask(Verb.CANCEL)
    void.answer("p", "ok")
    assert void.of(Operator)[-1].detail == "the pivot succeeded: the run only goes forward"
    ended = Play(saga("p* -> a"))
    ended.turn()
    ended.ask(Verb.CANCEL)
    ended.ask(Verb.TERMINATE)
    ended.answer("p", "reject")
    assert [each.detail for each in ended.of(Operator) if each.disposition is Disposition.VOID] == [
        "the run is terminated"
    ]


def test_a_step_that_is_too_late_says_that_it_is_its_time() -> None:
    """E6, E14: the decision has the cause `timeout`; a call of a lost driver is told by that."""
    play = Play(saga("a", a={"attempts": 5, "schedule": 5_000, "interval": 4_000}))
    play.turn()
    play.now = 2_000
    play.answer("a", "retry")
    play.now = 9_000
    play.turn()
    (expired,) = [each for each in play.of(Decision) if each.kind is DecisionKind.EXPIRED]
    assert (expired.cause, expired.operation, expired.failure) == (
        Cause.TIMEOUT,
        operation("a"),
        Failure("retry", "a retry 1"),
    )
    lost = Play(saga("a", a={"attempts": 2}))
    lost.turn()
    lost.claim()
    assert lost.state.operations[operation("a")].failure == Failure(
        "driver_lost", "the driver ended before the answer was recorded"
    )


def test_an_expression_knows_its_run() -> None:
    """F3: `run` has the id, the saga and the key of the run, and nothing else."""
    arguments = {"id": "${{ run.id }}", "saga": "${{ run.saga }}", "key": "${{ run.key }}"}
    play = Play(saga("a", a={"arguments": arguments}))
    play.turn()
    assert play.state.operations[operation("a")].arguments == {"id": "r1", "saga": "test", "key": None}
