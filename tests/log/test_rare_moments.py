"""Moments that are too short to wait for: two at once, an interrupt in the middle, a file that has just changed."""

from __future__ import annotations

import json
import os
import sqlite3
import threading
from collections.abc import Callable, Sequence
from contextlib import closing
from pathlib import Path

import pytest

from sagactl.core.outbox import Delivery, DeliveryState, Seen
from sagactl.core.records import Direction, DriverClaimed, Operation, RunStatus
from sagactl.errors import DamagedLogError, NotFoundError, StorageError
from sagactl.log import holder, migrate, sqlite_counts
from sagactl.log.audit import Folding
from sagactl.log.base import Batch, Captured, Lease, Log, PruneFilter, RunFilter, Runs
from sagactl.log.checkpoint import checkpoint
from sagactl.log.file_system import find_mount, make_private_file
from sagactl.log.gate import Gate, Witness, find_gate
from sagactl.log.group_commit import GroupCommit, _Ticket
from sagactl.log.heads import ALL, list_heads, read_heads
from sagactl.log.holder import is_dead, read_boot_id, this_process
from sagactl.log.memory import MemoryLog
from sagactl.log.open import open_log
from sagactl.log.pruning import prune_all
from sagactl.log.sqlite import SqliteLog
from sagactl.log.sqlite_errors import _find_cause
from sagactl.log.sqlite_open import open_to_read, open_to_write
from sagactl.log.sqlite_outbox import _claim_run
from tests.log.conftest import Open
from tests.log.faults import Faults
from tests.log.outbox_contract import ALL as CHANNELS
from tests.log.outbox_contract import done
from tests.log.samples import HOLDER, Time, add, answered, dead, ended, intent, new_run, outcome, rebind, start, summary

STORE = "0" * 32


@pytest.fixture(params=["memory", "sqlite"])
def log(request: pytest.FixtureRequest, open_sqlite: Open, time: Time) -> Log:
    """Return a log of each kind."""
    return MemoryLog(lease_clock=time.clock()) if request.param == "memory" else open_sqlite()


# Interrupts


def test_an_interrupt_in_the_middle_of_a_commit_ends_it_for_all_who_share_it() -> None:
    """E17: who leads is interrupted, the others are told, and the next one commits as if nothing had been."""
    tried: list[list[int]] = []

    def commit(items: Sequence[int]) -> list[int]:
        tried.append(list(items))
        if len(tried) == 1:
            raise KeyboardInterrupt
        return list(items)

    commits: GroupCommit[int, int] = GroupCommit(commit)
    other: _Ticket[int, int] = _Ticket(2)
    other.woken = threading.Event()
    commits._waiting.append(other)
    with pytest.raises(KeyboardInterrupt):
        commits.submit(1)
    assert (tried, other.woken.is_set()) == ([[2, 1]], True)
    assert isinstance(other.error, KeyboardInterrupt)
    assert commits.submit(3) == 3


class Interrupted(threading.Event):
    """An event whose waiting is broken off at its end."""

    def wait(self, timeout: float | None = None) -> bool:
        """Be interrupted."""
        del timeout
        raise KeyboardInterrupt


@pytest.mark.parametrize("others", [0, 1])
def test_who_is_interrupted_as_its_turn_comes_hands_the_lead_on(others: int) -> None:
    """E17: the lead is never lost with a waiter that leaves: the next one has it, or nobody and anybody may begin."""
    commits: GroupCommit[int, int] = GroupCommit(list)
    line: list[_Ticket[int, int]] = [_Ticket(place) for place in range(1 + others)]
    for ticket in line:
        ticket.woken = threading.Event()
    first = line[0]
    first.woken = Interrupted()
    first.woken.set()
    commits._waiting, commits._is_led = list(line), True
    with pytest.raises(KeyboardInterrupt):
        commits._wait(first)
    assert commits._waiting == line[1:]
    assert [ticket.woken is not None and ticket.woken.is_set() for ticket in line[1:]] == [True] * others
    assert commits._is_led is bool(others)


def test_who_is_interrupted_while_its_item_is_committed_leaves_it_there() -> None:
    """E17: an item that a leader has taken is committed or not, whatever becomes of who waits for it."""
    commits: GroupCommit[int, int] = GroupCommit(list)
    ticket: _Ticket[int, int] = _Ticket(1)
    ticket.woken = Interrupted()
    commits._is_led = True
    with pytest.raises(KeyboardInterrupt):
        commits._wait(ticket)
    assert (commits._waiting, commits._is_led) == ([], True)


def test_an_interrupt_at_the_commit_leaves_a_log_that_goes_on(open_sqlite: Open, path: Path) -> None:
    """E17, E18: whether it was durable is found out anew; the connection isn't used again."""

    class Stopped(sqlite3.Connection):
        stops = False

        def execute(self, sql: str, *arguments: object) -> sqlite3.Cursor:
            if Stopped.stops and sql == "COMMIT":
                Stopped.stops = False
                raise KeyboardInterrupt
            return super().execute(sql, *arguments)  # type: ignore[arg-type]

    def connect(uri: str, seconds: float) -> sqlite3.Connection:
        return sqlite3.connect(
            uri, uri=True, timeout=seconds, isolation_level=None, check_same_thread=False, factory=Stopped
        )

    log = open_sqlite(connect=connect)
    lease = start(log)
    Stopped.stops = True
    with pytest.raises(KeyboardInterrupt):
        add(log, lease, intent())
    assert log.row("run1").seq == 2
    add(log, lease, intent())
    assert log.verify().findings == ()


# Storage


def test_a_rollback_that_fails_costs_the_connection_and_no_more(open_sqlite: Open) -> None:
    """E18: closing the connection rolls back for sure."""
    faults = Faults()
    log = open_sqlite(connect=faults.connect)
    lease = start(log)
    faults.before = {"INSERT INTO records": sqlite3.SQLITE_BUSY, "ROLLBACK": sqlite3.SQLITE_IOERR}
    with pytest.raises(StorageError):
        add(log, lease, intent())
    assert not faults.before
    add(log, lease, intent())
    assert (log.row("run1").seq, log.verify().findings) == (3, ())


def test_a_checkpoint_that_cannot_be_made_loses_nothing(path: Path) -> None:
    """E18: the commit stands in the WAL, and the next checkpoint takes it along."""
    connection = sqlite3.connect(path.parent.parent / "x.db")
    connection.close()
    assert checkpoint(connection, cut=True, wait_ms=0) is False


def test_a_witness_that_cannot_be_written_leaves_the_older_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """L7: an older witness still holds, so trouble with it is no trouble for the run."""
    gate = Gate(tmp_path / "log.db", timeout_seconds=1)
    gate.enter()
    older = Witness("0" * 32, "run1", 3, "a" * 64)
    gate.write_witness(older)

    def fail(*_: object) -> int:
        raise OSError(28, "no space")

    monkeypatch.setattr(os, "pwrite", fail)
    gate.write_witness(older._replace(seq=4))
    monkeypatch.undo()
    assert gate.read_witness() == older
    gate.write_witness(older._replace(seq=5, run_id="no id of ours"))
    assert gate.read_witness() == older
    gate.leave()
    gate.close()


def test_the_switch_to_wal_waits_for_those_who_read(open_sqlite: Open, monkeypatch: pytest.MonkeyPatch) -> None:
    """B61: SQLite doesn't wait for it by itself, so we do; other trouble, and too much of it, is an error."""
    faults = Faults(before={"PRAGMA journal_mode": sqlite3.SQLITE_BUSY})
    start(open_sqlite(connect=faults.connect))
    assert not faults.before
    for number, busy_ms in ((sqlite3.SQLITE_IOERR, 1_000), (sqlite3.SQLITE_BUSY, -1)):
        faults.before = {"PRAGMA journal_mode": number}
        with pytest.raises(StorageError):
            open_sqlite(connect=faults.connect, busy_ms=busy_ms)


def test_a_log_that_another_process_brings_up_meanwhile_is_taken(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """F13: of two that find an old log, or an empty file, one migrates it, and the other one goes on with it."""
    path.parent.mkdir()
    make_private_file(path)
    gate = Gate(path, timeout_seconds=1)
    enter = gate.enter

    def enter_later(*arguments: object) -> None:
        monkeypatch.undo()
        SqliteLog(path).close()
        enter(*arguments)

    monkeypatch.setattr(gate, "enter", enter_later)
    connection = open_to_write(path, gate, busy_ms=1_000, connect=Faults().connect)
    assert connection.execute("PRAGMA user_version").fetchone() == (migrate.SCHEMA_VERSION,)
    connection.close()
    gate.close()


def test_a_script_that_brings_nothing_for_old_records_changes_none() -> None:
    """F13: only the script that added alerts has something to fill in from the records."""
    migrate._carry_over(sqlite3.connect(":memory:"), migrate._WITH_ALERTS + 1)


def test_a_migration_whose_commit_has_ended_the_transaction_is_told_all_the_same(path: Path) -> None:
    """F13, E18: an error after which SQLite has rolled back by itself is the error that is told."""
    path.parent.mkdir()
    make_private_file(path)
    gate = Gate(path, timeout_seconds=1)
    faults = Faults(after={"COMMIT": sqlite3.SQLITE_IOERR})
    with pytest.raises(StorageError):
        open_to_write(path, gate, busy_ms=1_000, connect=faults.connect)
    gate.close()


SCRAPS: dict[str, tuple[Callable[[Path], object], type[Exception], str]] = {
    "an empty file": (lambda path: path.write_bytes(b""), NotFoundError, "there is no log"),
    "a few bytes": (lambda path: path.write_bytes(b"x"), DamagedLogError, "is no log of sagactl"),
    "another program's": (
        lambda path: sqlite3.connect(path).executescript("CREATE TABLE t (x); PRAGMA user_version = 7").close(),
        DamagedLogError,
        "is a database, but no log of sagactl",
    ),
}


@pytest.mark.parametrize("name", SCRAPS)
def test_what_stands_where_a_log_was_is_told_by_what_it_is(name: str, tmp_path: Path) -> None:
    """H59: beside a gate, which says that a log was here, nothing that is none is read as an empty one."""
    make, error, message = SCRAPS[name]
    path = tmp_path / "log.db"
    make(path)
    find_gate(path).touch(mode=0o600)
    with pytest.raises(error, match=message):
        open_log(path, read_only=True).rows(RunFilter())


def test_a_journal_without_content_hinders_no_reader(open_sqlite: Open, path: Path) -> None:
    """B.7: what SQLite leaves behind empty says nothing, and the log is read as it lies there."""
    log = open_sqlite()
    start(log)
    log.close()
    for suffix in ("-wal", "-journal"):
        path.with_name(path.name + suffix).write_bytes(b"")
    with closing(open_log(path, read_only=True)) as reader:
        assert [row.run_id for row in reader.rows(RunFilter())[0]] == ["run1"]


def test_lines_about_mounts_that_say_too_little_are_passed_over(tmp_path: Path) -> None:
    """B53: whatever the system lists, the mount that is closest above the folder counts."""
    mounts = tmp_path / "mounts"
    mounts.write_text(f"odd\n\nx / ext4 rw\ny {tmp_path} nfs4 rw\nz {tmp_path} tmpfs rw\n", encoding="utf-8")
    assert find_mount(tmp_path / "a", mounts) == (str(tmp_path), "tmpfs")


# Who drives


def test_without_proc_less_is_certain_and_nobody_is_taken_for_dead(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """E15: where the kernel doesn't tell, a process that can be signalled is alive, and no boot is known."""
    monkeypatch.setattr(holder, "_BOOT_ID", tmp_path / "none")
    assert read_boot_id.__wrapped__() == ""
    assert holder._count_threads(2**22 + 1) == 0
    me = this_process()
    monkeypatch.setattr(holder, "_read_stat", lambda _: None)
    assert not is_dead(me)


# What the records say


def claimed_after_creation() -> Folding:
    """Return what has taken in the first record of a run."""
    folding = Folding()
    log = MemoryLog()
    log.create(new_run(), holder=None)
    (created,) = log.read("run1")
    assert folding.take(1, created.hash, created.record) is None
    return folding


def test_records_that_cannot_follow_are_found_by_whoever_verifies() -> None:
    """L5: the first record of a run is its creation, and nothing is made of what comes before it."""
    folding = Folding()
    assert folding.take(1, "h", intent()) == "the first record is not the run's creation"
    claimed = DriverClaimed(0, 0, HOLDER, calls_ended=True)
    created = claimed_after_creation()
    assert created.take(2, "h", claimed) == "fence 0 follows 0"


def test_a_letter_that_nobody_opened_can_be_closed(log: Log) -> None:
    """L6: an answer to a dead letter that isn't there changes no table, and the log is sound."""
    lease = start(log)
    add(log, lease, answered("q1"), dead(), answered("q2"), answered("q3"))
    assert log.verify().findings == ()
    assert [each.closed_at_ms is None for each in log.dead_letters(run_id="run1", is_open=False)] == [False]


def test_a_rebinding_from_another_definition_is_found(log: Log) -> None:
    """E16, L5: the chain of definitions is checked record by record."""
    lease = start(log)
    rebind(log, lease, replaces="0" * 64)
    (found,) = log.verify().findings
    assert "another definition than the one that it was bound to" in found.problem


def test_a_batch_without_records_keeps_what_comes_with_it(log: Log) -> None:
    """E2: what a call printed is kept also where it makes no record."""
    lease = start(log)
    printed = Captured(Operation("charge", None, Direction.ACTION), 1, "hello")
    assert log.append([Batch(lease, 2, (), summary(), captured=(printed,))]) == []
    assert log.row("run1").seq == 2
    assert [each.text for each in log.captured("run1")] == ["hello"]
    assert log.verify().findings == ()


def test_rows_are_a_sequence() -> None:
    """API: rows of runs are counted, walked and picked like any sequence, with the total beside them."""
    log = MemoryLog()
    for run_id in ("run1", "run2"):
        log.create(new_run(run_id), holder=None)
    rows, total = log.rows(RunFilter(limit=1))
    found = Runs(tuple(rows), total)
    assert (len(found), found[0].run_id, found[:1], found.total) == (1, "run2", tuple(rows), 2)
    assert [row.run_id for row in found] == ["run2"]
    assert (len(Runs()), Runs().total) == (0, 0)


# On the way out


def test_what_was_pruned_while_it_was_sent_is_settled_for_nobody(log: Log) -> None:
    """N10: a message whose run is gone is done with, and what came of sending it changes nothing."""
    lease = start(log)
    add(log, lease, dead(), ended(RunStatus.TERMINATED), status=RunStatus.TERMINATED)
    log.release([lease])
    message = log.outbox.claim(CHANNELS, "ops", 20_000)
    assert message is not None
    assert len(log.prune(["run1"], pruned_by="ada")) == 1
    log.outbox.settle(message.number, done(), CHANNELS, 20_000)
    log.outbox.settle(message.number, Delivery("ops", DeliveryState.WAITING, 1, 0, error="down"), CHANNELS, 20_000)
    assert log.outbox.messages(is_pending=False) == []


def test_a_target_is_given_only_what_it_can_take(log: Log) -> None:
    """E23: runs that aren't there, that somebody else publishes, or that it has seen are left out."""
    start(log, "run1")
    start(log, "run2")
    wanted = ["none", "run1", "run2"]
    (page,) = log.outbox.claim_events("siem", 1, records_max=2, run_ids=wanted)
    assert (page.run_id, len(page.records)) == ("run1", 2)
    (page,) = log.outbox.claim_events("siem", 1, records_max=9, run_ids=wanted)
    assert page.run_id == "run2"
    assert log.outbox.claim_events("siem", 1, records_max=9, run_ids=wanted) == []


def test_pruning_ends_where_others_have_pruned_meanwhile(log: Log, monkeypatch: pytest.MonkeyPatch) -> None:
    """N10: two that prune at once delete each run once, and both come to their end."""
    for run_id in ("run1", "run2"):
        lease = start(log, run_id)
        add(log, lease, ended(), status=RunStatus.SUCCEEDED)
        log.release([lease])
    prunable = log.prunable

    def be_late(which: PruneFilter) -> object:
        found = prunable(which)
        if which.limit == 1:
            log.prune(["run1", "run2"], pruned_by="another")
        return found

    monkeypatch.setattr(log, "prunable", be_late)
    assert prune_all(log, PruneFilter(), pruned_by="ada").runs == 0
    assert [each.pruned_by for each in log.pruned("run")] == ["another", "another"]


def test_the_latest_records_are_counted_up_to_a_limit(open_sqlite: Open, monkeypatch: pytest.MonkeyPatch) -> None:
    """A dashboard costs the same however long the log is: so many records are looked at, and no more."""
    log = open_sqlite()
    lease = start(log)
    for attempt in range(1, 6):
        add(log, lease, intent(attempt, at_ms=1_000_000), outcome(attempt, at_ms=1_000_001))
    monkeypatch.setattr(sqlite_counts, "_PAGE_RECORDS", 3)
    seen = []
    for limit in (4, 6, 1_000):
        monkeypatch.setattr(sqlite_counts, "RECENT_RECORDS_MAX", limit)
        assert log._writer is not None
        seen.append(log._writer.read(lambda connection: len(list(sqlite_counts._read_recent(connection, 1_000_002)))))
    assert seen == [4, 6, 12]


def test_heads_of_one_run_are_kept_without_the_one_that_counts_them(log: Log) -> None:
    """L7: the head of one run can be kept alone; a list of the whole log has one more."""
    start(log)
    alone = list_heads(STORE, log.verify("run1"), None, is_whole=False)
    assert [each.what for each in alone] == ["run1"]
    assert [each.what for each in list_heads(STORE, log.verify(), None, is_whole=True)] == ["run1", ALL]
    assert read_heads("\n".join(map(str, alone)), STORE) == alone


def test_a_list_of_heads_as_a_document_is_read_as_such(log: Log) -> None:
    """L7: `verify --head -o json` can be kept as well as the words."""
    start(log)
    heads = list_heads(STORE, log.verify(), None, is_whole=True)
    text = json.dumps({"schema": "sagactl.heads/1", "heads": [str(each) for each in heads]})
    assert read_heads(f"{text}\n{heads[0]}", STORE) == [*heads, heads[0]]


def test_space_is_given_back_until_nothing_is_left(open_sqlite: Open) -> None:
    """N10: a pruned run's pages go back to the file system, portion by portion."""
    log = open_sqlite()
    lease = start(log)
    for _ in range(40):
        add(log, lease, outcome(output="x" * 20_000))
    add(log, lease, ended(), status=RunStatus.SUCCEEDED)
    log.release([lease])
    assert prune_all(log, PruneFilter(), pruned_by="ada").bytes_given_back > 400_000
    assert log.give_back() == 0


def test_a_file_that_is_emptied_after_it_was_looked_at_holds_no_log(tmp_path: Path) -> None:
    """H59: nothing is read from it, and nothing is made of it."""
    path = tmp_path / "log.db"
    path.touch()
    with pytest.raises(NotFoundError, match="there is no log"):
        open_to_read(path, busy_ms=1_000, connect=Faults().connect, is_immutable=True)
    assert path.stat().st_size == 0


def test_what_another_publisher_has_taken_meanwhile_is_left_to_it(open_sqlite: Open) -> None:
    """E23: between looking and claiming a run may be gone, claimed, or published to its end."""
    log = open_sqlite()
    start(log)
    assert log._writer is not None

    def claim(run_id: str) -> bool:
        assert log._writer is not None
        return log._writer.write(lambda connection: (_claim_run("siem", run_id, 5, 9, connection), None)) is not None

    assert [claim("gone"), claim("run1"), claim("run1")] == [False, True, False]
    log.outbox.settle_events("siem", [Seen("run1", 2)])
    assert claim("run1") is False
    add(log, Lease("run1", 1, HOLDER), intent())
    assert claim("run1") is True


@pytest.mark.parametrize(
    ("change", "after_seq", "problem"),
    [
        ("UPDATE runs SET head = 'x'", 0, "record 2: it is not the record that the run's row tells of"),
        ("DELETE FROM records", 1, "records 1 to 2 are missing"),
        ("DELETE FROM records WHERE seq > 1", 1, "records 2 to 2 are missing"),
    ],
)
def test_a_reader_stops_where_the_row_tells_of_more(
    open_sqlite: Open, path: Path, change: str, after_seq: int, problem: str
) -> None:
    """L1: whoever reads a run, from wherever on, is told of what is missing before he acts on the rest."""
    log = open_sqlite()
    start(log)
    with closing(sqlite3.connect(path)) as connection:
        connection.execute(change)
        connection.commit()
    with pytest.raises(DamagedLogError, match=problem):
        list(log.read("run1", after_seq=after_seq))


@pytest.mark.parametrize(
    ("flag", "free", "expected"),
    [(os.ST_RDONLY, 10**9, sqlite3.SQLITE_READONLY), (0, 0, sqlite3.SQLITE_FULL), (0, 10**9, None), (None, 0, None)],
)
def test_what_a_failing_write_comes_from_is_asked_of_the_disk(
    flag: int | None, free: int, expected: int | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """E18: SQLite says "I/O error" where the disk is full or read-only; where the disk says nothing, so do we."""
    disk = os.statvfs(tmp_path)

    def answer(_: Path) -> os.statvfs_result:
        if flag is None:
            raise OSError(5, "no answer")
        fields = list(disk)
        fields[0], fields[1], fields[4], fields[8] = 1, 1, free, flag
        return os.statvfs_result(fields)

    monkeypatch.setattr(os, "statvfs", answer)
    assert _find_cause(tmp_path / "log.db") == expected
