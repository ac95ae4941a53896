"""What an isolated call is asked: where its tool is found, and all of the call, in plain values."""

from __future__ import annotations

import json
import sys
import threading
import time
from collections.abc import Mapping
from dataclasses import fields
from pathlib import Path
from typing import Any, Final

from sagactl.core.canonical import Json, canonical, parse_trusted
from sagactl.core.records import Direction, Operation
from sagactl.dataclass import dataclass
from sagactl.tools.base import Invocation
from sagactl.tools.describe import Isolation
from sagactl.tools.isolated.rules import IsolationRules
from sagactl.tools.plugin import Home

_OTHERWISE: Final = frozenset({"operation", "seconds_left", "project", "cancelled"})
"""What of a call isn't JSON as it is."""


@dataclass(frozen=True, slots=True)
class Request:
    """One call of a tool, or of a probe, with the values of the secrets that it needs."""

    invocation: Invocation
    isolation: Isolation
    secrets: Mapping[str, str]
    ends_at: float
    """By the machine's own clock, which every process here shares."""
    is_probe: bool = False
    is_sampled: bool = True
    traceparent: str = ""

    @property
    def must_end(self) -> bool:
        """Tell whether the call shall end now."""
        return self.invocation.cancelled.is_set() or time.monotonic() >= self.ends_at

    def write(self, rules: IsolationRules) -> bytes:
        """Spell it, with what the operator allows."""
        invocation, home = self.invocation, self.isolation.home
        plain: dict[str, Json] = {
            name: getattr(invocation, name) for name in _plain_fields() if name != "arguments"
        } | {"arguments": dict(invocation.arguments)}
        fields_ = {
            "sys_path": list(map(str, sys.path)),
            "memory_bytes_max": rules.memory_bytes_max,
            "pid_namespace": rules.has_pid_namespace,
            "home": [home.kind, home.place, home.name],
            "version": self.isolation.version,
            "secrets": dict(self.secrets),
            "is_probe": self.is_probe,
            "is_sampled": self.is_sampled,
            "call": canonical(plain),
            "operation": [*invocation.operation],
            "project": str(invocation.project),
            "ends_at": self.ends_at,
        }
        return json.dumps(fields_).encode()


def _plain_fields() -> list[str]:
    return [each.name for each in fields(Invocation) if each.name not in _OTHERWISE]


def read_home(request: Mapping[str, Any]) -> Home:
    """Return where the tool is found."""
    return Home(*request["home"])


def read_invocation(request: Mapping[str, Any], cancelled: threading.Event) -> Invocation:
    """Return the call, as the engine made it."""
    plain: Any = parse_trusted(request["call"])
    step, item, direction = request["operation"]
    return Invocation(
        **plain,
        operation=Operation(step, item, Direction(direction)),
        seconds_left=request["ends_at"] - time.monotonic(),
        project=Path(request["project"]),
        cancelled=cancelled,
    )
