"""E12, E22: what a run leaves behind is named first, with the reason that holds now."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from sagactl.core.left import NAMED_MAX, Left, count_undone, find_left
from sagactl.core.records import Direction, Operation, Resolution, Verb
from sagactl.core.saga import CompensateFailed, StepClass
from tests.core.builders import Play, saga


def left(play: Play) -> dict[str, str]:
    """Return the reason of each effect that is left, by place, the latest first."""
    return {each.place: each.reason for each in find_left(play.saga, play.state)}


def _rolling(shape: str, failed: str, **steps: object) -> Play:
    play = Play(saga(shape, **steps))  # type: ignore[arg-type]
    play.turn()
    while failed not in {operation.step for operation in play.under_way}:
        play.answer(play._next_name(), "ok")
    play.answer(failed, "reject")
    return play


def _dead_undo() -> Play:
    play = _rolling("a -> b -> c", "c")
    play.answer("b'", "reject")
    return play


def _side_by_side() -> Play:
    play = Play(saga("[a | b] -> c"))
    play.turn()
    play.answer("a", "ok")
    play.answer("b", "ok")
    play.answer("c", "reject")
    return play


def _nobody_knows() -> Play:
    play = Play(saga("a -> b", b={"null_safe": False}))
    play.turn()
    play.answer("a", "ok")
    play.answer("b", "lost")
    return play


def _kept() -> Play:
    return _rolling("a -> b -> c", "c", b={"klass": StepClass.NOT_UNDOABLE, "undo": False})


def _asks_first() -> Play:
    play = Play(saga("a", a={"probe": True}))
    play.turn()
    play.answer("a", "lost")
    play.ask(Verb.CANCEL)
    play.answer("a", "dunno")
    return play


def _looked() -> Play:
    return _rolling("a -> b -> c", "c", b={"klass": StepClass.READ_ONLY, "undo": False})


SITUATIONS: dict[str, tuple[Callable[[], Play], dict[str, str]]] = {
    "going forward": (lambda: Play(saga("a -> b")), {}),
    "an undo under way, and one that waits for it": (
        lambda: _rolling("a -> b -> c", "c"),
        {"b": "its undo is under way", "a": "waits for b"},
    ),
    "an undo that failed, and one that waits for a person": (
        _dead_undo,
        {"b": "its undo failed: reject: b' reject 1", "a": "waits for b"},
    ),
    "two side by side": (_side_by_side, {"b": "its undo is under way", "a": "its undo is due"}),
    "nobody knows": (_nobody_knows, {"b": "nobody knows whether it happened", "a": "waits for b"}),
    "what can't be undone": (_kept, {"b": "it has no compensation", "a": "its undo is under way"}),
    "in doubt until a probe has been asked": (_asks_first, {"a": "in doubt"}),
    "what only looked has left nothing": (_looked, {"a": "its undo is under way"}),
}


@pytest.mark.parametrize("name", SITUATIONS)
def test_what_is_left_has_the_reason_that_holds_now(name: str) -> None:
    """E11, E12: an effect that isn't undone is named, the latest first, with what keeps it."""
    make, expected = SITUATIONS[name]
    play = make()
    found = left(play)
    assert found == expected
    assert list(found) == list(expected)


def test_many_steps_that_are_waited_for_are_counted() -> None:
    """A run of thousands of steps has a line that fits: some are named, the others counted."""
    names = [f"b{place}" for place in range(NAMED_MAX + 2)]
    play = Play(saga(f"a -> [{' | '.join(names)}] -> c"), slots=100)
    play.turn()
    play.answer("a", "ok")
    for name in names:
        play.answer(name, "ok")
    play.answer("c", "reject")
    assert left(play)["a"] == "waits for b0, b1, b2, b3, b4 and 2 more"


def test_what_is_held_up_names_the_dead_letter_and_not_the_steps_between() -> None:
    """E12: a person is told what to decide, not what waits for the same as well."""
    play = _rolling("a -> b -> c -> d", "d")
    play.answer("c'", "reject")
    assert left(play) == {"c": "its undo failed: reject: c' reject 1", "b": "waits for c", "a": "waits for c"}


def test_a_dead_letter_that_several_ways_lead_to_is_named_once() -> None:
    """E11: a diamond above what is stuck doesn't tell it twice."""
    play = _rolling("a -> [b | c] -> d -> e", "e")
    play.answer("d'", "reject")
    assert left(play)["a"] == "waits for d"


def test_the_end_says_what_stayed_with_what_the_action_returned() -> None:
    """E22: a terminated run names what it left, with the output that a person needs to undo it by hand."""
    play = Play(saga("a -> b"))
    play.turn()
    play.answer("a", "ok", output={"id": 7})
    play.ask(Verb.TERMINATE)
    play.answer("b", "ok")
    assert find_left(play.saga, play.state) == [
        Left("b", None, "the run was terminated", {"id": "b"}),
        Left("a", None, "the run was terminated", {"id": 7}),
    ]


def test_an_item_that_stays_is_named_with_its_own_output() -> None:
    """F9, E22: which of the items it was, and what that very call returned."""
    play = Play(saga("f -> b", f={"foreach": "${{ input.xs }}"}), data={"xs": [1, 2]})
    play.turn()
    play.answer("f[0]", "ok", output={"id": 3})
    play.answer("f[1]", "ok", output={"id": 4})
    play.ask(Verb.TERMINATE)
    play.answer("b", "reject")
    found = find_left(play.saga, play.state)
    assert [(each.place, each.output) for each in found] == [("f[1]", {"id": 4}), ("f[0]", {"id": 3})]


def test_an_abandoned_undo_stays_in_what_is_left() -> None:
    """E23: `--abandon` settles a dead letter; its effect stays and is named."""
    play = _dead_undo()
    play.resolve("b'", Resolution.ABANDON)
    assert left(play) == {"b": "its compensation was abandoned", "a": "its undo is under way"}


def test_what_was_undone_is_counted() -> None:
    """E22: `4 of 4 undone` counts actions whose compensation succeeded, and no others."""
    play = _rolling("a -> b -> c", "c")
    assert count_undone(play.state) == 0
    play.answer("b'", "ok")
    assert count_undone(play.state) == 1
    play.answer("a'", "ok")
    assert count_undone(play.state) == 2
    assert left(play) == {}


def test_a_failed_step_that_is_always_undone_is_named_as_well() -> None:
    """E7: `compensate_failed: always` undoes what failed for certain."""
    play = _rolling("a -> b", "b", b={"compensate_failed": CompensateFailed.ALWAYS})
    assert left(play) == {"b": "its undo is under way", "a": "waits for b"}


def test_an_item_is_named_with_its_place() -> None:
    """F9: each item is an effect of its own."""
    assert Left("f", 2, "x").place == str(Operation("f", 2, Direction.ACTION)) == "f[2]"


def test_an_item_that_waits_for_its_undo_has_its_place_and_output() -> None:
    """F9: a person who undoes it by hand needs to know which one it is; what is undone already isn't named."""
    play = Play(saga("f -> b", f={"foreach": "${{ input.xs }}"}), data={"xs": [1, 2, 3]})
    play.turn()
    for index in range(3):
        play.answer(f"f[{index}]", "ok", output={"id": index})
    play.answer("b", "reject")
    play.answer("f[2]'", "ok")
    found = find_left(play.saga, play.state)
    assert [(each.step, each.item, each.output) for each in found] == [("f", 1, {"id": 1}), ("f", 0, {"id": 0})]


def test_as_many_as_are_named_are_not_counted() -> None:
    """UX: no "and 0 more"."""
    names = [f"b{place}" for place in range(NAMED_MAX)]
    play = Play(saga(f"a -> [{' | '.join(names)}] -> c"), slots=100)
    play.turn()
    for name in ["a", *names]:
        play.answer(name, "ok")
    play.answer("c", "reject")
    assert left(play)["a"] == "waits for b0, b1, b2, b3, b4"
