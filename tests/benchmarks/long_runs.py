"""Runs with a long past and logs with many runs: what is behind must not be paid for again.

Each figure is that of a whole process, its start included, as a user meets it.
"""

from __future__ import annotations

import sqlite3
import subprocess
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from sagactl import RunStatus, open_project
from tests.benchmarks.processes import compare
from tests.benchmarks.project import write_product
from tests.benchmarks.rows import Row, take_turns
from tests.benchmarks.throughput import do, undo

ITEMS: Final = 10_000
LONG_STEPS: Final = 5
RUNS: Final = 100_000
SHORT_ITEMS: Final = 500
GOAL_RESUME_SECONDS: Final = 1.0
GOAL_RESUME_MIB: Final = 200.0
GOAL_LONG_SECONDS: Final = 5.0
GOAL_LIST_SECONDS: Final = 0.5
GOAL_APPEND: Final = 0.9

_PLUGIN = '''"""Tools that do nothing, and one that is never there."""

from sagactl import Unavailable, tool


@tool("noop.do", compensation="noop.undo", compensation_with={})
def do(text: str = "") -> dict[str, str]:
    """Do nothing."""
    return {"text": text}


@tool("noop.undo", null_safe=True)
def undo() -> None:
    """Undo nothing."""


@tool("noop.wait", compensation="noop.undo", compensation_with={})
def wait() -> None:
    """Say that it is not the time."""
    raise Unavailable("not yet", retry_after=0.01)
'''

_SAGA = """saga: {name}
input: {{type: object, properties: {{items: {{type: array}}}}}}
steps:
{steps}  - {{id: last, tool: noop.wait, retry: {{max_attempts: 1000}}}}
"""
_STEP = '  - {{id: s{n}, tool: noop.do, foreach: "${{{{ input.items }}}}", concurrency: 8, with: {{text: "x"}}}}\n'


def measure(repetitions: int) -> Iterator[Row]:
    """Measure resuming, listing and appending."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        _write_project(folder)
        product = write_product(folder)
        for saga, seconds, mib in (("long1", GOAL_RESUME_SECONDS, GOAL_RESUME_MIB), ("long5", GOAL_LONG_SECONDS, None)):
            run_id, records = _run_until_it_waits(folder, product, saga)
            line = [*product, "resume", run_id, "--no-wait", "-q"]
            found = compare({saga: line}, cwd=folder, repetitions=min(repetitions, 5), code=12)[saga]
            what = f"resume after {records} records"
            yield Row(f"{what}, to its next call", found.wall_ms / 1000, "s", goal=seconds)
            yield Row(f"{what}, peak", found.peak_mib, "MiB", goal=mib)
        _multiply_runs(folder / ".sagactl" / "log.db")
        found = compare({"list": [*product, "list"]}, cwd=folder, repetitions=repetitions)["list"]
        yield Row(f"list with {RUNS} runs", found.wall_ms / 1000, "s", goal=GOAL_LIST_SECONDS)
    with tempfile.TemporaryDirectory() as name:
        yield _compare_appending(Path(name), repetitions)


def _write_project(folder: Path) -> None:
    (folder / "plugins").mkdir()
    (folder / "plugins" / "noop.py").write_text(_PLUGIN)
    (folder / "sagas").mkdir()
    for count in (1, LONG_STEPS):
        steps = "".join(_STEP.format(n=n) for n in range(count))
        (folder / "sagas" / f"long{count}.yaml").write_text(_SAGA.format(name=f"long{count}", steps=steps))


def _run_until_it_waits(folder: Path, product: list[str], saga: str) -> tuple[str, int]:
    """Run *saga* up to its last step and return its id and how many records it has."""
    items = ",".join("1" for _ in range(ITEMS))
    (folder / "inputs.json").write_text(f'{{"items": [{items}]}}')
    line = [*product, "run", saga, "--inputs", "inputs.json", "--no-wait", "-qq"]
    done = subprocess.run(line, cwd=folder, capture_output=True, text=True, check=False)
    assert done.returncode == 12, done.stderr
    with sqlite3.connect(folder / ".sagactl" / "log.db") as log:
        found: tuple[str, int] = log.execute("SELECT run_id, seq FROM runs WHERE saga = ?", (saga,)).fetchone()
    return found


def _multiply_runs(log: Path) -> None:
    """Add rows of runs that ended long ago; what else they had is of no matter to a list."""
    columns = (
        "saga, definition, status, direction, cause, failure, failed_step, waiting_for, waiting_until_ms, key,"
        " key_is_explicit, input_digest, created_at_ms, updated_at_ms, ended_at_ms, steps_total, steps_done,"
        " dead_letters, seq, head"
    )
    given = columns.replace("status", "'succeeded'")
    with sqlite3.connect(log) as database:
        database.execute(
            f"INSERT INTO runs (run_id, {columns}) WITH RECURSIVE n (i) AS"
            " (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < ?)"
            f" SELECT substr(lower(hex(randomblob(7))), 1, 13), {given} FROM n, runs WHERE number = 1",
            (RUNS,),
        )


def _compare_appending(folder: Path, repetitions: int) -> Row:
    """Compare the rate of the steps of a long run with that of short ones, in one process."""
    (folder / "sagas").mkdir()
    for name in ("long", "short"):
        saga = _SAGA.format(name=name, steps=_STEP.format(n=0)).rpartition("  - ")[0]
        (folder / "sagas" / f"{name}.yaml").write_text(saga)
    with open_project(folder, tools=[do, undo]) as project:

        def rate(name: str, items: int) -> float:
            saga = project.load(name)
            with project.driver() as driver:
                driver.start(saga, {"items": [1] * items})
                began = time.perf_counter()
                (ending,) = driver.drive().values()
                seconds = time.perf_counter() - began
            assert ending.status is RunStatus.SUCCEEDED
            return items / seconds

        contenders = {"long": lambda: rate("long", ITEMS), "short": lambda: rate("short", SHORT_ITEMS)}
        rates = take_turns(contenders, min(repetitions, 5))
    return Row("items of a long run", rates["long"], "items/s", rates["short"], GOAL_APPEND, is_at_least=True)
