"""What an experiment is: faults at points of a run, what is asked of the run then, and a name to repeat it by."""

from __future__ import annotations

from enum import StrEnum
from typing import Final

from sagactl.core.records import Direction, Operation
from sagactl.dataclass import dataclass


class FaultKind(StrEnum):
    """What goes wrong."""

    KILLED_AFTER_START = "killed-after-start"
    KILLED_BEFORE_INTENT = "killed-before-intent"
    KILLED_AFTER_INTENT = "killed-after-intent"
    KILLED_IN_EFFECT = "killed-in-effect"
    KILLED_AFTER_EFFECT = "killed-after-effect"
    KILLED_AFTER_OUTCOME = "killed-after-outcome"
    KILLED_BEFORE_END = "killed-before-end"
    REJECTED = "rejected"
    UNAVAILABLE = "unavailable"
    REPLY_LOST = "reply-lost"
    REQUEST_LOST = "request-lost"
    REPLY_LATE = "reply-late"
    EFFECT_LATE = "effect-late"
    PROBE_BLIND = "probe-blind"


KILLS: Final = frozenset(kind for kind in FaultKind if kind.startswith("killed"))
_SAID: Final = {
    FaultKind.KILLED_AFTER_START: "killed before its first step",
    FaultKind.KILLED_BEFORE_INTENT: "killed before its intent is written",
    FaultKind.KILLED_AFTER_INTENT: "killed between intent and call",
    FaultKind.KILLED_IN_EFFECT: "killed within the tool",
    FaultKind.KILLED_AFTER_EFFECT: "killed after its effect, before anybody was told",
    FaultKind.KILLED_AFTER_OUTCOME: "killed after its outcome is written",
    FaultKind.KILLED_BEFORE_END: "killed before the end of the run is written",
    FaultKind.REJECTED: "rejected",
    FaultKind.UNAVAILABLE: "unavailable",
    FaultKind.REPLY_LOST: "called, and its reply lost",
    FaultKind.REQUEST_LOST: "lost before the tool got it",
    FaultKind.REPLY_LATE: "answered after its deadline",
    FaultKind.EFFECT_LATE: "carried out only after its undo",
    FaultKind.PROBE_BLIND: "its probe can't tell",
}


@dataclass(frozen=True, slots=True)
class Fault:
    """Something that goes wrong with one operation, or with the run as a whole: the first time, or always.

    `line` names where in the project's plugins the process dies; without one it dies as the tool is entered.
    """

    kind: FaultKind
    operation: Operation | None = None
    always: bool = False
    line: str | None = None

    @property
    def is_kill(self) -> bool:
        """Tell whether it ends the process."""
        return self.kind in KILLS

    def __str__(self) -> str:
        said = _SAID[self.kind]
        if self.line is not None:
            said = f"killed at {self.line}"
        return f"{said}, each time" if self.always and self.kind is not FaultKind.PROBE_BLIND else said


class Asked(StrEnum):
    """When an operator asks for a rollback."""

    NEVER = "never"
    AFTER_CRASH = "after-crash"
    WHEN_STUCK = "when-stuck"
    AT_END = "at-end"


@dataclass(frozen=True, slots=True)
class Experiment:
    """One run with faults; `place` is the operation that it is about, None for the run as a whole."""

    name: str
    place: Operation | None
    faults: tuple[Fault, ...]
    asked: Asked = Asked.NEVER
    follows: tuple[str, ...] = ()
    """The experiments that a pair is made of."""

    @property
    def is_transient(self) -> bool:
        """Tell whether every fault passes, so that a run needs nobody to come to its end."""
        return not any(fault.always or fault.kind is FaultKind.REJECTED for fault in self.faults)

    def fails_for_ever(self, operation: Operation) -> bool:
        """Tell whether *operation* is given no chance, so that a run which is stuck there is as it should be."""
        lasting = [fault for fault in self.faults if fault.always or fault.kind is FaultKind.REJECTED]
        return any(fault.operation == operation for fault in lasting)

    def describe(self) -> str:
        """Return what is done, in words: `killed after its effect, then resumed`."""
        own = [fault for fault in self.faults if fault.operation == self.place or self.place is None]
        parts = [str(fault) for fault in own or self.faults]
        if self.asked is Asked.AFTER_CRASH:
            parts.append("then rolled back")
        elif any(fault.is_kill for fault in self.faults):
            parts.append("then resumed")
        return ", ".join(parts)


def name_operation(operation: Operation | None) -> str:
    """Return `deposit`, `servers[1]`, `undo-of-deposit`, or `run`."""
    if operation is None:
        return "run"
    place = operation.step if operation.item is None else f"{operation.step}[{operation.item}]"
    return place if operation.direction is Direction.ACTION else f"undo-of-{place}"
