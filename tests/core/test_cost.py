"""What a record costs: the same at 10,000 steps as at 100, forward and backward.

Lines of Python that `evolve` and `decide` execute are counted, not time, so the test says the same on every machine.
A few records change everything at once and are left out: the first one, the decision to roll back, and the last item of
a `foreach`, whose output is the whole list.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from types import FrameType
from typing import Any

import pytest

from sagactl.core import advance as crank
from sagactl.core.evolve import evolve
from sagactl.core.machine import decide
from sagactl.core.records import Decision, DecisionKind, Outcome, Record, RunCreated, RunStatus
from sagactl.core.saga import Call, Jitter, Retry, Saga, Step, StepClass, ToolFacts
from sagactl.core.template import parse_template
from tests.core.builders import Play

SMALL, LARGE = 100, 10_000
SAMPLES = 60
TOOLS = {"do": ToolFacts("do"), "undo": ToolFacts("undo", null_safe=True)}
DO = Call("do", parse_template({}))
UNDO = Call("undo", parse_template({"id": "${{ output.id }}"}))


def step(name: str, *needs: str, **fields: Any) -> Step:
    """Return a compensable step."""
    return Step(name, StepClass.COMPENSABLE, DO, UNDO, needs=needs, **fields)


def chain(size: int) -> Saga:
    """Each step needs the one before it."""
    steps = [step("s0"), *(step(f"s{place}", f"s{place - 1}") for place in range(1, size))]
    return Saga("chain", (*steps, step("last", f"s{size - 1}")), TOOLS)


def fan(size: int) -> Saga:
    """Pairs of steps that have nothing to do with one another, and one step after them all."""
    firsts = [step(f"a{place}") for place in range(size // 2)]
    seconds = [step(f"b{place}", f"a{place}") for place in range(size // 2)]
    return Saga("fan", (*firsts, *seconds, step("last", *(each.id for each in seconds))), TOOLS)


def items(size: int) -> Saga:
    """One step with so many items, eight at once, and one step after it."""
    each = step("f", foreach=parse_template("${{ input.xs }}"), concurrency=8)
    return Saga("items", (each, step("last", "f")), TOOLS, compensation_concurrency=8)


def waiting(size: int) -> Saga:
    """One step whose items all wait for their retry at once."""
    call = Call("do", parse_template({}), Retry(3, 1_000, 200, 60_000, Jitter.NONE))
    each = Step("w", StepClass.COMPENSABLE, call, UNDO, foreach=parse_template("${{ input.xs }}"), concurrency=size)
    return Saga("waiting", (each, step("last", "w")), TOOLS, compensation_concurrency=8)


class Meter:
    """Counts the lines that sampled calls of the core execute."""

    def __init__(self, every: int) -> None:
        self.every = every
        self.calls = 0
        self.most = 0

    def measure(self, function: Callable[..., Any], *arguments: Any) -> Any:
        """Call *function*, and count its lines if it is its turn."""
        self.calls += 1
        if self.calls % self.every or _changes_everything(arguments[2]):
            return function(*arguments)
        lines = 0

        def count(frame: FrameType, event: str, _: object) -> Any:
            nonlocal lines
            lines += event == "line"
            return count

        outer = sys.gettrace()
        sys.settrace(count)
        try:
            return function(*arguments)
        finally:
            sys.settrace(outer)  # whoever measures the tests goes on
            self.most = max(self.most, lines)


def _changes_everything(record: Record) -> bool:
    if isinstance(record, Decision):
        return record.kind is DecisionKind.ROLLBACK
    return isinstance(record, RunCreated)


def find_most(patch: pytest.MonkeyPatch, what: Saga, size: int) -> dict[str, int]:
    """Run *what* until its last step is rejected and all is undone; return the most lines of one call of each kind."""
    meters = {name: Meter(max(1, 2 * size // SAMPLES) | 1) for name in ("evolve", "decide", "answer")}
    patch.setattr(crank, "decide", lambda *arguments: meters["decide"].measure(decide, *arguments))
    patch.setattr(crank, "evolve", lambda *arguments: meters["evolve"].measure(evolve, *arguments))
    play = Play(what, data={"xs": list(range(size))})

    def put(record: Record) -> None:
        is_last_item = isinstance(record, Outcome) and record.operation.item is not None and len(play.under_way) == 0
        if is_last_item:
            evolve(play.saga, play.state, record)
        else:
            meters["answer"].measure(evolve, play.saga, play.state, record)
        play.records.append(record)

    patch.setattr(play, "put", put)
    patch.setattr(type(play), "summary", property(lambda self: None))
    play.run({"last": ["reject"], **{f"w[{item}]": ["retry", "ok"] for item in range(size)}})
    assert play.state.ended is not None
    assert play.state.ended.status is RunStatus.ROLLED_BACK
    assert all(meter.most for meter in meters.values())
    return {name: meter.most for name, meter in meters.items()}


@pytest.mark.parametrize("shape", [chain, fan, items, waiting])
def test_a_record_costs_the_same_at_a_hundred_times_the_size(
    shape: Callable[[int], Saga], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Cost: a record pays for what it changes: in a chain, a wide graph, a long list, a crowd that waits; both ways."""
    most = {}
    for size in (SMALL, LARGE):
        with monkeypatch.context() as patch:
            most[size] = find_most(patch, shape(size), size)
    for name, lines in most[LARGE].items():
        assert lines <= most[SMALL][name] * 1.1 + 10, f"{name}: {most}"
