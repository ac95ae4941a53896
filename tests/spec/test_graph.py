"""F6 and F7: what needs what, cycles, and the pivot as a barrier."""

from __future__ import annotations

import time

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sagactl.core.saga import Saga, StepClass
from sagactl.spec.draft import DraftStep
from sagactl.spec.graph import Graph, build_graph
from sagactl.written.fields import Placed
from sagactl.written.findings import Findings
from sagactl.written.source import Source, Span
from tests.spec.conftest import LoadSteps, Refuse

NOWHERE = Span(0, 0)


def step(name: str, *, needs: list[str] | None = None, tool: str = "any.thing", more: str = "") -> str:
    """Return the YAML of a step."""
    listed = "" if needs is None else f", needs: [{', '.join(needs)}]"
    return f"  - {{id: {name}, tool: {tool}{listed}{more}}}\n"


def needs_of(saga: Saga) -> dict[str, tuple[str, ...]]:
    """Return what each step needs."""
    return {each.id: each.needs for each in saga.steps}


def test_a_step_without_needs_follows_all_steps_above_it(load_steps: LoadSteps) -> None:
    """F7: the edges are those to the steps that nothing above needs yet; a list is exactly that list."""
    text = (
        step("a") + step("b", needs=[]) + step("c", needs=["a"]) + step("d") + step("e") + step("f", needs=["b", "b"])
    )
    assert needs_of(load_steps(text)) == {
        "a": (),
        "b": (),
        "c": ("a",),
        "d": ("b", "c"),
        "e": ("d",),
        "f": ("b",),
    }


def test_needs_may_name_steps_below(load_steps: LoadSteps) -> None:
    """F7: the order of the file doesn't bind a step that lists its needs."""
    assert needs_of(load_steps(step("a", needs=["b"]) + step("b", needs=[]))) == {"a": ("b",), "b": ()}


def draft(name: str, needs: list[str] | None) -> DraftStep:
    """Return a step with nothing but its place in the graph."""
    placed = None if needs is None else tuple(Placed(need, NOWHERE) for need in needs)
    return DraftStep(index=0, label=name, span=NOWHERE, id=name, needs=placed)


def graph_of(wanted: list[list[int] | None]) -> tuple[Graph, Findings]:
    """Return the graph of steps that need others by number."""
    findings = Findings(Source("x", "x"))
    steps = [
        draft(f"s{index}", None if each is None else [f"s{need}" for need in each]) for index, each in enumerate(wanted)
    ]
    return build_graph(steps, findings), findings


@settings(derandomize=True, max_examples=200, deadline=None)
@given(st.lists(st.none() | st.lists(st.integers(0, 7), max_size=3), min_size=8, max_size=8))
def test_ancestors_are_what_a_walk_over_all_edges_finds(wanted: list[list[int] | None]) -> None:
    """F7: with or without cycles, ancestors are exactly what is reached over needs, implicit ones included."""
    graph, findings = graph_of(wanted)
    edges = {index: set(range(index)) if each is None else set(each) for index, each in enumerate(wanted)}

    def reach(start: int) -> set[int]:
        seen: set[int] = set()
        rest = list(edges[start])
        while rest:
            current = rest.pop()
            if current not in seen:
                seen.add(current)
                rest += edges[current]
        return seen

    has_cycle = any(index in reach(index) for index in range(8))
    assert findings.has_errors is has_cycle
    assert sorted(graph.order) == list(range(8))
    if not has_cycle:
        for index in range(8):
            assert {other for other in range(8) if graph.is_ancestor(other, index)} == reach(index)


def test_two_thousand_steps_have_about_as_many_edges() -> None:
    """F7: the edges of steps without needs stay as many as the steps."""
    graph, _ = graph_of([None if index % 3 else [] for index in range(2_000)])
    assert sum(map(len, graph.needs)) < 4_000


@pytest.mark.parametrize("length", [1, 2, 3, 500])
def test_a_cycle_is_one_error_that_names_it(refuse_steps: Refuse, length: int) -> None:
    """F5: a cycle of any length is told in a second, B73."""
    started = time.process_time()
    problems = refuse_steps("".join(step(f"s{index}", needs=[f"s{(index + 1) % length}"]) for index in range(length)))
    [cycle] = [problem for problem in problems if problem.code == "cycle"]
    assert ("needs itself" if length == 1 else f"{length} steps need one another: s0 -> s1") in cycle.message
    assert len(cycle.message) < 120
    assert time.process_time() - started < 2


def test_a_step_that_follows_all_above_can_close_a_cycle(refuse_steps: Refuse) -> None:
    """F7: implicit needs count, and the hint says so."""
    [cycle] = refuse_steps(step("a", needs=["b"]) + step("b"))
    assert cycle.message == "2 steps need one another: a -> b -> a"
    assert cycle.hint == "a step without needs follows all steps above it"


def test_each_step_is_before_or_behind_the_pivot(refuse_steps: Refuse) -> None:
    """F6: a step beside the pivot is an error that names the missing needs."""
    text = step("a") + step("sign", more=", pivot: true") + step("side", needs=["a"])
    [problem] = refuse_steps(text)
    assert problem.code == "pivot-order"
    assert problem.message == "step side is neither before nor behind the pivot sign"
    assert problem.hint is not None
    assert "add sign to the needs of side" in problem.hint
    assert "side to the needs of sign" in problem.hint


def test_the_first_pivot_is_the_point_of_no_return(load_steps: LoadSteps) -> None:
    """F6: of several pivots in sequence the later ones are retriable, as is all behind the first."""
    text = step("a") + step("p", more=", pivot: true") + step("b", tool="probe.read") + step("q", more=", pivot: true")
    saga = load_steps(text)
    assert [each.klass for each in saga.steps] == [
        StepClass.COMPENSABLE,
        StepClass.PIVOT,
        StepClass.RETRIABLE,
        StepClass.RETRIABLE,
    ]


def test_the_pivot_comes_first_by_needs_not_by_line(load_steps: LoadSteps) -> None:
    """F6: which pivot is the first is decided by the graph."""
    text = step("q", needs=["p"], more=", pivot: true") + step("p", needs=[], more=", pivot: true")
    saga = load_steps(text)
    assert saga.by_id["p"].klass is StepClass.PIVOT
    assert saga.by_id["q"].klass is StepClass.RETRIABLE
