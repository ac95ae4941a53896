"""Leases between real processes: races, deaths, and drivers that were stopped."""

from __future__ import annotations

import os
import signal
import time as real_time
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import pytest

from sagactl.core.records import DriverClaimed
from sagactl.errors import BusyError
from sagactl.log.base import LEASE_MS
from sagactl.log.holder import is_dead, this_process
from sagactl.log.leases import LeaseClock, read_boot_ms
from sagactl.log.sqlite import SqliteLog
from tests.log.process import end, launch, listen, tell
from tests.log.samples import batch, intent, new_run

CLAIM = """
log = SqliteLog(path)
say("ready")
sys.stdin.readline()
try:
    log.claim("run1", holder=this_process())
    say("won")
except SagactlError as error:
    say(f"{error.code} {error.message}")
sys.stdin.readline()
log.close()
"""


@pytest.mark.parametrize("attempt", range(3))
def test_of_two_that_claim_at_once_one_wins(path: Path, attempt: int) -> None:
    """B57, C2: two resumers of the same instant: one drives, the other is told who does."""
    with closing(SqliteLog(path)) as log:
        log.create(new_run(), holder=None)
        processes = [launch(path, CLAIM) for _ in range(2)]
        assert [listen(process) for process in processes] == ["ready", "ready"]
        for process in processes:
            tell(process)
        said = [listen(process) for process in processes]
        winner = said.index("won")
        assert said[1 - winner].startswith(f"busy run run1 is driven by process {processes[winner].pid} on ")
        for process in processes:
            tell(process)
            end(process)
        assert [stored.seq for stored in log.read("run1")] == [1, 2]


def test_the_lease_of_a_killed_process_is_void_at_once(path: Path) -> None:
    """E15: after a SIGKILL nobody waits for the lease to run out, even while the dead process is not yet reaped."""
    process = launch(
        path, "log = SqliteLog(path); log.create(new_run(), holder=this_process()); say('up'); time.sleep(60)"
    )
    assert listen(process) == "up"
    with closing(SqliteLog(path)) as log:
        holder = log.row("run1").holder
        assert holder is not None
        assert not is_dead(holder)
        with pytest.raises(BusyError, match=str(process.pid)):
            log.claim("run1", holder=this_process())
        os.kill(process.pid, signal.SIGKILL)
        _wait_until_ended(process.pid)
        assert is_dead(holder)
        assert log.claim("run1", holder=this_process()).fence == 2
        record = list(log.read("run1"))[-1].record
        assert isinstance(record, DriverClaimed)
        assert record.calls_ended
    end(process)
    assert is_dead(holder)


def _wait_until_ended(pid: int) -> None:
    for _ in range(6_000):
        if Path(f"/proc/{pid}/stat").read_text(encoding="ascii").rpartition(")")[2].split()[0] == "Z":
            return
        real_time.sleep(0.01)
    pytest.fail("the process does not end")


def test_a_stopped_driver_loses_its_run_and_can_do_nothing(path: Path) -> None:
    """B59, C1: a driver that was stopped past its lease is taken for possibly calling, and is fenced off."""
    ahead_ms = 0
    clock = LeaseClock(boot_ms=lambda: read_boot_ms() + ahead_ms)
    program = """
log = SqliteLog(path)
lease = log.create(new_run(), holder=this_process()).lease
say("up")
sys.stdin.readline()
say(len(log.append([batch(lease, 2, intent())])))
say(len(log.append([batch(lease, 3, intent())])))
say(len(log.renew([lease])))
log.release([lease])
log.close()
"""
    process = launch(path, program)
    assert listen(process) == "up"
    os.kill(process.pid, signal.SIGSTOP)
    with closing(SqliteLog(path, lease_clock=clock)) as log:
        with pytest.raises(BusyError):
            log.claim("run1", holder=this_process())
        ahead_ms = LEASE_MS
        lease = log.claim("run1", holder=this_process())
        record = list(log.read("run1"))[-1].record
        assert isinstance(record, DriverClaimed)
        assert not record.calls_ended
        os.kill(process.pid, signal.SIGCONT)
        tell(process)
        assert end(process).split() == ["1", "1", "1"]
        assert log.row("run1").seq == 3
        assert log.append([batch(lease, 3, intent())]) == []


def test_one_key_one_run_between_processes(path: Path) -> None:
    """C4: processes that create with one key at the same instant make one run."""
    program = """
say("ready")
sys.stdin.readline()
log = SqliteLog(path)
import os
created = log.create(new_run(f"run{os.getpid()}", key="k"), holder=this_process())
say(f"{created.run_id} {created.is_new}")
log.close()
"""
    processes = [launch(path, program) for _ in range(4)]
    assert [listen(process) for process in processes] == ["ready"] * 4
    for process in processes:
        tell(process)
    said = [end(process).split() for process in processes]
    assert len({run_id for run_id, _ in said}) == 1
    assert sorted(is_new for _, is_new in said) == ["False", "False", "False", "True"]


def test_this_process_is_alive() -> None:
    """E15: a process is told by host, pid, start and boot."""
    me = this_process()
    assert me.pid == os.getpid()
    assert me.started.isdecimal()
    assert me.boot_id
    assert not is_dead(me)


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({"started": "1"}, True),
        ({"boot_id": "another"}, True),
        ({"pid": 2**22 + 1}, True),
        ({"pid": 2**70}, False),
        ({"pid": 1, "started": ""}, False),
        ({"host": "elsewhere", "started": "1", "boot_id": "another"}, False),
        ({"started": ""}, False),
        ({"boot_id": ""}, False),
        ({"boot_id": this_process().boot_id + "/pid:[1]", "pid": 2**22 + 1}, False),
    ],
)
def test_death_is_told_only_when_it_is_certain(changes: dict[str, object], expected: bool) -> None:
    """E15: another start, boot or a free pid on this host is death; another host or pid namespace tells nothing."""
    assert is_dead(replace(this_process(), **changes)) is expected  # type: ignore[arg-type]


def test_the_machine_measures_leases_itself(path: Path) -> None:
    """H53: by default lease time is the host's time since boot, which grows whatever the wall clock does."""
    with closing(SqliteLog(path)) as log:
        log.create(new_run(), holder=replace(this_process(), host="elsewhere"))
        with pytest.raises(BusyError, match="elsewhere"):
            log.claim("run1", holder=this_process())
