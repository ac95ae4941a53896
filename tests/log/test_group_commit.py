"""Commits are shared by those who ask at once, and cost nothing extra to who is alone."""

from __future__ import annotations

import signal
import sqlite3
import threading
from collections.abc import Sequence
from pathlib import Path

import pytest

from sagactl.errors import StorageError
from sagactl.log.group_commit import GroupCommit
from tests.log.conftest import Open
from tests.log.samples import batch, intent, outcome, start


class Disk:
    """Commits items slowly: each commit waits until the test lets it go on."""

    def __init__(self) -> None:
        self.groups: list[list[int]] = []
        self.threads: list[int] = []
        self.entered = threading.Semaphore(0)
        self.go = threading.Semaphore(0)
        self.errors: dict[int, Exception] = {}

    def commit(self, items: Sequence[int]) -> list[int]:
        """Commit *items*; an item for which there is an error spoils the commit."""
        self.groups.append(list(items))
        self.threads.append(threading.get_ident())
        self.entered.release()
        assert self.go.acquire(timeout=60)
        for item in items:
            if item in self.errors:
                raise self.errors[item]
        return [item * 10 for item in items]


def ask(commits: GroupCommit[int, int], item: int, results: dict[int, object]) -> threading.Thread:
    """Submit *item* from a thread of its own and wait until it is in the line."""

    def submit() -> None:
        try:
            results[item] = commits.submit(item)
        except Exception as error:
            results[item] = error

    thread = threading.Thread(target=submit)
    thread.start()
    return thread


def wait_for_line(commits: GroupCommit[int, int], length: int) -> None:
    """Wait until so many wait for the next commit."""
    for _ in range(12_000):
        with commits._lock:
            if len(commits._waiting) == length:
                return
        threading.Event().wait(0.005)
    pytest.fail("nobody waits")


def test_who_is_alone_commits_on_its_own_thread() -> None:
    """E2: a lone caller commits at once, without handing over to another thread."""
    disk = Disk()
    disk.go.release()
    assert GroupCommit(disk.commit).submit(7) == 70
    assert disk.threads == [threading.get_ident()]


def test_those_who_wait_share_the_next_commit() -> None:
    """E2: whoever comes during a commit shares the next one, led by one of them."""
    disk, results = Disk(), dict[int, object]()
    commits: GroupCommit[int, int] = GroupCommit(disk.commit)
    threads = [ask(commits, 1, results)]
    assert disk.entered.acquire(timeout=60)
    for item in (2, 3, 4):
        threads.append(ask(commits, item, results))
        wait_for_line(commits, item - 1)
    disk.go.release(2)
    for thread in threads:
        thread.join()
    assert disk.groups == [[1], [2, 3, 4]]
    assert results == {1: 10, 2: 20, 3: 30, 4: 40}
    assert disk.threads[1] == threads[1].ident


def test_the_lead_goes_on_and_is_given_up() -> None:
    """Nobody leads for ever: each commit is led by the first who waits, and after the last one anybody may begin."""
    disk, results = Disk(), dict[int, object]()
    commits: GroupCommit[int, int] = GroupCommit(disk.commit)
    first = ask(commits, 1, results)
    assert disk.entered.acquire(timeout=60)
    second = ask(commits, 2, results)
    wait_for_line(commits, 1)
    disk.go.release()
    assert disk.entered.acquire(timeout=60)
    third = ask(commits, 3, results)
    wait_for_line(commits, 1)
    disk.go.release(3)
    for thread in (first, second, third):
        thread.join()
    assert disk.groups == [[1], [2], [3]]
    assert commits.submit(4) == 40
    assert disk.threads == [first.ident, second.ident, third.ident, threading.get_ident()]


def test_storage_trouble_is_told_to_all() -> None:
    """E18: when the commit fails for the storage, each of those who share it gets an error of its own."""
    disk, results = Disk(), dict[int, object]()
    disk.errors[3] = StorageError("no space", code="disk-full", hint="free some")
    disk.errors[3].durable = None  # type: ignore[attr-defined]
    commits: GroupCommit[int, int] = GroupCommit(disk.commit)
    threads = [ask(commits, 1, results)]
    assert disk.entered.acquire(timeout=60)
    for item in (2, 3):
        threads.append(ask(commits, item, results))
        wait_for_line(commits, item - 1)
    disk.go.release(3)
    for thread in threads:
        thread.join()
    assert results[1] == 10
    told = [results[2], results[3]]
    assert all(isinstance(error, StorageError) and error.hint == "free some" for error in told)
    assert all(error.durable is None and error.code == "disk-full" for error in told)  # type: ignore[attr-defined]
    assert told[0] is not told[1]
    assert commits.submit(5) == 50


def test_one_bad_item_spoils_no_other() -> None:
    """An item that can't be committed gets the error alone; those that shared its commit are committed."""
    disk, results = Disk(), dict[int, object]()
    disk.errors[3] = OverflowError("too large")
    commits: GroupCommit[int, int] = GroupCommit(disk.commit)
    threads = [ask(commits, 1, results)]
    assert disk.entered.acquire(timeout=60)
    for item in (2, 3, 4):
        threads.append(ask(commits, item, results))
        wait_for_line(commits, item - 1)
    disk.go.release(5)
    for thread in threads:
        thread.join()
    assert disk.groups == [[1], [2, 3, 4], [2], [3], [4]]
    assert (results[2], results[4]) == (20, 40)
    assert isinstance(results[3], OverflowError)


def test_who_is_interrupted_leaves_the_line() -> None:
    """E17: a signal that ends the wait of the main thread takes its item out of the line and blocks nobody."""
    disk, results = Disk(), dict[int, object]()
    commits: GroupCommit[int, int] = GroupCommit(disk.commit)
    thread = ask(commits, 1, results)
    assert disk.entered.acquire(timeout=60)

    def interrupt(*_: object) -> None:
        raise KeyboardInterrupt

    before = signal.signal(signal.SIGALRM, interrupt)
    signal.setitimer(signal.ITIMER_REAL, 0.1)
    try:
        with pytest.raises(KeyboardInterrupt):
            commits.submit(2)
    finally:
        signal.signal(signal.SIGALRM, before)
    disk.go.release(2)
    thread.join()
    assert commits.submit(3) == 30
    assert disk.groups == [[1], [3]]


class Counting(sqlite3.Connection):
    """Counts commits, and makes each take a moment so that others come in meanwhile."""

    commits = 0

    def execute(self, sql: str, *arguments: object) -> sqlite3.Cursor:
        if sql == "COMMIT":
            type(self).commits += 1
            threading.Event().wait(0.005)
        return super().execute(sql, *arguments)  # type: ignore[arg-type]


def test_runs_of_one_process_share_commits(open_sqlite: Open, path: Path) -> None:
    """E2: many runs that append at once take far fewer commits than appends, and each append is there."""

    class Mine(Counting):
        pass

    log = open_sqlite(
        connect=lambda uri, seconds: sqlite3.connect(
            uri, uri=True, timeout=seconds, isolation_level=None, check_same_thread=False, factory=Mine
        )
    )
    leases = [start(log, f"run{n}") for n in range(8)]
    Mine.commits = 0

    def drive(n: int) -> None:
        for turn in range(10):
            assert log.append([batch(leases[n], 2 + 2 * turn, intent(), outcome())]) == []

    threads = [threading.Thread(target=drive, args=(n,)) for n in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert Mine.commits <= 40
    assert [log.row(f"run{n}").seq for n in range(8)] == [22] * 8
    assert log.verify().findings == ()
