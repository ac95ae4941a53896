"""Reading while others change the log: a pruned run is gone, and never taken for damage."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable
from contextlib import closing
from functools import partial
from pathlib import Path
from typing import TypeVar

import pytest

from sagactl.core.records import RunStatus
from sagactl.errors import PrunedError
from sagactl.log.gate import Witness
from sagactl.log.sqlite import SqliteLog
from sagactl.log.sqlite_read import read_records
from sagactl.log.sqlite_reading import ReadingStore, Store
from sagactl.log.verify import verify_store
from tests.log.conftest import Open
from tests.log.samples import Time, add, ended, intent, outcome, start

T = TypeVar("T")


class Meanwhile:
    """A store before whose n-th reading something happens."""

    def __init__(self, store: Store, turn: int, action: Callable[[], object]) -> None:
        self._store = store
        self._left = turn
        self._action = action

    def read(self, query: Callable[[sqlite3.Connection], T]) -> T:
        """Read, after what was to happen before."""
        self._left -= 1
        if self._left == 0:
            self._action()
        return self._store.read(query)

    @property
    def has_happened(self) -> bool:
        """Tell whether its turn has come."""
        return self._left <= 0

    def witness(self) -> Witness | None:
        """Return what the gate saw of the log last."""
        return self._store.witness()

    def close(self) -> None:
        """Close the store."""
        self._store.close()


def fill(log: SqliteLog) -> None:
    """Make two runs at their end and one under way."""
    for run_id in ("run1", "run2"):
        lease = start(log, run_id)
        add(log, lease, intent(), outcome(), ended(), status=RunStatus.SUCCEEDED)
        log.release([lease])
    add(log, start(log, "run3"), intent())


TURNS_MAX = 40


@pytest.mark.parametrize("only", [None, "run1"])
def test_a_run_that_is_pruned_while_it_is_verified_is_no_finding(only: str | None, path: Path, time: Time) -> None:
    """L7, N10: whenever a run goes, verify has read it before, or finds its tombstone, and says nothing of damage."""
    gone = 0
    for turn in range(1, TURNS_MAX):
        place = path.with_name(f"log{turn}.db")
        with closing(SqliteLog(place, lease_clock=time.clock())) as log:
            fill(log)
            store = Meanwhile(ReadingStore(place), turn, partial(log.prune, ["run1"], pruned_by="ada"))
            with closing(store):
                try:
                    found = verify_store(store, only)
                except PrunedError:
                    assert only is not None
                    gone += 1
                else:
                    assert found.findings == ()
                    gone += found.runs < 3 and only is None
            if not store.has_happened:
                break
            assert [each.run_id for each in log.pruned("run1")] == ["run1"]
    assert turn < TURNS_MAX - 1
    assert gone > 1


@pytest.mark.parametrize("turn", range(1, 6))
def test_a_run_that_is_pruned_while_it_is_read_is_gone_or_whole(turn: int, open_sqlite: Open, path: Path) -> None:
    """N10: a reader gets all records, or is told that the run was pruned."""
    log = open_sqlite()
    fill(log)
    with closing(Meanwhile(ReadingStore(path), turn, lambda: log.prune(["run1"], pruned_by="ada"))) as store:
        try:
            read = [each.seq for each in read_records(store, "run1", 0)]
        except PrunedError:
            assert store.has_happened
        else:
            assert read == [1, 2, 3, 4, 5]


def test_a_log_that_is_set_back_under_an_open_reader_is_a_finding(open_sqlite: Open, path: Path) -> None:
    """L7, H59: the witness tells it to whoever verifies, also where the log was opened before."""
    log = open_sqlite()
    fill(log)
    assert log.verify().findings == ()
    with closing(sqlite3.connect(path)) as connection:
        connection.execute("DELETE FROM records WHERE run_id = 'run3' AND seq = 3")
        connection.execute(
            "UPDATE runs SET seq = 2, head = (SELECT hash FROM records WHERE run_id = 'run3' AND seq = 2)"
            " WHERE run_id = 'run3'"
        )
        connection.commit()
    told = [("run3", 3, "record 3 was durable, and is gone or another one")]
    assert [(each.run_id, each.seq, each.problem) for each in log.verify().findings] == told
    assert [(each.run_id, each.seq, each.problem) for each in log.verify("run3").findings] == told
    assert log.verify("run1").findings == ()


def test_a_tombstone_that_is_taken_away_under_an_open_reader_is_a_finding(open_sqlite: Open, path: Path) -> None:
    """L7, N10: that a run was pruned can't be undone unnoticed."""
    log = open_sqlite()
    fill(log)
    log.prune(["run1"], pruned_by="ada")
    assert log.verify().findings == ()
    with closing(sqlite3.connect(path)) as connection:
        connection.execute("DELETE FROM tombstones")
        connection.execute("DELETE FROM meta WHERE name = 'tombstones'")
        connection.commit()
    assert [each.problem for each in log.verify().findings] == ["tombstone 1 was durable, and is gone or another one"]


def test_ids_that_are_no_text_mean_nothing(open_sqlite: Open) -> None:
    """H57: what can't stand in the log is found nowhere in it, and breaks no query."""
    log = open_sqlite()
    fill(log)
    odd = "\udcff"
    assert log.dead_letters(run_id=odd) == []
    assert log.captured(odd) == []
    assert log.pruned(odd) == []
    assert log.find(odd) == []
