"""Commands of operators killed before and after each durable write that they make, and the run resumed.

What was asked and is durable is carried out, but never of a run that had ended before; what isn't durable was never
asked, and asking again does it.
"""

from __future__ import annotations

import signal
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from tests.proof import Prove
from tests.scenarios.checks import check_all
from tests.scenarios.scene import Scene, Warm, step, tries

KILL = int(signal.SIGKILL)
WRITES_MAX = 12
POINTS_GOAL = 90


def _step(name: str, word: str = "ok", undo: str = "ok", **keys: Any) -> dict[str, Any]:
    return step(name, word, undo, retry=tries(3, "1ms"), compensate={"retry": tries(4, "1ms")}, **keys)


@dataclass(frozen=True)
class Case:
    """A run at some stand, what is asked of it, and what it comes to."""

    steps: list[dict[str, Any]]
    words: tuple[str, ...]
    status: str
    is_interrupted: bool = False
    repair: str | None = None
    net: dict[str, set[int]] | None = None


PLAIN = [_step("a"), _step("b"), _step("c")]
ASKS = [_step("a"), _step("b", approval=True), _step("c")]
UNDO_FAILS = [_step("a", "ok", "mended bridge"), step("b", "reject no")]
DOUBT = [_step("a"), step("b", "gone", tool="probe.once")]
PIVOT = [_step("a"), _step("p", pivot=True), step("c", "reject no", tool="probe.sign")]
CASES = {
    "rollback of a success": Case(PLAIN, ("rollback", "RUN", "--yes"), "rolled_back"),
    "rollback": Case(PLAIN, ("rollback", "RUN"), "rolled_back", is_interrupted=True),
    "rollback past the pivot": Case(PIVOT, ("rollback", "RUN", "--past-pivot", "--yes"), "rolled_back"),
    "cancel": Case(PLAIN, ("cancel", "RUN"), "rolled_back", is_interrupted=True),
    "terminate": Case(PLAIN, ("terminate", "RUN"), "terminated", is_interrupted=True),
    "retry": Case(UNDO_FAILS, ("dlq", "retry", "RUN"), "rolled_back", repair="bridge"),
    "undone by hand": Case(UNDO_FAILS, ("dlq", "resolve", "RUN", "--done"), "rolled_back", net={"a": {0, 1}}),
    "abandon": Case(UNDO_FAILS, ("dlq", "resolve", "RUN", "--abandon"), "terminated"),
    "not done": Case(DOUBT, ("dlq", "resolve", "RUN", "--not-done"), "rolled_back"),
    "approve": Case(ASKS, ("approve", "RUN"), "succeeded"),
    "deny": Case(ASKS, ("deny", "RUN"), "rolled_back"),
}


def _kill_command(scene: Scene, case: Case, at: str, number: int) -> str | None:
    """Bring a run to its stand and kill the command there; return the run's id, None where it made no such write."""
    scene.saga("x", case.steps)
    order = {"at": "after_outcome", "step": "b", "direction": "action", "signal": KILL}
    scene.do("run", "x", hooks={"signal": order} if case.is_interrupted else {})
    run = scene.latest()
    if case.repair is not None:
        (scene.path / case.repair).touch()
    words = [word.replace("RUN", run) for word in case.words]
    killed = scene.do(*words, hooks={"signal": {"at": at, "number": number, "signal": KILL}})
    return run if killed.code == -KILL else None


def _resume(scene: Scene, run: str) -> str:
    scene.do("resume", run)
    return str(scene.show(run)["status"])


def _check_point(scene: Scene, case: Case, at: str, number: int) -> bool:
    run = _kill_command(scene, case, at, number)
    if run is None:
        return False
    is_asked = (at, number) != ("before_write", 1)  # a request is written down before anything else
    before, status = scene.show(run)["status"], _resume(scene, run)
    had_ended = before == "succeeded" != case.status
    if case.is_interrupted and not is_asked:
        assert status == "succeeded", "nobody had asked for anything"
    elif not is_asked or had_ended:
        assert status == before, "a resume carries nothing out that wasn't asked, or was asked of what had ended"
        scene.do(*(word.replace("RUN", run) for word in case.words))
        assert scene.show(run)["status"] == case.status
    else:
        assert status == case.status
    check_all(scene, looks=False, net=case.net)
    return True


@pytest.mark.parametrize("name", CASES)
def test_a_command_that_is_killed_has_been_asked_or_not(name: str, tmp_path: Path, warm: Warm, prove: Prove) -> None:
    """E17, E22, E23: at each durable write of each command: all of it or nothing, and no call twice."""
    fired = 0
    for at in ("before_write", "after_write"):
        for number in range(1, WRITES_MAX):
            try:
                if not _check_point(Scene.make(tmp_path / f"{at}-{number}", warm), CASES[name], at, number):
                    break
            except AssertionError as error:
                raise AssertionError(f"`{name}`, killed {at} {number}: {error}") from error
            fired += 1
    assert fired >= 4
    prove("crash points of operators' commands", fired, goal=POINTS_GOAL)
