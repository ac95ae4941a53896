"""What the engine needs of tools: the protocol `Toolbox`, and one call with its context as plain values."""

from __future__ import annotations

import threading
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import field
from pathlib import Path
from typing import Protocol

from sagactl.core.answer import Answer, ProbeReply
from sagactl.core.canonical import Json
from sagactl.core.pinned import Guard
from sagactl.core.records import Operation
from sagactl.core.saga import ToolFacts
from sagactl.dataclass import dataclass


@dataclass(frozen=True, slots=True)
class Invocation:
    """One call of a tool, or of a probe, as the engine asks for it."""

    tool: str
    arguments: Mapping[str, Json]
    run_id: str
    operation: Operation
    attempt: int
    idempotency_key: str
    forward_key: str
    deadline_ms: int
    seconds_left: float
    project: Path
    begun_ms: int | None = None
    """When the action of this operation was first intended; None where nobody knows, which is now."""
    fence: int = 0
    token: Json = None
    raw: Json = None
    cancelled: threading.Event = field(default_factory=threading.Event)


class Secrets(Protocol):
    """What resolves the secrets that arguments refer to (E19)."""

    def missing(self, names: Sequence[str]) -> Mapping[str, str]:
        """Return which of the secrets can't be resolved now, each with the reason."""
        ...

    def fill(self, arguments: Mapping[str, Json]) -> Mapping[str, Json]:
        """Return *arguments* with the values in place of the references; raises SecretError."""
        ...


class Tracing(Protocol):
    """What traces calls: each has its place in the trace of its run."""

    def is_sampled(self, run_id: str) -> bool:
        """Tell whether the trace of a run is kept."""
        ...

    def attached(self, traceparent: str) -> AbstractContextManager[None]:
        """Make the call of that *traceparent* what spans of this thread or task belong to."""
        ...


class Toolbox(Protocol):
    """All tools of a project."""

    def facts(self, name: str) -> ToolFacts:
        """Return what the core must know; raises NotFoundError (code `missing-tool`)."""
        ...

    def is_async(self, name: str) -> bool:
        """Tell whether the tool is a coroutine function, to be called by `call_async`."""
        ...

    def call(self, invocation: Invocation) -> Answer:
        """Call the tool on this thread. Never raises: whatever goes wrong is an outcome (E3)."""
        ...

    async def call_async(self, invocation: Invocation) -> Answer:
        """Await an async tool, likewise; cancelling the task ends the call."""
        ...

    def probe(self, invocation: Invocation) -> ProbeReply:
        """Call a probe on this thread; its own failure is `cannot_tell` (E6)."""
        ...

    def check_arguments(self, facts: ToolFacts, arguments: Json) -> str | None:
        """Return what is wrong with *arguments* by the pinned schema, or None."""
        ...

    def guard_of(self, name: str) -> Guard | None:
        """Return what must be asked before an intent for the tool is written, where something must (E16)."""
        ...

    def missing_secrets(self, names: Sequence[str]) -> Mapping[str, str]:
        """Return which of the secrets can't be resolved now, each with the reason (E19)."""
        ...

    def end_orphans(self, run_id: str) -> None:
        """End the processes that calls of earlier drivers of the run left behind, and return when none is left (E17).

        Raises BusyError (code `cannot-end`) where one can't be ended: then nothing of the run may be decided (E14).
        """
        ...
