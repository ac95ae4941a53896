"""A project with one server of the tests, pinned while it was good."""

from __future__ import annotations

import json
import os
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from sagactl import Ending
from sagactl.app import Project, open_project
from sagactl.core.answer import Answer, ProbeReply
from sagactl.core.canonical import Json
from sagactl.tools.mcp.servers import McpServers
from tests.tools.building import invocation

SERVER = Path(__file__).with_name("server.py")
TOOLS = """
[mcp.test.tools.put]
compensation = "test.take"
compensation_with = {line = "${{ args.line }}"}
probe = "test.was_put"

[mcp.test.tools.take]
idempotent = true
null_safe = true
gone = ["ENOENT"]

[mcp.test.tools.was_put]
tool = "look"
with = {line = "${{ args.line }}"}
found = "${{ output.found }}"
done_output = {lines = 1}
"""

PINNED: dict[str, str] = {}
"""What was pinned of the server while it was good, for tests that follow."""


class Bench:
    """The project, its server's folder, and calls through the whole toolbox."""

    def __init__(self, folder: Path, tools: str = TOOLS, *, is_pinned: bool = True, **settings: Any) -> None:
        self.folder = folder
        self.room = folder / "room"
        self.room.mkdir()
        (folder / "plugins").mkdir()
        self._project: Project | None = None
        self._lock = threading.Lock()
        self.configure(tools, **settings)
        if is_pinned:
            self.pin()

    def configure(self, tools: str = TOOLS, **settings: Any) -> None:
        """Write the settings; those of the server beside its command."""
        command = [sys.executable, "-S", "-I", str(SERVER)]
        words = {} if "url" in settings else {"command": command, "cwd": "room"}
        settings = {**words, "connect_timeout": "60s", **settings}
        given = "".join(f"{key} = {_spell(value)}\n" for key, value in settings.items())
        (self.folder / "sagactl.toml").write_text(f"[mcp.test]\n{given}{tools}")
        self.close()

    def mode(self, word: str) -> None:
        """Tell the server what it is to be."""
        (self.room / "mode").write_text(word)

    @property
    def project(self) -> Project:
        """The project as a process has it, opened once."""
        with self._lock:  # tests call from several threads, and a second project would be closed by nobody
            if self._project is None:
                self._project = open_project(self.folder)
            return self._project

    @property
    def servers(self) -> McpServers:
        """All servers in the settings."""
        servers = self.project.toolset.servers
        assert servers is not None
        return servers

    def pin(self) -> None:
        """Pin what the server says now; while it is good, that is what it said to an earlier test."""
        lock, known = self.folder / "plugins" / "mcp.lock.json", PINNED.get(str(self.servers.servers["test"].url))
        if known is not None and not (self.room / "mode").exists():
            lock.write_text(known)
        else:
            self.servers.pin(self.servers.look())
            if not (self.room / "mode").exists() and self.started():
                PINNED["None"] = lock.read_text()
        self.close()

    def start(self, saga: str) -> Ending:
        """Drive a run of *saga* in this process, as far as it comes."""
        with self.project.driver() as driver:
            driver.start(self.project.load(saga))
            return next(iter(driver.drive().values()))

    def resume(self, run_id: str) -> Ending:
        """Carry on with a run in this process."""
        with self.project.driver() as driver:
            driver.resume(run_id)
            return next(iter(driver.drive().values()))

    def call(self, tool: str = "test.put", seconds: float = 60.0, **arguments: Json) -> Answer:
        """Call a tool as the engine does."""
        asked = invocation(tool, arguments or {"line": "a"}, seconds_left=seconds, project=self.folder)
        return self.project.toolbox.call(asked)

    def probe(self, tool: str = "test.was_put", **arguments: Json) -> ProbeReply:
        """Ask a probe as the engine does."""
        return self.project.toolbox.probe(invocation(tool, arguments or {"line": "a"}, project=self.folder))

    def lines(self) -> list[str]:
        """What the server's world holds."""
        world = self.room / "world"
        return world.read_text().splitlines() if world.exists() else []

    def started(self) -> list[int]:
        """The processes that the server was, in order."""
        file = self.room / "started"
        return [int(each) for each in file.read_text().split()] if file.exists() else []

    def close(self) -> None:
        """Close the project, as a command does at its end."""
        if self._project is not None:
            self._project.close()
            self._project = None


def _spell(value: object) -> str:
    if isinstance(value, dict):
        return "{" + ", ".join(f"{name} = {_spell(each)}" for name, each in value.items()) + "}"
    return json.dumps(value)


def is_running(pid: int) -> bool:
    """Tell whether a process runs, and isn't only waiting to be noticed."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] not in {"Z", "X"}
    except OSError:
        return False


def wait_until(holds: Callable[[], bool], seconds: float = 60.0) -> None:
    """Return once it holds; fail where it never does."""
    deadline = time.monotonic() + seconds
    while not holds():
        assert time.monotonic() < deadline, "it never came to be"
        time.sleep(0.02)


@pytest.fixture
def bench(tmp_path: Path) -> Iterator[Bench]:
    """Yield a bench; at its end no process of the server's is left."""
    os.environ.pop("SAGACTL_LOG", None)
    made = Bench(tmp_path)
    yield made
    made.close()
    wait_until(lambda: not any(map(is_running, made.started())))
