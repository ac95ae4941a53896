"""An exception that ends the driving, a signal's or a listener's, leaves no run in hands that do nothing for it."""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from sagactl import CallContext, Committed, Driver, Project, RunStatus, Settings, open_project, tool
from sagactl.core.records import Intent, Outcome

SAGA = """
saga: slow
input: {type: object, properties: {seconds: {type: number, default: 0}}}
steps:
  - id: work
    tool: slow.work
    with: {seconds: "${{ input.seconds }}"}
  - id: more
    tool: slow.work
    with: {seconds: 0}
    needs: [work]
"""

begun = threading.Semaphore(0)
ended_at: dict[str, float] = {}


@tool("slow.work", compensation="slow.undo", compensation_with={})
def work(context: CallContext, seconds: float = 0) -> None:
    """Take a while, however much it is told to end."""
    if seconds:
        begun.release()
        time.sleep(seconds)
        ended_at[context.run_id] = time.monotonic()


@tool("slow.undo", null_safe=True)
def undo() -> None:
    """Undo nothing."""


@pytest.fixture
def project(tmp_path: Path) -> Iterator[Project]:
    """Give a project whose tool takes as long as it is told."""
    while begun.acquire(blocking=False):
        pass
    (tmp_path / "sagas").mkdir()
    (tmp_path / "sagas" / "slow.yaml").write_text(SAGA)
    with open_project(tmp_path, tools=[work, undo]) as opened:
        yield opened


def _press_ctrl_c_when_begun(count: int = 1, *, times: int = 1) -> threading.Thread:
    """Press it when so many calls have begun; again some while later."""

    def press() -> None:
        for _ in range(count):
            assert begun.acquire(timeout=60)
        for number in range(times):
            time.sleep(0.7 if number else 0.1)
            os.kill(os.getpid(), signal.SIGINT)

    thread = threading.Thread(target=press)
    thread.start()
    return thread


def _finish(project: Project, run_ids: list[str]) -> None:
    """Resume runs at once, which needs them to be in nobody's hands."""
    with project.driver() as other:
        for run_id in run_ids:
            other.resume(run_id)
        endings = other.drive()
    assert {endings[run_id].status for run_id in run_ids} == {RunStatus.SUCCEEDED}


def _count(project: Project, run_id: str, kind: type[Intent | Outcome]) -> int:
    return sum(isinstance(stored.record, kind) for stored in project.records(run_id))


def test_ctrl_c_waits_for_calls_and_gives_runs_back(project: Project) -> None:
    """E17: after Ctrl-C out of `drive`, running calls have settled, their answers are kept, and others may resume."""
    slow = project.load("slow")
    with project.driver(Settings(calls_max=4)) as driver:
        run_ids = [driver.start(slow, {"seconds": 2}) for _ in range(6)]
        pressing = _press_ctrl_c_when_begun(4)
        with pytest.raises(KeyboardInterrupt):
            driver.drive()
    left_at = time.monotonic()
    pressing.join()
    assert [run_id for run_id in run_ids if run_id in ended_at] == run_ids[:4]
    assert max(ended_at[run_id] for run_id in run_ids[:4]) <= left_at
    assert [_count(project, run_id, Outcome) for run_id in run_ids] == [1, 1, 1, 1, 0, 0]
    _finish(project, run_ids)
    assert [_count(project, run_id, Intent) for run_id in run_ids] == [2] * 6


def test_ctrl_c_waits_no_longer_than_the_grace(project: Project) -> None:
    """E17: a call that doesn't end in the grace is left in doubt, and the run is given back all the same."""
    with project.driver(Settings(grace_ms=200)) as driver:
        run_id = driver.start(project.load("slow"), {"seconds": 60})
        pressing = _press_ctrl_c_when_begun()
        with pytest.raises(KeyboardInterrupt):
            driver.drive()
    pressing.join()
    assert run_id not in ended_at
    assert project.row(run_id).holder is None


def test_ctrl_c_at_any_moment_leaves_runs_that_can_be_resumed(project: Project) -> None:
    """E2, E15: wherever the signal strikes, log and leases are whole: each call is in the log once, and runs go on."""
    slow = project.load("slow")
    for delay_ms in range(1, 60, 3):
        run_ids: list[str] = []
        timer = threading.Timer(delay_ms / 1000, os.kill, (os.getpid(), signal.SIGINT))
        try:
            with project.driver() as driver:
                run_ids += [driver.start(slow) for _ in range(20)]
                timer.start()
                driver.drive()
                time.sleep(30)  # the signal ends it
        except KeyboardInterrupt:
            pass
        timer.join()
        assert [project.row(run_id).holder for run_id in run_ids] == [None] * 20
        _finish(project, run_ids)


@pytest.mark.parametrize("exception", [SystemExit, KeyboardInterrupt, GeneratorExit])
@pytest.mark.parametrize("is_at_start", [True, False])
def test_exit_in_a_listener_gives_runs_back(
    project: Project, exception: type[BaseException], *, is_at_start: bool
) -> None:
    """What a listener raises to leave comes out of `start` or `drive`, and no run stays in the driver's hands."""

    def leave(committed: Committed) -> None:
        if (committed.first_seq == 1) == is_at_start:
            raise exception

    slow = project.load("slow")

    def drive_three() -> None:
        with project.driver() as driver:
            driver.subscribe(leave)
            for _ in range(3):
                driver.start(slow)
            driver.drive()

    with pytest.raises(exception):
        drive_three()
    rows = project.runs()
    assert rows
    assert [row.holder for row in rows] == [None] * len(rows)
    _finish(project, [row.run_id for row in rows])


def test_exit_of_a_serving_thread_reaches_who_waits(project: Project) -> None:
    """A driver that serves gives its runs back as well, and is whole: it drives again."""

    def leave(committed: Committed) -> None:
        if committed.first_seq > 1 and not left:
            left.append(committed.run_id)
            raise SystemExit

    left: list[str] = []
    with project.driver() as driver:
        driver.subscribe(leave)
        serving = threading.Thread(target=_serve, args=(driver,))
        serving.start()
        run_id = driver.start(project.load("slow"))
        driver.wait(run_id, timeout_seconds=60)
        serving.join(60)
        assert not serving.is_alive()
        driver.resume(run_id)
        assert driver.drive()[run_id].status is RunStatus.SUCCEEDED


def _serve(driver: Driver) -> None:
    with pytest.raises(SystemExit):
        driver.serve()


def test_exit_while_a_run_is_taken_over_gives_it_back(project: Project) -> None:
    """E15: what ends `resume` half-way leaves the run free at once, and the driver whole."""

    def leave(committed: Committed) -> None:
        if not left:
            left.append(committed.run_id)
            raise KeyboardInterrupt

    left: list[str] = []
    with project.driver() as driver:
        run_ids = [driver.start(project.load("slow")) for _ in range(2)]
    with project.driver() as driver:
        driver.subscribe(leave)
        with pytest.raises(KeyboardInterrupt):
            driver.resume(run_ids[0])
        assert project.row(run_ids[0]).holder is None
        driver.resume(run_ids[1])
        assert set(driver.drive()) == {run_ids[1]}
    _finish(project, run_ids[:1])


def test_second_ctrl_c_waits_for_nothing(project: Project) -> None:
    """E15: who won't wait leaves at once; the run stays leased, for its call may still be under way."""
    with project.driver() as driver:
        run_id = driver.start(project.load("slow"), {"seconds": 60})
        pressing = _press_ctrl_c_when_begun(times=2)
        began_at = time.monotonic()
        with pytest.raises(KeyboardInterrupt):
            driver.drive()
        assert time.monotonic() - began_at < 40, "it waited for the call"
    pressing.join()
    assert project.row(run_id).holder is not None
