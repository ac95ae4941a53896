"""F7, E7, E11: what a plan says of a run is what the core makes of it."""

from __future__ import annotations

import time
from dataclasses import replace

from hypothesis import assume, given, settings
from hypothesis import strategies as st

from sagactl.core.canonical import Json
from sagactl.core.definition import write_definition
from sagactl.core.preview import Preview, Undone, preview, read_given
from sagactl.core.records import Direction, Failure, Intent, Outcome, OutcomeKind
from sagactl.core.saga import Approval, Saga
from sagactl.core.world import MakeCall
from tests.core.builders import Plain, Play, saga, spell
from tests.core.simulation.generate import Plan, generate

STEPS = 2_000
SECONDS_MAX = 5.0
DRAWN = Plain({"draw()": 7})


def _draw(seed: int) -> Plan:
    """Return a random saga that asks no person: `Play` has none."""
    drawn = generate(seed)
    steps = tuple(replace(step, approval=None) for step in drawn.saga.steps)
    return replace(drawn, saga=replace(drawn.saga, steps=steps))


def _plan(what: Saga, data: Json) -> Preview:
    return preview(what, read_given(what, {"input": data}, DRAWN))


def _fail_at(found: Preview, data: Json, step: str, slots: int) -> list[str]:
    """Let the last call of *step* be rejected and return the steps that are undone, in order."""
    items = found.given_of(step).items
    name = step if items is None else f"{step}[{len(items) - 1}]"
    play = Play(found.saga, data=data, evaluator=DRAWN, slots=slots)
    play.run({name: ["reject"]})
    undone = [
        record.operation.step
        for record in play.records
        if isinstance(record, Intent) and record.operation.direction is Direction.COMPENSATION
    ]
    return list(dict.fromkeys(undone))


@settings(max_examples=150, deadline=None)
@given(seed=st.integers(0, 10**6), slots=st.sampled_from([1, 2, 8]))
def test_a_failure_undoes_what_the_plan_says(seed: int, slots: int) -> None:
    """E7, E11: at each step that may turn a run back, for random sagas: what must be undone is, and nothing else."""
    drawn = _draw(seed)
    found = _plan(drawn.saga, drawn.data)
    assume(not any(each.objection for each in found.given.values()))
    for step in found.numbers:
        if not found.turns_back(step):
            continue
        expected = [each for each in found.undone_if_fails(step) if each.reason is None]
        undone = _fail_at(found, drawn.data, step, slots)
        assert {each.step for each in expected if each.is_certain} <= set(undone) <= {each.step for each in expected}
        for place, one in enumerate(undone):
            assert not set(undone[place:]) & set(_all_behind(drawn.saga, one)), "undone before what needed it"


def _all_behind(what: Saga, step: str) -> set[str]:
    found, stack = set[str](), [step]
    while stack:
        for dependent in what.dependents[stack.pop()]:
            if dependent not in found:
                found.add(dependent)
                stack.append(dependent)
    return found


@settings(max_examples=150, deadline=None)
@given(seed=st.integers(0, 10**6))
def test_the_order_is_that_of_the_core(seed: int) -> None:
    """E11: where calls of one number end together, the undo goes in the very order of the plan."""
    drawn = _draw(seed)
    found = _plan(drawn.saga, drawn.data)
    assume(drawn.saga.compensation_concurrency == 1)
    assume(not any(each.objection for each in found.given.values()))
    assume(all(each.items is None for each in found.given.values()))
    for step in found.numbers:
        undone = _fail_together(drawn.saga, drawn.data, step)
        assert undone == [each.step for each in found.undone_if_fails(step) if each.step in undone]


def _fail_together(what: Saga, data: Json, step: str) -> list[str]:
    """Let the calls of one turn all end before the next is decided; return what is undone when *step* is rejected."""
    play = Play(what, data=data, evaluator=DRAWN, slots=100)
    play.turn()
    while play.under_way:
        for op, call in list(play.under_way.items()):
            assert isinstance(call, MakeCall)
            del play.under_way[op]
            kind = OutcomeKind.REJECTED if spell(op) == step else OutcomeKind.SUCCEEDED
            play.put(Outcome(play.now, op, call.intent.attempt, kind, {"id": spell(op)}, Failure("no", "no")))
        play.turn()
    return [name.rstrip("'") for name in play.calls if name.endswith("'")]


@settings(max_examples=150, deadline=None)
@given(seed=st.integers(0, 10**6))
def test_steps_are_called_when_the_plan_says(seed: int) -> None:
    """F7, F8: a step has a later number than all that it needs, and only what is skipped has none."""
    drawn = _draw(seed)
    found = _plan(drawn.saga, drawn.data)
    for step in drawn.saga.steps:
        known = found.given_of(step.id)
        assert (step.id in found.numbers) == (known.when is not False and known.items != ())
        for need in step.needs:
            if step.id in found.numbers and need in found.numbers:
                assert found.numbers[need] < found.numbers[step.id]


def test_a_plan_goes_on_behind_what_a_person_must_agree_to() -> None:
    """E22: what waits for an approval comes in its turn, and after it what needs it."""
    found = preview(saga("a -> [b | c] -> d", b={"approval": Approval(by=("ana",))}))
    assert found.numbers == {"a": 1, "c": 2, "b": 3, "d": 4}


def test_steps_side_by_side_have_one_number() -> None:
    """F7: lines with one number run at the same time; what may have run beside a failed step is told apart."""
    found = preview(saga("a -> [b | c] -> p* -> d"))
    assert found.numbers == {"a": 1, "b": 2, "c": 2, "p": 3, "d": 4}
    assert found.pivot == "p"
    assert found.undone_if_fails("b") == [Undone("c", is_certain=False), Undone("a")]
    assert found.undone_if_fails("p") == [Undone("c"), Undone("b"), Undone("a")]
    assert found.undone_if_fails("d") == []


def test_what_cant_be_undone_is_named_with_its_reason() -> None:
    """F4, E7: a step with `compensate: {none: …}` stays, and the plan says why; one that only reads isn't named."""
    what = saga(
        "a -> b -> c",
        a={"with_undo": False, "not_undoable_reason": "mail can't be unsent"},
    )
    assert preview(what).undone_if_fails("c") == [Undone("b"), Undone("a", reason="mail can't be unsent")]


def test_a_step_that_the_input_skips_is_neither_called_nor_undone() -> None:
    """F8: `when` over inputs alone is evaluated for the plan; what it can't know may or may not run."""
    what = saga("a -> b -> c", b={"when": "${{ input.on }}"})
    skipped = _plan(what, {"on": False})
    assert skipped.numbers == {"a": 1, "c": 2}
    assert skipped.undone_if_fails("c") == [Undone("a")]
    assert [step.id for step in skipped.steps] == ["a", "c", "b"]
    assert preview(what).undone_if_fails("c") == [Undone("b", is_certain=False), Undone("a")]


def test_two_thousand_steps_are_planned_at_once() -> None:
    """A plan costs what the saga has steps, not its square."""
    what = saga(" -> ".join(f"s{number}" for number in range(STEPS)))
    before = time.process_time()
    found = preview(what)
    assert sum(found.count_undone(step.id) for step in what.steps) == STEPS * (STEPS - 1) // 2
    assert time.process_time() - before < SECONDS_MAX


def test_a_rehearsal_leaves_the_saga_alone() -> None:
    """E20: nothing that is imagined gets into the definition."""
    what = saga("a -> b", a={"arguments": {"x": "${{ input.x }}"}})
    before = write_definition(what)
    preview(what)
    assert write_definition(what) == before
