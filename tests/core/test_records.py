"""L5: a record that can't follow the ones before it is refused, on writing and on reading alike."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from sagactl.core.evolve import evolve, replay
from sagactl.core.frontier import apply_event
from sagactl.core.records import (
    Cause,
    Decision,
    DecisionKind,
    DriverClaimed,
    Ended,
    Failure,
    Intent,
    Outcome,
    OutcomeKind,
    Probe,
    ProbeAnswer,
    Record,
    RunCreated,
    RunStatus,
    StepDecided,
    Timer,
    TimerKind,
    Verb,
)
from sagactl.core.saga import ITEMS_MAX
from sagactl.core.state import OperationState, RunState
from sagactl.core.transitions import TRANSITIONS, Event, IllegalRecordError, Phase
from tests.core.builders import HOLDER, Play, operation, saga

FORBIDDEN = [(phase, event) for phase in Phase for event in Event if event not in TRANSITIONS[phase]]


@pytest.mark.parametrize(("phase", "event"), FORBIDDEN)
def test_what_has_no_cell_in_the_table_cannot_happen(phase: Phase, event: Event) -> None:
    """L5: each phase takes only the events of its row."""
    play = Play(saga("a"))
    op = OperationState(operation("a"), phase)
    with pytest.raises(IllegalRecordError, match=f"{event} can't happen to an operation that is {phase}"):
        apply_event(play.saga, play.state, op, event, 0)


def test_every_phase_has_a_row_and_every_event_a_cell() -> None:
    """L5: the table is complete, and says nothing that can never happen."""
    assert set(TRANSITIONS) == set(Phase)
    assert {event for row in TRANSITIONS.values() for event in row} == set(Event)
    assert all(cell for row in TRANSITIONS.values() for cell in row.values())


def _started() -> Play:
    play = Play(saga("a -> b -> p* -> f", a={"attempts": 3}, f={"foreach": "${{ input.xs }}"}), data={"xs": [1, 2]})
    play.turn()
    return play


def _waiting() -> Play:
    play = _started()
    play.answer("a", "retry")
    return play


def _stuck() -> Play:
    play = Play(saga("a", a={"on_unknown": "ask"}))
    play.run({"a": ["lost"]})
    return play


def _ended() -> Play:
    play = Play(saga("a"))
    play.run()
    return play


def _rolling() -> Play:
    play = Play(saga("a -> b"))
    play.turn()
    play.answer("a", "ok")
    play.answer("b", "reject")
    return play


def _pending_probe() -> Play:
    play = Play(saga("a", a={"probe": True}))
    play.turn()
    play.answer("a", "lost")
    return play


def _at_list() -> Play:
    play = _started()
    for name in "abp":
        play.answer(name, "ok")
    return play


def _failing() -> Play:
    play = Play(saga("[a | b | c]"), slots=2)
    play.turn()
    play.answer("a", "reject")
    return play


def intent(name: str, attempt: int = 1, fence: int = 1, **fields: Any) -> Intent:
    """Return an intent that nobody asked for."""
    return Intent(0, operation(name), attempt, 1, fence, "do.x", "key", 30_000, **fields)


def outcome(name: str, attempt: int = 1, kind: OutcomeKind = OutcomeKind.SUCCEEDED) -> Outcome:
    """Return an answer to a call that may not be under way."""
    return Outcome(0, operation(name), attempt, kind)


def probe(name: str, answer: ProbeAnswer | None = None, number: int = 1, fence: int = 1) -> Probe:
    """Return a probe that nobody asked for."""
    return Probe(0, operation(name), number, fence, "probe.x", 0, answer)


def _doubtful() -> Play:
    play = Play(saga("a", a={"probe": True}))
    play.turn()
    play.put(outcome("a", kind=OutcomeKind.UNKNOWN))
    return play


OVERDUE = Decision(0, DecisionKind.EXPIRED, cause=Cause.TIMEOUT, failure=Failure("run_timeout", "its time is over"))
CREATED = RunCreated(0, "r1", "test", "digest", {}, "me")
ILLEGAL: dict[str, tuple[Callable[[], Play], Record, str]] = {
    "a run created twice": (_started, CREATED, "created once"),
    "an old fence claimed": (_started, DriverClaimed(0, 1, HOLDER, calls_ended=True), "a fence only grows"),
    "an intent under an old fence": (_waiting, intent("a", 2, fence=0), "under fence 0"),
    "an intent of a step whose needs aren't met": (_started, intent("b"), "the turn of b has not come"),
    "an intent while the call is under way": (_started, intent("a", 2), "can't happen"),
    "an attempt left out": (_waiting, intent("a", 3), "attempt 3 after 1"),
    "an item before its list is known": (_started, intent("f[0]"), "the turn of f\\[0\\] has not come"),
    "an item out of list order": (_at_list, intent("f[1]"), "the turn of f\\[1\\] has not come"),
    "an undo on the way forward": (_waiting, intent("a'"), "has not come"),
    "an undo of what was never called": (_rolling, intent("c'"), "has not come"),
    "an undo before its turn": (_rolling, intent("b'"), "has not come"),
    "an action whose undo has begun": (_rolling, intent("a", 2), "its compensation has begun"),
    "an action while rolling back": (_rolling, intent("b", 2), "turns around"),
    "an action while the run turns around": (_failing, intent("c"), "turns around"),
    "an item refused out of list order": (
        _at_list,
        Decision(0, DecisionKind.REFUSED, operation=operation("f[1]")),
        "the turn of f\\[1\\] has not come",
    ),
    "a step refused before its needs are met": (
        _started,
        Decision(0, DecisionKind.REFUSED, step="f"),
        "f is not to be decided",
    ),
    "an answer to no call": (_waiting, outcome("a"), "no call of a is under way"),
    "an answer to another attempt": (_started, outcome("a", 2), "no attempt 2"),
    "an answer to an unheard operation": (_started, outcome("z"), "no call of z is under way"),
    "a call's answer to a probe": (_pending_probe, outcome("a"), "no attempt 1"),
    "a probe of what was never called": (_started, probe("z"), "never called"),
    "a probe of what isn't in doubt": (_waiting, probe("a"), "not to be probed"),
    "a probe's answer to no probe": (_started, probe("a", ProbeAnswer.DONE), "no probe is under way"),
    "a probe out of number": (_pending_probe, probe("a", ProbeAnswer.DONE, 2), "probe 2"),
    "a timer of nothing": (_started, Timer(0, operation("a"), TimerKind.RETRY, 1), "no delay of a"),
    "a timer drawn twice": (_waiting, Timer(0, operation("a"), TimerKind.RETRY, 1), "no delay of a"),
    "a step that isn't to be decided": (_started, StepDecided(0, "b", runs=True), "not to be decided"),
    "an approval that the step doesn't take": (
        lambda: Play(saga("f", f={"foreach": "${{ input.xs }}"})),
        StepDecided(0, "f", True, (1,), "d" * 64, None, ({},)),
        "f takes no approval",
    ),
    "a probe asked out of number": (_doubtful, probe("a", number=2), "probe 2 after 0"),
    "a probe under an old fence": (_doubtful, probe("a", fence=0), "not to be probed"),
    "the end of the run's time while it turns around": (_failing, OVERDUE, "turns it around on the way forward only"),
    "the end of the run's time while it rolls back": (_rolling, OVERDUE, "turns it around on the way forward only"),
    "the end of the run's time behind the pivot": (_at_list, OVERDUE, "turns it around on the way forward only"),
    "the end of an approval's time that nobody waits for": (
        _waiting,
        Decision(0, DecisionKind.EXPIRED, step="a", failure=Failure("denied", "nobody answered in time")),
        "no approval is awaited",
    ),
    "a rollback that nothing caused": (_waiting, Decision(0, DecisionKind.ROLLBACK), "nothing turned the run"),
    "a rollback during a call": (_started, Decision(0, DecisionKind.ROLLBACK), "nothing is under way"),
    "a second rollback": (_rolling, Decision(0, DecisionKind.ROLLBACK), "nothing is under way"),
    "a pivot that isn't passed": (_started, Decision(0, DecisionKind.PIVOT_PASSED), "not passed"),
    "stuck without a dead letter": (_waiting, Decision(0, DecisionKind.STUCK), "not stuck"),
    "a dead letter of what goes on": (
        _started,
        Decision(0, DecisionKind.DEAD_LETTER, operation=operation("a")),
        "can't happen",
    ),
    "an expiry of what was never called": (
        _started,
        Decision(0, DecisionKind.EXPIRED, operation=operation("b")),
        "can't happen",
    ),
    "a refusal of what was called": (_waiting, Decision(0, DecisionKind.REFUSED, operation=operation("a")), "can't"),
    "an end during a call": (_started, Ended(0, RunStatus.SUCCEEDED), "with a call under way"),
    "success too early": (_waiting, Ended(0, RunStatus.SUCCEEDED), "can't end succeeded"),
    "rolled back without a rollback": (_waiting, Ended(0, RunStatus.ROLLED_BACK), "can't end rolled_back"),
    "terminated though nobody asked": (_waiting, Ended(0, RunStatus.TERMINATED), "can't end terminated"),
    "an end that is none": (_waiting, Ended(0, RunStatus.RUNNING), "can't end running"),
    "a call while stuck": (_stuck, intent("a", 2), "the run is stuck"),
    "a recovery of nothing": (_started, Decision(0, DecisionKind.RECOVERED), "nothing has kept failing"),
    "a decision while stuck": (_stuck, Decision(0, DecisionKind.ALERT, cause=Cause.TIMEOUT), "the run is stuck"),
    "a call after the end": (_ended, intent("a", 2), "the run has ended"),
    "a second end": (_ended, Ended(0, RunStatus.SUCCEEDED), "the run has ended"),
}


@pytest.mark.parametrize("case", ILLEGAL)
def test_a_record_that_cannot_follow_is_refused(case: str) -> None:
    """L5: the fold says what is wrong, whoever wrote the record."""
    reach, record, message = ILLEGAL[case]
    play = reach()
    with pytest.raises(IllegalRecordError, match=message):
        evolve(play.saga, play.state, record)
    with pytest.raises(IllegalRecordError, match=message):
        replay(play.saga, [*play.records, record])


def test_a_log_begins_with_its_run() -> None:
    """L5: nothing comes before the record that says what the run is."""
    with pytest.raises(IllegalRecordError, match="begins with run created"):
        evolve(saga("a"), RunState(), intent("a"))


def test_a_list_has_a_limit() -> None:
    """F9: more items than the limit are refused in the log too."""
    play = Play(saga("f", f={"foreach": "${{ input.xs }}"}), data={"xs": []})
    items = (None,) * (ITEMS_MAX + 1)
    with pytest.raises(IllegalRecordError, match="more than 10000 items"):
        evolve(play.saga, play.state, StepDecided(0, "f", runs=True, items=items))


def test_an_intent_whose_delay_is_not_drawn_is_refused() -> None:
    """E5: a try waits for its timer, and the timer is in the log before it."""
    play = Play(saga("a", a={"attempts": 3}))
    play.turn()
    play.put(replace(outcome("a"), kind=OutcomeKind.UNAVAILABLE))
    with pytest.raises(IllegalRecordError, match="not drawn yet"):
        evolve(play.saga, play.state, intent("a", 2))


def test_an_alert_is_recorded_once_and_changes_nothing_else() -> None:
    """L6: what a person should hear of stands in the log."""
    play = Play(saga("p* -> a", a={"attempts": 7}))
    play.run({"a": ["retry"]})
    assert sum(record.kind is DecisionKind.ALERT for record in play.of(Decision)) == 1
    play.ask(Verb.RETRY, "a")
    assert play.run().status is RunStatus.SUCCEEDED


def test_a_request_is_deferred_once() -> None:
    """E13, L5: the same request can't wait for the pivot twice."""
    play = Play(saga("p*"))
    play.turn()
    record = play.ask(Verb.CANCEL)
    with pytest.raises(IllegalRecordError, match="deferred already"):
        evolve(play.saga, play.state, record)


def test_a_failure_is_one_line_without_a_word_twice() -> None:
    """UX: the word for programs stands before the line for people, and alone where the line adds nothing."""
    assert str(Failure("card_declined", "the card was declined")) == "card_declined: the card was declined"
    assert str(Failure("timeout", "timeout")) == str(Failure("timeout", "")) == "timeout"
    assert str(Failure("", "the card was declined")) == "the card was declined"


@pytest.mark.parametrize(
    ("word", "message", "text"),
    [
        ("card_declined", "the card was declined", "card_declined: the card was declined"),
        ("denied", "denied by ana: no budget", "denied by ana: no budget"),
        ("refused", "refused: it is late", "refused: it is late"),
        ("denied", "deniedness", "denied: deniedness"),
        ("gone", "gone", "gone"),
        ("gone", "", "gone"),
        ("", "it broke", "it broke"),
    ],
)
def test_a_failure_says_nothing_twice(word: str, message: str, text: str) -> None:
    """Words: what the message begins with isn't said before it again."""
    assert str(Failure(word, message)) == text
