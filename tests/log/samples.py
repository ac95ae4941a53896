"""What the tests of the log are made of: a clock to be set, runs, records, summaries."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

from sagactl.core.alerting import LATE
from sagactl.core.canonical import Json
from sagactl.core.definition import Snapshot, spell_snapshot
from sagactl.core.records import (
    Cause,
    Decision,
    DecisionKind,
    Direction,
    Disposition,
    Ended,
    Failure,
    Holder,
    Intent,
    Operation,
    Operator,
    Outcome,
    OutcomeKind,
    Record,
    Request,
    Resolution,
    RunStatus,
    StepDecided,
    Verb,
)
from sagactl.core.summary import Summary, Waiting
from sagactl.log.base import Batch, Lease, Log, NewRun
from sagactl.log.leases import LeaseClock

HOLDER = Holder("here", 101, "5000", "boot-1")
OTHER = Holder("here", 202, "6000", "boot-1")
STEP = Operation("charge", None, Direction.ACTION)
ITEM = Operation("vm", 3, Direction.ACTION)
UNDO = STEP.other


@dataclass
class Time:
    """A clock and a census that tests set by hand."""

    wall: int = 1_000_000
    boot: int = 50_000
    boot_id: str = "boot-1"
    dead: set[Holder] = field(default_factory=set)

    def clock(self) -> LeaseClock:
        """Return it as the log takes it."""
        return LeaseClock(
            wall_ms=lambda: self.wall,
            boot_ms=lambda: self.boot,
            boot_id=lambda: self.boot_id,
            is_dead=lambda holder: holder in self.dead,
        )

    def pass_ms(self, duration_ms: int) -> None:
        """Let time pass."""
        self.wall += duration_ms
        self.boot += duration_ms


def new_run(run_id: str = "run1", **changes: object) -> NewRun:
    """Return a run to be created."""
    values: dict[str, object] = {
        "run_id": run_id,
        "saga": "onboarding",
        "definition": spell_snapshot({"saga": "onboarding", "steps": [{"id": "charge"}, {"id": "vm"}]}),
        "input": {"amount": 1200},
        "requested_by": "ada",
    }
    return NewRun(**{**values, **changes})  # type: ignore[arg-type]


def summary(status: RunStatus = RunStatus.RUNNING, **changes: object) -> Summary:
    """Return where a run stands."""
    values: dict[str, object] = {
        "status": status,
        "direction": Direction.ACTION,
        "cause": None,
        "waiting_for": None,
        "failure": None,
        "failed_step": None,
        "steps_total": 2,
        "steps_done": 0,
        "dead_letters": 0,
    }
    return Summary(**{**values, **changes})  # type: ignore[arg-type]


def intent(attempt: int = 1, *, operation: Operation = STEP, at_ms: int = 2_000, arguments: Json = None) -> Intent:
    """Return the intent of a call."""
    return Intent(at_ms, operation, attempt, 0, 1, "billing.charge", f"run1/{operation.step}/action", 32_000, arguments)


def outcome(attempt: int = 1, *, operation: Operation = STEP, at_ms: int = 3_000, output: Json = None) -> Outcome:
    """Return the outcome of a call."""
    return Outcome(at_ms, operation, attempt, OutcomeKind.SUCCEEDED, output=output)


def dead(operation: Operation = STEP, at_ms: int = 4_000) -> Decision:
    """Return the decision that gives *operation* up."""
    failure = Failure("unavailable", "the bank is closed")
    return Decision(at_ms, DecisionKind.DEAD_LETTER, cause=Cause.FORWARD_STUCK, operation=operation, failure=failure)


def rollback(at_ms: int = 5_000) -> Decision:
    """Return the decision to roll back."""
    return Decision(at_ms, DecisionKind.ROLLBACK, cause=Cause.STEP_FAILED, plan=(STEP,))


def stuck(at_ms: int = 4_500) -> Decision:
    """Return the decision that a person must act."""
    return Decision(at_ms, DecisionKind.STUCK, cause=Cause.FORWARD_STUCK)


def alert(operation: Operation | None = STEP, at_ms: int = 3_500) -> Decision:
    """Return the decision to tell a person that *operation* keeps failing, or without one that time is over."""
    return Decision(at_ms, DecisionKind.ALERT, cause=None if operation else Cause.TIMEOUT, operation=operation)


def hanging(operation: Operation = STEP, at_ms: int = 3_500) -> Decision:
    """Return the decision that a run waits for a call that can't be ended."""
    failure = Failure("cannot_end", f"{operation} is past its time and has not returned")
    return Decision(at_ms, DecisionKind.WAITING, Cause.CANNOT_END, operation=operation, failure=failure)


def returned_late(operation: Operation = STEP, at_ms: int = 8_000) -> Outcome:
    """Return the outcome of a call that came back after its deadline."""
    return Outcome(at_ms, operation, 1, OutcomeKind.UNKNOWN, failure=Failure(LATE, "no answer within 1s"))


def approval_asked(step: str = "charge", at_ms: int = 3_600) -> StepDecided:
    """Return the decision that a step waits for a person."""
    return StepDecided(at_ms, step, True, None, "d" * 64, None, ({"amount": 1},))


def answered(
    request_id: str,
    verb: Verb = Verb.RETRY,
    *,
    operation: Operation | None = STEP,
    disposition: Disposition = Disposition.ACCEPTED,
    at_ms: int = 6_000,
) -> Operator:
    """Return what became of a request."""
    return Operator(at_ms, request(request_id, verb, operation=operation), disposition)


def request(request_id: str, verb: Verb = Verb.RETRY, *, operation: Operation | None = STEP) -> Request:
    """Return an operator's request."""
    resolution = Resolution.DONE if verb is Verb.RESOLVE else None
    return Request(request_id, verb, "ada", "the bank is open", operation, resolution, {"id": 1})


def ended(status: RunStatus = RunStatus.SUCCEEDED, at_ms: int = 9_000) -> Ended:
    """Return the end of a run."""
    return Ended(at_ms, status)


def batch(lease: Lease, after_seq: int, *records: Record, status: RunStatus = RunStatus.RUNNING) -> Batch:
    """Return a batch for `append`."""
    ended_at = records[-1].at_ms if records and isinstance(records[-1], Ended) else None
    return Batch(lease, after_seq, records, summary(status, ended_at_ms=ended_at))


def start(log: Log, run_id: str = "run1", **changes: object) -> Lease:
    """Create a run and return its lease; two records are in the log then."""
    creation = log.create(new_run(run_id, **changes), holder=HOLDER)
    assert creation.lease is not None
    return creation.lease


LATER = spell_snapshot(
    {"saga": "onboarding", "version": "2", "steps": [{"id": "charge"}, {"id": "vm"}, {"id": "mail"}]}
)
"""Another definition of the saga."""


def rebind(log: Log, lease: Lease, definition: Snapshot = LATER, *, replaces: str | None = None) -> Operator:
    """Bind a run to another definition and return the record that says so."""
    row = log.row(lease.run_id)
    asked = Request(f"d{row.seq}", Verb.REBIND, "ada", digest=definition.digest, replaces=replaces or row.definition)
    record = Operator(7_000, asked, Disposition.ACCEPTED)
    bound = replace(batch(lease, row.seq, record), definition=definition)
    assert log.append([bound]) == []
    return record


def add(log: Log, lease: Lease, *records: Record, status: RunStatus = RunStatus.RUNNING) -> None:
    """Append records after whatever the run has."""
    assert log.append([batch(lease, log.row(lease.run_id).seq, *records, status=status)]) == []


WAITING = Waiting("timer", "charge", 77_000)
