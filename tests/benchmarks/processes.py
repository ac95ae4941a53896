"""What whole processes take: wall time, CPU time of user and system, and memory at the peak."""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

LAUNCHER = Path(__file__).with_name("launch.py")
ROOT = Path(__file__).parents[2]


@dataclass(frozen=True, slots=True)
class Usage:
    """The medians of what a command took."""

    wall_ms: float
    cpu_ms: float
    peak_mib: float


def compare(commands: Mapping[str, Sequence[str]], *, cwd: Path, repetitions: int, code: int = 0) -> dict[str, Usage]:
    """Run all commands in turn in the folder *cwd* and return what each took; raises where the exit code is another."""
    lines = {name: list(line) for name, line in commands.items()}
    order = json.dumps({"repetitions": repetitions, "code": code, "commands": lines})
    done = subprocess.run(
        [sys.executable, "-S", "-E", str(LAUNCHER)],
        input=order,
        cwd=cwd,
        env=environment(),
        stdout=subprocess.PIPE,
        text=True,
        check=True,
    )
    return {name: _summarize(usages) for name, usages in json.loads(done.stdout).items()}


def _summarize(usages: list[tuple[float, float, int]]) -> Usage:
    wall, cpu, peak = (statistics.median(values) for values in zip(*usages, strict=True))
    return Usage(wall * 1_000, cpu * 1_000, peak / 1_048_576)


def environment() -> dict[str, str]:
    """Return our environment without what would slow a start down, or change what is measured."""
    left_out = ("PYTHONDONTWRITEBYTECODE", "PYTHONPATH", "NO_COLOR", "FORCE_COLOR")
    inherited = {k: v for k, v in os.environ.items() if k not in left_out and not k.startswith("SAGACTL_")}
    return {**inherited, "PYTHONPATH": str(ROOT)}
