"""Deleting runs from a log in a file: what is noticed afterwards, what a crash leaves, where the space goes."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import pytest

from sagactl.core.records import RunStatus
from sagactl.errors import DamagedLogError, PrunedError, StorageError
from sagactl.log.base import Log
from sagactl.log.gate import Gate, Witness
from sagactl.log.memory import MemoryLog
from sagactl.log.open import open_log
from sagactl.log.pruning import PRUNED_RECORDS_MAX, PRUNED_RUNS_MAX, TOMBSTONES, split_runs
from sagactl.log.sqlite import SqliteLog
from tests.log.faults import Faults
from tests.log.prune_contract import finish
from tests.log.samples import Time, add, ended, intent, start
from tests.log.test_verify import tampering, verify


@pytest.fixture
def pruned(path: Path) -> Path:
    """Return a log with one run, in which three others were pruned, closed."""
    with closing(SqliteLog(path, lease_clock=Time().clock())) as log:
        start(log)
        for run_id in ("old1", "old2", "old3"):
            finish(log, run_id, key=run_id)
        log.prune(["old1", "old2", "old3"], pruned_by="ada")
    return path


@pytest.mark.parametrize(
    "change",
    [
        "DELETE FROM tombstones WHERE number = 2",
        "DELETE FROM tombstones WHERE number = 3",
        "DELETE FROM tombstones",
        "UPDATE tombstones SET number = 4 WHERE number = 3",
        "UPDATE tombstones SET status = 'rolled_back' WHERE number = 1",
        "UPDATE tombstones SET status = 'dancing' WHERE number = 1",
        "UPDATE tombstones SET key_digest = NULL WHERE number = 2",
        "UPDATE tombstones SET pruned_by = 'eve' WHERE number = 3",
        "UPDATE tombstones SET head = 'x' WHERE number = 3",
        "UPDATE tombstones SET run_id = 'run1' WHERE number = 3",
        "DELETE FROM meta WHERE name = 'tombstones'",
        "UPDATE meta SET value = 'x' WHERE name = 'tombstones'",
    ],
)
def test_a_tombstone_that_was_changed_or_removed_is_noticed(pruned: Path, change: str) -> None:
    """L1: tombstones are a chain, and how many there are stands apart from them."""
    assert verify(pruned).findings == ()
    with tampering(pruned) as connection:
        connection.execute(change)
    assert any(not finding.run_id for finding in verify(pruned).findings)


def test_a_memory_log_notices_as_well(time: Time) -> None:
    """The log without a disk has the same chain of tombstones."""
    log: Log = MemoryLog(lease_clock=time.clock())
    for run_id in ("old1", "old2"):
        finish(log, run_id)
    log.prune(["old1", "old2"], pruned_by="ada")
    assert isinstance(log, MemoryLog)
    del log._tombstones[0]
    assert [finding.problem for finding in log.verify().findings] == ["tombstone 1 is missing"]


def _witness(path: Path) -> Witness:
    with closing(Gate(path, timeout_seconds=0.0)) as gate:
        witness = gate.read_witness()
    assert witness is not None
    return witness


def test_the_witness_names_the_newest_tombstone(pruned: Path) -> None:
    """L7: after a prune the log can't be set back behind it, nor behind what was written before it."""
    assert _witness(pruned)[1:3] == (TOMBSTONES, 3)
    copy = pruned.read_bytes()
    with closing(open_log(pruned)) as log:
        assert log.verify().findings == ()
        finish(log, "old4")
        log.prune(["old4"], pruned_by="ada")
    pruned.write_bytes(copy)
    for read_only in (True, False):
        with pytest.raises(DamagedLogError, match="older copy"):
            open_log(pruned, read_only=read_only)


def test_a_crash_before_the_witness_is_written_leaves_a_good_log(path: Path) -> None:
    """E18: the witness of a run that was pruned in the very next moment is satisfied by the run's tombstone."""
    with closing(SqliteLog(path, lease_clock=Time().clock())) as log:
        finish(log, "old1")
        before = _witness(path)
        log.prune(["old1"], pruned_by="ada")
    with closing(Gate(path, timeout_seconds=0.0)) as gate:
        gate.write_witness(before)  # as a kill between the commit and the witness leaves it
    for read_only in (True, False):
        with closing(open_log(path, read_only=read_only)) as log:
            assert log.verify().findings == ()
            with pytest.raises(PrunedError):
                log.row("old1")
    with closing(Gate(path, timeout_seconds=0.0)) as gate:
        gate.write_witness(before._replace(hash="f" * 64))
    with pytest.raises(DamagedLogError, match="older copy"):
        open_log(path)


@pytest.mark.parametrize("is_durable", [True, False])
def test_a_prune_whose_commit_raised_is_looked_for(path: Path, is_durable: bool) -> None:
    """E18: after an error of COMMIT the log is asked for the last tombstone, and says whether the runs are gone."""
    faults = Faults()
    with closing(SqliteLog(path, lease_clock=Time().clock(), connect=faults.connect)) as log:
        finish(log, "old1")
        (faults.after if is_durable else faults.before)["COMMIT"] = sqlite3.SQLITE_IOERR
        with pytest.raises(StorageError) as caught:
            log.prune(["old1"], pruned_by="ada")
        assert caught.value.durable is is_durable
        assert len(log.pruned("old1")) == is_durable
        assert log.verify().findings == ()


def test_the_space_is_given_back_and_nothing_is_left_in_the_file(path: Path) -> None:
    """H60: the file shrinks, in bounded steps, and what was pruned stands nowhere in it any more."""
    with closing(SqliteLog(path, lease_clock=Time().clock())) as log:
        start(log)
        lease = start(log, "old1", input={"name": "Ada Lovelace" * 20_000})
        add(log, lease, intent(arguments={"name": "Ada Lovelace" * 20_000}))
        add(log, lease, ended(), status=RunStatus.SUCCEEDED)
        log.release([lease])
        log.prune(["old1"], pruned_by="ada")
        given = 0
        while freed := log.give_back():
            given += freed
        assert given > 400_000
        assert path.stat().st_size < 200_000
        assert log.verify().findings == ()
    assert b"Lovelace" not in path.read_bytes()
    with closing(sqlite3.connect(path)) as connection:
        assert connection.execute("PRAGMA freelist_count").fetchone() == (0,)


def test_a_reader_of_a_run_that_is_pruned_meanwhile_is_told(path: Path, time: Time) -> None:
    """A run that goes away between two pages isn't taken for a damaged log."""
    with (
        closing(SqliteLog(path, lease_clock=time.clock())) as log,
        closing(SqliteLog(path, lease_clock=time.clock())) as other,
    ):
        finish(log, "old1")
        reading = log.read("old1")
        original = log._store.read
        seen: list[object] = []

        def read_after_pruning(query: Callable[[sqlite3.Connection], object]) -> object:
            seen.append(query)
            if len(seen) == 2:
                other.prune(["old1"], pruned_by="ada")
            return original(query)

        log._store.read = read_after_pruning  # type: ignore[method-assign, assignment]
        with pytest.raises(PrunedError):
            list(reading)


def test_one_transaction_is_bounded() -> None:
    """Limits: at most so many runs and records go at once; a longer run goes alone."""
    log = MemoryLog()
    finish(log)
    row = log.row("run1")
    many = [replace(row, run_id=f"r{number}") for number in range(PRUNED_RUNS_MAX + 1)]
    assert [len(portion) for portion in split_runs(many)] == [PRUNED_RUNS_MAX, 1]
    long = [replace(row, seq=PRUNED_RECORDS_MAX + 1), row, replace(row, seq=PRUNED_RECORDS_MAX), row]
    assert [len(portion) for portion in split_runs(long)] == [1, 1, 1, 1]
    assert list(split_runs([])) == []
