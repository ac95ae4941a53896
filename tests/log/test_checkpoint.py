"""Checkpoints never meet a write, keep the WAL short, and wait for nobody they must not wait for."""

from __future__ import annotations

import sqlite3
import subprocess
from contextlib import closing
from itertools import pairwise
from pathlib import Path

from sagactl.errors import StorageError
from sagactl.log.base import RunFilter
from sagactl.log.checkpoint import CHECKPOINT_BYTES, Checkpointer
from sagactl.log.gate import Gate, Witness
from sagactl.log.sqlite import SqliteLog
from tests.log.conftest import Open
from tests.log.process import end, launch, listen, tell
from tests.log.samples import add, intent, outcome, start

SMALL = 64 * 1024


def wal_bytes(path: Path) -> int:
    """Return the size of a log's WAL."""
    return path.with_name("log.db-wal").stat().st_size


def small(path: Path) -> Checkpointer:
    """Return a checkpointer that works early."""
    return Checkpointer(path, checkpoint_bytes=SMALL, wal_bytes_max=4 * SMALL, look_commits=1)


def test_the_wal_stays_short(open_sqlite: Open, path: Path) -> None:
    """The WAL is copied back whenever it has grown to its limit, whatever is written."""
    log = open_sqlite(checkpointer=small(path))
    lease = start(log)
    sizes = []
    for _ in range(60):
        add(log, lease, outcome(output="x" * 8_000))
        sizes.append(wal_bytes(path))
    assert SMALL < max(sizes) < 2 * SMALL
    assert sum(size == before for before, size in pairwise(sizes)) > 30  # it is written over and hardly grows
    assert log.verify().findings == ()


def test_a_reader_that_stays_delays_nothing(open_sqlite: Open, path: Path) -> None:
    """While a foreign reader keeps its snapshot the WAL grows and commits go on; it is cut when the reader has gone."""
    log = open_sqlite(checkpointer=small(path))
    lease = start(log)
    with closing(sqlite3.connect(path, isolation_level=None)) as reader:
        reader.execute("BEGIN")
        reader.execute("SELECT count(*) FROM records").fetchone()
        for _ in range(20):
            add(log, lease, outcome(output="x" * 8_000))
        assert wal_bytes(path) > 2 * SMALL
        assert reader.execute("SELECT count(*) FROM records").fetchone() == (2,)
        reader.execute("COMMIT")
    for _ in range(12):
        add(log, lease, outcome(output="x" * 8_000))
    assert wal_bytes(path) < 2 * SMALL


def test_our_own_readers_hold_nothing(open_sqlite: Open, path: Path) -> None:
    """A reader of ours that stops in the middle of a run keeps no snapshot, so no checkpoint waits for it."""
    log, follower = open_sqlite(checkpointer=small(path)), open_sqlite()
    lease = start(log)
    add(log, lease, *[outcome(at_ms=n) for n in range(1_500)])
    records = follower.read("run1")
    assert next(records).seq == 1
    for _ in range(30):
        add(log, lease, outcome(output="x" * 8_000))
    assert wal_bytes(path) < 2 * SMALL
    assert [stored.seq for stored in records] == list(range(2, 1_533))


def test_closing_leaves_no_wal(path: Path) -> None:
    """The last one to close a log leaves one file with everything in it, and the gate."""
    one, other = SqliteLog(path), SqliteLog(path)
    lease = start(one)
    one.close()
    assert path.with_name("log.db-wal").exists()
    add(other, lease, intent())
    other.close()
    assert sorted(each.name for each in path.parent.iterdir()) == ["log.db", "log.db-gate"]


def test_the_default_limit_is_in_use(path: Path) -> None:
    """A log that is opened plainly has the documented limit."""
    with closing(SqliteLog(path)) as log:
        assert log._writer is not None
        assert log._writer._checkpointer.due_bytes == CHECKPOINT_BYTES == 4 * 1024 * 1024


STRESS = """
import os
from sagactl.log.checkpoint import Checkpointer
log = SqliteLog(path, checkpointer=Checkpointer(path, checkpoint_bytes=32 * 1024, wal_bytes_max=64 * 1024))
run = f"run{os.getpid()}"
lease = start(log, run)
say("ready"); sys.stdin.readline()
for n in range(150):
    add(log, lease, intent(), outcome(output="x" * (n * 37 % 3000)))
    if n % 50 == 49:
        log.close()
        log = SqliteLog(path, checkpointer=Checkpointer(path, checkpoint_bytes=32 * 1024, wal_bytes_max=64 * 1024))
say(log.row(run).seq)
log.close()
"""


def test_writers_and_checkpoints_of_several_processes(path: Path) -> None:
    """The WAL race of old SQLite has no room: several processes write while others run checkpoints, all is sound."""
    processes: list[subprocess.Popen[str]] = [launch(path, STRESS) for _ in range(4)]
    assert [listen(process) for process in processes] == ["ready"] * 4
    for process in processes:
        tell(process)
    with closing(SqliteLog(path)) as log:
        while any(process.poll() is None for process in processes):
            log.rows(RunFilter())
            assert log.verify().findings == ()
        assert [end(process) for process in processes] == ["302"] * 4
        found = log.verify()
        assert (found.runs, found.records, found.findings) == (4, 4 * 302, ())
    with closing(sqlite3.connect(path)) as connection:
        assert connection.execute("PRAGMA integrity_check").fetchall() == [("ok",)]


def test_nothing_checkpoints_outside_the_gate(open_sqlite: Open, path: Path) -> None:
    """A checkpoint runs only while its process has the gate for itself."""
    log = open_sqlite(checkpointer=small(path))
    gate = Gate(path, timeout_seconds=0.0)
    seen: list[bool] = []

    def watch(statement: str) -> None:
        if "wal_checkpoint" in statement or statement == "COMMIT":
            seen.append(is_free(gate))

    assert log._writer is not None
    log._writer._connected().set_trace_callback(watch)
    lease = start(log)
    for _ in range(20):
        add(log, lease, outcome(output="x" * 8_000))
    log._writer._connected().set_trace_callback(None)
    gate.close()
    assert len(seen) > 20
    assert not any(seen)


def is_free(gate: Gate) -> bool:
    """Tell whether the gate can be entered now."""
    try:
        gate.enter()
    except StorageError:
        return False
    gate.leave()
    return True


def test_the_gate_survives_its_file(path: Path) -> None:
    """When somebody deletes the gate's file, those who come later and those who have it open meet at a new one."""
    path.parent.mkdir()
    one, other = Gate(path, timeout_seconds=0.0), Gate(path, timeout_seconds=0.0)
    one.path.unlink()
    one.enter()
    assert not is_free(other)
    one.leave()
    assert is_free(other)
    one.close()
    other.close()


def test_the_witness_is_read_back(path: Path) -> None:
    """What the gate took down is read back, and anything else in its file is no witness."""
    path.parent.mkdir()
    gate = Gate(path, timeout_seconds=0.0)
    assert gate.read_witness() is None
    for witness in (Witness("a" * 32), Witness("a" * 32, "run1", 12, "b" * 64), Witness("c" * 32)):
        gate.write_witness(witness)
        assert gate.read_witness() == witness
    gate.write_witness(Witness("a" * 32, "odd run", 12, "b" * 64))
    assert gate.read_witness() == Witness("c" * 32)
    for content in (b"", b"\xff" * 600, b"sagactl-gate-1", b"sagactl-gate-1 a b c d", b"other a b 1 d"):
        gate.path.write_bytes(content)
        assert gate.read_witness() is None
    gate.close()
