"""Scenarios of retries, timeouts and clocks: how often, how fast, under which key, and when it is over."""

from __future__ import annotations

import json
import shutil
import signal
import subprocess
import sys
import time
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from sagactl.core.retry import delay_ceiling_ms
from sagactl.core.saga import ATTEMPTS_MAX, INTERVAL_MS_MAX, PATIENT_RETRY, Retry
from tests.scenarios.checks import check_all
from tests.scenarios.scene import Done, Scene, step, tries

KILL = int(signal.SIGKILL)
SHORT = {"start_to_close_timeout": "400ms"}


def _starts(scene: Scene, name: str, direction: str = "action") -> list[float]:
    """Return when the calls of a step began."""
    return [line["at"] for line in scene.ledger("begin") if (line["step"], line["direction"]) == (name, direction)]


def _gaps(scene: Scene, name: str, direction: str = "action") -> list[float]:
    return [later - earlier for earlier, later in pairwise(_starts(scene, name, direction))]


def test_b07_of_all_who_are_woken_one_drives(scene: Scene) -> None:
    """E15, C2: there is no broker; whoever wakes a run, three at once and one too late, only asks for its lease.

    The kind is the same: an attempt starts only under the lease and with a new intent. Two calls, one effect.
    """
    scene.saga("x", [step("a", "retry 1, wait 0.2", retry=tries(2, "1s"))])
    assert scene.do("run", "x", "--no-wait").code == 12
    woken = [scene.start("resume", scene.latest()) for _ in range(3)]
    assert sorted(each.wait().code for each in woken) in ([0, 5, 5], [0, 0, 5], [0, 0, 0])
    late = scene.do("resume", scene.latest())
    assert (late.code, scene.calls(), scene.effects()) == (0, ["a", "a"], ["a"])
    check_all(scene)


def _command(script: str, **keys: Any) -> dict[str, Any]:
    given = {"tool": "shell.run_idempotent", "with": {"script": script}, "compensate": {"none": "nothing to undo"}}
    return {"id": "a", **given, "retry": tries(3), **keys}


@pytest.mark.parametrize("trap", ["", "trap '' TERM; "])
def test_b09_a_command_past_its_time_has_ended_before_the_next_try(trap: str, scene: Scene) -> None:
    """E14: the whole group is ended, by SIGKILL where SIGTERM is ignored; the same key; tries never overlap."""
    script = f'{trap}echo "begin $SAGACTL_IDEMPOTENCY_KEY $(date +%s.%N) $$" >> ../calls; sleep 8; echo end >> ../calls'
    scene.saga("x", [_command(script, start_to_close_timeout="2s", retry=tries(2))])
    assert scene.do("run", "x").code == 10
    lines = (scene.path.parent / "calls").read_text().splitlines()
    assert [line.split()[0] for line in lines] == ["begin", "begin"]
    assert len({line.split()[1] for line in lines}) == 1
    first, second = (float(line.split()[2]) for line in lines)
    assert second - first > (3 if trap else 1)
    assert not any(Path(f"/proc/{line.split()[3]}").exists() for line in lines)
    check_all(scene)


def test_b09_a_call_on_a_thread_is_awaited_before_the_next_try(scene: Scene) -> None:
    """E14: nobody can end a thread; the next try begins only when the late one has returned."""
    scene.saga("x", [step("a", "busy 0.9", retry=tries(2), **SHORT)])
    assert scene.do("run", "x").code == 10
    assert _gaps(scene, "a")[0] > 0.9
    assert scene.calls() == ["a", "a", "a'"]
    check_all(scene)


def test_b09_what_may_not_be_repeated_is_asked_about(scene: Scene) -> None:
    """E6: a tool that isn't idempotent isn't tried again in doubt: a person says, and nothing has overlapped."""
    scene.saga("x", [step("a", "busy 0.9", tool="probe.once", retry=tries(3), **SHORT)])
    stuck = scene.do("run", "x")
    assert (stuck.code, stuck.run["cause"], scene.calls()) == (11, "in_doubt", ["a"])
    check_all(scene)


def test_b11_every_try_has_the_same_key(scene: Scene) -> None:
    """E8: the answer is lost, the call is made again: the target sees one key, and charges once."""
    scene.saga("x", [step("a", "lost 1", retry=tries(2))])
    assert scene.do("run", "x").code == 0
    assert (scene.calls(), scene.effects()) == (["a", "a"], ["a"])
    check_all(scene)


def test_b11_also_in_another_process_after_a_crash_and_not_in_another_run(scene: Scene) -> None:
    """E8: killed after the effect and resumed: the same key; `run --from` is another run, and has another one."""
    scene.saga("x", [step("a", retry=tries(2))])
    assert scene.do("run", "x", extra={"PROBE_STOP": f"a/action/effect/1/{KILL}"}).code == -KILL
    assert scene.do("resume", scene.latest()).code == 0
    assert (scene.calls(), scene.effects()) == (["a", "a"], ["a"])
    assert scene.do("run", "--from", scene.latest()).code == 0
    assert len({line["key"] for line in scene.ledger("effect")}) == 2
    check_all(scene)


@pytest.mark.parametrize("direction", ["action", "compensation"])
def test_b23_what_kills_its_driver_is_not_tried_for_ever(direction: str, scene: Scene) -> None:
    """E5: an attempt counts from its intent, so three tries are three, however often somebody resumes."""
    if direction == "action":
        scene.saga("x", [step("a", "kill", retry=tries(3))])
    else:
        scene.saga("x", [step("a", "ok", "kill", compensate={"retry": tries(3)}), step("b", "reject no")])
    codes = [scene.do("run", "x").code, *(scene.do("resume", scene.latest()).code for _ in range(10))]
    assert codes[:3] == [-KILL] * 3
    assert set(codes[3:]) == {10 if direction == "action" else 11}
    assert len(_starts(scene, "a", direction)) == 3
    check_all(scene)


@pytest.mark.parametrize("zone", ["Asia/Kolkata", "America/St_Johns", "UTC"])
def test_b25_another_time_zone_changes_no_delay(zone: str, scene: Scene) -> None:
    """E5: the moment is stored in UTC: not called at once, not hours late; what is shown has its offset."""
    scene.saga("x", [step("a", "retry 1", retry=tries(2, "5s"))])
    waiting = scene.do("run", "x", "--no-wait", extra={"TZ": "UTC"})
    assert waiting.code == 12
    assert waiting.run["waiting_for"]["until"].endswith("Z")
    early = scene.do("resume", scene.latest(), "--no-wait", extra={"TZ": zone})
    assert (early.code, scene.calls()) == (12, ["a"])
    assert early.run["waiting_for"] == waiting.run["waiting_for"]
    assert scene.do("resume", scene.latest(), extra={"TZ": zone}).code == 0
    assert 4.9 < _gaps(scene, "a")[0] < 60
    check_all(scene)


YEARS = 10 * 365 * 86_400


@pytest.mark.parametrize("jump", [-3_600, 3_600, YEARS])
def test_b25_a_wall_clock_that_is_turned_while_it_waits_changes_nothing(jump: int, scene: Scene) -> None:
    """E5, V5, H53: within a process a monotonic clock carries the time: neither early nor late."""
    scene.saga("x", [step("a", "retry 1", retry=tries(2, "1500ms"))])
    wall = scene.path / "wall"
    running = scene.start("run", "x", hooks={"wall": str(wall)})
    scene.wait_for(lambda: scene.ledger("end") and scene.of("timer"))
    wall.write_text(str(jump))
    assert running.wait().code == 0
    assert 1.4 < _gaps(scene, "a")[0] < 60
    check_all(scene)


@pytest.mark.parametrize(("jump", "is_due"), [(-3_600, False), (YEARS, True)])
def test_b25_a_wall_clock_that_was_turned_over_a_restart(jump: int, is_due: bool, scene: Scene) -> None:
    """E5: across a restart there is nothing but stored UTC.

    Set back, the run's time goes on from its last record, so the wait is as long as it was; set forward beyond the
    moment, it is due. Never early by the run's own time.
    """
    scene.saga("x", [step("a", "retry 1", retry=tries(2, "8s"))])
    assert scene.do("run", "x", "--no-wait").code == 12
    wall = scene.path / "wall"
    wall.write_text(str(jump))
    began = time.monotonic()
    assert scene.do("resume", scene.latest(), hooks={"wall": str(wall)}).code == 0
    assert (_starts(scene, "a")[1] - began > 7.5) is not is_due
    assert time.monotonic() - began < 60
    check_all(scene)


@pytest.mark.skipif(
    shutil.which("faketime") is None, reason="faketime isn't installed: no whole process has its clock turned"
)
@pytest.mark.parametrize(("jump", "is_due"), [("-1h", False), ("+3650d", True)])
def test_b25_the_same_in_a_process_whose_clock_is_turned_from_outside(jump: str, is_due: bool, scene: Scene) -> None:
    """E5, H53: the system itself tells another time to the whole process, its libraries included."""
    scene.saga("x", [step("a", "retry 1", retry=tries(2, "6s"))])
    assert scene.do("run", "x", "--no-wait").code == 12
    command = ["faketime", "-f", jump, sys.executable, "-m", "sagactl", "resume", scene.latest(), "-q", "-o", "json"]
    environment = scene.environment({"FAKETIME_DONT_FAKE_MONOTONIC": "1"})
    done = subprocess.run(command, cwd=scene.path, env=environment, capture_output=True, timeout=120, check=False)
    assert done.returncode == 0, done.stderr
    assert (_gaps(scene, "a")[0] > 5.9) is not is_due
    check_all(scene)


@pytest.mark.parametrize("jump", [-3_600, YEARS])
def test_b25_a_wall_clock_that_is_turned_costs_no_lease(jump: int, scene: Scene) -> None:
    """E15, H53: a lease is counted on a clock that nobody turns: the second driver is refused before as after."""
    scene.saga("x", [step("a", "await open")])
    wall = scene.path / "wall"
    running = scene.start("run", "x", hooks={"wall": str(wall)})
    scene.wait_for(scene.has_begun("a"))
    wall.write_text(str(jump))
    assert scene.do("resume", scene.latest(), hooks={"wall": str(wall)}).code == 5
    (scene.path / "open").touch()
    assert running.wait().code == 0
    check_all(scene)


@pytest.mark.parametrize("percent", [200, 1_000])
def test_b27_a_delay_never_overflows(percent: int, scene: Scene) -> None:
    """E5: the cap for every attempt up to 5,000, never negative, never an error; there is a cap where none is given."""
    hour = 3_600_000
    attempts = (*range(1, 200), *range(200, 5_001, 100))
    for cap in (PATIENT_RETRY.max_interval_ms, hour):
        delays = [delay_ceiling_ms(Retry(ATTEMPTS_MAX, 1_000, percent, cap), attempt) for attempt in attempts]
        assert delays == sorted(delays)
        assert (delays[0], delays[-1]) == (1_000, cap)
        assert cap <= INTERVAL_MS_MAX
    scene.saga("x", [step("p", tool="probe.sign", pivot=True), step("c", tool="probe.sign", retry=tries(5_000))])
    assert scene.do("run", "x").code == 3, "so many attempts are refused before anything is called"


@pytest.mark.parametrize("is_resumed", [False, True])
def test_b29_tries_wait_as_they_should(is_resumed: bool, scene: Scene) -> None:
    """E5: 300, 600 and 1,200 ms between four calls, and then back; a resume in between cuts no wait short."""
    a = step("a", "error", retry=tries(4, "300ms", backoff_coefficient=2))
    scene.saga("x", [a])
    done = scene.do("run", "x", *(["--no-wait"] if is_resumed else []))
    while is_resumed and done.code == 12:
        done = scene.do("resume", scene.latest(), "--no-wait")
    assert (done.code, scene.waits()) == (10, [300, 600, 1_200])
    assert all(gap >= wait / 1_000 for gap, wait in zip(_gaps(scene, "a"), scene.waits(), strict=True))
    check_all(scene)


def test_b31_an_undo_has_tries_of_its_own(scene: Scene) -> None:
    """E12: what the action used up isn't missing for its undo."""
    a = step("a", "retry 2", "retry 2", retry=tries(3), compensate={"retry": tries(3)})
    scene.saga("x", [a, step("b", "reject no")])
    assert scene.do("run", "x").code == 10
    assert scene.calls() == ["a", "a", "a", "b", "a'", "a'", "a'"]
    check_all(scene)


def test_b33_two_branches_that_fail_for_now_both_go_on(scene: Scene) -> None:
    """E5: neither is ended for the other's sake, and what follows both is done."""
    branches = [step(name, "retry 2", retry=tries(3), needs=[]) for name in ("a", "b")]
    scene.saga("x", [*branches, step("c")])
    assert scene.do("run", "x").code == 0
    assert sorted(scene.calls()) == ["a"] * 3 + ["b"] * 3 + ["c"]
    check_all(scene)


def test_b33_one_branch_has_no_tries_left_and_the_other_is_not_started_again(scene: Scene) -> None:
    """E10: nothing new starts; `unavailable` left no effect, so there is nothing to undo."""
    a, b = step("a", "wait 0.3, reject no", needs=[]), step("b", "retry 1", retry=tries(3, "30s"), needs=[])
    scene.saga("x", [a, b, step("c")])
    assert scene.do("run", "x").code == 10
    assert sorted(scene.calls()) == ["a", "b"]
    check_all(scene)


def test_b35_an_undo_that_always_fails_is_not_tried_for_ever(scene: Scene) -> None:
    """E12: three calls, one dead letter, one alert; a resume without a decision calls nothing."""
    scene.saga("x", [step("a", "ok", "error", compensate={"retry": tries(3)}), step("b", "reject no")])
    codes = [scene.do("run", "x").code, *(scene.do("resume", scene.latest()).code for _ in range(5))]
    assert set(codes) == {11}
    assert scene.calls() == ["a", "b", "a'", "a'", "a'"]
    assert (len(scene.do("dlq", "list").json["items"]), scene.alerts()) == (1, ["stuck"])
    check_all(scene)


@pytest.mark.parametrize("is_killed", [False, True])
def test_b37_the_time_of_a_run_ends_a_call_that_hangs(is_killed: bool, scene: Scene) -> None:
    """E14: unknown, so it is undone with the rest; also at once where nobody drove it when the time was over."""
    limit = "4s"
    steps = [step("a"), step("b", "hang", retry=tries(2))]
    scene.saga("x", steps, run_timeout=limit, defaults={"start_to_close_timeout": limit}, settle_timeout="100ms")
    running = scene.start("run", "x")
    if is_killed:
        scene.wait_for(scene.has_begun("b"))
        running.signal(KILL)
        running.wait()
        (scene.path / "ahead").write_text("60")
        done = scene.do("resume", scene.latest(), hooks={"shift": str(scene.path / "ahead")})
    else:
        done = running.wait()
    assert (done.code, done.run["cause"]) == (10, "timeout")
    assert scene.calls() == ["a", "b", "b'", "a'"]
    check_all(scene)


def test_b37_a_step_without_a_limit_has_one_all_the_same(scene: Scene) -> None:
    """E14: `start_to_close` is always set, and the plan says how long that is."""
    scene.saga("x", [step("a")])
    shown = scene.do("plan", "x")
    assert '"start_to_close_ms": 30000' in json.dumps(shown.json)


CHILDREN = {
    "plain": "sleep 300.{0} & sleep 300.{0} & wait",
    "own session": "setsid sleep 300.{0} & wait",
    "deaf": "(trap '' TERM; sleep 300.{0}; sleep 300.{0}) & wait",
}


@pytest.mark.parametrize("kind", CHILDREN)
def test_b39_a_limit_ends_the_children_too(kind: str, scene: Scene) -> None:
    """E14: also those with a session of their own and those that ignore SIGTERM; the call returns, nothing is left."""
    mark = str(time.monotonic_ns())
    scene.saga("x", [_command(CHILDREN[kind].format(mark), start_to_close_timeout="500ms", retry=tries(1))])
    began = time.monotonic()
    assert scene.do("run", "x").code in {10, 11}
    assert time.monotonic() - began < 60
    assert not any(mark.encode() in _command_line(each) for each in Path("/proc").glob("[0-9]*/cmdline"))
    check_all(scene)


def _command_line(file: Path) -> bytes:
    try:
        return file.read_bytes()
    except OSError:  # it has ended meanwhile
        return b""


def test_b43_a_step_that_waits_holds_no_slot(scene: Scene) -> None:
    """E5: with one call at a time, the others run while one waits for its next try."""
    steps = [step("a", "retry 1", retry=tries(2, "3s")), step("b"), step("c")]
    scene.saga("x", [{**each, "needs": []} for each in steps])
    assert scene.do("run", "x", extra={"SAGACTL_CONCURRENCY": "1"}).code == 0
    assert (scene.calls()[-1], len(scene.calls())) == ("a", 4)
    check_all(scene)


def _resume_in_a_crowd(scene: Scene, seconds: float) -> list[Done]:
    """Let four at a time resume the run, again and again; those that are still at it are killed and replaced."""
    until, answers = time.monotonic() + seconds, []
    while time.monotonic() < until:
        crowd = [scene.start("resume", scene.latest()) for _ in range(4)]
        time.sleep(0.3)
        for each in crowd:
            each.signal(KILL) if not each.is_over() else None
            answers.append(each.wait())
    return answers


def test_b99_an_undo_that_has_no_permission_is_called_once(scene: Scene) -> None:
    """E5, E12: an error declared as one that no retry mends: one call, a dead letter, one alert."""
    undo = {"retry": tries(12, non_retryable_errors=["forbidden"])}
    scene.saga("x", [step("a", "ok", "failed forbidden", compensate=undo), step("b", "reject no")])
    assert scene.do("run", "x").code == 11
    _resume_in_a_crowd(scene, 0.5)
    assert scene.calls().count("a'") == 1
    assert scene.alerts() == ["stuck"]
    check_all(scene)


def test_b99_a_crowd_of_drivers_makes_no_storm(scene: Scene) -> None:
    """E5, E15: four drivers at a time, killed and started anew: only the policy's calls, with its waits."""
    undo = {"retry": tries(5, "500ms", backoff_coefficient=1)}
    scene.saga("x", [step("a", "ok", "failed forbidden", compensate=undo), step("b", "reject no")])
    scene.do("run", "x", "--no-wait")
    while scene.show()["status"] != "stuck":
        _resume_in_a_crowd(scene, 1)
    tries_made = [each for each in scene.of("intent") if each["direction"] == "compensation"]
    assert len(tries_made) == 5, "one that was killed between its intent and its call counts as well"
    assert scene.calls().count("a'") <= 5
    assert all(gap >= 0.5 for gap in _gaps(scene, "a", "compensation"))
    check_all(scene)
