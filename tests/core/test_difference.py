"""E16: in what two definitions differ, each aspect with what it was and what it is."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from sagactl.core.canonical import Json
from sagactl.core.difference import Aspect, Difference, compare
from sagactl.core.saga import Approval, Saga, StepClass
from sagactl.core.template import parse_template
from tests.core.builders import saga
from tests.core.test_rebinding import edit, recall, refact, reundo, without

WHAT = saga("a -> b -> c", b={"arguments": {"x": 1}})
A = Aspect


def _find(new: Saga) -> list[Difference]:
    return compare(WHAT, new)


def _retry(**fields: Any) -> dict[str, Json]:
    return {
        "max_attempts": 1,
        "initial_interval_ms": 1000,
        "backoff_coefficient_percent": 200,
        "max_interval_ms": 300000,
        "jitter": "none",
        "non_retryable_errors": [],
        **fields,
    }


DIFFERENCES: dict[str, tuple[Saga, list[Difference]]] = {
    "nothing": (WHAT, []),
    "a name": (replace(WHAT, name="other"), [Difference(A.NAME, "test", "other")]),
    "a version": (replace(WHAT, version="2"), [Difference(A.VERSION, None, "2")]),
    "a step gone": (
        edit(without(WHAT, "c"), "b", needs=("a",)),
        [Difference(A.STEP_GONE, "do.c", None, "c")],
    ),
    "a step more": (
        replace(WHAT, steps=(*WHAT.steps, replace(WHAT.steps[2], id="d", needs=("c",)))),
        [Difference(A.STEP_ADDED, None, "do.c", "d")],
    ),
    "an order": (
        replace(WHAT, steps=(WHAT.steps[1], WHAT.steps[0], WHAT.steps[2])),
        [Difference(A.ORDER, ["a", "b", "c"], ["b", "a", "c"])],
    ),
    "a pivot": (
        edit(WHAT, "c", klass=StepClass.PIVOT),
        [Difference(A.PIVOT, None, "c"), Difference(A.CLASS, "compensable", "pivot", "c")],
    ),
    "needs": (edit(WHAT, "c", needs=("a",)), [Difference(A.NEEDS, ["b"], ["a"], "c")]),
    "a tool": (recall(WHAT, "b", tool="do.a"), [Difference(A.TOOL, "do.b", "do.a", "b")]),
    "arguments": (
        recall(WHAT, "b", arguments=parse_template({"x": 2})),
        [Difference(A.ARGUMENTS, {"x": 1}, {"x": 2}, "b")],
    ),
    "a condition": (edit(WHAT, "b", when=parse_template(True)), [Difference(A.WHEN, None, {"value": True}, "b")]),
    "an approval": (
        edit(WHAT, "b", approval=Approval(by=("ana",))),
        [Difference(A.APPROVAL, None, {"required": None, "by": ["ana"], "timeout_ms": None}, "b")],
    ),
    "a limit": (
        recall(WHAT, "b", schedule_to_close_ms=9),
        [
            Difference(
                A.TIMEOUTS,
                {"start_to_close_ms": 30_000, "schedule_to_close_ms": None},
                {"start_to_close_ms": 30_000, "schedule_to_close_ms": 9},
                "b",
            )
        ],
    ),
    "a retry": (
        recall(WHAT, "b", retry=replace(WHAT.by_id["b"].action.retry, max_attempts=9)),
        [Difference(A.RETRY, _retry(), _retry(max_attempts=9), "b")],
    ),
    "the retry of an undo": (
        reundo(WHAT, "b", retry=replace(WHAT.by_id["b"].action.retry, max_attempts=9)),
        [Difference(A.UNDO_RETRY, _retry(), _retry(max_attempts=9), "b")],
    ),
    "an undo gone": (
        edit(WHAT, "b", compensation=None, not_undoable_reason="it has been read"),
        [Difference(A.UNDO, {"tool": "undo.b", "with": {"id": "${{ output.id }}"}}, {"none": "it has been read"}, "b")],
    ),
    "words": (
        edit(WHAT, "b", description="the second", agent="bot"),
        [
            Difference(
                A.DESCRIPTION,
                {"description": None, "agent": None},
                {"description": "the second", "agent": "bot"},
                "b",
            )
        ],
    ),
    "facts of a tool": (
        refact(WHAT, "do.b", version="7", late_safe=True),
        [
            Difference(
                A.TOOL_FACTS, {"version": "0", "late_safe": False}, {"version": "7", "late_safe": True}, tool="do.b"
            )
        ],
    ),
    "a tool that only one of them calls": (
        replace(WHAT, tools={**WHAT.tools, "do.z": replace(WHAT.tools["do.a"], name="do.z")}),
        [],
    ),
    "an output": (
        replace(WHAT, output=parse_template({"id": 1})),
        [Difference(A.OUTPUT, None, {"value": {"id": 1}})],
    ),
}


@pytest.mark.parametrize("name", DIFFERENCES)
def test_each_difference_is_told_by_what_it_was_and_what_it_is(name: str) -> None:
    """E16: nobody binds a run to a definition without having seen each change, and nothing else."""
    new, expected = DIFFERENCES[name]
    assert _find(new) == expected


def test_the_other_way_around_is_the_opposite() -> None:
    """E16: what was added is gone, and what it was is what it is."""
    for new, expected in DIFFERENCES.values():
        turned = {(each.aspect, each.step, each.tool): (each.after, each.before) for each in expected}
        swapped = {A.STEP_GONE: A.STEP_ADDED, A.STEP_ADDED: A.STEP_GONE}
        found = {
            (swapped.get(each.aspect, each.aspect), each.step, each.tool): (each.before, each.after)
            for each in compare(new, WHAT)
        }
        assert found == turned
