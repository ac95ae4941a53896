"""Calling tools that reach systems of others as the engine calls them: keys, a deadline, secrets, masked answers."""

from __future__ import annotations

import itertools
import time
import uuid
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from sagactl.core.answer import Answer, ProbeReply
from sagactl.core.canonical import Json
from sagactl.core.records import Direction, Operation, OutcomeKind, ProbeAnswer
from sagactl.secrets.vault import Vault
from sagactl.tools.base import Invocation
from sagactl.tools.invoke import PluginToolbox
from sagactl.tools.registry import collect_tools
from tests.plugins.project import PLUGINS

REGISTRY = collect_tools(PLUGINS, entry_points=())
WAIT_SECONDS = 60.0
_numbers = itertools.count(1)
_here = uuid.uuid4().hex[:8]


@dataclass
class Deed:
    """An action with its undo and its probe, under a key of its own; its words are outcomes, or what failed."""

    tool: str
    arguments: dict[str, Json]
    environ: Mapping[str, str] = field(default_factory=dict)
    begun_ms: int = field(default_factory=lambda: int(time.time() * 1000))
    seconds: float = 20.0
    key: str = field(default_factory=lambda: f"run{_here}{next(_numbers)}/step/action")

    def act(self, **facts: Any) -> Answer:
        """Call the action."""
        return self._toolbox().call(self._invoke(self.tool, self.arguments, Direction.ACTION, **facts))

    def done(self) -> dict[str, Json]:
        """Call the action, which must succeed, and return its output."""
        answer = self.act()
        assert answer.kind is OutcomeKind.SUCCEEDED, answer.failure
        assert isinstance(answer.output, dict)
        return answer.output

    def undo(self, arguments: Mapping[str, Json]) -> Answer:
        """Call the compensation."""
        undo = REGISTRY.facts_of(self.tool).compensation
        assert undo is not None
        return self._toolbox().call(self._invoke(undo, arguments, Direction.COMPENSATION))

    def undone(self, arguments: Mapping[str, Json]) -> dict[str, Json]:
        """Call the compensation, which must succeed, and return its output."""
        answer = self.undo(arguments)
        assert answer.kind is OutcomeKind.SUCCEEDED, answer.failure
        assert isinstance(answer.output, dict)
        return answer.output

    def find(self) -> tuple[str, Json]:
        """Ask the probe; return its answer, and the output or why it can't tell."""
        probe = REGISTRY.facts_of(self.tool).probe
        assert probe is not None
        reply: ProbeReply = self._toolbox().probe(self._invoke(probe, self.arguments, Direction.ACTION))
        if reply.answer is ProbeAnswer.CANNOT_TELL:
            assert reply.failure is not None
            return reply.answer.value, reply.failure.message
        return reply.answer.value, reply.output

    def _invoke(self, tool: str, arguments: Mapping[str, Json], direction: Direction, **facts: Any) -> Invocation:
        given: dict[str, Any] = {
            "attempt": 1,
            "idempotency_key": self.key.replace("/action", f"/{direction.value}"),
            "seconds_left": self.seconds,
            "deadline_ms": int((time.time() + self.seconds) * 1000),
        }
        return Invocation(
            tool=tool,
            arguments=dict(arguments),
            run_id=self.key.partition("/")[0],
            operation=Operation("step", None, direction),
            forward_key=self.key,
            begun_ms=self.begun_ms,
            project=Path.cwd(),
            **{**given, **facts},
        )

    def _toolbox(self) -> PluginToolbox:
        return PluginToolbox(REGISTRY, secrets=Vault({}, environ=dict(self.environ)))


def word(answer: Answer) -> tuple[str, str]:
    """Return what a call that failed came to, and the word for why."""
    assert answer.failure is not None, answer.output
    return answer.kind.value, answer.failure.type


def wait_until(happened: Callable[[], bool]) -> None:
    """Wait for something that another thread or process does; fails where it doesn't."""
    deadline = time.monotonic() + WAIT_SECONDS
    while not happened():
        assert time.monotonic() < deadline, "waited in vain"
        time.sleep(0.02)
