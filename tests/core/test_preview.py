"""F7, E7, E11: what a plan says of a run is what the core makes of it."""

from __future__ import annotations

import time
from dataclasses import replace

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from sagactl.core.canonical import Json
from sagactl.core.definition import spell_snapshot, take_snapshot, write_definition
from sagactl.core.preview import Given, Preview, Undone, preview, read_given
from sagactl.core.records import Direction, Failure, Intent, Outcome, OutcomeKind
from sagactl.core.rehearsal import BlankEvaluator, blank_saga
from sagactl.core.saga import Approval, CompensateFailed, Saga, StepClass
from sagactl.core.template import Literal, parse_template
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


def test_steps_that_fail_alike_are_told_together() -> None:
    """E11: of steps side by side a plan says once what a failure of any undoes, and what may not have run."""
    found = preview(saga("a -> [b | c] -> d -> p* -> e"))
    assert found.groups == [("a",), ("b", "c"), ("d",), ("p",)]
    assert found.undone_if_one_fails(["d"]) == found.undone_if_fails("d") == [Undone("c"), Undone("b"), Undone("a")]
    assert found.undone_if_one_fails(["b", "c"]) == [Undone("c", False), Undone("b", False), Undone("a")]
    assert found.undone_if_fails("b") == [Undone("c", False), Undone("a")]
    assert found.undone_if_fails("e") == []
    assert [found.count_undone(step) for step in "abdpe"] == [0, 2, 3, 4, 0]
    assert found.pivot == "p"


def test_a_step_that_is_always_undone_is_in_its_own_undo() -> None:
    """E7, F9: `compensate_failed: always` and items that had succeeded are undone with what came before them."""
    found = preview(saga("a -> b", b={"compensate_failed": CompensateFailed.ALWAYS}))
    assert found.undone_if_fails("b") == [Undone("b"), Undone("a")]
    items = preview(saga("a -> b", b={"foreach": "${{ input.xs }}"}))
    assert items.undone_if_fails("b") == [Undone("b", False), Undone("a")]


def test_a_step_that_is_skipped_or_never_reached_is_in_the_plan_without_a_number() -> None:
    """F8: what `when` says already leaves a step out; what it doesn't say yet makes its undo uncertain."""
    what = saga("a -> b -> c", a={"when": "${{ input.x }}"}, b={"when": "${{ steps.a.status }}"})
    found = _plan(what, {"x": False})
    assert list(found.numbers) == ["b", "c"]
    assert [step.id for step in found.steps] == ["b", "c", "a"]
    assert found.undone_if_fails("a") == []
    assert found.count_undone("a") == 0
    assert found.undone_if_fails("c") == [Undone("b", False)]
    assert found.pivot is None


GIVEN: dict[str, tuple[dict[str, Json], Given]] = {
    "skipped": ({"when": "${{ input.no }}", "foreach": "${{ input.none }}"}, Given(when=False)),
    "a condition that is none": ({"when": "${{ input.n }}"}, Given(objection="when must be true or false")),
    "items that are none": ({"foreach": "${{ input.n }}"}, Given(objection="foreach must be a list")),
    "an input that isn't there": (
        {"foreach": "${{ input.none }}"},
        Given(objection="input has no none, in input.none"),
    ),
    "a guard that holds": ({"guard": "${{ input.yes }}"}, Given()),
    "a guard that doesn't": (
        {"when": "${{ input.yes }}", "guard": "${{ input.no }}"},
        Given(when=True, objection="the guard is false"),
    ),
    "a guard that isn't known yet": ({"guard": "${{ item }}", "foreach": "${{ input.xs }}"}, Given(items=(1, 2))),
}


@pytest.mark.parametrize("name", GIVEN)
def test_what_the_input_says_of_a_step_is_known_before_the_run(name: str) -> None:
    """F8, F9, E21: `when`, `foreach` and `guard` that hang on the input alone are evaluated, and objected to."""
    fields, expected = GIVEN[name]
    data: Json = {"yes": True, "no": False, "n": 5, "xs": [1, 2]}
    assert read_given(saga("a -> b", b=fields), {"input": data}, Plain()) == {"b": expected}


def test_a_blank_saga_is_evaluated_to_nothing() -> None:
    """E20: a plan is made without data, so nothing that is evaluated in it decides anything."""
    assert BlankEvaluator().evaluate("input.x > 1", {"input": {"x": 2}}) is None
    assert BlankEvaluator().check_arguments("do.a", {"x": 1}) is None


def test_a_step_that_leaves_nothing_makes_no_other_certain() -> None:
    """E11: what runs beside a failed step may not have begun, whether or not that step has an undo of its own."""
    looks = preview(saga("[a | b] -> c", b={"klass": StepClass.READ_ONLY, "undo": False}))
    assert looks.undone_if_fails("b") == [Undone("a", False)]
    lists = preview(saga("[a | b] -> c", b={"foreach": "${{ input.xs }}"}))
    assert lists.undone_if_fails("b") == [Undone("b", False), Undone("a", False)]


def test_a_blank_saga_has_nothing_that_data_or_a_person_decides() -> None:
    """E20: no guard, output, key or time of its own; approvals that hang on data are asked for without."""
    what = saga(
        "a -> b",
        saga_fields={
            "output": parse_template({"x": 1}),
            "run_key": parse_template("${{ input.k }}"),
            "run_timeout_ms": 5,
        },
        a={"approval": Approval(required=parse_template("${{ input.x }}"), by=("ana",)), "guard": False},
        b={"when": "${{ input.w }}", "foreach": "${{ input.xs }}", "arguments": {"x": "${{ item }}"}},
    )
    blank = blank_saga(what, empty=["b"])
    assert (blank.output, blank.run_key, blank.run_timeout_ms) == (None, None, None)
    a, b = blank.steps
    assert (a.guard, a.approval) == (None, Approval(by=("ana",)))
    assert (b.when, b.foreach, b.action.arguments) == (Literal(value=True), Literal([]), Literal({}))
    assert blank_saga(what, skipped=["b"]).steps[1].when == Literal(value=False)
    assert blank_saga(what).steps[1].foreach == Literal([None])
    assert preview(what).numbers == {"a": 1, "b": 2}


def test_a_snapshot_counts_its_steps() -> None:
    """E16: as many as the definition has; none where it has none."""
    assert take_snapshot(saga("a -> b")).steps_total == 2
    assert spell_snapshot({"saga": "x"}).steps_total == 0
