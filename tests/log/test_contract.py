"""Every implementation of the log keeps the one contract."""

from __future__ import annotations

import pytest

from sagactl.log.base import Log
from sagactl.log.memory import MemoryLog
from tests.log.conftest import Open
from tests.log.contract import LogContract
from tests.log.samples import Time


class TestMemory(LogContract):
    """The log without a disk."""

    @pytest.fixture
    def log(self, time: Time) -> Log:
        """Return an empty log."""
        return MemoryLog(clock=time.clock())


class TestSqlite(LogContract):
    """The log in a file."""

    @pytest.fixture
    def log(self, open_sqlite: Open) -> Log:
        """Return an empty log."""
        return open_sqlite()
