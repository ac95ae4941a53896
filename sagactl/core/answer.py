"""What a call or a probe came back with, before it becomes a record."""

from __future__ import annotations

from sagactl.core.canonical import Json
from sagactl.core.records import Failure, OutcomeKind, ProbeAnswer
from sagactl.dataclass import dataclass


@dataclass(frozen=True, slots=True)
class Answer:
    """The outcome of one call (E3); `printed` is what it wrote to stdout and stderr, bounded."""

    kind: OutcomeKind
    output: Json = None
    failure: Failure | None = None
    after_ms: int | None = None
    token: Json = None
    raw: Json = None
    printed: str = ""


@dataclass(frozen=True, slots=True)
class ProbeReply:
    """What a probe found out (E6)."""

    answer: ProbeAnswer
    output: Json = None
    failure: Failure | None = None
    printed: str = ""
