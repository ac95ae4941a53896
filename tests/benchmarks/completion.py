"""How long a shell waits for ids of runs, against a Python that does nothing."""

from __future__ import annotations

import shutil
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from tests.benchmarks.processes import compare
from tests.benchmarks.project import write_product, write_project
from tests.benchmarks.rows import Row

GOAL: Final = 6.0
"""A Python that does nothing takes 10 to 25 ms; people take 150 ms for at once."""

RUNS: Final = 5


def measure(repetitions: int) -> Iterator[Row]:
    """Measure completion of the argument of `show` in a project with some runs."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        write_project(folder)
        product = write_product(folder)
        compare({"run": [*product, "run", "steps3"]}, cwd=folder, repetitions=RUNS)
        ask = [shutil.which("env") or "env", "_SAGACTL_COMPLETE=bash"]
        commands = {"nothing": [*ask, sys.executable, "-c", "pass"], "ids": [*ask, *product, "show", ""]}
        found = compare(commands, cwd=folder, repetitions=repetitions)
    floor, ids = found["nothing"], found["ids"]
    yield Row("completion of run ids: CPU", ids.cpu_ms, "ms", floor.cpu_ms, GOAL)
    yield Row("completion of run ids: wall", ids.wall_ms, "ms", floor.wall_ms, GOAL)
