"""Every operation on the files of a log fails once, and then from there on: a run stops before its next effect.

A whole run is driven in this process, over the file system of `vfs`; the n-th read, write, sync … of its log fails, for
n = 1, 2, 3 … until a run ends without having met the fault. Then the disk is well again, and the run is resumed with
the system's own SQLite.
"""

from __future__ import annotations

import shutil
import sqlite3
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, closing, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from sagactl import CallContext, Project, Rejected, RunStatus, StorageError, open_project, tool
from sagactl.errors import SagactlError
from sagactl.log.base import RunFilter
from sagactl.log.leases import LeaseClock
from sagactl.log.sqlite import SqliteLog
from sagactl.log.sqlite_open import Connect, connect_plainly
from tests.log.disk.apsw_connection import Connection, Cursor
from tests.log.disk.faults import FAULTS, Breaker, Fault
from tests.log.disk.vfs import WatchedFiles
from tests.proof import Prove

POINTS = "errors of the disk at the n-th operation (VFS)"
AFTER = "calls made after an error of the disk"
COMPOUND = "errors of the disk while recovering from one (VFS)"
SECOND = ("read", "write", "sync")
FIRST_AT = 100
"""Which write fails first: one in the middle of the run."""

RAISED = "commits that raised and were durable all the same"
GOAL = 500

WAYS = ((True, False), (True, True), (False, True))
"""Whether the run rolls back, and whether the disk stays broken until the end of the process."""

SAGA = """
saga: shop
input:
  type: object
  properties: {fails: {type: boolean, default: false}}
steps:
  - {id: one, tool: shop.one}
  - {id: two, tool: shop.two}
  - {id: three, tool: shop.three, with: {fails: "${{ input.fails }}"}}
"""


@dataclass
class World:
    """What the tools have done: calls in order, and effects by key."""

    calls: list[str] = field(default_factory=list)
    effects: dict[str, int] = field(default_factory=dict)

    def act(self, key: str, change: int) -> None:
        """Note a call; its effect comes once for its key."""
        self.calls.append(key)
        self.effects.setdefault(key, change)


world = World()


@tool("shop.one", compensation="shop.undo", compensation_with={})
def one(context: CallContext) -> None:
    """Do something."""
    world.act(context.idempotency_key, 1)


@tool("shop.two", compensation="shop.undo", compensation_with={})
def two(context: CallContext) -> None:
    """Do something."""
    world.act(context.idempotency_key, 1)


@tool("shop.three", compensation="shop.undo", compensation_with={})
def three(context: CallContext, fails: bool) -> None:
    """Do something, or refuse."""
    if fails:
        raise Rejected("no", code="no")
    world.act(context.idempotency_key, 1)


@tool("shop.undo", null_safe=True)
def undo(context: CallContext) -> None:
    """Undo what was done, if it was."""
    world.act(context.idempotency_key, -1 if context.forward_key in world.effects else 0)


@pytest.fixture
def project(quick: Path) -> Iterator[Project]:
    """Return a project whose log the test gives it anew for each fault."""
    (quick / "sagas").mkdir()
    (quick / "sagas" / "shop.yaml").write_text(SAGA)
    with open_project(quick, tools=(one, two, three, undo)) as opened:
        yield opened
        opened._logs.clear()


def give_log(project: Project, log: SqliteLog) -> None:
    """Let a project use this log from now on."""
    project._logs.clear()
    project._logs[False] = log


def drive(project: Project, *, fails: bool) -> StorageError | None:
    """Run the saga, or go on with what there is of it; return what broke it off."""
    try:
        with project.driver() as driver:
            driver.start(project.load("shop"), {"fails": fails}, key="the one")
            driver.drive()
    except StorageError as error:
        return error
    return None


def meet(project: Project, path: Path, breaker: Breaker, *, fails: bool) -> StorageError | None:
    """Run the saga on a disk that fails, and close the log on it as well."""
    files = WatchedFiles(breaker)
    try:
        log = SqliteLog(path, connect=files.connect, busy_ms=1)
    except StorageError as error:
        return error
    give_log(project, log)
    try:
        return drive(project, fails=fails)
    finally:
        log.close()


def recover(
    project: Project, path: Path, *, fails: bool, connect: Connect = connect_plainly, calls_max: int = 2
) -> str:
    """Carry on with a sound disk, or another one, and return what is wrong with the end."""
    clock = LeaseClock(is_dead=lambda _: True)  # as another process finds it: the first one is dead
    with ExitStack() as stack:
        log = SqliteLog(path, lease_clock=clock, connect=connect, busy_ms=1)
        stack.callback(log.close)
        give_log(project, log)
        for run_id in log.unfinished():
            with project.driver() as driver:
                driver.resume(run_id)
                driver.drive()
        if not log.rows(RunFilter())[1]:
            drive(project, fails=fails)
        (row,), _ = log.rows(RunFilter())
        wrong = [finding.problem for finding in log.verify().findings]
    expected = RunStatus.ROLLED_BACK if fails else RunStatus.SUCCEEDED
    if row.status is not expected:
        wrong.append(f"the run ended as {row.status}, cause {row.cause}")
    if sum(world.effects.values()) != (0 if fails else 3):
        wrong.append(f"the effects are {world.effects}")
    if max(world.calls.count(key) for key in world.effects) > calls_max:
        wrong.append(f"one operation was called too often: {world.calls}")
    return "; ".join(wrong)


@pytest.mark.parametrize(("fails", "for_ever"), WAYS, ids=["rolls back, once", "rolls back, from then on", "succeeds"])
@pytest.mark.parametrize("fault", FAULTS, ids=[fault.name for fault in FAULTS])
def test_a_run_survives_each_error_of_its_disk(
    fault: Fault, fails: bool, for_ever: bool, project: Project, prove: Prove
) -> None:
    """E18: nothing is called after the error, it is one of storage, and a resume ends as if nothing had been."""
    points = after = stopped = 0
    for number in range(1, 1_000):
        world.calls, world.effects = [], {}
        breaker = Breaker(fault, number, for_ever, measure=lambda: len(world.calls))
        path = project.config.project / str(number) / "log.db"
        error = meet(project, path, breaker, fails=fails)
        if not breaker.fired:
            assert error is None
            break
        points += 1
        where = f"{breaker.seen[0]}, number {number}"
        if error is not None:
            assert error.exit_code == 1, where
            stopped += 1
            after += len(world.calls) - breaker.at_fire
            assert len(world.calls) == breaker.at_fire, f"{where}: called after it"
        assert recover(project, path, fails=fails) == "", where
    else:
        pytest.fail("the fault fires for ever")
    assert points > 0
    assert stopped > points // 4 or fault.name in {"delete", "busy"}, "most errors are told"
    prove(POINTS, points, goal=GOAL)
    prove(AFTER, after, goal=0)


@pytest.mark.parametrize("second", [fault for fault in FAULTS if fault.name in SECOND], ids=SECOND)
def test_an_error_while_recovering_from_an_error(second: Fault, project: Project, prove: Prove) -> None:
    """F2, E18: a disk fails in mid-run, and again at each third operation of the resume; the next one ends well."""
    first = next(fault for fault in FAULTS if fault.name == "full")
    points = 0
    for number in range(1, 1_000, 3):
        world.calls, world.effects = [], {}
        path = project.config.project / str(number) / "log.db"
        broken = Breaker(first, FIRST_AT, True, measure=lambda: len(world.calls))
        assert meet(project, path, broken, fails=True) is not None
        breaker = Breaker(second, number, True, measure=lambda: len(world.calls))
        try:
            problem = recover(project, path, fails=True, connect=WatchedFiles(breaker).connect)
        except StorageError:
            assert len(world.calls) == breaker.at_fire, breaker.seen[0]
            problem = recover(project, path, fails=True, calls_max=3)
        assert problem == "", breaker.seen
        if not breaker.fired:
            break
        points += 1
    assert points > 0
    prove(COMPOUND, points, goal=40)


def _count_records(path: Path) -> int:
    """Return how many records a log holds, as whoever opens it next finds it."""
    with closing(SqliteLog(path)) as log:
        return log.verify().records


def test_a_commit_that_raised_may_be_durable_and_is_gone_on_with(project: Project, prove: Prove) -> None:
    """E18, L3: the sync of each commit fails, and the process dies at once: what it wrote is there all the same.

    Nothing was called for it. Who goes on reads what the log says, and ends where a run without any fault ends.
    """
    sync = next(fault for fault in FAULTS if fault.name == "sync")
    durable = 0
    for number in range(1, 1_000):
        world.calls, world.effects = [], {}
        path = project.config.project / str(number) / "log.db"
        dead = path.parent.with_name(f"dead{number}") / path.name

        def die(path: Path = path, dead: Path = dead) -> int:
            """Keep the files as the dying process leaves them."""
            shutil.copytree(path.parent, dead.parent)
            return len(world.calls)

        breaker = Breaker(sync, number, False, measure=die)
        error = meet(project, path, breaker, fails=True)
        if not breaker.fired:
            break
        if error is None or not dead.exists() or dead.stat().st_size == 0:
            continue
        assert len(world.calls) == breaker.at_fire
        durable += _count_records(dead) > _count_records(path)
        assert recover(project, dead, fails=True) == "", f"{breaker.seen[0]}, number {number}"
    prove(RAISED, durable, goal=5)
    assert durable >= 5


class _Forgetful(Connection):
    """A connection that takes a failing COMMIT for done: the mistake that this suite is there to find."""

    def execute(self, sql: str, values: Sequence[Any] = ()) -> Cursor:
        if sql != "COMMIT":
            return super().execute(sql, values)
        with suppress(sqlite3.Error):
            return super().execute(sql, values)
        return Cursor([], 0, [])


@pytest.mark.parametrize("number", [4, 5])
def test_a_log_that_passes_over_errors_is_found_out(number: int, quick: Path, project: Project) -> None:
    """V0: with a log that takes failing commits for done the same fault is followed by a call, and that is noticed."""
    world.calls, world.effects = [], {}
    sync = next(fault for fault in FAULTS if fault.name == "sync")
    breaker = Breaker(sync, number, for_ever=True, measure=lambda: len(world.calls), is_over=True)
    files = WatchedFiles(breaker)

    def connect(uri: str, timeout_seconds: float) -> Any:
        return _Forgetful(f"{uri}&vfs={files.name}", timeout_seconds)

    log = SqliteLog(quick / "log.db", connect=connect)
    breaker.is_over = False
    give_log(project, log)
    with suppress(SagactlError):
        drive(project, fails=False)
    log.close()
    assert breaker.fired
    assert len(world.calls) > breaker.at_fire
