"""Scenarios of the way back: what is undone, in which order, with which data, and what can't be."""

from __future__ import annotations

import signal
from typing import Any

import pytest

from tests.scenarios.checks import check_all
from tests.scenarios.scene import Scene, step, tries

KILL = int(signal.SIGKILL)


def _parallel(*steps: dict[str, Any]) -> list[dict[str, Any]]:
    return [{**each, "needs": []} for each in steps]


def test_b01_a_step_that_waits_for_its_next_try_is_not_called_once_the_run_goes_back(scene: Scene) -> None:
    """E10: the decision to roll back drops its timer, also for whoever resumes the run when it would have been due."""
    scene.saga("x", _parallel(step("a", "retry 1", retry=tries(2, "30s")), step("b", "wait 0.2, reject no")))
    assert scene.do("run", "x").code == 10
    (scene.path / "ahead").write_text("60")
    assert scene.do("resume", scene.latest(), hooks={"shift": str(scene.path / "ahead")}).code == 10
    assert sorted(scene.calls()) == ["a", "b"]
    check_all(scene)


def test_b01_the_same_when_an_operator_turns_the_run_around(scene: Scene) -> None:
    """E10, E22: `rollback` while a step waits for its next try: it isn't called again, and nothing is left to undo."""
    scene.saga("x", [step("a"), step("b", "retry 1", retry=tries(2, "30s"))])
    running = scene.start("run", "x")
    scene.wait_for(lambda: scene.ledger("end") and scene.runs() and scene.of("timer"))
    assert scene.do("rollback", scene.latest()).code == 0
    assert running.wait().code == 10
    assert scene.calls() == ["a", "b", "a'"]
    check_all(scene)


def test_b01_the_same_over_a_restart(scene: Scene) -> None:
    """E10: the driver dies right after the decision, and is followed when the timer would have been due."""
    scene.saga("x", _parallel(step("a", "retry 1", retry=tries(2, "30s")), step("b", "wait 0.2, reject no")))
    order = {"at": "after_outcome", "step": "b", "direction": "action", "signal": KILL}
    assert scene.do("run", "x", hooks={"signal": order}).code == -KILL
    (scene.path / "ahead").write_text("60")
    assert scene.do("resume", scene.latest(), hooks={"shift": str(scene.path / "ahead")}).code == 10
    assert sorted(scene.calls()) == ["a", "b"]
    check_all(scene)


def test_b01_a_second_try_that_is_under_way_is_settled_and_undone(scene: Scene) -> None:
    """E10: what has its intent is awaited, and its undo follows."""
    a = step("a", "retry 1, wait 2", retry=tries(2))
    scene.saga("x", _parallel(a, step("b", "wait 1, reject no")))
    assert scene.do("run", "x").code == 10
    assert sorted(scene.calls()[:3]) == ["a", "a", "b"]
    assert scene.effects() == ["a", "a'"]
    check_all(scene)


def test_b03_the_time_of_a_run_is_over_while_a_step_is_in_doubt(scene: Scene) -> None:
    """E7, E12, E14: what is in doubt is undone like the rest, and the rollback has no such limit."""
    short = {"start_to_close_timeout": "3800ms"}
    b = step("b", "lost", "wait 0.8", retry=tries(20, "200ms", backoff_coefficient=1))
    scene.saga("x", [step("a", "wait 0.6", "wait 0.8"), b], run_timeout="4s", defaults=short)
    done = scene.do("run", "x")
    assert (done.code, done.run["cause"]) == (10, "timeout")
    assert scene.calls()[-2:] == ["b'", "a'"]
    assert scene.effects() == ["a", "b", "b'", "a'"]
    check_all(scene)


@pytest.mark.parametrize("how", ["cancel", "signal and cancel", "timeout"])
def test_b05_the_undo_of_a_cancelled_run_is_not_cancelled(how: str, scene: Scene) -> None:
    """E12, E17, E22: the step under way is ended and undone, and the undo takes the time that it takes.

    A signal leaves the run as it is (E17): there is no signal that cancels. So that variant cancels afterwards.
    """
    top: dict[str, Any] = {"settle_timeout": "300ms"}
    if how == "timeout":
        top = {"settle_timeout": "300ms", "run_timeout": "4s", "defaults": {"start_to_close_timeout": "4s"}}
    scene.saga("x", [step("a", "ok", "wait 1"), step("b", "wait 30", retry=tries(2))], **top)
    running = scene.start("run", "x")
    scene.wait_for(scene.has_begun("b"))
    if how == "signal and cancel":
        running.signal(signal.SIGTERM)
        running.signal(signal.SIGTERM)
        scene.wait_for(lambda: "stopping" in running.err())
        running.signal(KILL)
        running.wait()
    if how != "timeout":
        assert scene.do("cancel", scene.latest()).code == 0
    if how != "signal and cancel":
        assert running.wait().code == 10
    run = scene.show()
    assert (run["status"], run["cause"]) == ("rolled_back", "timeout" if how == "timeout" else "cancelled")
    assert scene.calls() == ["a", "b", "b'", "a'"]
    begin, end = _span(scene, "a")
    assert end - begin > 0.95
    check_all(scene)


def _span(scene: Scene, name: str) -> tuple[float, float]:
    """Return when the undo of a step began and ended, by its own clock."""
    mine = [line for line in scene.ledger() if line["step"] == name and line["direction"] == "compensation"]
    return mine[0]["at"], mine[-1]["at"]


def test_b13_an_undo_of_several_parts_has_ended_before_the_next_begins(scene: Scene) -> None:
    """E11: an undo is one operation, however long it takes; the next has its intent after the outcome of this one."""
    scene.saga("x", [step("a"), step("b", "ok", "wait 0.3, effect, wait 0.3"), step("c", "reject no")])
    assert scene.do("run", "x").code == 10
    ends = _seq(scene, "outcome", "b")
    assert _seq(scene, "intent", "a") > ends
    assert _span(scene, "a")[0] >= _span(scene, "b")[1]
    check_all(scene)


def _seq(scene: Scene, kind: str, name: str) -> int:
    """Return the number of the record of that type about the undo of a step."""
    found = [each["seq"] for each in scene.of(kind) if (each["step"], each["direction"]) == (name, "compensation")]
    return int(found[-1])


@pytest.mark.parametrize("concurrency", [1, 4])
def test_b15_a_chain_is_undone_one_after_another(concurrency: int, scene: Scene) -> None:
    """E11: the last first, each after the one before it has ended, whatever may be done at once."""
    steps = [step("a"), step("b", "ok", "wait 0.2"), step("c", "ok", "wait 0.4"), step("d", "reject no")]
    scene.saga("x", steps, compensation_concurrency=concurrency)
    assert scene.do("run", "x").code == 10
    assert scene.calls()[-3:] == ["c'", "b'", "a'"]
    assert _span(scene, "c")[1] <= _span(scene, "b")[0]
    assert _span(scene, "b")[1] <= _span(scene, "a")[0]
    check_all(scene)


@pytest.mark.parametrize("concurrency", [1, 4])
def test_b15_a_diamond_is_undone_from_its_end(concurrency: int, scene: Scene) -> None:
    """E11: first what came last, then both branches, and what they stood on when both are undone."""
    b, c = step("b", "ok", "wait 0.3", needs=["a"]), step("c", "ok", "wait 0.2", needs=["a"])
    steps = [step("a"), b, c, step("d", needs=["b", "c"]), step("e", "reject no")]
    scene.saga("x", steps, compensation_concurrency=concurrency)
    assert scene.do("run", "x").code == 10
    undone = scene.calls()[-4:]
    assert (undone[0], sorted(undone[1:3]), undone[3]) == ("d'", ["b'", "c'"], "a'")
    assert _span(scene, "a")[0] >= max(_span(scene, "b")[1], _span(scene, "c")[1])
    check_all(scene)


def test_b17_an_undo_that_copes_is_called_without_output(scene: Scene) -> None:
    """E7: in doubt, null-safe: called without the output, and nothing of the steps before is lost."""
    scene.saga("x", [step("a"), step("b", "gone")])
    assert scene.do("run", "x").code == 10
    assert scene.calls() == ["a", "b", "b'", "a'"]
    (undo,) = [line for line in scene.ledger("begin") if line["step"] == "b" and line["direction"] == "compensation"]
    assert undo["arguments"]["id"] is None
    check_all(scene)


def test_b17_an_undo_that_needs_the_output_is_left_to_a_person_and_nothing_is_lost(scene: Scene) -> None:
    """E7, E23: neither null-safe nor probed: not called with nothing in its hands; once answered, the rest follows."""
    scene.saga("x", [step("a"), step("b", "gone", tool="probe.strict")])
    stuck = scene.do("run", "x")
    assert (stuck.code, stuck.run["dead_letters"][0]["reason"]) == (11, "in_doubt")
    assert scene.calls() == ["a", "b"]
    assert scene.do("dlq", "resolve", scene.latest(), "--done").code == 10
    assert scene.calls() == ["a", "b", "a'"]
    check_all(scene)


def test_b17_a_probe_finds_out_first(scene: Scene) -> None:
    """E7: verified absent, so there is no call of the undo at all."""
    scene.saga("x", [step("a"), step("b", "gone", tool="probe.asked_strict")])
    assert scene.do("run", "x").code == 10
    assert scene.calls() == ["a", "b", "a'"]
    assert len(scene.ledger("look")) == 1
    check_all(scene)


def test_b17_a_step_with_nothing_but_an_intent_is_in_doubt(scene: Scene) -> None:
    """E4, E7: killed between intent and call: as little is known as after a call, and the undo that copes is called."""
    scene.saga("x", [step("a"), step("b")])
    order = {"at": "after_intent", "step": "b", "direction": "action", "signal": KILL}
    assert scene.do("run", "x", hooks={"signal": order}).code == -KILL
    assert scene.do("resume", scene.latest()).code == 10
    assert scene.calls() == ["a", "b'", "a'"]
    check_all(scene)


@pytest.mark.parametrize("branches", [2, 3])
def test_b41_nothing_is_undone_while_a_sibling_is_at_work(branches: int, scene: Scene) -> None:
    """E10: one fails, the other settles, and then it is undone; nothing happens after the end."""
    steps = [step("a", "wait 0.7"), step("b", "wait 0.2, reject no"), step("c", "wait 0.5")][:branches]
    scene.saga("x", _parallel(*steps))
    assert scene.do("run", "x").code == 10
    first_undo = next(place for place, line in enumerate(scene.ledger()) if line["direction"] == "compensation")
    before = [line for line in scene.ledger()[:first_undo] if line["phase"] == "end"]
    assert len(before) == branches
    check_all(scene)


def test_b41_a_sibling_that_hangs_is_ended_and_undone(scene: Scene) -> None:
    """E10, E14: at `settle_timeout` it is told to end; unknown, so its undo is called."""
    scene.saga("x", _parallel(step("a", "hang"), step("b", "wait 0.2, reject no")), settle_timeout="500ms")
    assert scene.do("run", "x").code == 10
    assert sorted(scene.calls()) == ["a", "a'", "b"]
    check_all(scene)


def test_b41_both_fail(scene: Scene) -> None:
    """E10, S11: the first error stays the cause, and nothing is undone that had no effect."""
    scene.saga("x", _parallel(step("a", "wait 0.6, reject late"), step("b", "wait 0.2, reject early")))
    done = scene.do("run", "x")
    assert (done.code, done.run["error"]["message"]) == (10, "early")
    assert sorted(scene.calls()) == ["a", "b"]
    check_all(scene)


def test_b45_an_undo_gets_what_its_own_action_returned(scene: Scene) -> None:
    """E1: two steps return `id`, and each undo gets its own."""
    scene.saga("x", [step("a", args={"value": 1}), step("b", args={"value": 2}), step("c", "reject no")])
    assert scene.do("run", "x").code == 10
    given = {spelled["step"]: spelled["arguments"]["id"] for spelled in scene.ledger("begin")[-2:]}
    assert given == {"a": 1, "b": 2}
    check_all(scene)


SHARED = '''
"""One object, given back by each call and changed by the next one."""

import os
from typing import Any

from sagactl import tool

STATE: dict[str, Any] = {"id": 0, "seen": []}


@tool("shared.next", compensation="shared.back", compensation_with={"was": "${{ output }}"})
def step_on() -> dict[str, Any]:
    """Count on, in place."""
    STATE["id"] += 1
    STATE["seen"].append(os.environ.get("COLOUR", ""))
    return STATE


@tool("shared.back")
def step_back(was: dict[str, Any]) -> None:
    """Write down what it was told."""
    with open("told", "a") as file:
        file.write(repr(was) + "\\n")
'''


def test_b45_what_is_changed_in_place_later_does_not_change_what_was_recorded(scene: Scene) -> None:
    """E1: an output is a copy of the moment it was returned; a later environment doesn't reach it either."""
    scene.plugin("shared", SHARED)
    steps: list[dict[str, Any]] = [{"id": name, "tool": "shared.next", "with": {}} for name in ("a", "b")]
    scene.saga("x", [*steps, step("c", "kill")])
    assert scene.do("run", "x", extra={"COLOUR": "red"}).code == -KILL
    assert scene.do("resume", scene.latest(), extra={"COLOUR": "blue"}).code == 10
    told = (scene.path / "told").read_text().splitlines()
    assert told == ["{'id': 2, 'seen': ['red', 'red']}", "{'id': 1, 'seen': ['red']}"]
    check_all(scene, net={"c": {0}})


def test_b49_an_undo_that_fails_is_told_and_nothing_is_forgotten(scene: Scene) -> None:
    """E12, E23: rejected is *not* undone: a dead letter and an alert, exit 11; after the repair the rest follows."""
    scene.saga("x", [step("a"), step("b", "ok", "mended bridge"), step("c", "reject no")])
    stuck = scene.do("run", "x")
    assert (stuck.code, stuck.run["cause"]) == (11, "compensation_failed")
    assert [(left["step"], bool(left["reason"])) for left in stuck.run["not_undone"]] == [("b", True), ("a", True)]
    letters = scene.do("dlq", "list").json["items"]
    assert [(letter["step"], letter["direction"]) for letter in letters] == [("b", "compensation")]
    assert scene.alerts() == ["stuck"]
    assert scene.calls() == ["a", "b", "c", "b'"]
    (scene.path / "bridge").touch()
    assert scene.do("dlq", "retry", scene.latest()).code == 10
    assert scene.calls()[-2:] == ["b'", "a'"]
    check_all(scene)


@pytest.mark.parametrize("undo", ["ok", "reject another text"])
@pytest.mark.parametrize("is_killed", [False, True])
def test_b89_the_first_error_stays(undo: str, is_killed: bool, scene: Scene) -> None:
    """S11: the run tells what began it, whatever its undo says and however often it is resumed."""
    scene.saga("x", [step("a", "ok", undo, compensate={"retry": tries(2)}), step("b", "reject no seats")])
    order = {"at": "after_outcome", "step": "b", "direction": "action", "signal": KILL}
    done = scene.do("run", "x", hooks={"signal": order} if is_killed else {})
    if is_killed:
        assert done.code == -KILL
        done = scene.do("resume", scene.latest())
    assert done.code == (10 if undo == "ok" else 11)
    run = scene.show()
    assert (run["error"]["message"], run["error"]["step"]) == ("no seats", "b")
    a = run["steps"][0]
    assert (a["compensation_error"] or {}).get("message") == (None if undo == "ok" else "another text")
    check_all(scene)
