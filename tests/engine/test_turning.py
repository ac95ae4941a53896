"""Who turns the loop: quick calls take it along, slow ones never hold it up, and it always comes back."""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Sequence

import pytest

from sagactl.core.answer import Answer
from sagactl.core.records import RunStatus
from sagactl.core.saga import Step
from sagactl.engine.dispatch import QUICK_SECONDS
from sagactl.engine.driver import CALLS_IN_A_ROW_MAX
from sagactl.engine.settings import Committed
from sagactl.errors import StorageError
from sagactl.log.base import Batch
from sagactl.log.memory import MemoryLog
from sagactl.tools.base import Invocation
from tests.engine.fakes import DONE, FakeToolbox, WatchedLog, after, make_driver, make_new_run, make_saga, make_step


def _chain(length: int, *, tool: str = "do") -> tuple[Step, ...]:
    return tuple(make_step(f"s{n}", (f"s{n - 1}",) if n else (), tool=tool) for n in range(length))


def test_a_chain_of_quick_calls_changes_no_thread() -> None:
    """E2: who is alone commits and calls on one thread; no tool ever runs on the thread that called `drive`."""
    threads: list[int] = []
    saga = make_saga(*_chain(20))
    toolbox = FakeToolbox({"do": after(lambda: threads.append(threading.get_ident()))})
    for _ in range(20):  # a pause of the machine makes a call look slow, and the next is made elsewhere
        threads.clear()
        driver = make_driver(MemoryLog(), saga, toolbox)
        driver.create(make_new_run(saga), saga)
        assert driver.drive()["run1"].status is RunStatus.SUCCEEDED
        assert len(threads) == 20
        assert threading.get_ident() not in threads
        if len(set(threads)) <= 3:
            break
    assert len(set(threads)) <= 3


def test_a_call_that_turns_out_slow_holds_nobody_up() -> None:
    """E14: a tool that was quick until now hangs; other runs, deadlines and requests go on meanwhile."""
    hangs, release = threading.Event(), threading.Event()

    def moody(invocation: Invocation) -> Answer:
        if invocation.run_id == "slow" and invocation.operation.step == "s3":
            hangs.set()
            release.wait(60)
        return DONE

    saga = make_saga(*_chain(5, tool="moody"))
    driver = make_driver(MemoryLog(), saga, FakeToolbox({"moody": moody}))
    ended: list[str] = []

    def listen(committed: Committed) -> None:
        if committed.state.ended is not None:
            ended.append(committed.run_id)
            if committed.run_id == "later":
                release.set()

    driver.subscribe(listen)
    driver.create(make_new_run(saga, "slow"), saga)

    def add_late() -> None:
        driver.create(make_new_run(saga, "later"), saga)

    def come_late() -> None:
        hangs.wait(60)
        driver.post(add_late)

    late = threading.Thread(target=come_late)
    late.start()
    endings = driver.drive()
    late.join()
    assert ended == ["later", "slow"]
    assert {ending.status for ending in endings.values()} == {RunStatus.SUCCEEDED}


def test_what_ends_the_loop_on_a_worker_reaches_the_caller_of_drive() -> None:
    """E18: storage trouble is raised where `drive` was called, whichever thread met it."""

    def fail_late(_: Sequence[Batch]) -> None:
        if len(log.commits) == 5:
            raise StorageError("disk full")

    saga = make_saga(*_chain(10))
    log = WatchedLog(MemoryLog(), fail_late)
    toolbox = FakeToolbox({"do": lambda _: DONE})
    driver = make_driver(log, saga, toolbox)
    driver.create(make_new_run(saga), saga)
    with pytest.raises(StorageError):
        driver.drive()
    assert len(toolbox.begun()) == 5


@pytest.mark.parametrize("at_call", [1, 6])
def test_ctrl_c_in_a_program_without_handlers_stops_between_two_turns(at_call: int) -> None:
    """E17: KeyboardInterrupt comes out of `drive`, is no tool's outcome, and nothing is called after it."""

    def press(_: Invocation) -> Answer:
        if len(toolbox.begun()) == at_call:
            signal.pthread_kill(threading.main_thread().ident or 0, signal.SIGINT)
            time.sleep(0.02)
        return DONE

    saga = make_saga(*_chain(2_000))
    toolbox = FakeToolbox({"do": press})
    log = MemoryLog()
    driver = make_driver(log, saga, toolbox)
    driver.create(make_new_run(saga), saga)
    with pytest.raises(KeyboardInterrupt):
        driver.drive()
    count = len(toolbox.begun())
    time.sleep(0.1)
    assert at_call <= len(toolbox.begun()) == count < 2_000
    assert log.row("run1").status is RunStatus.RUNNING


def test_a_listener_may_use_the_driver_on_whatever_thread_it_is_called() -> None:
    """A listener is on the thread that turns the loop; a tool, even on that thread, is not."""
    seen: dict[str, set[bool]] = {"listener": set(), "tool": set()}
    saga = make_saga(*_chain(10))
    toolbox = FakeToolbox({"do": after(lambda: seen["tool"].add(driver.is_turned_here))})
    driver = make_driver(MemoryLog(), saga, toolbox)
    driver.create(make_new_run(saga), saga)
    driver.subscribe(lambda _: seen["listener"].add(driver.is_turned_here))
    driver.drive()
    assert seen == {"listener": {True}, "tool": {False}}
    assert not driver.is_turned_here


def test_a_run_that_has_begun_goes_on_before_others_begin_but_not_for_ever() -> None:
    """Few runs are half-way at once; one with very many calls lets the others have their turn."""
    saga = make_saga(*_chain(CALLS_IN_A_ROW_MAX + 8))
    toolbox = FakeToolbox({"do": lambda _: DONE})
    driver = make_driver(MemoryLog(), saga, toolbox, calls_max=1)
    for name in ("a", "b"):
        driver.create(make_new_run(saga, name), saga)
    driver.drive()
    runs = [invocation.run_id for what, invocation in toolbox.calls if what == "begin"]
    assert runs[:CALLS_IN_A_ROW_MAX] == ["a"] * CALLS_IN_A_ROW_MAX
    assert "b" in runs[CALLS_IN_A_ROW_MAX : CALLS_IN_A_ROW_MAX + 2]
    assert runs[-1] == "b" or runs[-8:] == ["a"] * 8


def test_a_slow_tool_has_a_thread_of_its_own() -> None:
    """What its last call took tells where the next is made: two slow calls of two runs overlap."""
    together = threading.Barrier(2, timeout=60)
    pause = after(lambda: time.sleep(3 * QUICK_SECONDS))

    def meet(invocation: Invocation) -> Answer:
        if invocation.operation.step == "s1":
            together.wait()
        return pause(invocation)  # type: ignore[return-value]

    saga = make_saga(*_chain(2, tool="meet"))
    driver = make_driver(MemoryLog(), saga, FakeToolbox({"meet": meet}))
    for name in ("a", "b"):
        driver.create(make_new_run(saga, name), saga)
    assert {ending.status for ending in driver.drive().values()} == {RunStatus.SUCCEEDED}


def test_drivers_of_a_process_share_their_threads() -> None:
    """A service that drives again and again makes no thread each time, and a fork begins with none."""
    saga = make_saga(*_chain(3))
    for _ in range(5):
        driver = make_driver(MemoryLog(), saga, FakeToolbox({"do": lambda _: DONE}))
        driver.create(make_new_run(saga), saga)
        assert driver.drive()["run1"].status is RunStatus.SUCCEEDED
        time.sleep(0.02)
    names = [thread.name for thread in threading.enumerate() if thread.name.startswith("sagactl-call")]
    before = len(names)
    for _ in range(20):
        driver = make_driver(MemoryLog(), saga, FakeToolbox({"do": lambda _: DONE}))
        driver.create(make_new_run(saga), saga)
        driver.drive()
    after = [thread.name for thread in threading.enumerate() if thread.name.startswith("sagactl-call")]
    assert len(after) < before + 10, "a pause of the machine may need one more, but not each drive"
    child = os.fork()
    if child == 0:
        again = make_driver(MemoryLog(), saga, FakeToolbox({"do": lambda _: DONE}))
        again.create(make_new_run(saga), saga)
        os._exit(0 if again.drive()["run1"].status is RunStatus.SUCCEEDED else 1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
