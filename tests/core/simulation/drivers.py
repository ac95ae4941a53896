"""What simulated drivers are made of: a durable log with a fence, an evaluator that shows whether it is asked twice."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from sagactl.core.canonical import Json
from sagactl.core.records import Failure, Operation, Outcome, OutcomeKind, Record
from sagactl.core.state import RunState
from sagactl.core.template import ExpressionError, Scope
from sagactl.core.world import EndCalls, Rest, Wait
from tests.core.simulation.world import Job


@dataclass
class SimLog:
    """A durable log of one run: a batch is taken whole, and only under the present fence, right after the last one."""

    records: list[Record] = field(default_factory=list)
    writers: list[int] = field(default_factory=list)
    fence: int = 0

    def append(self, batch: Sequence[Record], fence: int, after_seq: int) -> bool:
        """Append *batch*, or refuse it."""
        if fence != self.fence or after_seq != len(self.records):
            return False
        self.keep(batch, fence)
        return True

    def keep(self, batch: Sequence[Record], fence: int) -> None:
        """Make *batch* durable."""
        self.records += batch
        self.writers += [fence] * len(batch)


@dataclass
class Evaluator:
    """Evaluates the one expression of generated sagas: `draw()` gives another value each time it is asked."""

    count: int = 0

    def evaluate(self, expression: str, scope: Scope) -> Json:
        """Return a value never returned before, so that evaluating twice shows."""
        if expression != "draw()":
            raise ExpressionError(f"no such function: {expression}")
        self.count += 1
        return self.count

    def check_arguments(self, tool: str, arguments: Json) -> str | None:
        """Find nothing wrong."""
        return None


@dataclass(eq=False)
class Driver:
    """A process that drives the run, or believes that it does."""

    fence: int
    state: RunState
    is_alive: bool = True
    has_lease: bool = True
    base: int = 0
    queued: list[Record] = field(default_factory=list)
    flight: dict[Operation, Job] = field(default_factory=dict)
    then: Wait | EndCalls | Rest | None = None


def make_outcome(now: int, rng: random.Random, op: Operation, job: Job, word: str) -> Outcome:
    """Return the record that an answer becomes; `ok` of a target that refused to act is a rejection."""
    output = job.answer.get("output")
    failure = Failure(word, f"{op} {word} at {job.attempt}")
    if word == "ok" and output is None:
        word, failure = "reject", Failure("tombstone", "the undo came first")
    fields: dict[str, Any] = {"failure": failure}
    match word:
        case "ok":
            fields = {"output": {"id": str(output)}}
        case "retry_after":
            fields["after_ms"] = rng.choice([0, 70, 3_000])
        case "pending" | "pending_done":
            fields = {"after_ms": rng.choice([10, 500, 4_000]), "token": f"t{job.number}"}
        case "misfit":
            fields["raw"] = "odd"
        case _:
            pass
    return Outcome(now, op, job.attempt, KINDS.get(word, OutcomeKind.UNKNOWN), **fields)


KINDS = {
    "ok": OutcomeKind.SUCCEEDED,
    "reject": OutcomeKind.REJECTED,
    "retry": OutcomeKind.UNAVAILABLE,
    "fatal": OutcomeKind.UNAVAILABLE,
    "retry_after": OutcomeKind.UNAVAILABLE,
    "pending": OutcomeKind.PENDING,
    "pending_done": OutcomeKind.PENDING,
}
