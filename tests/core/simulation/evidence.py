"""What the judge is handed, and what it notes: plain values only, nothing of sagactl's core.

The judge must not believe the program that it judges, so neither this module nor those that use it import any of it.
Records are dictionaries, operations are tuples of step, item and direction, the saga is its JSON.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

Op = tuple[str, int | None, str]
Plain = Mapping[str, Any]

GRACE_MS = 10_000
DAY_MS = 86_400_000


@dataclass(frozen=True)
class Evidence:
    """Three witnesses: the log, the targets' ledger, and what a user saw."""

    saga: Plain
    records: Sequence[Plain]
    writers: Sequence[int]
    """The fence under which each record was written."""
    ledger: Sequence[Plain]
    seen: Sequence[Plain]
    """What a user saw after each commit: status, first error, failed step."""
    requests: Sequence[str]
    is_fold_equal: bool
    is_at_rest: bool
    status: str

    @cached_property
    def steps(self) -> dict[str, Plain]:
        """Map ids to steps."""
        return {step["id"]: step for step in self.saga["steps"]}

    @cached_property
    def descendants(self) -> dict[str, set[str]]:
        """Map each step to all steps that need it, however indirectly."""
        found: dict[str, set[str]] = {step_id: set() for step_id in self.steps}
        for step in reversed(self.saga["steps"]):
            for need in step["needs"]:
                found[need] |= {step["id"], *found[step["id"]]}
        return found

    def call_of(self, op: Op) -> Plain:
        """Return how an operation is called."""
        step = self.steps[op[0]]
        call: Plain = step["action"] if op[2] == "action" else step["compensation"]
        return call

    def tool_of(self, op: Op) -> Plain:
        """Return the facts of an operation's tool."""
        tool: Plain = self.saga["tools"][self.call_of(op)["tool"]]
        return tool


@dataclass
class Known:
    """What an honest reader of the log knows of one operation."""

    op: Op
    keys: set[str] = field(default_factory=set)
    intents: set[tuple[int, int]] = field(default_factory=set)
    attempts: int = 0
    in_budget: int = 0
    askings: int = 0
    is_open: bool = False
    is_probed: bool = False
    doubt: bool = False
    is_done: bool = False
    is_closed: bool = False
    is_refused: bool = False
    is_final: bool = False
    is_expired: bool = False
    is_dead: bool = False
    is_ordered: bool = False
    """A person asked for another try, so no policy stands in its way."""
    is_pending: bool = False
    has_arguments: bool = False
    last: Plain | None = None
    changed_at_ms: int = 0
    first_seq: int = 0
    first_at_ms: int = 0
    deadline_ms: int = 0
    late_until_ms: int = 0
    timer: Plain | None = None
    probes: int = 0
    probes_ever: int = 0
    has_given_up: bool = False

    @property
    def is_touched(self) -> bool:
        """Tell whether it was ever called."""
        return self.attempts > 0

    @property
    def may_have_effect(self) -> bool:
        """Tell whether by the log an effect of it may be there."""
        return self.is_done or self.doubt or self.is_open or self.is_pending


class Findings(list[str]):
    """Violations, each beginning with the name of what was violated."""

    def check(self, condition: object, message: str) -> None:
        """Note *message* unless *condition* holds."""
        if not condition:
            self.append(message)


def spell(op: Op) -> str:
    """Return an operation as people write it."""
    item = "" if op[1] is None else f"[{op[1]}]"
    return f"{op[0]}{item}" + ("'" if op[2] == "compensation" else "")


def other(op: Op) -> Op:
    """Return the operation of the other direction."""
    return (op[0], op[1], "compensation" if op[2] == "action" else "action")
