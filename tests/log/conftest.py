"""Fixtures of the tests of the log."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from sagactl.log.sqlite import SqliteLog
from tests.log.samples import Time

pytest.register_assert_rewrite(
    "tests.log.contract",
    "tests.log.counts_contract",
    "tests.log.prune_contract",
    "tests.log.lease_contract",
    "tests.log.outbox_contract",
)

Open = Callable[..., SqliteLog]


@pytest.fixture
def time() -> Time:
    """Return a clock that stands until a test moves it."""
    return Time()


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """Return where the log of a test lies."""
    return tmp_path / "state" / "log.db"


@pytest.fixture
def open_sqlite(path: Path, time: Time) -> Iterator[Open]:
    """Return what opens the log of a test; all are closed at its end."""
    logs: list[SqliteLog] = []

    def open_one(**settings: object) -> SqliteLog:
        log = SqliteLog(path, **{"lease_clock": time.clock(), **settings})  # type: ignore[arg-type]
        logs.append(log)
        return log

    yield open_one
    for log in logs:
        log.close()
