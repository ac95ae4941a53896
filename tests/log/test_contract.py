"""Every implementation of the log keeps the one contract."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path

import pytest

from sagactl.log.base import Log
from sagactl.log.memory import MemoryLog
from sagactl.log.sqlite import SqliteLog
from tests.log.conftest import Open
from tests.log.contract import LogContract
from tests.log.counts_contract import CountsContract
from tests.log.lease_contract import LeaseContract
from tests.log.outbox_contract import OutboxContract
from tests.log.prune_contract import PruneContract
from tests.log.samples import Time, add, intent, outcome, start


class TestMemory(LogContract, LeaseContract, OutboxContract, PruneContract, CountsContract):
    """The log without a disk."""

    @pytest.fixture
    def log(self, time: Time) -> Log:
        """Return an empty log."""
        return MemoryLog(lease_clock=time.clock())


class TestSqlite(LogContract, LeaseContract, OutboxContract, PruneContract, CountsContract):
    """The log in a file."""

    @pytest.fixture
    def log(self, open_sqlite: Open) -> Log:
        """Return an empty log."""
        return open_sqlite()


def test_times_come_from_the_clock_that_is_given(path: Path) -> None:
    """What a log writes by itself bears the time of the clock that its maker gave, in every implementation."""
    sqlite, memory = SqliteLog(path, clock=lambda: 77), MemoryLog(clock=lambda: 77)
    with closing(sqlite):
        logs: list[Log] = [sqlite, memory]
        for log in logs:
            start(log)
            assert [stored.record.at_ms for stored in log.read("run1")] == [77, 77]


def test_implementations_write_the_same_chain(open_sqlite: Open, time: Time) -> None:
    """The same history has the same hashes wherever it is kept."""
    logs: list[Log] = [open_sqlite(), MemoryLog(lease_clock=time.clock())]
    for log in logs:
        add(log, start(log), intent(), outcome())
    assert list(logs[0].read("run1")) == list(logs[1].read("run1"))
    assert logs[0].row("run1") == logs[1].row("run1")
