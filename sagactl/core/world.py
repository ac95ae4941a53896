"""What `decide` is handed, and what it can answer."""

from __future__ import annotations

from typing import NamedTuple

from sagactl.core.canonical import Json
from sagactl.core.records import Intent, Operation, Probe, Record, RunStatus, TimerKind
from sagactl.core.template import Evaluator
from sagactl.dataclass import dataclass


class World(NamedTuple):
    """The time, how many calls may start now, how to evaluate, and which tools and secrets are not to be had here."""

    now_ms: int
    slots: int
    evaluator: Evaluator
    missing_tools: frozenset[str] = frozenset()
    missing_secrets: frozenset[str] = frozenset()
    unasked_tools: frozenset[str] = frozenset()
    """Tools that are here and can't be called before somebody was asked about them."""

    @property
    def lacks_something(self) -> bool:
        """Tell whether calls that could be made may have to wait for what isn't here."""
        return bool(self.missing_tools or self.missing_secrets or self.unasked_tools)


@dataclass(frozen=True, slots=True)
class Write:
    """Append this record."""

    record: Record


@dataclass(frozen=True, slots=True)
class MakeCall:
    """Append this intent and, once it is durable, make the call."""

    intent: Intent
    arguments: Json
    forward_key: str
    begun_ms: int
    token: Json = None
    raw: Json = None


@dataclass(frozen=True, slots=True)
class AskProbe:
    """Append this record and, once it is durable, ask the probe."""

    probe: Probe
    arguments: Json
    key: str
    forward_key: str
    begun_ms: int
    raw: Json = None


@dataclass(frozen=True, slots=True)
class DrawDelay:
    """Draw a delay between these bounds, both included, and append it as a timer."""

    operation: Operation
    kind: TimerKind
    floor_ms: int
    ceiling_ms: int


@dataclass(frozen=True, slots=True)
class EndCalls:
    """These calls had their time to settle: end them (E14)."""

    operations: tuple[Operation, ...]


@dataclass(frozen=True, slots=True)
class Wait:
    """Nothing to do until an answer comes, `until_ms` is there, or something from outside happens."""

    what: str
    until_ms: int | None = None
    detail: str | None = None


@dataclass(frozen=True, slots=True)
class Rest:
    """Nothing will happen without a person."""

    status: RunStatus
