"""A project with the shipped plugins and a sandbox of its own, called as the engine calls it."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from sagactl.core.answer import Answer, ProbeReply
from sagactl.core.canonical import Json, canonical
from sagactl.core.records import Direction, Operation, OutcomeKind
from sagactl.sandbox.database import sandbox_path
from sagactl.sandbox.show import LedgerEntry, SandboxState, read_sandbox
from sagactl.tools.base import Invocation
from sagactl.tools.invoke import PluginToolbox
from sagactl.tools.registry import collect_tools

PLUGINS = Path(__file__).parents[2] / "plugins"

CHILD = """
import sys
from pathlib import Path
from sagactl.core.canonical import parse
from tests.plugins.project import Project
project, *calls = sys.argv[1:]
for each in calls:
    tool, key, forward_key, arguments = parse(each)
    answer = Project(Path(project)).call(tool, arguments, key=key, forward_key=forward_key)
    print(answer.kind.value, (answer.output or {}).get("address", ""), flush=True)
"""


@dataclass(frozen=True)
class Project:
    """A folder with a sandbox."""

    path: Path

    def invoke(
        self, tool: str, arguments: Mapping[str, Json], *, key: str, forward_key: str, **facts: Any
    ) -> Invocation:
        """Return the call of a tool under a key."""
        given: dict[str, Any] = {"deadline_ms": int(time.time() * 1000) + 30_000, "seconds_left": 30.0, "attempt": 1}
        operation = Operation("step", None, Direction.ACTION if key == forward_key else Direction.COMPENSATION)
        return Invocation(
            tool=tool,
            arguments=arguments,
            run_id="run2345678abc",
            operation=operation,
            idempotency_key=key,
            forward_key=forward_key,
            project=self.path,
            **{**given, **facts},
        )

    def call(
        self,
        tool: str,
        arguments: Mapping[str, Json] | None = None,
        *,
        key: str = "a",
        forward_key: str = "",
        **facts: Any,
    ) -> Answer:
        """Call a tool of the shipped plugins."""
        return TOOLBOX.call(self.invoke(tool, arguments or {}, key=key, forward_key=forward_key or key, **facts))

    def done(self, tool: str, arguments: Mapping[str, Json] | None = None, **facts: Any) -> dict[str, Json]:
        """Call a tool that must succeed and return its output."""
        answer = self.call(tool, arguments, **facts)
        assert answer.kind is OutcomeKind.SUCCEEDED, answer.failure
        assert isinstance(answer.output, dict)
        return answer.output

    def word(self, tool: str, arguments: Mapping[str, Json] | None = None, **facts: Any) -> tuple[str, str]:
        """Call a tool that must not succeed and return what it came to, with the word for why."""
        answer = self.call(tool, arguments, **facts)
        assert answer.failure is not None
        return answer.kind.value, answer.failure.type

    def probe(self, tool: str, *, key: str = "a") -> ProbeReply:
        """Call a probe about the operation of a key."""
        return TOOLBOX.probe(self.invoke(tool, {}, key=key, forward_key=key))

    def state(self) -> SandboxState:
        """Return what the sandbox holds."""
        return read_sandbox(sandbox_path(self.path))

    def ledger(self) -> tuple[LedgerEntry, ...]:
        """Return all effects."""
        return self.state().ledger

    def effects(self) -> list[str]:
        """Return the names of all effects, in order."""
        return [entry.effect for entry in self.ledger()]

    def start(self, *calls: tuple[str, str, str, Mapping[str, Json]], **environment: str) -> subprocess.Popen[str]:
        """Make calls (tool, key, forward key, arguments) in another process."""
        spelled = [canonical([tool, key, forward_key, dict(arguments)]) for tool, key, forward_key, arguments in calls]
        return subprocess.Popen(
            [sys.executable, "-c", CHILD, str(self.path), *spelled],
            stdout=subprocess.PIPE,
            text=True,
            env={**os.environ, **environment},
        )


REGISTRY = collect_tools(PLUGINS, entry_points=())
TOOLBOX = PluginToolbox(REGISTRY)
