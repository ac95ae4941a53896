"""Every crash point of a saga of four steps, in real processes: each is killed there by SIGKILL, resumed, and checked.

Nine classes of outcomes (all succeed; each step in turn is rejected; each step in turn has its effect and loses the
answer), and in each of them five points of every call, and the start and the end of the run: 218 in all.
"""

from __future__ import annotations

import signal
from itertools import product
from pathlib import Path
from typing import NamedTuple

import pytest

from tests.proof import Prove
from tests.scenarios.checks import check_all
from tests.scenarios.scene import Scene, Warm, step, tries

STEPS = ("s1", "s2", "s3", "s4")
CLASSES = ["success", *(f"{word} {name}" for word in ("reject", "lost") for name in STEPS)]
IN_TOOL = ("entered", "effect")
POINTS_GOAL = 218
PAIRS_OF_A_CLASS = 8
PAIRS_GOAL = 25


class Point(NamedTuple):
    """Where a process is killed: `create`, `after_end`, or a point of a call."""

    at: str
    step: str = "s1"
    direction: str = "action"

    def __str__(self) -> str:
        return f"{self.step}/{self.direction}/{self.at}"


def points_of(kind: str) -> list[Point]:
    """Return all points of a class, in the order of the run."""
    word, _, failing = kind.partition(" ")
    last = STEPS.index(failing) + 1 if failing else len(STEPS)
    undone = {"success": 0, "reject": last - 1, "lost": last}[word]
    calls = [(name, "action") for name in STEPS[:last]]
    calls += [(name, "compensation") for name in reversed(STEPS[:undone])]
    five = ("before_intent", "after_intent", "entered", "effect", "after_outcome")
    return [Point("create"), *(Point(at, *call) for call in calls for at in five), Point("after_end")]


def write_saga(scene: Scene, kind: str, *, crashes: int = 1) -> None:
    """Write the saga: each crash uses an attempt up, so all but the call that fails have as many more."""
    word, _, failing = kind.partition(" ")
    undo = {"retry": tries(2 + crashes, "1ms")}
    scene.saga(
        "four",
        [
            step(name, word, compensate=undo)
            if name == failing
            else step(name, retry=tries(1 + crashes, "1ms"), compensate=undo)
            for name in STEPS
        ],
    )


def kill_at(scene: Scene, point: Point, *words: str) -> int:
    """Run the command in a process that is killed at *point*, and return its exit code."""
    order = {"at": point.at, "step": point.step, "direction": point.direction, "signal": int(signal.SIGKILL)}
    if point.at in IN_TOOL:
        return scene.do(*words, extra={"PROBE_STOP": f"{point}/any/{int(signal.SIGKILL)}"}).code
    return scene.do(*words, hooks={"signal": order}).code


def check_point(scene: Scene, kind: str, point: Point) -> None:
    """Kill at *point*, resume, and compare ledger, log and answers."""
    write_saga(scene, kind)
    assert kill_at(scene, point, "run", "four") == -signal.SIGKILL, "the fault did not fire"
    if point.at == "create":
        assert (scene.runs(), scene.ledger()) == ([], [])
        return
    done = scene.do("resume", scene.latest())
    assert done.run["status"] == ("succeeded" if kind == "success" else "rolled_back")
    check_all(scene, looks=False)


@pytest.mark.parametrize("half", [0, 1])
@pytest.mark.parametrize("kind", CLASSES)
def test_killed_at_every_point_it_ends_as_if_nothing_had_happened(
    kind: str, half: int, tmp_path: Path, warm: Warm, prove: Prove
) -> None:
    """E1, E4, E6, E7, E17: SIGKILL at each point of each call; the invariants hold, and the run ends as its class does.

    A failure names class and point; `-k` with the class and the same half repeats it.
    """
    chosen = points_of(kind)[half::2]
    for number, point in enumerate(chosen):
        try:
            check_point(Scene.make(tmp_path / str(number), warm), kind, point)
        except AssertionError as error:
            raise AssertionError(f"class `{kind}`, killed at {point}: {error}") from error
    prove("crash points in real processes (SIGKILL)", len(chosen), goal=POINTS_GOAL)


def check_pair(scene: Scene, kind: str, first: Point, second: Point) -> bool:
    """Kill at *first*, and the resume at *second* if it comes there; resume again, and compare. Tell whether it did."""
    write_saga(scene, kind, crashes=2)
    assert kill_at(scene, first, "run", "four") == -signal.SIGKILL, "the fault did not fire"
    has_fired = kill_at(scene, second, "resume", scene.latest()) == -signal.SIGKILL
    done = scene.do("resume", scene.latest())
    assert done.run["status"] == ("succeeded" if kind == "success" else "rolled_back")
    check_all(scene, looks=False)
    return has_fired


def check_pairs(kind: str, stride: int, tmp_path: Path, warm: Warm) -> int:
    """Check every so many of the pairs of a class, and return in how many both kills fired."""
    points = points_of(kind)[1:]
    chosen = list(product(points, points))[stride // 2 :: stride]
    fired = 0
    for number, (first, second) in enumerate(chosen):
        try:
            fired += check_pair(Scene.make(tmp_path / str(number), warm), kind, first, second)
        except AssertionError as error:
            raise AssertionError(f"class `{kind}`, killed at {first}, and at {second}: {error}") from error
    return fired


@pytest.mark.parametrize("kind", CLASSES)
def test_killed_again_while_it_is_resumed_it_ends_the_same(kind: str, tmp_path: Path, warm: Warm, prove: Prove) -> None:
    """E17, F2: a sample of all pairs of points; `--soak` tries them all."""
    fired = check_pairs(kind, len(points_of(kind)) ** 2 // PAIRS_OF_A_CLASS, tmp_path, warm)
    assert fired > 0
    prove("crash points in real processes, killed twice", fired, goal=PAIRS_GOAL)


@pytest.mark.soak
@pytest.mark.parametrize("kind", CLASSES)
def test_killed_again_at_every_pair_of_points(kind: str, tmp_path: Path, warm: Warm) -> None:
    """E17, F2: all pairs, some 5,900 of them."""
    assert check_pairs(kind, 1, tmp_path, warm) > len(points_of(kind))


def test_the_points_are_all_of_them() -> None:
    """V0: nine classes, five points a call, start and end."""
    assert sum(len(points_of(kind)) for kind in CLASSES) == POINTS_GOAL
