"""How driving a run came to its end, for whoever asked for it."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from sagactl.core.summary import Summary
from sagactl.errors import SagactlError


class Why(StrEnum):
    """Why a driver let go of a run."""

    AT_REST = "at_rest"
    WAITING = "waiting"
    MISSING_TOOL = "missing_tool"
    INTERRUPTED = "interrupted"
    LEASE_LOST = "lease_lost"
    BROKEN = "broken"


@dataclass(frozen=True, slots=True)
class Ending:
    """What became of a run while it was driven here."""

    run_id: str
    summary: Summary
    why: Why
    detail: str | None = None
    left_in_doubt: tuple[str, ...] = ()
    error: SagactlError | None = None
    """What a bug of ours made impossible, where `why` is `BROKEN`; the run is as its log says."""
