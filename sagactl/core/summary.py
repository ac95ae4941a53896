"""A run in one row: what lists show and what exit codes are made from, a pure function of its state."""

from __future__ import annotations

from dataclasses import dataclass

from sagactl.core.canonical import Json
from sagactl.core.records import AT_REST, Cause, Direction, Failure, NotUndone, RunStatus


@dataclass(frozen=True, slots=True)
class Waiting:
    """What a run waits for: a word (`timer`, `missing_tool`, `cannot_end`, …), a detail, and until when."""

    what: str
    detail: str | None = None
    until_ms: int | None = None


@dataclass(frozen=True, slots=True)
class Summary:
    """Where a run stands after its last record."""

    status: RunStatus
    direction: Direction
    cause: Cause | None
    waiting_for: Waiting | None
    failure: Failure | None
    failed_step: str | None
    steps_total: int
    steps_done: int
    dead_letters: int
    not_undone: tuple[NotUndone, ...] = ()
    output: Json = None
    ended_at_ms: int | None = None

    @property
    def is_at_rest(self) -> bool:
        """Tell whether nothing will happen without a person."""
        return self.status in AT_REST
