"""What reaches the disk, and when, seen from outside the process by strace."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.cli.project import Project

needs_strace = pytest.mark.skipif(shutil.which("strace") is None, reason="strace is not installed: NOT RUN")

_WAL_SYNC = re.compile(r"f(?:data)?sync\(\d+<[^>]*log\.db-wal>\)\s+= 0")
_BEGIN = re.compile(r"write\(\d+<[^>]*witness\.jsonl>, .*phase\\?\": \\?\"begin")
_STEPS = 4
"""Calls of an onboarding without servers: lead, deposit, contract, welcome."""


def _trace(project: Project, *arguments: str) -> list[str]:
    """Run a command under strace and return the marks `sync` (of the log) and `begin` (of a tool) in their order."""
    file = project.path / "trace"
    command = ["strace", "-f", "-y", "-s", "300", "-e", "trace=fsync,fdatasync,write", "-o", str(file)]
    done = subprocess.run(
        [*command, sys.executable, "-m", "sagactl", *arguments],
        cwd=project.path,
        env=project.environment(),
        capture_output=True,
        check=False,
        timeout=120,
    )
    assert done.returncode == 0, done.stderr
    marks = []
    for line in file.read_text(errors="replace").splitlines():
        if _WAL_SYNC.search(line):
            marks.append("sync")
        elif _BEGIN.search(line):
            marks.append("begin")
    return marks


@needs_strace
def test_each_call_begins_after_the_sync_of_its_intent_and_no_sync_is_wasted(tmp_path: Path) -> None:
    """E1, E2: each intent is synced before its call; N steps in a chain sync N+1 times, their run's creation apart.

    The creation holds the claim, and the last of the N+1 holds the run's end and gives its lease back.
    """
    project = Project.make(tmp_path)
    assert project.run("run", "onboarding", "-q", "-i", "email=first@example.com", "-i", "amount:=1").code == 0
    marks = _trace(project, "run", "onboarding", "-q", "-i", "email=second@example.com", "-i", "amount:=1")
    assert marks.count("begin") == _STEPS
    before_first = marks.index("begin")
    assert marks[:before_first] == ["sync"] * 3, "the file's header, the run with its claim, the first intent"
    steps = marks[before_first:]
    assert steps[: 2 * _STEPS] == ["begin", "sync"] * _STEPS, "one sync between two effects, and one after the last"
    assert steps[2 * _STEPS :] == ["sync"] * len(steps[2 * _STEPS :])
    assert len(steps[2 * _STEPS :]) <= 1, "the checkpoint of a log that is closed"
