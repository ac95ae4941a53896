"""Crash points of other shapes than a chain: pivots, `foreach`, parallel branches, probes, targets with a memory.

Each is run once without a fault, which tells its calls and its end; then it is killed at points of each of them.
"""

from __future__ import annotations

import signal
from itertools import product
from pathlib import Path
from typing import Any

import pytest

from tests.proof import Prove
from tests.scenarios.checks import check_all
from tests.scenarios.scene import Scene, Warm, step, tries
from tests.scenarios.test_crash_points import Point, kill_at

AT = ("before_intent", "after_intent", "entered", "effect", "after_outcome")
SHARE = 3
"""One in so many points is tried each time, `--soak` tries them all."""
POINTS_GOAL = 60


def _step(name: str, word: str = "ok", **keys: Any) -> dict[str, Any]:
    return step(name, word, retry=tries(3, "1ms"), compensate={"retry": tries(4, "1ms")}, **keys)


def _signed(name: str, word: str = "ok", **keys: Any) -> dict[str, Any]:
    return step(name, word, tool="probe.sign", retry=tries(4, "1ms"), **keys)


def _each(name: str, words: list[str], **keys: Any) -> dict[str, Any]:
    return {**_step(name, **keys), "foreach": words, "with": {"word": "${{ item }}", "undo": "ok"}}


ASKED: dict[str, Any] = {
    "tool": "probe.asked",
    "pivot": True,
    "compensate": {"none": "it is the pivot"},
    "retry": tries(3, "1ms"),
}
SHAPES = {
    "pivot": [_step("a"), _signed("p", pivot=True), _signed("c")],
    "pivot rejected": [_step("a"), _signed("p", "reject no", pivot=True), _signed("c")],
    "pivot in doubt": [_step("a"), _signed("p", "lost 1", pivot=True), _signed("c", "retry 1")],
    "pivot probed": [_step("a"), step("p", "lost", **ASKED), _signed("c", "lost 1")],
    "items": [_step("a"), _each("f", ["ok", "ok", "reject no", "ok"]), _step("d")],
    "items at once": [_step("a"), _each("f", ["ok", "wait 0.05", "wait 0.02, reject no"], concurrency=3), _step("d")],
    "items in doubt": [_step("a"), _each("f", ["ok", "lost 1", "ok"], concurrency=2), _step("d", "lost 1")],
    "diamond": [
        _step("a"),
        _step("b", "wait 0.02", needs=["a"]),
        _step("c", "lost 1", needs=["a"]),
        _step("d", "reject no", needs=["b", "c"]),
    ],
    "probed": [
        _step("a", tool="probe.asked"),
        _step("b", "lost", tool="probe.asked"),
        _step("c", "lost", tool="probe.asked_strict"),
        _step("d", "reject no"),
    ],
    "late": [_step(name, word, tool="probe.late") for name, word in (("a", "ok"), ("b", "lost 1"), ("c", "reject no"))],
}


def points_of(path: Path, warm: Warm, shape: str) -> tuple[list[Point], str]:
    """Run the shape without a fault; return the points of all its calls, and how it ends."""
    scene = Scene.make(path, warm)
    scene.saga("four", SHAPES[shape])
    status = scene.do("run", "four").run["status"]
    calls = dict.fromkeys((line["step"], line["direction"]) for line in scene.ledger("begin"))
    return [Point(at, *call) for call, at in product(calls, AT)], status


def check_shape(path: Path, warm: Warm, shape: str, share: int) -> int:
    """Kill at one in *share* of the points, resume and compare; return at how many."""
    points, status = points_of(path / "whole", warm, shape)
    chosen = points[len(shape) % share :: share]
    for number, point in enumerate(chosen):
        scene = Scene.make(path / str(number), warm)
        scene.saga("four", SHAPES[shape])
        try:
            assert kill_at(scene, point, "run", "four") == -signal.SIGKILL, "the fault did not fire"
            run = scene.do("resume", scene.latest()).run
            # Once the pivot is in doubt a later rejection clears nothing (E4), so a person must say (E13).
            is_in_doubt = shape == "pivot rejected" and (run["status"], run["cause"]) == ("stuck", "in_doubt")
            assert run["status"] == status or is_in_doubt
            check_all(scene, looks=False)
        except AssertionError as error:
            raise AssertionError(f"shape `{shape}`, killed at {point}: {error}") from error
    return len(chosen)


@pytest.mark.parametrize("shape", SHAPES)
def test_killed_at_its_points_a_shape_ends_as_it_would(shape: str, tmp_path: Path, warm: Warm, prove: Prove) -> None:
    """E4, E6, E7, E9, E11, E13, E17: SIGKILL in both directions; the invariants hold, and the end is the same."""
    prove("crash points of other shapes", check_shape(tmp_path, warm, shape, SHARE), goal=POINTS_GOAL)


@pytest.mark.soak
@pytest.mark.parametrize("shape", SHAPES)
def test_killed_at_each_of_its_points(shape: str, tmp_path: Path, warm: Warm) -> None:
    """The same at all points."""
    assert check_shape(tmp_path, warm, shape, 1) >= 20
