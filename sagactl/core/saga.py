"""What a saga means once it was checked: frozen values, and its graph worked out once.

Nothing here knows YAML, plugins or a log. A `Saga` is complete: every default is filled in and the facts about the
tools are part of it, so that a run which keeps its saga keeps its meaning over upgrades (rules F4-F7, E16).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field
from enum import StrEnum
from functools import cached_property
from typing import Final

from sagactl.core.canonical import Json
from sagactl.core.template import Template
from sagactl.dataclass import dataclass

STEPS_MAX: Final = 2_000
ITEMS_MAX: Final = 10_000
ATTEMPTS_MAX: Final = 1_000
INTERVAL_MS_MIN: Final = 1
INTERVAL_MS_MAX: Final = 86_400_000
PAYLOAD_BYTES_MAX: Final = 1_048_576
FILE_BYTES_MAX: Final = 1_048_576
GRACE_MS: Final = 10_000
POLL_MS_MIN: Final = 100
"""How soon a tool that said `Pending` is asked again at the earliest."""
PROBE_ATTEMPTS_MAX: Final = 4


class Jitter(StrEnum):
    """How a delay is drawn: evenly between nothing and the computed delay, or exactly that."""

    FULL = "full"
    NONE = "none"


class OnUnknown(StrEnum):
    """What to do with an operation in doubt (E6)."""

    PROBE = "probe"
    RETRY = "retry"
    COMPENSATE = "compensate"
    ASK = "ask"


class CompensateFailed(StrEnum):
    """Whether the failed step itself is compensated (E7)."""

    AUTO = "auto"
    ALWAYS = "always"
    NEVER = "never"


class StepClass(StrEnum):
    """What can be done about a step once it has run (F4)."""

    READ_ONLY = "read_only"
    COMPENSABLE = "compensable"
    NOT_UNDOABLE = "not_undoable"
    PIVOT = "pivot"
    RETRIABLE = "retriable"


@dataclass(frozen=True, slots=True)
class Retry:
    """How often and how fast a call is tried; `max_attempts` counts the first (E5)."""

    max_attempts: int
    initial_interval_ms: int
    backoff_coefficient_percent: int
    max_interval_ms: int
    jitter: Jitter = Jitter.FULL
    non_retryable_errors: tuple[str, ...] = ()


ACTION_RETRY: Final = Retry(4, 200, 200, 10_000)
PATIENT_RETRY: Final = Retry(12, 1_000, 200, 300_000)
"""Compensations and steps behind the pivot must succeed at last, so they try longer."""

PROBE_RETRY: Final = Retry(PROBE_ATTEMPTS_MAX, 200, 200, 10_000)
ALERT_AFTER_ATTEMPTS: Final = 5
START_TO_CLOSE_MS: Final = 30_000
SETTLE_MS: Final = 30_000


@dataclass(frozen=True, slots=True)
class ToolFacts:
    """What the core knows about a tool; pinned in the run (E16). Schemas are JSON Schema 2020-12."""

    name: str
    version: str = "0"
    plugin: str = ""
    idempotent: bool = True
    read_only: bool = False
    null_safe: bool = False
    late_safe: bool = False
    key_retention_ms: int | None = None
    probe: str | None = None
    compensation: str | None = None
    compensation_with: Mapping[str, Json] | None = None
    arguments_schema: Mapping[str, Json] = field(default_factory=dict)
    output_schema: Mapping[str, Json] = field(default_factory=dict)
    pending_max_ms: int | None = None
    """How long it may say `Pending` where the step gives no `schedule_to_close_timeout` (E5)."""
    secrets: tuple[str, ...] = ()
    """Secrets that every call of it needs, whatever a saga gives it (E19)."""


@dataclass(frozen=True, slots=True)
class Call:
    """How one direction of a step is called."""

    tool: str
    arguments: Template
    retry: Retry = ACTION_RETRY
    start_to_close_ms: int = START_TO_CLOSE_MS
    schedule_to_close_ms: int | None = None
    on_unknown: OnUnknown = OnUnknown.RETRY


@dataclass(frozen=True, slots=True)
class Approval:
    """Who must agree before a step starts: `required` says when (always, where it is None), `by` who may (anybody)."""

    required: Template | None = None
    by: tuple[str, ...] = ()
    timeout_ms: int | None = None


@dataclass(frozen=True, slots=True)
class Step:
    """One local transaction: an action and, where there is one, its compensation."""

    id: str
    klass: StepClass
    action: Call
    compensation: Call | None = None
    not_undoable_reason: str | None = None
    needs: tuple[str, ...] = ()
    when: Template | None = None
    foreach: Template | None = None
    concurrency: int = 1
    guard: Template | None = None
    approval: Approval | None = None
    compensate_failed: CompensateFailed = CompensateFailed.AUTO
    description: str | None = None
    agent: str | None = None
    line: int | None = field(default=None, compare=False)

    @property
    def is_behind_pivot(self) -> bool:
        """Tell whether the step may only go forward (the first pivot itself doesn't count)."""
        return self.klass is StepClass.RETRIABLE


@dataclass(frozen=True)
class Saga:
    """A whole checked saga; `tools` holds the facts of each tool it can call, by name."""

    name: str
    steps: tuple[Step, ...]
    tools: Mapping[str, ToolFacts]
    version: str | None = None
    description: str | None = None
    input_schema: Mapping[str, Json] = field(default_factory=dict)
    run_key: Template | None = None
    run_timeout_ms: int | None = None
    settle_timeout_ms: int = SETTLE_MS
    compensation_concurrency: int = 1
    output: Template | None = None
    secrets: tuple[str, ...] = ()
    source: str | None = field(default=None, compare=False)

    @cached_property
    def by_id(self) -> Mapping[str, Step]:
        """Map each id to its step."""
        return {step.id: step for step in self.steps}

    @cached_property
    def dependents(self) -> Mapping[str, tuple[str, ...]]:
        """Map each id to the steps that need it directly, in file order."""
        found: dict[str, list[str]] = {step.id: [] for step in self.steps}
        for step in self.steps:
            for need in step.needs:
                found[need].append(step.id)
        return {step_id: tuple(dependents) for step_id, dependents in found.items()}

    @cached_property
    def roots(self) -> tuple[str, ...]:
        """List the steps that need nothing, in file order."""
        return tuple(step.id for step in self.steps if not step.needs)

    @cached_property
    def secrets_needed(self) -> tuple[str, ...]:
        """List every secret that a call may need: those that the saga names, then those of its tools (E19)."""
        of_tools = (name for _, facts in sorted(self.tools.items()) for name in facts.secrets)
        return tuple(dict.fromkeys((*self.secrets, *of_tools)))

    @cached_property
    def has_pivot(self) -> bool:
        """Tell whether there is a point of no return."""
        return any(step.klass is StepClass.PIVOT for step in self.steps)
