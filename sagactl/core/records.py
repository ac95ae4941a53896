"""What the saga log is made of: ten kinds of record, all frozen.

The log is the run. Nothing that decides what happens next lives anywhere else, so each record says all that the fold
in `state` needs, and says it once. Times are integer milliseconds since the epoch (UTC); they are facts about when
something was recorded, and order is never taken from them but from the sequence in the log.
"""

from __future__ import annotations

from enum import StrEnum
from typing import Final, NamedTuple, TypeAlias

from sagactl.core.canonical import Json
from sagactl.dataclass import dataclass


class Direction(StrEnum):
    """Which of a step's two tools an operation calls."""

    ACTION = "action"
    COMPENSATION = "compensation"


class Operation(NamedTuple):
    """All calls of one step, item and direction: one idempotency key (E8). `item` is an index of `foreach`."""

    step: str
    item: int | None
    direction: Direction

    @property
    def other(self) -> Operation:
        """Return the operation of the other direction of the same step and item."""
        if self.direction is Direction.ACTION:
            return Operation(self.step, self.item, Direction.COMPENSATION)
        return Operation(self.step, self.item, Direction.ACTION)

    @property
    def place(self) -> str:
        """Return `deposit`, or `servers[2]`, whatever the direction."""
        return self.step if self.item is None else f"{self.step}[{self.item}]"

    def __str__(self) -> str:
        return self.place if self.direction is Direction.ACTION else f"compensation of {self.place}"


@dataclass(frozen=True, slots=True)
class Failure:
    """Why something did not succeed: a word for programs and a line for people, both bounded."""

    type: str
    message: str

    def __str__(self) -> str:
        """Return `card_declined: the card was declined`; what a message says already isn't said twice."""
        if not self.message or self.message == self.type:
            return self.type
        if self.message.startswith((f"{self.type} ", f"{self.type}: ")):
            return self.message
        return f"{self.type}: {self.message}" if self.type else self.message


class OutcomeKind(StrEnum):
    """What a call came to (E3); `pending` is no outcome yet: asked again later with the same attempt (E5)."""

    SUCCEEDED = "succeeded"
    REJECTED = "rejected"
    UNAVAILABLE = "unavailable"
    UNKNOWN = "unknown"
    PENDING = "pending"


class ProbeAnswer(StrEnum):
    """What a probe says of an operation in doubt (E6)."""

    DONE = "done"
    NOT_DONE = "not_done"
    CANNOT_TELL = "cannot_tell"


class TimerKind(StrEnum):
    """What an operation waits for."""

    RETRY = "retry"
    POLL = "poll"
    PROBE = "probe"


class Cause(StrEnum):
    """Why a run left the plain way forward."""

    STEP_FAILED = "step_failed"
    CANCELLED = "cancelled"
    REQUESTED = "requested"
    TIMEOUT = "timeout"
    DENIED = "denied"
    COMPENSATION_FAILED = "compensation_failed"
    FORWARD_STUCK = "forward_stuck"
    IN_DOUBT = "in_doubt"
    CANNOT_END = "cannot_end"
    MISSING_TOOL = "missing_tool"
    MISSING_SECRET = "missing_secret"  # noqa: S105 - a word, no secret
    TERMINATED = "terminated"


class RunStatus(StrEnum):
    """Where a run stands; the last four are at rest."""

    RUNNING = "running"
    WAITING = "waiting"
    ROLLING_BACK = "rolling_back"
    SUCCEEDED = "succeeded"
    ROLLED_BACK = "rolled_back"
    STUCK = "stuck"
    TERMINATED = "terminated"


AT_REST: Final = frozenset({RunStatus.SUCCEEDED, RunStatus.ROLLED_BACK, RunStatus.STUCK, RunStatus.TERMINATED})


class Verb(StrEnum):
    """What an operator may ask of a run (E22, E23)."""

    CANCEL = "cancel"
    ROLLBACK = "rollback"
    TERMINATE = "terminate"
    RETRY = "retry"
    RESOLVE = "resolve"
    APPROVE = "approve"
    DENY = "deny"
    PAUSE = "pause"
    UNPAUSE = "unpause"
    REBIND = "rebind"


class Resolution(StrEnum):
    """How a person settles a dead letter (E23)."""

    DONE = "done"
    NOT_DONE = "not_done"
    SKIP = "skip"
    ABANDON = "abandon"


class Disposition(StrEnum):
    """What became of an operator's request."""

    ACCEPTED = "accepted"
    REFUSED = "refused"
    DEFERRED = "deferred"
    VOID = "void"


@dataclass(frozen=True, slots=True)
class Holder:
    """The process that drives a run: enough to tell on its host whether it still lives (E15)."""

    host: str
    pid: int
    started: str
    boot_id: str


@dataclass(frozen=True, slots=True)
class Request:
    """One thing an operator asked for; `id` makes asking twice the same as once."""

    id: str
    verb: Verb
    who: str
    reason: str | None = None
    operation: Operation | None = None
    resolution: Resolution | None = None
    output: Json = None
    past_pivot: bool = False
    digest: str | None = None
    """What an approval is bound to, as its author has seen it; the definition that a run is bound to from here on."""
    replaces: str | None = None
    """The definition that the run was bound to until then."""


@dataclass(frozen=True, slots=True)
class RunCreated:
    """The run exists, with everything that it will ever need to know about its definition (E1, E16)."""

    at_ms: int
    run_id: str
    saga: str
    definition: str
    input: Json
    requested_by: str
    run_key: str | None = None
    deadline_ms: int | None = None
    forked_from: str | None = None
    """The run whose inputs it began with."""
    plan: str | None = None
    """The digest of the plan that it carries out."""
    project: str | None = None
    """The folder whose plugins are its tools: a log may be shared by several projects."""
    traceparent: str | None = None
    """What it was begun in, by W3C Trace Context: the span of a CI job, say."""


@dataclass(frozen=True, slots=True)
class Origin:
    """What a run was begun from, where it was: another run's inputs, a plan, or a span of somebody else's trace."""

    forked_from: str | None = None
    plan: str | None = None
    traceparent: str | None = None

    @property
    def key(self) -> str | None:
        """The key of a run that has no other (E8): a plan is carried out once."""
        return None if self.plan is None else f"plan/{self.plan}"


NO_ORIGIN: Final = Origin()


@dataclass(frozen=True, slots=True)
class DriverClaimed:
    """A driver took the run over; every call of an earlier driver without an outcome is in doubt from here (E4).

    `calls_ended` says that the earlier driver's process is known to be dead, so its calls can't be under way.
    """

    at_ms: int
    fence: int
    holder: Holder
    calls_ended: bool


@dataclass(frozen=True, slots=True)
class StepDecided:
    """`when` and `foreach` of a step were evaluated, once (F8, F9); `items` is None without `foreach`.

    With `approval`, a digest of what it will do, the step waits for a person; until `until_ms`, where that is given.
    Then `arguments` are those of its call, or of each item's: what is approved is what is called.
    """

    at_ms: int
    step: str
    runs: bool
    items: tuple[Json, ...] | None = None
    approval: str | None = None
    until_ms: int | None = None
    arguments: tuple[Json, ...] = ()


@dataclass(frozen=True, slots=True)
class Intent:
    """A call is about to be made (E1). Arguments stand in the first intent of an operation only (E20)."""

    at_ms: int
    operation: Operation
    attempt: int
    asking: int
    fence: int
    tool: str
    key: str
    deadline_ms: int
    arguments: Json = None


@dataclass(frozen=True, slots=True)
class Outcome:
    """What the call came to. `raw` is a reply that did not fit, `token` what a pending call wants handed back."""

    at_ms: int
    operation: Operation
    attempt: int
    kind: OutcomeKind
    output: Json = None
    failure: Failure | None = None
    after_ms: int | None = None
    token: Json = None
    raw: Json = None


@dataclass(frozen=True, slots=True)
class Probe:
    """A probe is about to be called (`answer` None), or what it answered."""

    at_ms: int
    operation: Operation
    number: int
    fence: int
    tool: str
    deadline_ms: int
    answer: ProbeAnswer | None = None
    output: Json = None
    failure: Failure | None = None


@dataclass(frozen=True, slots=True)
class Timer:
    """The operation goes on at `due_ms`; the delay was drawn once, here (E5)."""

    at_ms: int
    operation: Operation
    kind: TimerKind
    due_ms: int


@dataclass(frozen=True, slots=True)
class ToolChange:
    """A fact about a tool that isn't what the run has pinned; values as JSON, bounded, None where there is none.

    `path` leads to the place within a schema. What doesn't `break` anything is told beside what does.
    """

    fact: str
    path: str
    before: Json
    after: Json
    breaks: bool = True


class DecisionKind(StrEnum):
    """What the core can decide besides calls and delays."""

    ROLLBACK = "rollback"
    REFUSED = "refused"
    EXPIRED = "expired"
    DEAD_LETTER = "dead_letter"
    PIVOT_PASSED = "pivot_passed"
    STUCK = "stuck"
    WAITING = "waiting"
    ALERT = "alert"
    RECOVERED = "recovered"


@dataclass(frozen=True, slots=True)
class Decision:
    """A turn that the run takes; `plan` lists what a rollback will look at, in the order of the undo."""

    at_ms: int
    kind: DecisionKind
    cause: Cause | None = None
    operation: Operation | None = None
    step: str | None = None
    failure: Failure | None = None
    plan: tuple[Operation, ...] = ()
    until_ms: int | None = None
    changes: tuple[ToolChange, ...] = ()
    """Of the tool that a run waits for, as it is here, against what the run has pinned."""


@dataclass(frozen=True, slots=True)
class Operator:
    """What an operator asked for and what became of it, refusals included (E22)."""

    at_ms: int
    request: Request
    disposition: Disposition
    detail: str | None = None


@dataclass(frozen=True, slots=True)
class NotUndone:
    """Something that stays as it is, and why."""

    step: str
    item: int | None
    reason: str


@dataclass(frozen=True, slots=True)
class Ended:
    """The run is at its end; only an operator's record may follow."""

    at_ms: int
    status: RunStatus
    cause: Cause | None = None
    output: Json = None
    output_failure: Failure | None = None
    not_undone: tuple[NotUndone, ...] = ()


Record: TypeAlias = (
    RunCreated | DriverClaimed | StepDecided | Intent | Outcome | Probe | Timer | Decision | Operator | Ended
)

RECORD_TYPES: Final[dict[str, type[Record]]] = {
    "run_created": RunCreated,
    "driver_claimed": DriverClaimed,
    "step_decided": StepDecided,
    "intent": Intent,
    "outcome": Outcome,
    "probe": Probe,
    "timer": Timer,
    "decision": Decision,
    "operator": Operator,
    "ended": Ended,
}
"""The name of each kind in the log; names are for ever."""


def definition_in(record: Record) -> str | None:
    """Return the definition that a run is bound to from *record* on, where it is one that says so (E16)."""
    if isinstance(record, RunCreated):
        return record.definition
    if not isinstance(record, Operator) or record.request.verb is not Verb.REBIND:
        return None
    return record.request.digest if record.disposition is Disposition.ACCEPTED else None
