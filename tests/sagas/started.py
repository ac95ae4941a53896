"""The servers of `sagas/onboarding-live.yaml`, started as the README says."""

from __future__ import annotations

import contextlib
import re
import shlex
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.cli.project import Project
from tests.servers.start import find_node_program, find_python_program
from tests.servers.together import Systems
from tests.servers.tryton import find_set_up

READY_SECONDS = 120.0


@contextlib.contextmanager
def started(folder: Path) -> Iterator[Systems]:
    """Run `python -m tests.servers` in *folder* until the block ends; its file with variables is there meanwhile."""
    find_node_program("stripe-stateful-mock")
    find_python_program("moto_server")
    find_set_up()
    command = [sys.executable, "-m", "tests.servers"]
    place = folder / "servers.env"
    with (folder / "servers.log").open("w") as log:
        servers = subprocess.Popen(command, cwd=folder, env=Project(folder).environment(), stdout=log, stderr=log)
        try:
            deadline = time.monotonic() + READY_SECONDS
            while not place.exists():
                if servers.poll() is not None or time.monotonic() > deadline:
                    pytest.fail((folder / "servers.log").read_text())
                time.sleep(0.1)
            assert place.stat().st_mode & 0o777 == 0o600
            yield Systems(read_exports(place.read_text()))
        finally:
            servers.send_signal(signal.SIGINT)
            assert servers.wait(60) == 0
    assert not place.exists()


def read_exports(text: str) -> dict[str, str]:
    """Return the variables of lines like `export NAME='value'`."""
    found = re.findall(r"^export (\w+)=(.*)$", text, re.MULTILINE)
    return {name: "".join(shlex.split(value)) for name, value in found}
