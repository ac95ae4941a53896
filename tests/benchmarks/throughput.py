"""Steps a second within one process, against bare sqlite3 that commits the same records in the same groups.

The floor is a loop of `BEGIN IMMEDIATE`, one `executemany` and `COMMIT` for each commit that sagactl made, into a table
like its own, in WAL mode with `synchronous=FULL`: it decides, calls, hashes and encodes nothing.
"""

from __future__ import annotations

import itertools
import sqlite3
import tempfile
import time
import tracemalloc
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Final, TypeAlias

from sagactl import Project, RunStatus, open_project, tool
from sagactl.log.base import Batch, Lease
from tests.benchmarks.rows import Row, take_turns

STEPS: Final = 10
RUNS: Final = (1, 200, 2_000)
GOAL_ALONE: Final = 0.7
GOAL_TOGETHER: Final = 0.3
GOAL_MANY: Final = 0.95
"""Of the rate with fewer runs: no less, but for noise."""
GOAL_KIB_PER_RUN: Final = 4.0

Group: TypeAlias = list[tuple[str, int, int]]
"""What one commit held: of each run, the first sequence number and how many records."""
Rows: TypeAlias = list[tuple[Any, ...]]


@tool("noop.do", compensation="noop.undo", compensation_with={})
def do(text: str) -> dict[str, str]:
    """Do nothing."""
    return {"text": text}


@tool("noop.undo", null_safe=True)
def undo() -> None:
    """Undo nothing."""


def measure(repetitions: int) -> Iterator[Row]:
    """Measure one run alone, hundreds together, and whether thousands are as fast and leave little behind."""
    with tempfile.TemporaryDirectory() as name, open_project(_write_saga(Path(name)), tools=[do, undo]) as project:
        for count, goal in zip(RUNS[:2], (GOAL_ALONE, GOAL_TOGETHER), strict=True):
            floor = Floor(Path(name) / f"floor{count}.db", project, record_commits(project, count))
            rates = take_turns(
                {"ours": lambda n=count: rate(project, n), "floor": floor.rate},  # type: ignore[misc]
                repetitions,
            )
            what = "1 run" if count == 1 else f"{count} runs together"
            yield Row(f"{what}, {STEPS} steps each", rates["ours"], "steps/s", rates["floor"], goal, is_at_least=True)
        few, many = RUNS[1:]
        rates = take_turns({"few": lambda: rate(project, few), "many": lambda: rate(project, many)}, repetitions=3)
        yield Row(f"{many} runs against {few}", rates["many"], "steps/s", rates["few"], GOAL_MANY, is_at_least=True)
        yield Row("kept of a run that has ended", kept_kib(project, few), "KiB", goal=GOAL_KIB_PER_RUN)


def _write_saga(folder: Path) -> Path:
    (folder / "sagas").mkdir()
    steps = "".join(f'  - {{id: s{n}, tool: noop.do, with: {{text: "x"}}}}\n' for n in range(STEPS))
    (folder / "sagas" / "steps.yaml").write_text(f"saga: steps\nsteps:\n{steps}")
    return folder


def rate(project: Project, count: int) -> float:
    """Return the steps a second of *count* runs, from their creation to their end."""
    saga = project.load("steps")
    with project.driver() as driver:
        began = time.perf_counter()
        for _ in range(count):
            driver.start(saga)
        endings = driver.drive()
        seconds = time.perf_counter() - began
    assert all(ending.status is RunStatus.SUCCEEDED for ending in endings.values())
    return count * STEPS / seconds


def record_commits(project: Project, count: int) -> list[Group]:
    """Run *count* runs and return what each commit held."""
    log, groups = project.log(), []
    append = log.append

    def note(batches: Sequence[Batch]) -> list[Lease]:
        groups.append([(each.lease.run_id, each.after_seq + 1, len(each.records)) for each in batches])
        return append(batches)

    setattr(log, "append", note)  # noqa: B010 - it is a method to the type checker
    try:
        rate(project, count)
    finally:
        delattr(log, "append")
    runs = dict.fromkeys(run_id for group in groups for run_id, _, _ in group)
    created: list[Group] = [[(run_id, 1, 2)] for run_id in runs]
    return created + groups


class Floor:
    """The bare loop; see the module."""

    def __init__(self, file: Path, project: Project, groups: list[Group]) -> None:
        with sqlite3.connect(project.config.log) as product:
            self._commits = [_read_rows(product, group) for group in groups]
            (table,) = product.execute("SELECT sql FROM sqlite_master WHERE name = 'records'").fetchone()
        self._steps = STEPS * len({run_id for group in groups for run_id, _, _ in group})
        self._turns = itertools.count()
        self._connection = sqlite3.connect(file, isolation_level=None)
        for statement in ("PRAGMA journal_mode = WAL", "PRAGMA synchronous = FULL", table):
            self._connection.execute(statement).fetchall()

    def rate(self) -> float:
        """Return the steps a second."""
        turn = f"{next(self._turns):04}"
        commits = [[(row[0][:-4] + turn, *row[1:]) for row in rows] for rows in self._commits]
        execute, insert = self._connection.execute, self._connection.executemany
        began = time.perf_counter()
        for rows in commits:
            execute("BEGIN IMMEDIATE")
            insert("INSERT INTO records VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)", rows)
            execute("COMMIT")
        return self._steps / (time.perf_counter() - began)


def _read_rows(product: sqlite3.Connection, group: Group) -> Rows:
    query = "SELECT * FROM records WHERE run_id = ? AND seq BETWEEN ? AND ? ORDER BY seq"
    return [row for run_id, seq, count in group for row in product.execute(query, (run_id, seq, seq + count - 1))]


def kept_kib(project: Project, count: int) -> float:
    """Return how much memory a run that has ended still takes, its ending included."""
    saga = project.load("steps")
    with project.driver() as driver:
        driver.start(saga)
        driver.drive()
    tracemalloc.start()
    try:
        with project.driver() as driver:
            for _ in range(count):
                driver.start(saga)
            endings = driver.drive()
            kept, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    return kept / 1024 / len(endings)
