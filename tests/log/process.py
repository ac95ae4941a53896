"""Other processes that use a log, for tests that kill, stop and race them."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).parents[2]

PRELUDE: Final = """
import signal, sys, time
from pathlib import Path
from sagactl.errors import SagactlError
from sagactl.log.checkpoint import Checkpointer
from sagactl.log.holder import this_process
from sagactl.log.sqlite import SqliteLog
from tests.log.samples import add, batch, intent, new_run, outcome, start
path = Path(sys.argv[1])
def say(word):
    print(word, flush=True)
"""


def launch(path: Path, program: str) -> subprocess.Popen[str]:
    """Start *program* on the log at *path* with its output in a pipe."""
    return subprocess.Popen(
        [sys.executable, "-c", PRELUDE + program, str(path)],
        cwd=ROOT,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )


def listen(process: subprocess.Popen[str]) -> str:
    """Return the next line that the process says."""
    assert process.stdout is not None
    return process.stdout.readline().strip()


def tell(process: subprocess.Popen[str], word: str = "go") -> None:
    """Send a line to the process."""
    assert process.stdin is not None
    process.stdin.write(word + "\n")
    process.stdin.flush()


def end(process: subprocess.Popen[str]) -> str:
    """Let the process come to its end and return what else it said."""
    assert process.stdin is not None
    assert process.stdout is not None
    process.stdin.close()
    said = process.stdout.read()  # not `communicate`, which passes over what was buffered for `listen`
    process.stdout.close()
    process.wait(timeout=240)
    return said.strip()
