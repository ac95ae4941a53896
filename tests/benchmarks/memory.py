"""How much memory a run of ten steps takes at its peak, in a fresh process without a live display."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from tests.benchmarks.processes import compare
from tests.benchmarks.project import write_product, write_project
from tests.benchmarks.rows import Row

GOALS_MIB: Final = {"steps10": 40.0, "cel": 52.0}
"""Without an expression that needs CEL, and with one."""


def measure(repetitions: int) -> Iterator[Row]:
    """Measure both kinds of run."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        write_project(folder)
        product = write_product(folder)
        commands = {saga: [*product, "run", saga] for saga in GOALS_MIB}
        found = compare(commands, cwd=folder, repetitions=repetitions)
    for saga, usage in found.items():
        yield Row(f"run {saga}: peak", usage.peak_mib, "MiB", goal=GOALS_MIB[saga])
