"""The shipped core in every state that small sagas can come to: all interleavings, all crash points, none left out."""

from __future__ import annotations

import pytest

from tests.core.exploration.cores import ViolationError
from tests.core.exploration.retelling import retell
from tests.core.exploration.search import explore, find_shortest
from tests.core.exploration.shapes import EVERY_SHAPE, Shape
from tests.proof import Prove

STATES = 2_000_000


@pytest.mark.parametrize("shape", EVERY_SHAPE, ids=lambda shape: shape.name)
def test_no_state_that_a_run_can_come_to_breaks_a_rule(shape: Shape, prove: Prove) -> None:
    """S1-S11, L4, L5, C1-C5, V1, V2: each state of each shape is met, under all faults, and breaks no rule."""
    try:
        found = explore(shape)
    except ViolationError as violation:
        path = find_shortest(shape)
        told = str(violation) if path is None else retell(path)
        pytest.fail(f"{told}\n\nrepeat with: pytest tests/core/exploration -k '{shape.name}'", pytrace=False)
    assert found.left == 0, "the exploration was cut short"
    prove("exhaustive exploration of the core (distinct states)", found.states, goal=STATES)
    check_trouble(shape, found.events, found.statuses, found.landed)


def check_trouble(shape: Shape, events: dict[str, int], statuses: frozenset[str], landed: int) -> None:
    """V0: what was to happen has happened."""
    assert {"succeeded", "rolled_back"} <= statuses
    for event in ("answer", "time", "claim ended", "claim alive", "claim late"):
        assert events[event], f"V0: {event} never happened"
    for command in shape.commands:
        assert events[f"ask {command}"], f"V0: nobody asked to {command}"
    assert landed or not shape.losses, "V0: no late call ever landed"
