"""A project of its own for a test, and the command line run in it as a user would: another process."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from sagactl.cli.signals import ONE_SIGNAL_SECONDS

ROOT = Path(__file__).parents[2]
WAIT_SECONDS = 120
"""Who takes longer hangs; nothing takes nearly as long, however much else the machine has to do."""


@dataclass
class Result:
    """What a command gave."""

    code: int
    out: str
    err: str

    @property
    def json(self) -> Any:
        """The one JSON value on stdout."""
        return json.loads(self.out)


@dataclass
class Project:
    """A folder with the plugins and sagas that ship, and a log of its own."""

    path: Path
    environ: dict[str, str] = field(default_factory=dict)

    @classmethod
    def make(cls, path: Path) -> Project:
        """Copy the shipped plugins and sagas to *path*."""
        for name in ("plugins", "sagas"):
            shutil.copytree(ROOT / name, path / name, ignore=shutil.ignore_patterns("__pycache__"))
        return cls(path, {"SAGACTL_SANDBOX_LEDGER": str(path / "witness.jsonl")})

    def environment(self, extra: Mapping[str, str] | None = None) -> dict[str, str]:
        """Return the environment of a command: ours, without settings that a developer may have."""
        inherited = {k: v for k, v in os.environ.items() if not k.startswith(("SAGACTL_", "GITHUB_"))}
        return {**inherited, "PYTHONPATH": str(ROOT), "COLUMNS": "80", **self.environ, **(extra or {})}

    def run(self, *arguments: str, extra: Mapping[str, str] | None = None, timeout: float = WAIT_SECONDS) -> Result:
        """Run `sagactl` with *arguments* in the project."""
        return self.run_python("-m", "sagactl", *arguments, extra=extra, timeout=timeout)

    def run_python(
        self, *arguments: str, extra: Mapping[str, str] | None = None, timeout: float = WAIT_SECONDS
    ) -> Result:
        """Run Python with *arguments* in the project."""
        done = subprocess.run(
            [sys.executable, *arguments],
            cwd=self.path,
            env=self.environment(extra),
            capture_output=True,
            text=True,
            timeout=timeout,
            check=False,
            stdin=subprocess.DEVNULL,
        )
        return Result(done.returncode, done.stdout, done.stderr)

    def run_several(self, *lines: Sequence[str]) -> list[Result]:
        """Run several command lines that only look, in one process."""
        script = str(Path(__file__).with_name("several.py"))
        answers = json.loads(self.run_python(script, json.dumps([list(line) for line in lines])).out)
        return [Result(code, out, "") for code, out in answers]

    def start(self, *arguments: str, extra: Mapping[str, str] | None = None) -> subprocess.Popen[str]:
        """Start `sagactl` and don't wait for it."""
        return subprocess.Popen(
            [sys.executable, "-m", "sagactl", *arguments],
            cwd=self.path,
            env=self.environment(extra),
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            stdin=subprocess.DEVNULL,
            text=True,
        )

    def start_python_after_line(self, *arguments: str) -> subprocess.Popen[str]:
        """Start Python with *arguments* once a line came to its stdin: its pid is known before it does anything."""
        wait = 'read line; exec "$0" "$@"'
        return subprocess.Popen(
            ["/bin/sh", "-c", wait, sys.executable, *arguments],
            cwd=self.path,
            env=self.environment(),
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            stdin=subprocess.PIPE,
            text=True,
        )

    def latest(self) -> dict[str, Any]:
        """Return the newest run as a document."""
        shown: dict[str, Any] = self.run("show", "-o", "json").json["run"]
        return shown

    def ledger(self) -> list[dict[str, Any]]:
        """Return the sandbox's own ordered ledger of effects."""
        entries: list[dict[str, Any]] = self.run("sandbox", "show", "-o", "json").json["ledger"]
        return entries

    def witness(self) -> list[dict[str, Any]]:
        """Return what the tools have testified to, in order, in a file that no log knows of."""
        file = self.path / "witness.jsonl"
        return [json.loads(line) for line in file.read_text().splitlines()] if file.exists() else []


def interrupt_twice(process: subprocess.Popen[str]) -> str:
    """Send a second SIGINT once the first has been heard, which must end it at once; return what stderr said.

    Two that are *handled* within half a second are one, however far apart they were sent. That the second one ended it,
    and not the grace that the first one gives, is told by what it says, not by a clock.
    """
    assert process.stdout is not None
    assert process.stderr is not None
    given_up = threading.Timer(WAIT_SECONDS, process.kill)
    given_up.daemon = True
    given_up.start()
    with process.stdout, process.stderr:
        process.send_signal(signal.SIGINT)
        said = ""
        while "stopping: " not in said:
            line = process.stderr.readline()
            assert line, f"it ended without a word of the first signal: {said}"
            said += line
        time.sleep(ONE_SIGNAL_SECONDS + 0.2)
        process.send_signal(signal.SIGINT)
        said += process.stderr.read()
        process.wait()
    given_up.cancel()
    assert "left at once" in said, said
    return said
