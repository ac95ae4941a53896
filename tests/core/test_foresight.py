"""E7, E10-E13, E22: what a dry run of a rollback shows is what the rollback does."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from sagactl.core.advance import advance
from sagactl.core.evolve import evolve, replay
from sagactl.core.foresight import (
    Foreseen,
    Foresight,
    Situation,
    foresee_decision,
    foresee_resume,
    foresee_rollback,
)
from sagactl.core.operators import answer_request
from sagactl.core.records import (
    Disposition,
    DriverClaimed,
    Outcome,
    OutcomeKind,
    Probe,
    ProbeAnswer,
    Record,
    Request,
    Resolution,
    RunStatus,
    Verb,
)
from sagactl.core.saga import Saga
from sagactl.core.state import RunState
from sagactl.core.world import AskProbe, MakeCall, Rest, Wait, World
from tests.core.builders import HOLDER, Plain, Play, operation, saga, spell
from tests.core.simulation.drive import Simulation
from tests.core.simulation.generate import generate

DRAWN = Plain({"draw()": 7})
SLOTS = 8
HOUR_MS = 3_600_000
ROLLBACK = Request("q", Verb.ROLLBACK, "eva", "as asked", past_pivot=True)


def _roll_back(what: Saga, state: RunState, now_ms: int, *, calls_ended: bool) -> tuple[list[Any], RunStatus]:
    """Roll a run back for real, one call at a time, all of which succeed; return what was called, and the end."""
    evolve(what, state, DriverClaimed(now_ms, state.fence + 1, HOLDER, calls_ended))
    evolve(what, state, answer_request(what, state, ROLLBACK, now_ms))
    waiting: list[MakeCall | AskProbe] = []
    called = []
    while True:
        turn = advance(what, state, World(now_ms, SLOTS - len(waiting), DRAWN), lambda floor, _: floor)
        waiting += turn.calls
        called += [_describe(call) for call in turn.calls]
        if waiting:
            evolve(what, state, _answer(waiting.pop(0), now_ms))
        elif isinstance(turn.then, Wait) and turn.then.until_ms is not None:
            now_ms = turn.then.until_ms
        else:
            return called, turn.then.status if isinstance(turn.then, Rest) else RunStatus.ROLLING_BACK


def _describe(call: MakeCall | AskProbe) -> Any:
    if isinstance(call, AskProbe):
        return f"{spell(call.probe.operation)}?", call.probe.tool, call.arguments
    return spell(call.intent.operation), call.intent.tool, call.arguments


def _answer(call: MakeCall | AskProbe, now_ms: int) -> Record:
    if isinstance(call, AskProbe):
        probe = call.probe
        common = (probe.operation, probe.number, probe.fence, probe.tool, probe.deadline_ms)
        return Probe(now_ms, *common, answer=ProbeAnswer.DONE, output={"id": spell(probe.operation)})
    return Outcome(now_ms, call.intent.operation, call.intent.attempt, OutcomeKind.SUCCEEDED, {"id": "x"})


def _foreseen(each: Foreseen) -> Any:
    return spell(each.operation) + ("?" if each.is_probe else ""), each.tool, each.arguments


def _without_output(called: Any) -> Any:
    name, tool, arguments = called
    return name, tool, {key: value for key, value in arguments.items() if key != "id"}


@settings(max_examples=400, deadline=None)
@given(
    seed=st.integers(0, 10**6), cut=st.floats(0, 1), calls_ended=st.booleans(), later_ms=st.sampled_from([0, HOUR_MS])
)
@example(seed=1378321, cut=0.6354388764866316, calls_ended=True, later_ms=0)
@example(seed=6833749, cut=0.6313988534044855, calls_ended=False, later_ms=0)
def test_the_dry_run_shows_what_the_rollback_does(seed: int, cut: float, calls_ended: bool, later_ms: int) -> None:
    """E22: at any record of any storm, the list is that of the calls really made when all succeed, in their order."""
    storm = Simulation(generate(seed))
    storm.run()
    records = storm.log.records[: max(2, int(cut * len(storm.log.records)))]
    what, now_ms = storm.saga, records[-1].at_ms + later_ms
    situation = Situation(now_ms, SLOTS, calls_ended=calls_ended)
    seen = foresee_rollback(what, replay(what, records), ROLLBACK, DRAWN, situation)
    assert seen.answer is not None
    if not seen.is_accepted:
        assert seen.calls == ()
        assert _refuse(what, records, now_ms, calls_ended) is seen.answer.disposition
        return
    called, status = _roll_back(what, replay(what, records), now_ms, calls_ended=calls_ended)
    expected = [each for each in seen.calls if each.objection is None]
    assert status is seen.status
    if what.compensation_concurrency == 1:
        assert [each[0] for each in called] == [_foreseen(each)[0] for each in expected]
    else:
        assert Counter(each[0] for each in called) == Counter(_foreseen(each)[0] for each in expected)
    by_name = dict(zip([each[0] for each in called], called, strict=True))
    for each in expected:
        shown = _foreseen(each)
        made = by_name[shown[0]]
        assert (_without_output(shown) == _without_output(made)) if each.hangs_on_answer else (shown == made)


def _refuse(what: Saga, records: list[Record], now_ms: int, calls_ended: bool) -> Disposition:
    state = replay(what, records)
    evolve(what, state, DriverClaimed(now_ms, state.fence + 1, HOLDER, calls_ended))
    return answer_request(what, state, ROLLBACK, now_ms).disposition


def _look(play: Play, request: Request = ROLLBACK, **fields: Any) -> Foresight:
    return foresee_rollback(play.saga, play.fold(), request, play.evaluator, Situation(play.now, SLOTS, **fields))


def test_arguments_are_those_that_will_be_sent() -> None:
    """E7: what the action returned stands in the arguments of its undo."""
    play = Play(saga("a -> b"))
    play.run()
    seen = _look(play)
    assert [_foreseen(each) for each in seen.calls] == [("b'", "undo.b", {"id": "b"}), ("a'", "undo.a", {"id": "a"})]
    assert seen.status is RunStatus.ROLLED_BACK


def test_a_refusal_is_the_real_one() -> None:
    """E22: behind a pivot it needs --past-pivot, and the dry run says so in the words of the real one."""
    play = Play(saga("a -> p* -> b"))
    play.run()
    request = Request("q", Verb.ROLLBACK, "eva")
    seen = _look(play, request)
    assert seen.answer == answer_request(play.saga, play.fold(), request, play.now)
    assert seen.calls == ()
    assert not seen.is_accepted
    assert [each.step for each in _look(play).left] == ["b", "p"]


def test_what_hangs_on_a_probe_is_shown_as_written() -> None:
    """E7: a probe comes first; whether there is anything to undo, and by which id, only its answer can say."""
    play = Play(saga("a -> b", b={"probe": True, "undo_arguments": {"id": "${{ output.id }}", "no": 1}}))
    play.turn()
    play.answer("a", "ok")
    seen = _look(play)
    assert [_foreseen(each) for each in seen.calls] == [
        ("b?", "probe.b", {}),
        ("b'", "undo.b", {"id": "${{ output.id }}", "no": 1}),
        ("a'", "undo.a", {"id": "a"}),
    ]
    assert [each.hangs_on_answer for each in seen.calls] == [False, True, False]


def test_items_without_doubt_have_their_arguments_beside_one_that_is_in_doubt() -> None:
    """E7, F9: only what hangs on a probe is shown as written; what was sent before is sent again as recorded."""
    spec = {"foreach": "${{ input.xs }}", "concurrency": 3, "probe": True, "undo_attempts": 2}
    play = Play(
        saga("f", f={**spec, "undo_arguments": {"id": "${{ output.id }}", "x": "${{ item }}"}}), data={"xs": [7, 8, 9]}
    )
    play.turn()
    play.answer("f[0]", "ok")
    play.answer("f[2]", "ok")
    assert [_foreseen(each) for each in _look(play).calls] == [
        ("f[2]'", "undo.f", {"id": "f[2]", "x": 9}),
        ("f[1]?", "probe.f", {}),
        ("f[1]'", "undo.f", {"id": "${{ output.id }}", "x": 8}),
        ("f[0]'", "undo.f", {"id": "f[0]", "x": 7}),
    ]


def test_what_only_a_person_can_know_is_no_call() -> None:
    """E7: in doubt, with neither probe nor `null_safe`: a dead letter, and what came before it waits."""
    play = Play(saga("a -> b", b={"null_safe": False}))
    play.turn()
    play.answer("a", "ok")
    seen = _look(play)
    assert [(spell(each.operation), each.objection) for each in seen.calls] == [
        ("b'", "nobody can tell whether it happened")
    ]
    assert seen.status is RunStatus.STUCK


def test_an_undo_that_would_be_refused_is_no_call() -> None:
    """E21: arguments that don't fit the compensation's schema are found without a call."""
    play = Play(saga("a -> b"), evaluator=Plain({}, {"undo.b": "id: not a number"}))
    play.run()
    seen = _look(play)
    assert [each.objection for each in seen.calls] == ["id: not a number"]
    assert seen.status is RunStatus.STUCK


def test_calls_of_another_driver_are_imagined_to_succeed() -> None:
    """E10: what is under way elsewhere settles first, so it is there to be undone."""
    play = Play(saga("a -> b"))
    play.turn()
    play.answer("a", "ok")
    seen = _look(play, is_driven=True)
    assert [_foreseen(each) for each in seen.calls] == [
        ("b'", "undo.b", {"id": "${{ output.id }}"}),
        ("a'", "undo.a", {"id": "a"}),
    ]


def test_a_resume_shows_the_next_calls() -> None:
    """E17: forward the calls that come next, with their arguments; backward all that is left to undo."""
    play = Play(saga("a -> [b | c] -> d", c={"arguments": {"of": "${{ steps.a.output.id }}"}, "undo_attempts": 2}))
    play.turn()
    call = play.under_way.pop(operation("a"))
    play.put(_answer(call, play.now))
    seen = foresee_resume(play.saga, play.fold(), play.evaluator, Situation(play.now, SLOTS))
    assert [_foreseen(each) for each in seen.calls] == [("b", "do.b", {}), ("c", "do.c", {"of": "x"})]
    play.turn()
    play.answer("b", "reject")
    play.answer("c", "ok")
    seen = foresee_resume(play.saga, play.fold(), play.evaluator, Situation(play.now, SLOTS))
    assert [spell(each.operation) for each in seen.calls] == ["c'", "a'"]
    assert seen.status is RunStatus.ROLLED_BACK


def test_a_resume_shows_the_calls_that_follow_a_timer() -> None:
    """E17: a run that was killed in a call is retried after its delay; the dry run says when, and what is called."""
    play = Play(saga("a -> b", a={"attempts": 3}))
    play.turn()
    seen = foresee_resume(play.saga, play.fold(), play.evaluator, Situation(play.now, SLOTS))
    assert [_foreseen(each)[0] for each in seen.calls] == ["a"]
    assert seen.waits_for is not None
    assert (seen.waits_for.what, seen.status) == ("timer", RunStatus.RUNNING)


def test_a_deferred_request_makes_no_call() -> None:
    """E13: while the pivot's outcome is open, a rollback waits for it."""
    play = Play(saga("a -> p*", p={"probe": True}))
    play.turn()
    play.answer("a", "ok")
    seen = _look(play, is_driven=False)
    assert seen.answer is not None
    assert seen.answer.disposition is Disposition.DEFERRED
    assert seen.calls == ()
    assert isinstance(seen.answer.detail, str)


def _decide(play: Play, verb: Verb, name: str, **fields: Any) -> Foresight:
    request = Request("d", verb, "eva", "looked it up", operation=operation(name), **fields)
    return foresee_decision(play.saga, play.fold(), request, play.evaluator, Situation(play.now, SLOTS))


def test_a_decision_shows_what_follows_from_it() -> None:
    """E23: forward what is called next, backward all that is left to undo, and no call by the look itself."""
    play = Play(saga("a -> b -> c", b={"on_unknown": "ask"}))
    assert play.run({"b": ["lost"]}).status is RunStatus.STUCK
    done = _decide(play, Verb.RESOLVE, "b", resolution=Resolution.DONE, output={"id": 1})
    assert done.is_accepted
    assert [_foreseen(each) for each in done.calls] == [("c", "do.c", {})]
    not_done = _decide(play, Verb.RESOLVE, "b", resolution=Resolution.NOT_DONE)
    assert [_foreseen(each) for each in not_done.calls] == [("a'", "undo.a", {"id": "a"})]
    assert not_done.status is RunStatus.ROLLED_BACK
    assert play.calls == ["a", "b"]


def test_a_decision_that_would_be_refused_shows_no_call() -> None:
    """E23: only a step behind the pivot can be skipped; the dry run says so with the real answer."""
    play = Play(saga("a -> b", b={"on_unknown": "ask"}))
    play.run({"b": ["lost"]})
    refused = _decide(play, Verb.RESOLVE, "b", resolution=Resolution.SKIP)
    assert not refused.is_accepted
    assert (refused.calls, refused.status) == ((), RunStatus.STUCK)
    assert refused.answer is not None
    assert refused.answer.detail == "only a step behind the pivot can be skipped"


def test_a_retry_of_what_is_in_doubt_shows_its_probe_first() -> None:
    """E6, E23: a fresh budget begins with the question whether it has happened by now."""
    play = Play(saga("a", a={"probe": True, "arguments": {"id": 3}}))
    assert play.run({"a": ["lost"], "a?": ["dunno"]}).status is RunStatus.STUCK
    seen = _decide(play, Verb.RETRY, "a")
    assert [(*_foreseen(each), each.is_probe) for each in seen.calls] == [("a?", "probe.a", {"id": 3}, True)]


def test_an_undo_of_what_is_in_doubt_leaves_out_what_nobody_knows() -> None:
    """E7: without an output, arguments that come out as null are left out, in the dry run as in the call."""
    play = Play(saga("a -> b", b={"undo_arguments": {"id": "${{ output.id }}", "who": "me"}}))
    play.turn()
    play.answer("a", "ok")
    seen = _look(play)
    assert next(_foreseen(each) for each in seen.calls) == ("b'", "undo.b", {"who": "me"})
    play = Play(saga("a -> b", b={"undo_arguments": {"id": "${{ output.id }}"}}))
    play.turn()
    play.answer("a", "ok")
    assert next(_foreseen(each) for each in _look(play).calls) == ("b'", "undo.b", {})


def test_a_dry_run_has_the_turns_of_its_calls_and_the_answer() -> None:
    """E22: calls of one turn are made at the same time, what only a person can settle comes behind them all."""
    what = saga(
        "a -> [b | c] -> d", d={"null_safe": False}, saga_fields={"compensation_concurrency": 2}, a={"undo": False}
    )
    other = Play(what)
    other.turn()
    for name in "abc":
        other.answer(name, "ok")
    seen = _look(other)
    assert seen.answer is not None
    assert (seen.is_accepted, seen.answer.disposition) == (True, Disposition.ACCEPTED)
    assert [(each.turn, spell(each.operation), each.objection) for each in seen.calls] == [
        (0, "d'", "nobody can tell whether it happened")
    ]
    assert seen.status is RunStatus.STUCK
    side = Play(saga("a -> [b | c] -> d", saga_fields={"compensation_concurrency": 2}))
    side.turn()
    for name in "abc":
        side.answer(name, "ok")
    turns = [(each.turn, spell(each.operation)) for each in _look(side).calls]
    assert turns == [(0, "d'"), (1, "c'"), (1, "b'"), (2, "a'")]
    refused = Play(saga("a -> b"), evaluator=Plain({}, {"undo.a": "id: not a number"}))
    refused.turn()
    refused.answer("a", "ok")
    assert [(each.turn, spell(each.operation), each.objection) for each in _look(refused).calls] == [
        (0, "b'", None),
        (1, "a'", "id: not a number"),
    ]


@pytest.mark.parametrize(
    ("lacks", "waits"),
    [
        ({"missing_tools": frozenset({"undo.a"})}, Wait("missing_tool", None, "undo.a")),
        ({"missing_secrets": frozenset({"k"})}, Wait("missing_secret", None, "k")),
    ],
)
def test_a_dry_run_stops_where_something_is_missing(lacks: Any, waits: Wait) -> None:
    """E16, E19: a rollback, and a resume, would wait for it by name, and call nothing that needs it."""
    what = saga("a -> b", a={"undo_arguments": {"key": "${{ secrets.k }}"}}, saga_fields={"secrets": ("k",)})
    play = Play(what)
    play.turn()
    play.answer("a", "ok")
    seen = _look(play, **lacks)
    assert ([spell(each.operation) for each in seen.calls], seen.status) == (["b'"], RunStatus.ROLLING_BACK)
    assert seen.waits_for == waits
    forward = Play(saga("a", a={"arguments": {"key": "${{ secrets.k }}"}}, saga_fields={"secrets": ("k",)}))
    situation = Situation(0, SLOTS, frozenset({"do.a"} if "missing_tools" in lacks else ()), **{
        name: value for name, value in lacks.items() if name == "missing_secrets"
    })  # fmt: skip
    ahead = foresee_resume(forward.saga, forward.fold(), forward.evaluator, situation)
    assert (ahead.calls, ahead.status) == ((), RunStatus.RUNNING)
    assert ahead.waits_for is not None
    assert (ahead.waits_for.what, ahead.waits_for.detail) == (waits.what, "do.a" if waits.detail == "undo.a" else "k")


def test_a_resume_makes_its_calls_in_one_turn_and_waits_for_nothing() -> None:
    """E17: what comes next is turn 0; a timer that is due is no wait, one that isn't is."""
    waiting = Play(saga("a", a={"attempts": 3, "interval": 1_000}))
    waiting.turn()
    waiting.answer("a", "retry")
    due = foresee_resume(waiting.saga, waiting.fold(), waiting.evaluator, Situation(1_000, SLOTS))
    assert ([each.turn for each in due.calls], due.waits_for) == ([0], None)
    later = foresee_resume(waiting.saga, waiting.fold(), waiting.evaluator, Situation(999, SLOTS))
    assert later.waits_for is not None
    assert ([each.turn for each in later.calls], later.waits_for.until_ms) == ([0], 1_000)


def test_an_undo_that_was_begun_is_sent_again_as_it_was() -> None:
    """E12: its arguments were recorded, and no probe comes before it again."""
    play = Play(saga("a -> b", a={"probe": True, "undo_attempts": 3, "undo_arguments": {"id": "${{ output.id }}"}}))
    play.turn()
    play.answer("a", "lost")
    play.answer("a", "ok")
    play.answer("b", "reject")
    play.answer("a'", "retry")
    seen = foresee_resume(play.saga, play.fold(), play.evaluator, Situation(play.now, SLOTS))
    assert [(_foreseen(each), each.hangs_on_answer) for each in seen.calls] == [(("a'", "undo.a", {"id": "a"}), False)]


def test_a_refusal_of_blank_arguments_is_no_objection() -> None:
    """E7: what hangs on a probe has no arguments yet, so no tool is asked whether it takes them; others are."""
    objections = {"undo.b": "id: missing", "undo.a": "id: missing"}
    play = Play(saga("a -> b", b={"probe": True}), evaluator=Plain({}, objections))
    play.turn()
    play.answer("a", "ok")
    seen = _look(play)
    assert [(_foreseen(each)[0], each.objection) for each in seen.calls] == [
        ("b?", None),
        ("b'", None),
        ("a'", "id: missing"),
    ]
