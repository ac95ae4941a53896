"""What the log does when it is locked, full, failing, or killed."""

from __future__ import annotations

import signal
import sqlite3
import threading
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import pytest

from sagactl.driving.driver import _name_runs
from sagactl.errors import InternalError, StorageError
from sagactl.log.base import Lease
from sagactl.log.sqlite import SqliteLog
from tests.log.conftest import Open
from tests.log.faults import Faults
from tests.log.process import end, launch, listen
from tests.log.samples import HOLDER, add, batch, intent, new_run, outcome, request, start


@contextmanager
def locked(path: Path) -> Iterator[sqlite3.Connection]:
    """Keep the database locked from another connection until the block ends."""
    with closing(sqlite3.connect(path, isolation_level=None, check_same_thread=False)) as connection:
        connection.execute("BEGIN IMMEDIATE")
        yield connection


def test_a_writer_waits_for_another_one(open_sqlite: Open, path: Path) -> None:
    """B61: a log that is locked for a while is waited for."""
    log = open_sqlite()
    lease = start(log)
    is_free = threading.Event()
    with locked(path) as connection:

        def let_go() -> None:
            is_free.set()
            connection.execute("ROLLBACK")

        timer = threading.Timer(1.5, let_go)
        timer.start()
        add(log, lease, intent())
        assert is_free.is_set(), "it was written while the log was locked"
        timer.join()
    assert log.row("run1").seq == 3


def test_a_log_that_stays_locked_is_an_error(open_sqlite: Open, path: Path) -> None:
    """B61, E18: a log that is locked for too long is a storage error with a hint, nothing is written, it goes on."""
    log = open_sqlite(busy_ms=200)
    lease = start(log)
    with locked(path), pytest.raises(StorageError, match="locked") as caught:
        add(log, lease, intent())
    assert (caught.value.code, caught.value.durable) == ("locked", False)
    assert caught.value.hint
    assert log.row("run1").seq == 2
    add(log, lease, intent())


def test_a_process_that_was_stopped_inside_the_gate_is_no_hang(path: Path) -> None:
    """B61: who holds the gate and doesn't go on makes others fail with an error after their time."""
    program = """
import fcntl, os
descriptor = os.open(f"{path}-gate", os.O_RDWR)
fcntl.flock(descriptor, fcntl.LOCK_EX)
say("in"); time.sleep(60)
"""
    with closing(SqliteLog(path, busy_ms=200)) as log:
        lease = start(log)
        process = launch(path, program)
        assert listen(process) == "in"
        process.send_signal(signal.SIGSTOP)
        with pytest.raises(StorageError, match="locked"):
            add(log, lease, intent())
        assert log.row("run1").seq == 2
        process.kill()
        end(process)
        add(log, lease, intent())


def fill(log: SqliteLog, lease: Lease, after_seq: int) -> StorageError | None:
    """Append some kilobytes, and return the error if there is one."""
    try:
        log.append([batch(lease, after_seq, outcome(output="x" * 5_000), intent())])
    except StorageError as error:
        return error
    return None


def test_a_full_disk_is_an_error_and_nothing_is_lost(path: Path) -> None:
    """B63, E18: on a full disk a batch is refused as a whole; all that was acknowledged is there."""

    def connect(uri: str, seconds: float) -> sqlite3.Connection:
        connection = sqlite3.connect(uri, uri=True, timeout=seconds, isolation_level=None, check_same_thread=False)
        connection.execute("PRAGMA max_page_count = 60")
        return connection

    with closing(SqliteLog(path, connect=connect)) as log:
        lease = start(log)
        done = 2
        while (error := fill(log, lease, done)) is None:
            done += 2
        assert (error.code, error.durable) == ("disk-full", False)
        assert str(error.hint).endswith("free some space on its disk, then type the same again"), (
            "a request is lost too"
        )
        assert log.row("run1").seq == done > 10
        assert log.verify().findings == ()
    with closing(SqliteLog(path)) as log:
        add(log, lease, outcome(output="x" * 5_000))


def test_a_write_that_fails_at_the_commit_is_an_error(path: Path) -> None:
    """E18: when the file can't grow at the commit, the error says that nothing was written, and the log goes on."""
    program = """
import resource
log = SqliteLog(path)
lease = start(log)
done, hard = 2, resource.getrlimit(resource.RLIMIT_FSIZE)[1]
resource.setrlimit(resource.RLIMIT_FSIZE, (200_000, hard))
try:
    for _ in range(1000):
        log.append([batch(lease, done, outcome(output="x" * 5000), intent())])
        done += 2
except SagactlError as error:
    say(f"{error.exit_code} {error.durable}")
resource.setrlimit(resource.RLIMIT_FSIZE, (hard, hard))
say(log.row("run1").seq == done)
add(log, lease, intent())
say(len(log.verify().findings))
log.close()
"""
    process = launch(path, program)
    assert end(process).splitlines() == ["1 False", "True", "0"]


@pytest.mark.parametrize("statement", ["BEGIN IMMEDIATE", "SELECT runs.seq", "INSERT INTO records", "UPDATE runs"])
@pytest.mark.parametrize(
    "number", [sqlite3.SQLITE_IOERR, sqlite3.SQLITE_FULL, sqlite3.SQLITE_BUSY, sqlite3.SQLITE_READONLY]
)
def test_trouble_before_the_commit_writes_nothing(open_sqlite: Open, statement: str, number: int) -> None:
    """E18: whatever fails before the commit, nothing is written, the error is one of storage, the log goes on."""
    faults = Faults()
    log = open_sqlite(connect=faults.connect)
    lease = start(log)
    for moment in (faults.before, faults.after):
        moment[statement] = number
        with pytest.raises(StorageError) as caught:
            log.append([batch(lease, log.row("run1").seq, intent())])
        assert caught.value.durable is False
        assert log.row("run1").seq == 2
    add(log, lease, intent())
    assert log.verify().findings == ()


@pytest.mark.parametrize("number", [sqlite3.SQLITE_IOERR, sqlite3.SQLITE_FULL, sqlite3.SQLITE_IOERR_FSYNC])
def test_a_commit_that_raised_may_be_durable(open_sqlite: Open, number: int) -> None:
    """E18, L3: after a commit that raised, a new connection tells whether the records are there."""
    faults = Faults()
    log = open_sqlite(connect=faults.connect)
    lease = start(log)
    before = faults.connections
    faults.after["COMMIT"] = number
    with pytest.raises(StorageError, match="there all the same") as caught:
        log.append([batch(lease, 2, intent())])
    assert caught.value.durable is True
    faults.before["COMMIT"] = number
    with pytest.raises(StorageError, match="nothing of it was written") as caught:
        log.append([batch(lease, 3, outcome())])
    assert caught.value.durable is False
    assert faults.connections == before + 2
    assert [stored.seq for stored in log.read("run1")] == [1, 2, 3]
    add(log, lease, outcome())


def test_a_commit_that_raised_and_no_way_to_look(open_sqlite: Open) -> None:
    """E18: where the log can't be read again nobody knows; once it can, it is used again."""
    faults = Faults()
    log = open_sqlite(connect=faults.connect)
    lease = start(log)
    faults.after["COMMIT"] = sqlite3.SQLITE_IOERR
    faults.refuse_connections = True
    with pytest.raises(StorageError, match="may be there or not") as caught:
        log.append([batch(lease, 2, intent())])
    assert caught.value.durable is None
    with pytest.raises(StorageError):
        log.row("run1")
    faults.refuse_connections = False
    assert log.row("run1").seq == 3


def test_a_run_whose_creation_raised_may_be_there(open_sqlite: Open) -> None:
    """E18: the same holds for creating and claiming; renewing has no record that would tell."""
    faults = Faults()
    log = open_sqlite(connect=faults.connect)
    faults.after["COMMIT"] = sqlite3.SQLITE_IOERR
    with pytest.raises(StorageError) as caught:
        log.create(new_run(), holder=HOLDER)
    assert caught.value.durable is True
    lease = log.row("run1").holder
    assert lease == HOLDER
    faults.after["COMMIT"] = sqlite3.SQLITE_IOERR
    with pytest.raises(StorageError) as caught:
        log.ask("run1", request("q"))
    assert caught.value.durable is None
    assert len(log.requests(["run1"])) == 1


def test_reading_in_trouble_is_a_storage_error(open_sqlite: Open) -> None:
    """E18: an error while reading is one of storage as well, and the next read has a new connection."""
    faults = Faults()
    log = open_sqlite(connect=faults.connect)
    start(log)
    faults.before["SELECT"] = sqlite3.SQLITE_IOERR
    with pytest.raises(StorageError):
        log.row("run1")
    assert log.row("run1").seq == 2


def test_a_closed_log_is_not_used(path: Path) -> None:
    """Using a log after it was closed is a mistake of ours, and closing it twice is none."""
    log = SqliteLog(path)
    log.close()
    log.close()
    with pytest.raises(InternalError):
        log.row("run1")


def test_killed_while_appending(path: Path) -> None:
    """L1, L2: after a SIGKILL at any moment the log is what was acknowledged, and one transaction more at most."""
    program = """
log = SqliteLog(path)
lease = start(log)
seq = 2
while True:
    log.append([batch(lease, seq, outcome(output="x" * 300), intent())])
    seq += 2
    say(seq)
"""
    acknowledged = 0
    for turn in range(4):
        place = path.with_name(f"log{turn}.db")
        process = launch(place, program)
        for _ in range(5 + 20 * turn):
            acknowledged = int(listen(process))
        process.kill()
        acknowledged = max([acknowledged, *[int(word) for word in end(process).split() if word.isdecimal()]])
        with closing(SqliteLog(place)) as log:
            found = [stored.seq for stored in log.read("run1")]
            assert found == list(range(1, len(found) + 1))
            assert acknowledged - 2 <= len(found) <= acknowledged + 2
            assert log.verify().findings == ()


def test_what_broke_a_run_off_names_its_resume() -> None:
    """E18: where a run was broken off, typing the same again would begin another one: the hint is its resume."""
    for hint in ("free some space on its disk, then type the same again", None):
        error = StorageError("the disk is full", hint=hint)
        _name_runs(error, ["run1"])
        assert str(error.hint).endswith("sagactl resume run1")
        assert "type the same again" not in str(error.hint)
