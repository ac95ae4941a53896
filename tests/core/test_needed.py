"""E23: what a person gives as an output is held against all that will read it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest

from sagactl.core.canonical import Json
from sagactl.core.needed import find_needs, find_objections
from sagactl.core.records import RunStatus
from sagactl.core.saga import Saga
from sagactl.core.template import parse_template
from tests.core.builders import Plain, Play, operation, saga

UNDO = {"id": "${{ output.id }}"}


def _stuck(name: str, what: Saga, data: Json = None) -> Play:
    """Return a run in which nobody knows what became of *name*."""
    play = Play(what, data=data)
    assert play.run({name: ["lost"]}).status is RunStatus.STUCK
    return play


def _objections(
    play: Play, name: str, output: Json, refused: Mapping[str, str] | None = None, values: Any = None
) -> list[str]:
    evaluator = Plain(values or {}, refused or {})
    return list(find_objections(play.saga, play.state, operation(name), output, evaluator))


CHAIN = saga(
    "a -> b -> c -> d",
    saga_fields={"output": parse_template({"all": "${{ steps.a.output.id }}"})},
    a={"on_unknown": "ask", "undo_arguments": UNDO},
    b={"arguments": {"of": "${{ steps.a.output.id }}", "at": "${{ steps.a.output.place.street }}"}},
    c={"when": "${{ steps.a.output.asks }}", "arguments": {"of": "${{ steps.a.output.never }}"}},
    d={"arguments": {"of": "${{ steps.a.output }}", "n": "${{ steps.a.output.n > 1 }}"}, "undo": False},
)


def test_who_plainly_reads_an_output_is_known() -> None:
    """E23: the undo, later steps and the run's output; not what only an expression, or a skipped step, may read."""
    found = [(each.reader, each.path, each.is_undo) for each in find_needs(CHAIN, operation("a"))]
    assert found == [
        ("the undo of a", ("id",), True),
        ("b", ("id",), False),
        ("b", ("place", "street"), False),
        ("c", ("asks",), False),
        ("the output of the run", ("id",), False),
    ]
    assert list(find_needs(CHAIN, operation("d"))) == []


def test_each_thing_that_is_missing_is_named_once_with_all_who_need_it() -> None:
    """E23: found out now, and not in a rollback that gets stuck."""
    play = _stuck("a", CHAIN)
    whole: Json = {"id": 1, "place": {"street": "x"}, "asks": True}
    assert _objections(play, "a", whole) == []
    assert _objections(play, "a", {"place": {}, "asks": False}) == [
        "output has no id, which the undo of a and b and the output of the run need",
        "output.place has no street, which b needs",
    ]
    without = _objections(play, "a", None)
    assert without[0] == "output is null, so it has no id, which b and the output of the run need"


@pytest.mark.parametrize(
    ("output", "refused", "expected"),
    [
        ({"id": 1}, {}, []),
        (
            {"id": 1},
            {"undo.a": "id: not a text"},
            ["undo.a, the undo of a, would refuse its arguments: id: not a text"],
        ),
    ],
)
def test_the_undo_must_take_what_is_made_of_it(output: Json, refused: dict[str, str], expected: list[str]) -> None:
    """E21, E23: the arguments that the undo would be called with are held against its tool."""
    play = _stuck("a", saga("a", a={"on_unknown": "ask", "undo_arguments": UNDO}))
    assert _objections(play, "a", output, refused) == expected


def test_an_undo_that_cannot_read_it_is_told() -> None:
    """E21, E23: an expression of the undo is tried with the output that a person gives."""
    play = _stuck("a", saga("a", a={"on_unknown": "ask", "undo_arguments": {"id": "${{ size(output.ids) }}"}}))
    assert _objections(play, "a", {"ids": []}, values={"size(output.ids)": 0}) == []
    (objection,) = _objections(play, "a", {"ids": 1})
    assert objection == "the undo of a can't read it: no value for size(output.ids)"


def test_an_item_is_read_by_its_place() -> None:
    """F9, E23: of an item only what names its very place is needed; the list as a whole may be read without it."""
    reads = {"one": "${{ steps.f.output[1].id }}", "all": "${{ steps.f.output }}", "whole": "${{ steps.f.output[1] }}"}
    what = saga("f -> g", f={"foreach": "${{ input.xs }}", "on_unknown": "ask", "undo": False}, g={"arguments": reads})
    play = _stuck("f[1]", what, {"xs": [1, 2]})
    assert _objections(play, "f[1]", {}) == ["output has no id, which g needs"]
    assert _objections(play, "f[0]", {}) == []
    assert _objections(play, "f[1]", {"id": 1}) == []


def test_a_step_without_an_undo_has_no_reader_of_its_own() -> None:
    """E23: behind the pivot, or where nothing can be undone, only later steps count."""
    play = _stuck("p", saga("p* -> a", p={"on_unknown": "ask"}))
    assert _objections(play, "p", {"anything": 1}) == []


class Watching(Plain):
    """An evaluator that objects to all arguments of an undo but one."""

    def check_arguments(self, tool: str, arguments: Json) -> str | None:
        """Object to what isn't made of the output."""
        return None if arguments == {"id": 5} else f"{tool} can't take {arguments}"


def test_the_arguments_of_the_undo_are_those_that_it_would_get() -> None:
    """E21, E23: made of the very output that a person gives."""
    play = _stuck("a", saga("a", a={"on_unknown": "ask", "undo_arguments": UNDO}))
    assert list(find_objections(play.saga, play.state, operation("a"), {"id": 5}, Watching())) == []
    assert len(list(find_objections(play.saga, play.state, operation("a"), {"id": 6}, Watching()))) == 1
