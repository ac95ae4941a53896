"""Scenarios of the store: long logs, logs that grow, a lock that others keep, a disk that is full."""

from __future__ import annotations

import os
import shutil
import signal
import sqlite3
import subprocess
import time
from collections.abc import Iterator
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from sagactl.core.records import Outcome, RunStatus
from sagactl.log.base import Captured, PruneFilter
from sagactl.log.pruning import prune_all
from sagactl.log.sqlite import SqliteLog
from sagactl.log.sqlite_read import PAGE_RECORDS
from tests.log.samples import STEP, Time, add, batch, dead, ended, intent, outcome, start
from tests.scenarios.checks import check_all
from tests.scenarios.scene import Scene, step, tries

MANY = 1_200
LIGHT = """
import os, signal
from pathlib import Path
from sagactl import CallContext, Rejected, tool

def note(context, word):
    with open(context.project / "notes", "a") as file:
        file.write(f"{word} {context.item} {context.idempotency_key}\\n")

@tool("light.make", compensation="light.unmake", compensation_with={})
def make(context: CallContext, number: int, fails: bool = False) -> None:
    if fails and number == 1190:
        raise Rejected("no more", code="full")
    note(context, "made")
    if number == 1180 and not os.path.exists(context.project / "killed"):
        Path(context.project / "killed").touch()
        os.kill(os.getpid(), signal.SIGKILL)

@tool("light.unmake", null_safe=True)
def unmake(context: CallContext) -> None:
    note(context, "unmade")
"""


def _notes(scene: Scene, word: str) -> list[str]:
    return [line.split()[1] for line in (scene.path / "notes").read_text().splitlines() if line.startswith(word + " ")]


@pytest.mark.parametrize("fails", [False, True], ids=["forward", "rollback"])
def test_b53_a_log_of_many_pages_is_read_to_its_end(fails: bool, scene: Scene) -> None:
    """E9, L4: 1,200 items, killed near the end; a resume repeats none that was done, and a rollback forgets none."""
    scene.plugin("light", LIGHT)
    item = {"number": "${{ item }}", "fails": fails}
    many = {"id": "many", "tool": "light.make", "with": item, "foreach": "${{ input.numbers }}", "concurrency": 8}
    shape = {"type": "object", "properties": {"numbers": {"type": "array", "items": {"type": "integer"}}}}
    scene.saga("x", [many], input=shape, compensation_concurrency=8)
    (scene.path / "inputs.json").write_text(f'{{"numbers": {list(range(MANY))}}}')
    killed = scene.do("run", "x", "--inputs", "inputs.json", "-q")
    assert killed.code == -int(signal.SIGKILL)
    before = set(_notes(scene, "made"))
    assert scene.do("resume", scene.latest(), "-q").code == (10 if fails else 0)
    made, undone = _notes(scene, "made"), _notes(scene, "unmade")
    assert len(made) - len(set(made)) <= 8, "only what was in doubt is called again"
    assert set(made) >= before
    records = scene.records()
    assert len(records) > 2 * PAGE_RECORDS
    assert [record["seq"] for record in records] == list(range(1, len(records) + 1))
    if fails:
        assert set(undone) >= set(made)
        assert len(set(undone) - set(made)) <= 8, "what was in doubt is undone too, if it was made or not"
        assert len(undone) == len(set(undone))
    else:
        assert set(made) == {str(number) for number in range(MANY)}
    verified = scene.do("verify")
    assert (verified.code, verified.json["records"]) == (0, len(records))
    scene.is_checked = True  # the ledger of the common checks is the probe's; this plugin keeps its own


@pytest.mark.parametrize("length", [PAGE_RECORDS - 1, PAGE_RECORDS, PAGE_RECORDS + 1, 3 * PAGE_RECORDS])
def test_b53_at_the_edge_of_a_page_nothing_is_left_out(length: int, tmp_path: Path) -> None:
    """L4: as many records as a page has, one more, one less, three pages: all are read, and the head is the last."""
    with closing(SqliteLog(tmp_path / "log.db", lease_clock=Time().clock())) as log:
        lease = start(log)
        add(log, lease, *[outcome(at_ms=3_000 + number) for number in range(length - 2)])
        found = list(log.read("run1"))
        assert [stored.seq for stored in found] == list(range(1, length + 1))
        assert found[-1].hash == log.row("run1").head
        assert [stored.seq for stored in log.read("run1", after_seq=PAGE_RECORDS - 2)] == list(
            range(PAGE_RECORDS - 1, length + 1)
        )
        verified = log.verify()
        assert (verified.findings, verified.records) == ((), length)


RUNS = 300


def _count_rows(path: Path) -> dict[str, int]:
    """Return how many rows each table has."""
    with closing(sqlite3.connect(path)) as connection:
        names = [name for (name,) in connection.execute("SELECT name FROM sqlite_master WHERE type = 'table'")]
        return {name: connection.execute(f'SELECT count(*) FROM "{name}"').fetchone()[0] for name in names}


def test_b55_a_log_that_is_pruned_shrinks_and_keeps_what_matters(tmp_path: Path) -> None:
    """Prune: of many runs with printed text and alerts nothing stays but tombstones; two that aren't over are kept."""
    path, clock = tmp_path / "log.db", Time()
    with closing(SqliteLog(path, lease_clock=clock.clock())) as log:
        add(log, start(log, "active"), intent())
        letter = start(log, "stuck")
        add(log, letter, intent(), outcome(), dead(), status=RunStatus.STUCK)
        kept_rows = _count_rows(path)
        for number in range(RUNS):
            lease = start(log, f"run{number}", key=f"key{number}")
            printed = (Captured(STEP, 1, "printed " * 200),)
            log.append([replace(batch(lease, 2, intent(), outcome(output="x" * 500), dead()), captured=printed)])
            last = batch(lease, 5, ended(RunStatus.TERMINATED), status=RunStatus.TERMINATED)
            assert log.append([replace(last, releases=True)]) == []
    full = path.stat().st_size
    with closing(SqliteLog(path, lease_clock=clock.clock())) as log:
        pruned = prune_all(log, PruneFilter(), pruned_by="ada")
        assert (pruned.runs, pruned.records) == (RUNS, 6 * RUNS)
        assert sorted(row.run_id for row in log.find("")) == ["active", "stuck"]
        assert len(log.dead_letters()) == 1
        assert log.verify().findings == ()
    left = _count_rows(path)
    assert {**left, "tombstones": 0, "meta": 0} == {**kept_rows, "tombstones": 0, "meta": 0}, "rows without their run"
    assert left["tombstones"] == RUNS
    assert path.stat().st_size < full // 5


def test_b55_heartbeats_append_nothing(tmp_path: Path) -> None:
    """E15: ten minutes of heartbeats leave no record and no byte more."""
    path, clock = tmp_path / "log.db", Time()
    with closing(SqliteLog(path, lease_clock=clock.clock())) as log:
        lease = start(log)
        log.renew([lease])
        before = _count_rows(path)
        sizes = []
        for _ in range(600 // 5):
            clock.pass_ms(5_000)
            assert log.renew([lease]) == []
            sizes.append(path.stat().st_size)
        assert _count_rows(path) == before
        assert len(set(sizes)) == 1
        assert log.row("run1").seq == 2


def _lock(path: Path) -> sqlite3.Connection:
    """Keep a log locked as a foreign program does, which knows of no gate."""
    connection = sqlite3.connect(path, isolation_level=None, timeout=10)
    connection.execute("BEGIN IMMEDIATE")
    return connection


def test_b61_sixteen_runs_wait_for_who_locks_the_log(scene: Scene) -> None:
    """E18: 16 processes, and another one that keeps the log for a while: all wait and all succeed."""
    scene.saga("x", [step("a"), step("b")])
    assert scene.do("run", "x").code == 0
    with closing(_lock(scene.path / ".sagactl" / "log.db")):
        started = [scene.start("run", "x", "-q") for _ in range(16)]
        time.sleep(3)
        assert not any(each.is_over() for each in started)
        assert len(scene.calls()) == 2
    assert [each.wait().code for each in started] == [0] * 16
    check_all(scene, looks=False)


def test_b61_a_log_that_stays_locked_is_no_failure_of_a_step(scene: Scene) -> None:
    """E18: locked for longer than is waited for: exit 1 before a call, in doubt after one, never a rollback."""
    scene.saga("x", [step("a")])
    scene.saga("y", [step("a", "wait 1", retry=tries(2)), step("b")])
    assert scene.do("run", "x").code == 0
    inside = scene.start("run", "y", "-q")
    scene.wait_for(scene.has_begun("a", 2))
    with closing(_lock(scene.path / ".sagactl" / "log.db")):
        started = scene.start("run", "x", "-q")
        done, outside = inside.wait(), started.wait()
    assert (outside.code, outside.error) == (1, "locked")
    assert (done.code, done.error) == (1, "locked")
    assert "hint" in done.err
    assert scene.calls() == ["a", "a"]
    resumed = scene.do("resume", "--all", "-q")
    assert resumed.code == 0
    assert scene.calls() == ["a", "a", "a", "b"], "the call whose outcome could not be written is made again"
    assert scene.effects() == ["a", "a", "b"], "under the same key, so its effect is there once"
    assert scene.show()["cause"] is None
    check_all(scene)


# A disk that is full

needs_root = pytest.mark.skipif(
    os.geteuid() != 0 or shutil.which("mount") is None, reason="mounting a small disk needs root: NOT RUN"
)
FILL = """
import os
from sagactl import CallContext, tool

def fill(path):
    with open(path, "ab", buffering=0) as file:
        for size in (4096, 1):
            try:
                while file.write(b"x" * size):
                    pass
            except OSError:
                pass

@tool("disk.fill", compensation="disk.refill", compensation_with={})
def fill_disk(context: CallContext, when: str = "action") -> None:
    note(context, "begin")
    if when == "action":
        fill(os.path.join(os.environ["DISK"], "ballast"))

@tool("disk.refill", null_safe=True)
def refill(context: CallContext, when: str = "") -> None:
    note(context, "undo")
    if os.path.exists(context.project / "fill_undo"):
        fill(os.path.join(os.environ["DISK"], "ballast"))

def note(context, word):
    with open(context.project / "notes", "a") as file:
        file.write(f"{word} {context.step} {context.idempotency_key}\\n")
"""

LARGE = """
from sagactl import tool

@tool("large.make", read_only=True)
def make() -> str:
    return "x" * 900_000
"""


@pytest.fixture
def disk(scene: Scene) -> Iterator[Path]:
    """Return a disk of two megabytes on which the log lies."""
    place = scene.path.parent / "disk"
    place.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=2m", "tmpfs", str(place)], check=True)
    scene.environ = {"DISK": str(place), "SAGACTL_LOG": str(place / "log.db")}
    scene.plugin("disk", FILL)
    yield place
    subprocess.run(["umount", str(place)], check=True)


def _fill(disk: Path) -> None:
    with (disk / "ballast").open("ab", buffering=0) as file:
        for size in (4096, 1):
            try:
                while file.write(b"x" * size):
                    pass
            except OSError:
                continue


def _check(scene: Scene, disk: Path, *, expected: int) -> dict[str, Any]:
    """Make room, resume, and return what `show` says; the log is whole."""
    (disk / "ballast").unlink()
    assert scene.do("verify").code == 0
    resumed = scene.do("resume", "--all", "-q")
    assert resumed.code == expected, resumed.err
    assert scene.do("verify").code == 0
    scene.is_checked = True  # its own plugin keeps its own notes
    shown: dict[str, Any] = scene.do("show", "@latest").run
    return shown


@needs_root
def test_b63_full_before_a_call_means_no_call(scene: Scene, disk: Path) -> None:
    """E18: (a) no intent can be written: exit 1 with a hint, and nothing was called."""
    scene.saga("x", [{"id": "a", "tool": "disk.fill", "with": {"when": "never"}}])
    assert scene.do("run", "x").code == 0
    _fill(disk)
    refused = scene.do("run", "x")
    assert (refused.code, refused.error) == (1, "disk-full")
    assert "warning: the log's disk has room for 0 KiB" in refused.err
    assert "free" in refused.json["error"]["hint"]
    assert len(_notes(scene, "begin")) == 1
    assert _check(scene, disk, expected=0)["status"] == "succeeded"


@needs_root
def test_b63_full_before_an_outcome_leaves_a_doubt_that_is_cleared(scene: Scene, disk: Path) -> None:
    """E18, E4: (b) neither the outcome of B nor the intent of C can be written: C isn't called, B again by its key."""
    never = {"when": "never"}
    scene.saga("x", [{"id": name, "tool": "disk.fill", "with": never if name != "b" else {}} for name in "abc"])
    broken = scene.do("run", "x")
    assert (broken.code, broken.error) == (1, "disk-full")
    assert _notes(scene, "begin") == ["a", "b"]
    scene.environ["DISK"] = str(scene.path)  # the second call fills nothing that matters
    (scene.path / "ballast").symlink_to("/dev/full")
    assert _check(scene, disk, expected=0)["status"] == "succeeded"
    assert _notes(scene, "begin") == ["a", "b", "b", "c"]


@needs_root
def test_b63_full_while_undoing_is_gone_on_with(scene: Scene, disk: Path) -> None:
    """E12, E18: (c) the outcome of an undo can't be written: exit 1, and the resume goes on with the undo."""
    never = {"when": "never"}
    scene.saga("x", [*({"id": name, "tool": "disk.fill", "with": never} for name in "ab"), step("c", "reject")])
    (scene.path / "fill_undo").touch()
    broken = scene.do("run", "x")
    assert (broken.code, broken.error) == (1, "disk-full")
    assert _notes(scene, "undo") == ["b"]
    (scene.path / "fill_undo").unlink()
    assert _check(scene, disk, expected=10)["not_undone"] == []
    assert _notes(scene, "undo") == ["b", "b", "a"]


@needs_root
def test_b63_no_half_of_what_is_too_large_is_kept(scene: Scene, disk: Path) -> None:
    """E18: (d) an output for which there is no room is there as a whole or not at all, and verify holds."""
    scene.plugin("large", LARGE)
    steps = [{"id": f"s{n}", "tool": "large.make", "read_only": True} for n in range(3)]
    scene.saga("x", steps)
    broken = scene.do("run", "x")
    assert (broken.code, broken.error) == (1, "disk-full")
    assert scene.do("verify").code == 0
    scene.is_checked = True
    with closing(SqliteLog(disk / "log.db")) as log:
        outputs = [each.record.output for each in log.read(log.find("")[0].run_id) if isinstance(each.record, Outcome)]
    assert outputs
    assert {len(str(output)) for output in outputs} == {900_000}


@needs_root
def test_b63_prune_works_in_place(scene: Scene, disk: Path) -> None:
    """Prune: (e) with little room left it gives space back; with none it is an error and nothing is lost."""
    scene.saga("x", [{"id": "a", "tool": "disk.fill", "with": {"when": "never"}}])
    for _ in range(12):
        assert scene.do("run", "x").code == 0
    _fill(disk)
    full = scene.do("prune", "--keep", "1", "--yes")
    assert full.code in {0, 1}
    if full.code == 1:
        assert full.error == "disk-full"
    os.truncate(disk / "ballast", (disk / "ballast").stat().st_size - 256 * 1024)
    before = (disk / "log.db").stat().st_size
    pruned = scene.do("prune", "--keep", "1", "--yes")
    assert pruned.code == 0
    assert (disk / "log.db").stat().st_size < before
    assert _check(scene, disk, expected=0)["status"] == "succeeded"
