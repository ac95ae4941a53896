"""How long commands take, against a bare Typer program of the same Typer with as many commands."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from sagactl.cli.commands import COMMANDS
from tests.benchmarks.processes import compare
from tests.benchmarks.project import write_bare_program, write_product, write_project
from tests.benchmarks.rows import Row

GOALS: Final = {"--version": 1.4, "list": 1.4, "log": 1.4, "run": 2.2}
_LINES: Final = {
    "run": ["run", "steps3"],
    "log": ["log", "@latest"],
    "list": ["list"],
    "--version": ["--version"],
}
"""In this order: there must be a run before it is shown."""


def measure(repetitions: int) -> Iterator[Row]:
    """Measure each command that has a goal."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        write_project(folder)
        product = write_product(folder)
        commands = {"bare": [*write_bare_program(folder, list(COMMANDS)), "list"]}
        commands |= {which: [*product, *line] for which, line in _LINES.items()}
        found = compare(commands, cwd=folder, repetitions=repetitions)
    floor = found.pop("bare")
    for which, usage in found.items():
        yield Row(f"{which}: CPU", usage.cpu_ms, "ms", floor.cpu_ms, GOALS[which])
        yield Row(f"{which}: wall", usage.wall_ms, "ms", floor.wall_ms, GOALS[which])
