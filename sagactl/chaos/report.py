"""What a whole series of experiments came to: findings by step, and what was and wasn't tried."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import field
from enum import StrEnum
from types import MappingProxyType

from sagactl.chaos.experiment import Experiment
from sagactl.chaos.findings import Code, Finding, Severity
from sagactl.core.records import Operation
from sagactl.core.saga import Saga
from sagactl.dataclass import dataclass


class Verdict(StrEnum):
    """What is to be said of a step, or of all."""

    SAFE = "safe"
    NOTED = "noted"
    UNSAFE = "unsafe"
    NOT_TRIED = "not_tried"


class World(StrEnum):
    """What experiments act on: the tools themselves, or make-believe ones with the outputs of a former run."""

    TOOLS = "tools"
    RECORDED = "recorded"


@dataclass(frozen=True, slots=True)
class Found:
    """A finding about a step, as it was first seen, and in which other experiments."""

    first: Finding
    others: tuple[str, ...] = ()

    @property
    def step(self) -> str | None:
        """Return the step that it is about, None where it is the run."""
        return None if self.first.place is None else self.first.place.step


@dataclass(frozen=True, slots=True)
class StepVerdict:
    """What a step came to: how many experiments were made on it, forward and back, and what they found."""

    step: str
    forward: int
    back: int
    verdict: Verdict
    codes: tuple[Code, ...] = ()
    took_ms: int = 0
    """How long its experiments took, all lives of them added up."""


@dataclass(frozen=True, slots=True)
class ChaosReport:
    """All of it; `checks` are the tools that were asked what there is, beside the sandbox and the folder."""

    saga: Saga
    world: World
    checks: tuple[str, ...]
    made: tuple[Experiment, ...]
    found: tuple[Found, ...] = ()
    not_reached: tuple[str, ...] = ()
    """Experiments whose fault never came, so that they prove nothing."""
    left_out: int = 0
    """Experiments that there are, and that were not made, for --only, --limit or --pairs."""
    steps: tuple[StepVerdict, ...] = field(default=())
    took_ms: int = 0
    """How long all experiments took, the runs without a fault too; several at once are added up."""
    is_beside: bool = False
    """They were made beside what an earlier run has left."""

    @property
    def is_safe(self) -> bool:
        """Tell whether nothing was found but notes."""
        return all(each.first.severity is Severity.NOTE for each in self.found)


def make_report(
    saga: Saga,
    world: World,
    checks: Sequence[str],
    made: Sequence[Experiment],
    findings: Iterable[Finding],
    *,
    not_reached: Sequence[str] = (),
    left_out: int = 0,
    took_ms: Mapping[str, int] = MappingProxyType({}),
    is_beside: bool = False,
) -> ChaosReport:
    """Return the report; findings of one code about one step are one. *took_ms* is by experiment."""
    found = _merge(saga, findings)
    steps = tuple(_judge_step(step.id, made, found, set(not_reached), took_ms) for step in saga.steps)
    return ChaosReport(
        saga=saga,
        world=world,
        checks=tuple(checks),
        made=tuple(made),
        found=found,
        not_reached=tuple(not_reached),
        left_out=left_out,
        steps=steps,
        took_ms=sum(took_ms.values()),
        is_beside=is_beside,
    )


def _merge(saga: Saga, findings: Iterable[Finding]) -> tuple[Found, ...]:
    """Put the findings together by step and code: those that are unsafe first, then in the order of the file."""
    groups: dict[tuple[str | None, Code, Severity], list[Finding]] = {}
    for finding in findings:
        step = None if finding.place is None else finding.place.step
        groups.setdefault((step, finding.code, finding.severity), []).append(finding)
    for step, code, severity in list(groups):
        if severity is Severity.NOTE and (step, code, Severity.UNSAFE) in groups:
            groups[step, code, Severity.UNSAFE] += groups.pop((step, code, severity))
    merged = [Found(group[0], _list_others(group)) for group in groups.values()]
    codes = list(Code)
    positions = {step.id: position for position, step in enumerate(saga.steps)}

    def place(found: Found) -> tuple[bool, int, int]:
        position = -1 if found.step is None else positions.get(found.step, len(positions))
        return found.first.severity is Severity.NOTE, position, codes.index(found.first.code)

    return tuple(sorted(merged, key=place))


def _list_others(group: Sequence[Finding]) -> tuple[str, ...]:
    first = group[0].experiment
    return tuple(dict.fromkeys(each.experiment for each in group if each.experiment != first))


def _judge_step(
    step: str, made: Sequence[Experiment], found: Sequence[Found], not_reached: set[str], took_ms: Mapping[str, int]
) -> StepVerdict:
    own = [each for each in made if each.place is not None and each.place.step == step and each.name not in not_reached]
    forward = sum(_is_forward(each.place) for each in own)
    mine = [each for each in found if each.step == step]
    if any(each.first.severity is Severity.UNSAFE for each in mine):
        verdict = Verdict.UNSAFE
    elif mine:
        verdict = Verdict.NOTED
    else:
        verdict = Verdict.SAFE if own else Verdict.NOT_TRIED
    codes = tuple(each.first.code for each in mine)
    return StepVerdict(
        step, forward, len(own) - forward, verdict, codes, sum(took_ms.get(each.name, 0) for each in own)
    )


def _is_forward(place: Operation | None) -> bool:
    return place is not None and place.direction == "action"
