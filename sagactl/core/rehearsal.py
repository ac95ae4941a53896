"""What a run would do, found out by doing it: the real core, driven with imagined answers.

Nothing here has an order of its own. `decide` and `evolve`, which drive every real run, are asked; only the answers
are imagined: each call succeeds at once, each probe finds the effect, and calls that the core asks for in one turn end
together. No record is kept and no tool is called.

Data that only a call could bring is missing, so a step whose arguments, `when` or `foreach` hang on it is made *blank*:
what can't be known is replaced by something that decides nothing.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace
from typing import Final

from sagactl.core.advance import advance
from sagactl.core.canonical import Json
from sagactl.core.evolve import evolve
from sagactl.core.operators import answer_request
from sagactl.core.records import (
    Direction,
    DriverClaimed,
    Holder,
    Operation,
    Outcome,
    OutcomeKind,
    ProbeAnswer,
    Record,
    Request,
    RunCreated,
    Verb,
)
from sagactl.core.saga import Call, Saga, Step
from sagactl.core.state import RunState
from sagactl.core.template import Evaluator, Literal, Scope
from sagactl.core.world import AskProbe, MakeCall, Rest, Wait, World
from sagactl.dataclass import dataclass

NOBODY: Final = Holder("", 0, "", "")


@dataclass(frozen=True, slots=True)
class Rehearsed:
    """A call that the core asked for; calls of one `turn` run at the same time."""

    turn: int
    operation: Operation
    tool: str
    arguments: Json
    is_probe: bool = False


@dataclass(frozen=True, slots=True)
class Rehearsal:
    """All that the core did of its own until it rested, or could only wait for something from outside."""

    calls: tuple[Rehearsed, ...]
    records: tuple[Record, ...]
    then: Rest | Wait


class BlankEvaluator:
    """Evaluates nothing and objects to nothing: for sagas that are blank throughout."""

    def evaluate(self, expression: str, scope: Scope) -> Json:
        """Return null; a blank saga has no expressions."""
        del expression, scope
        return None

    def check_arguments(self, tool: str, arguments: Json) -> str | None:
        """Let anything pass."""
        del tool, arguments
        return None


def begin_imagined(saga: Saga) -> RunState:
    """Return the state of a run of *saga* that nobody has started."""
    state = RunState()
    evolve(saga, state, RunCreated(0, "", saga.name, "", None, ""))
    evolve(saga, state, DriverClaimed(0, 1, NOBODY, calls_ended=True))
    return state


def blank_saga(saga: Saga, *, skipped: Collection[str] = (), empty: Collection[str] = ()) -> Saga:
    """Return *saga* with nothing in it that data decides, but for *skipped* steps and *empty* lists.

    Every other `foreach` has one item.
    """
    steps = []
    for step in saga.steps:
        # Who must be decided before it is called is called behind those that needn't be, so that much is kept.
        when = None if step.when is None else Literal(step.id not in skipped)
        items: list[Json] = [] if step.id in empty else [None]
        foreach = None if step.foreach is None else Literal(items)
        approval = None if step.approval is None else replace(step.approval, required=None)
        steps.append(replace(blank_step(step, action=True), guard=None, when=when, foreach=foreach, approval=approval))
    return replace(saga, steps=tuple(steps), output=None, run_key=None, run_timeout_ms=None)


def blank_step(step: Step, *, action: bool) -> Step:
    """Return *step* with a compensation, and with *action* also an action, that takes nothing."""
    undo = step.compensation
    return replace(
        step,
        action=_blank_call(step.action) if action else step.action,
        compensation=None if undo is None else _blank_call(undo),
    )


def _blank_call(call: Call) -> Call:
    return replace(call, arguments=Literal({}))


def rehearse(
    saga: Saga,
    state: RunState,
    evaluator: Evaluator,
    *,
    now_ms: int = 0,
    slots: int | None = None,
    missing_tools: frozenset[str] = frozenset(),
    missing_secrets: frozenset[str] = frozenset(),
) -> Rehearsal:
    """Drive *state*, which is consumed, as far as it goes by itself.

    Without *slots* everything that may run at the same time does.
    """
    room = len(saga.steps) + len(state.operations) if slots is None else slots
    calls: list[Rehearsed] = []
    records: list[Record] = []
    number = 0
    while True:
        world = World(now_ms, max(1, room), evaluator, missing_tools, missing_secrets)
        turn = advance(saga, state, world, lambda floor_ms, _: floor_ms)
        records += turn.records
        for call in turn.calls:
            calls.append(_note(number, call))
            evolve(saga, state, _imagine(call, now_ms))
        if turn.calls:
            number += 1
        elif isinstance(turn.then, Wait) and turn.then.what == "approval":
            _imagine_approvals(saga, state, now_ms)
        elif isinstance(turn.then, Wait) and turn.then.until_ms is not None:
            now_ms = max(now_ms + 1, turn.then.until_ms)
        else:
            assert isinstance(turn.then, Rest | Wait), "every imagined call has settled"
            return Rehearsal(tuple(calls), tuple(records), turn.then)


def _imagine_approvals(saga: Saga, state: RunState, now_ms: int) -> None:
    """Let those who may agree to all that waits for a person."""
    for step_id, awaited in list(state.awaiting.items()):
        approval = saga.by_id[step_id].approval
        who = approval.by[0] if approval is not None and approval.by else ""
        operation = Operation(step_id, None, Direction.ACTION)
        request = Request(f"imagined/{step_id}", Verb.APPROVE, who, operation=operation, digest=awaited.digest)
        evolve(saga, state, answer_request(saga, state, request, now_ms))


def _note(turn: int, call: MakeCall | AskProbe) -> Rehearsed:
    if isinstance(call, AskProbe):
        return Rehearsed(turn, call.probe.operation, call.probe.tool, call.arguments, is_probe=True)
    return Rehearsed(turn, call.intent.operation, call.intent.tool, call.arguments)


def _imagine(call: MakeCall | AskProbe, now_ms: int) -> Record:
    if isinstance(call, AskProbe):
        return replace(call.probe, answer=ProbeAnswer.DONE, at_ms=now_ms)
    return Outcome(now_ms, call.intent.operation, call.intent.attempt, OutcomeKind.SUCCEEDED)
