"""The power is cut after each operation on the files of a log: nothing that was acknowledged is lost, nothing broken.

The log's own code runs over a file system that notes what it does (`vfs`); for each cut, disks are made that hold what
was synced and none, all, or some torn rest of what wasn't, in any order (`images`). The log's own code then opens each
with the SQLite that the system has, compares, takes the runs over, and compares again. `test_straced_cuts` does the
same with what the system's SQLite was seen doing in a real process.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from pathlib import Path

import pytest

from sagactl.log.sqlite import SqliteLog
from tests.log.disk.images import count_cuts, cut_everywhere
from tests.log.disk.judge import Judgement, judge_all, put
from tests.log.disk.trace import Recorder, Trace, state_of
from tests.log.disk.vfs import Kind, WatchedFiles
from tests.log.disk.work import Step, afterlife, go_through, life
from tests.log.test_migration import make_old_log
from tests.proof import Prove

IMAGES = "power cuts of the store (disk images)"
LOST = "acknowledged records lost in power cuts"
GOAL = 3_000
TORN = 4
PARTS = 4
"""Tests that share the images of a scene, for several cores."""

RECOVERED = (0.2, 0.45, 0.6, 0.8)
"""Where in a life the power is cut for the first time when it is cut twice."""


def record(folder: Path, steps: Callable[[SqliteLog], Iterable[Step]]) -> Trace:
    """Let a log live, watched, and return what was done to its files."""
    recorder = Recorder(folder)
    files = WatchedFiles(recorder)

    def acknowledge(log: SqliteLog) -> None:
        recorder.look_at_gate()
        recorder.trace.acknowledge(state_of(log))

    go_through(folder / "log.db", steps, files.connect, acknowledge)
    recorder.look_at_gate()
    return recorder.trace


def make_life(folder: Path) -> Trace:
    """Return the trace of a log's whole life."""
    return record(folder, life)


def make_migration(folder: Path) -> Trace:
    """Return the trace of a log of the first schema that is brought up to date, and goes on."""
    make_old_log(folder / "log.db")
    trace = record(folder, afterlife)
    trace.acknowledged.insert(0, (0, trace.acknowledged[0][1]))
    return trace


SCENES = {"life": make_life, "migration": make_migration}


def fail_with(found: Judgement, scene: str) -> None:
    """Fail with a line that repeats the first image that is wrong."""
    if found.wrong:
        name, problem = found.wrong[0]
        again = f"pytest tests/log/disk/test_power_cuts.py --image {scene}:{name}"
        pytest.fail(f"{problem}\n{len(found.wrong)} images are wrong; to repeat the first: {again}", pytrace=False)


@pytest.mark.parametrize("scene", SCENES)
@pytest.mark.parametrize("part", range(PARTS))
def test_no_power_cut_loses_what_was_acknowledged(
    scene: str, part: int, quick: Path, prove: Prove, image: str | None
) -> None:
    """L1, L2: after any cut the log is the acknowledged prefix and at most one transaction more, and goes on."""
    (quick / "life").mkdir()
    trace = SCENES[scene](quick / "life")
    images = cut_everywhere(trace, torn=TORN, cuts=count_cuts(trace, part, PARTS))
    if image is not None:
        images = (each for each in images if f"{scene}:{each.name}" == image)
    found = judge_all(images, trace, quick / "image")
    prove(IMAGES, found.images, goal=GOAL)
    prove(LOST, len(found.wrong), goal=0)
    fail_with(found, scene)
    assert image is not None or found.images > 0


@pytest.mark.parametrize("place", RECOVERED)
def test_no_power_cut_while_recovering_from_one_loses_anything(
    place: float, quick: Path, prove: Prove, image: str | None
) -> None:
    """F2, L2: the same holds when the power is cut again while the log recovers from the first cut, and after."""
    (quick / "life").mkdir()
    whole = make_life(quick / "life")
    cut = int(len(whole.changes) * place)
    scene = f"again{place}"
    first = list(cut_everywhere(whole, torn=TORN, cuts=range(cut, cut + 1)))[-1]
    (quick / "second").mkdir()
    put(first.files, quick / "second")
    trace = record(quick / "second", afterlife)
    trace.acknowledged.insert(0, (0, trace.acknowledged[0][1]))
    images = cut_everywhere(trace, torn=TORN - 2)
    if image is not None:
        images = (each for each in images if f"{scene}:{each.name}" == image)
    found = judge_all(images, trace, quick / "image")
    prove(IMAGES, found.images, goal=GOAL)
    prove(LOST, len(found.wrong), goal=0)
    fail_with(found, scene)


@pytest.mark.parametrize(
    ("name", "kind", "expected"),
    [("log.db-wal", Kind.SYNC, "promised"), ("log.db", Kind.SYNC, ""), ("log.db-journal", Kind.SYNC, "")],
)
def test_a_disk_that_syncs_nothing_is_found_out(name: str, kind: Kind, expected: str, quick: Path) -> None:
    """V0: without the syncs of the WAL, of the database or of its journal the same judge finds losses or damage."""
    (quick / "life").mkdir()
    trace = SCENES["migration" if name.endswith("-journal") else "life"](quick / "life")
    kept = [number for number, each in enumerate(trace.changes) if (each.kind, each.name) != (kind, name)]
    assert len(kept) < len(trace.changes)
    places = [sum(number < place for number in kept) for place, _ in trace.acknowledged]
    lying = Trace(
        [trace.changes[number] for number in kept],
        [(place, state) for place, (_, state) in zip(places, trace.acknowledged, strict=True)],
        before=trace.before,
    )
    found = judge_all(cut_everywhere(lying, torn=2), lying, quick / "image", wrong_max=3)
    assert found.wrong
    assert any(expected in problem for _, problem in found.wrong)


def test_what_was_durable_and_not_acknowledged_is_there_as_well(quick: Path) -> None:
    """V0: cuts between the sync of a commit and its answer happen, and leave the transaction whole."""
    (quick / "life").mkdir()
    trace = make_life(quick / "life")
    found = judge_all(cut_everywhere(trace, torn=0), trace, quick / "image")
    assert found.ahead > 20
    assert found.images - found.ahead > 100
