"""A saga as written: every key read and of the right type, every value with its place, nothing yet related."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field
from typing import Any

from sagactl.core.saga import CompensateFailed, OnUnknown
from sagactl.dataclass import dataclass
from sagactl.written.fields import Placed
from sagactl.written.positions import Entry, MapNode
from sagactl.written.source import Span


@dataclass(frozen=True, slots=True)
class DraftPolicy:
    """How a call is made: only what was written, defaults come later. `retry` holds fields of `core.saga.Retry`."""

    retry: Placed[Mapping[str, Any]] | None = None
    start_to_close_ms: Placed[int] | None = None
    schedule_to_close_ms: Placed[int] | None = None
    on_unknown: Placed[OnUnknown] | None = None


@dataclass(frozen=True, slots=True)
class DraftUndo:
    """What stands under `compensate`; `reason` is that of `none`."""

    span: Span
    reason: str | None = None
    tool: Placed[str] | None = None
    arguments: MapNode | None = None
    policy: DraftPolicy = field(default_factory=DraftPolicy)


@dataclass(frozen=True, slots=True)
class DraftApproval:
    """Who must agree before a step starts; `required` is None where somebody always must."""

    required: Entry | None = None
    by: tuple[Placed[str], ...] | None = None
    timeout_ms: Placed[int] | None = None


@dataclass(frozen=True, slots=True)
class DraftStep:
    """One step; `label` names it in messages also where its id is missing or bad."""

    index: int
    label: str
    span: Span
    id: str | None = None
    needs: tuple[Placed[str], ...] | None = None
    when: Entry | None = None
    foreach: Entry | None = None
    guard: Entry | None = None
    approval: DraftApproval | None = None
    concurrency: Placed[int] | None = None
    tool: Placed[str] | None = None
    arguments: MapNode | None = None
    undo: DraftUndo | None = None
    pivot: Placed[bool] | None = None
    read_only: Placed[bool] | None = None
    policy: DraftPolicy = field(default_factory=DraftPolicy)
    compensate_failed: CompensateFailed = CompensateFailed.AUTO
    description: str | None = None
    agent: str | None = None
    line: int | None = None

    @property
    def approval_required(self) -> Entry | None:
        """Return the condition on which a person must agree."""
        return None if self.approval is None else self.approval.required

    @property
    def is_pivot(self) -> bool:
        """Tell whether the step is marked as a point of no return."""
        return self.pivot is not None and self.pivot.value


@dataclass(frozen=True, slots=True)
class DraftSaga:
    """The whole file."""

    name: str
    steps: tuple[DraftStep, ...]
    steps_span: Span
    version: str | None = None
    description: str | None = None
    input: Entry | None = None
    run_key: Entry | None = None
    run_timeout_ms: Placed[int] | None = None
    settle_timeout_ms: Placed[int] | None = None
    compensation_concurrency: int = 1
    defaults: DraftPolicy = field(default_factory=DraftPolicy)
    output: Entry | None = None
    secrets: Mapping[str, Span] = field(default_factory=dict)
