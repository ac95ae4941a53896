"""All experiments on a saga, in an order that is always the same.

Two runs without a fault come first (`Reference`): one that succeeds and one that is undone. They tell which operations
there are, and through which lines of code their tools go. From that and the saga alone the experiments follow.

* Each operation is killed before and after its intent, within its tool, after its effect and after its outcome.
* Each is rejected, unavailable, and loses its request or its reply; a reply comes too late.
* A step that can be undone is also rolled back from each of these crashes, with and without a probe that can tell.
* Each compensation has the same faults, in a run that is rolled back, and one that doesn't pass.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import field
from typing import Final

from sagactl.chaos.experiment import Asked, Experiment, Fault, FaultKind, name_operation
from sagactl.chaos.traits import Growth
from sagactl.core.records import Direction, Operation
from sagactl.core.saga import Saga, Step, StepClass
from sagactl.dataclass import dataclass

_POINTS: Final = (
    FaultKind.KILLED_BEFORE_INTENT,
    FaultKind.KILLED_AFTER_INTENT,
    FaultKind.KILLED_IN_EFFECT,
    FaultKind.KILLED_AFTER_EFFECT,
    FaultKind.KILLED_AFTER_OUTCOME,
)
_ROLLED_BACK_FROM: Final = (
    FaultKind.KILLED_AFTER_INTENT,
    FaultKind.KILLED_AFTER_EFFECT,
    FaultKind.KILLED_AFTER_OUTCOME,
)
_BLIND_FROM: Final = (FaultKind.KILLED_AFTER_INTENT, FaultKind.KILLED_AFTER_EFFECT)
_PASSING: Final = (FaultKind.UNAVAILABLE, FaultKind.REPLY_LOST, FaultKind.REQUEST_LOST, FaultKind.REPLY_LATE)


@dataclass(frozen=True, slots=True)
class Reference:
    """What the two runs without a fault have shown; operations are in the order of their first calls."""

    actions: tuple[Operation, ...]
    compensations: tuple[Operation, ...] = ()
    lines: Mapping[Operation, tuple[str, ...]] = field(default_factory=dict)
    """The lines below the folder of the plugins, and of its own file, that a tool comes to."""
    growth: Mapping[Operation, Growth] = field(default_factory=dict)
    """What an action adds to the world."""
    is_steady: bool = True
    """Files have the same names in each run, but for the run's id."""
    failing: frozenset[Operation] = frozenset()
    """Compensations that fail without any other fault."""
    rest: Mapping[Operation, Growth] = field(default_factory=dict)
    """What is left of an action, or missing, after its compensation, or where none was called."""


def list_experiments(saga: Saga, reference: Reference) -> list[Experiment]:
    """Return all experiments with a single fault beside what brings a rollback about."""
    found = [*_on_run()]
    shown: set[str] = set()
    for operation in reference.actions:
        found += _on_action(saga, operation, _choose_lines(saga, reference, operation, shown))
    for operation in reference.compensations:
        found += _on_compensation(saga, operation, _choose_lines(saga, reference, operation, shown))
    return found


def _choose_lines(saga: Saga, reference: Reference, operation: Operation, shown: set[str]) -> Sequence[str]:
    """Return the lines at which *operation* is killed: a tool's lines are tried once."""
    step = saga.by_id[operation.step]
    call = step.action if operation.direction is Direction.ACTION else step.compensation
    tool = "" if call is None else call.tool
    lines = () if tool in shown else reference.lines.get(operation, ())
    shown.add(tool)
    return lines


def _on_run() -> Iterator[Experiment]:
    for kind in (FaultKind.KILLED_AFTER_START, FaultKind.KILLED_BEFORE_END):
        yield Experiment(f"run/{kind}", None, (Fault(kind),))


def _on_action(saga: Saga, operation: Operation, lines: Sequence[str]) -> Iterator[Experiment]:
    step = saga.by_id[operation.step]
    place = name_operation(operation)
    yield from _killed(place, operation, lines)
    yield from _failing(place, operation)
    yield Experiment(f"{place}/{FaultKind.REJECTED}", operation, (Fault(FaultKind.REJECTED, operation),))
    if step.klass in {StepClass.PIVOT, StepClass.RETRIABLE}:
        return
    for kind in _ROLLED_BACK_FROM:
        yield Experiment(f"{place}/{kind}/rollback", operation, (Fault(kind, operation),), Asked.AFTER_CRASH)
    for line in lines:
        name = f"{place}/{FaultKind.KILLED_IN_EFFECT}@{line}/rollback"
        yield Experiment(name, operation, (Fault(FaultKind.KILLED_IN_EFFECT, operation, line=line),), Asked.AFTER_CRASH)
    yield from _blind(saga, step, operation)
    yield from _late(saga, step, operation)


def _killed(
    place: str, operation: Operation, lines: Sequence[str], before: tuple[Fault, ...] = (), asked: Asked = Asked.NEVER
) -> Iterator[Experiment]:
    for kind in _POINTS:
        at = lines if kind is FaultKind.KILLED_IN_EFFECT and lines else [None]
        for line in at:
            name = f"{place}/{kind}" if line is None else f"{place}/{kind}@{line}"
            yield Experiment(name, operation, (*before, Fault(kind, operation, line=line)), asked)


def _failing(
    place: str, operation: Operation, before: tuple[Fault, ...] = (), asked: Asked = Asked.NEVER
) -> Iterator[Experiment]:
    for kind in _PASSING:
        yield Experiment(f"{place}/{kind}", operation, (*before, Fault(kind, operation)), asked)
    lasting = Fault(FaultKind.UNAVAILABLE, operation, always=True)
    yield Experiment(f"{place}/{FaultKind.UNAVAILABLE}-always", operation, (*before, lasting), asked)


def _blind(saga: Saga, step: Step, operation: Operation) -> Iterator[Experiment]:
    """E7: in doubt, and the probe is of no use: the compensation has to find the effect, or nothing, by its key."""
    if step.compensation is None or saga.tools[step.action.tool].probe is None:
        return
    for kind in _BLIND_FROM:
        faults = (Fault(kind, operation), Fault(FaultKind.PROBE_BLIND, operation, always=True))
        name = f"{name_operation(operation)}/{kind}/blind-rollback"
        yield Experiment(name, operation, faults, Asked.AFTER_CRASH)


def _late(saga: Saga, step: Step, operation: Operation) -> Iterator[Experiment]:
    """E9: only a tool that is `late_safe` is undone while its call may still be under way."""
    undo = step.compensation
    if undo is None or not saga.tools[undo.tool].null_safe:
        return
    if not (saga.tools[undo.tool].late_safe or saga.tools[step.action.tool].late_safe):
        return
    kinds = (FaultKind.EFFECT_LATE, FaultKind.PROBE_BLIND)
    faults = tuple(Fault(kind, operation, always=True) for kind in kinds)
    yield Experiment(f"{name_operation(operation)}/{FaultKind.EFFECT_LATE}", operation, faults, Asked.WHEN_STUCK)


def _on_compensation(saga: Saga, operation: Operation, lines: Sequence[str]) -> Iterator[Experiment]:
    before, asked = turn_around(saga)
    place = name_operation(operation)
    yield from _killed(place, operation, lines, before, asked)
    yield from _failing(place, operation, before, asked)


def turn_around(saga: Saga) -> tuple[tuple[Fault, ...], Asked]:
    """Return what makes a run of *saga* undo all it can: its pivot is rejected, or an operator asks at its end."""
    pivot = next((step for step in saga.steps if step.klass is StepClass.PIVOT), None)
    if pivot is None:
        return (), Asked.AT_END
    return (Fault(FaultKind.REJECTED, Operation(pivot.id, None, Direction.ACTION)),), Asked.NEVER


def list_pairs(singles: Sequence[Experiment]) -> Iterator[Experiment]:
    """Yield each crash followed by each crash that can come after it, in the run that was resumed or rolled back."""
    crashes = [each for each in singles if each.faults[-1].is_kill]
    for number, first in enumerate(crashes):
        for second in crashes[number + 1 :]:
            if _can_follow(first, second):
                more = second.faults[-1:] if first.asked is Asked.AFTER_CRASH else second.faults
                faults = (*first.faults, *(fault for fault in more if fault not in first.faults))
                asked = second.asked if first.asked is Asked.NEVER else first.asked
                yield Experiment(f"{first.name}+{second.name}", first.place, faults, asked, (first.name, second.name))


def _can_follow(first: Experiment, second: Experiment) -> bool:
    """Tell whether a run that met *first* can still come to the crash of *second*."""
    if second.asked is Asked.AFTER_CRASH:
        return False
    is_undo = second.place is not None and second.place.direction is Direction.COMPENSATION
    return is_undo or first.asked is Asked.NEVER
