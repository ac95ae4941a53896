"""The built-in tools in a folder of their own, and what looks at the processes that they start."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from sagactl.core.answer import Answer, ProbeReply
from sagactl.core.canonical import Json
from sagactl.log.holder import read_boot_id
from sagactl.tools.base import Invocation
from sagactl.tools.built_in import BuiltIn
from sagactl.tools.invoke import PluginToolbox
from sagactl.tools.registry import Registry, collect_tools
from tests.tools.building import invocation

BEATS = """
import os, sys, time
if os.fork() == 0:
    os.setsid()
    if os.fork() == 0:
        {before}
        while True:
            with open(sys.argv[1], "a") as file:
                file.write(f"{{os.getpid()}}\\n")
            time.sleep(0.02)
    os._exit(0)
os.wait()
{after}
"""
"""A program whose grandchild leaves its session, forks once more, and writes its pid to a file for ever."""


@dataclass
class Commands:
    """A toolbox with the built-in tools, for commands that run in `folder`."""

    folder: Path
    built_in: BuiltIn = field(init=False)
    toolbox: PluginToolbox = field(init=False)
    registry: Registry = field(init=False)

    def __post_init__(self) -> None:
        self.built_in = BuiltIn(self.calls, read_boot_id)
        self.registry = collect_tools(None, entry_points=[], built_in=[self.built_in.load()])
        self.toolbox = PluginToolbox(self.registry, self.built_in.end_orphans)

    @property
    def calls(self) -> Path:
        """Where calls under way are noted."""
        return self.folder / "state" / "calls"

    def make(self, tool: str, arguments: dict[str, Json], **facts: Any) -> Invocation:
        """Return a call of *tool*."""
        return invocation(tool, arguments, **{"project": self.folder, **facts})

    def run(self, *argv: str, tool: str = "shell.run", **arguments: Json) -> Answer:
        """Run a command and return the answer."""
        return self.toolbox.call(self.make(tool, {"argv": list(argv), **arguments}))

    def script(self, text: str, **arguments: Json) -> Answer:
        """Run a script and return the answer."""
        return self.toolbox.call(self.make("shell.run", {"script": text, **arguments}))

    def probe(self, *argv: str, **arguments: Json) -> ProbeReply:
        """Ask a probe."""
        return self.toolbox.probe(self.make("shell.probe", {"probe": list(argv), **arguments}))


def word_of(answer: Answer) -> tuple[str, str]:
    """Return the kind of an answer and the word for its failure."""
    return answer.kind.value, "" if answer.failure is None else answer.failure.type


def message_of(answer: Answer | ProbeReply) -> str:
    """Return what an answer says went wrong."""
    assert answer.failure is not None
    return answer.failure.message


def wait_until(holds: Callable[[], object], seconds: float = 60) -> None:
    """Wait until *holds*, and fail where it doesn't in time."""
    deadline = time.monotonic() + seconds
    while not holds():
        assert time.monotonic() < deadline, "it did not come in time"
        time.sleep(0.01)


def is_alive(pid: int) -> bool:
    """Tell whether a process runs; one that has ended but for its status doesn't."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] not in {"Z", "X"}
    except OSError:
        return False


def read_beats(file: Path) -> list[int]:
    """Return the pids that have been written to a file of beats."""
    return [int(line) for line in file.read_text().split()] if file.exists() else []


def has_fallen_silent(file: Path) -> bool:
    """Tell whether no beat comes any more."""
    before = len(read_beats(file))
    time.sleep(0.2)
    return len(read_beats(file)) == before
