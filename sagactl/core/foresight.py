"""What a rollback or a resume of an existing run would call, without calling it (rules E7, E10-E13, E22).

The state of the run is driven on by the real core, as a new driver would: it claims the run, answers the request, and
then goes back as far as it comes, each call imagined to succeed (see `rehearsal`). Arguments are those that would be
sent, made from what the log holds. Where a probe must say first whether there is anything to undo, its answer is not
known, so what hangs on the action's output is shown as it is written.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from sagactl.core.advance import advance
from sagactl.core.canonical import Json
from sagactl.core.evolve import evolve
from sagactl.core.operators import answer_request
from sagactl.core.partial import render_partly
from sagactl.core.records import (
    Cause,
    Decision,
    DecisionKind,
    Direction,
    Disposition,
    DriverClaimed,
    NotUndone,
    Operation,
    Operator,
    Outcome,
    OutcomeKind,
    Request,
    RunStatus,
)
from sagactl.core.rehearsal import NOBODY, Rehearsal, Rehearsed, blank_step, rehearse
from sagactl.core.saga import Saga
from sagactl.core.scope import undo_scope
from sagactl.core.state import RunState, call_of
from sagactl.core.template import Evaluator, Scope
from sagactl.core.transitions import Phase
from sagactl.core.world import AskProbe, MakeCall, Rest, Wait, World
from sagactl.dataclass import dataclass


@dataclass(frozen=True, slots=True)
class Situation:
    """What a driver would find besides the log: the time, its slots, what is missing, who else drives.

    `is_driven` says that another process drives the run: calls under way end by themselves, and are imagined to
    succeed. `calls_ended` is what a new driver knows of those of the one before it (E9).
    """

    now_ms: int
    slots: int
    missing_tools: frozenset[str] = frozenset()
    missing_secrets: frozenset[str] = frozenset()
    is_driven: bool = False
    calls_ended: bool = True


@dataclass(frozen=True, slots=True)
class Foreseen:
    """A call that would be made; calls of one `turn` at the same time.

    One that `hangs_on_answer` is made only if the probe before it (or the call under way) says that the action took
    effect. With an `objection` there is no call: a person must decide, for that reason.
    """

    turn: int
    operation: Operation
    tool: str
    arguments: Json = None
    is_probe: bool = False
    hangs_on_answer: bool = False
    objection: str | None = None


@dataclass(frozen=True, slots=True)
class Foresight:
    """What would be done if all goes well; `status` is where the run would stand then.

    With `waits_for` and calls, the calls are made when that timer is due.
    """

    calls: tuple[Foreseen, ...]
    status: RunStatus
    left: tuple[NotUndone, ...] = ()
    waits_for: Wait | None = None
    answer: Operator | None = None

    @property
    def is_accepted(self) -> bool:
        """Tell whether what was asked for would be done now."""
        return self.answer is None or self.answer.disposition is Disposition.ACCEPTED


@dataclass(frozen=True, slots=True)
class _Lenient:
    """The evaluator of a run, which lets blank arguments pass."""

    inner: Evaluator
    tools: frozenset[str]

    def evaluate(self, expression: str, scope: Scope) -> Json:
        return self.inner.evaluate(expression, scope)

    def check_arguments(self, tool: str, arguments: Json) -> str | None:
        if tool in self.tools and arguments == {}:
            return None
        return self.inner.check_arguments(tool, arguments)


def foresee_rollback(
    saga: Saga, state: RunState, request: Request, evaluator: Evaluator, situation: Situation
) -> Foresight:
    """Return what *request*, asked of the run now, would lead to; consumes *state*."""
    imagined = _take_over(saga, state, situation)
    answer = answer_request(saga, state, request, situation.now_ms)
    if answer.disposition is not Disposition.ACCEPTED:
        return Foresight((), _status(state), answer=answer)
    evolve(saga, state, answer)
    return replace(_foresee_way_back(saga, state, evaluator, situation, imagined), answer=answer)


def foresee_resume(saga: Saga, state: RunState, evaluator: Evaluator, situation: Situation) -> Foresight:
    """Return what a driver would do next: on the way forward the next calls, on the way back all of them."""
    imagined = _take_over(saga, state, situation)
    return _foresee_way_on(saga, state, evaluator, situation, imagined)


def foresee_decision(
    saga: Saga, state: RunState, request: Request, evaluator: Evaluator, situation: Situation
) -> Foresight:
    """Return what settling a dead letter as *request* says would lead to (E23); consumes *state*.

    On the way forward that is what is called next; the rest hangs on what those calls return.
    """
    imagined = _take_over(saga, state, situation)
    answer = answer_request(saga, state, request, situation.now_ms)
    if answer.disposition is not Disposition.ACCEPTED:
        return Foresight((), _status(state), answer=answer)
    evolve(saga, state, answer)
    return replace(_foresee_way_on(saga, state, evaluator, situation, imagined), answer=answer)


def _foresee_way_on(
    saga: Saga, state: RunState, evaluator: Evaluator, situation: Situation, imagined: set[Operation]
) -> Foresight:
    if state.direction is Direction.COMPENSATION or state.failing is not None:
        return _foresee_way_back(saga, state, evaluator, situation, imagined)
    turn = advance(saga, state, _make_world(situation, evaluator), lambda floor_ms, _: floor_ms)
    timer = turn.then if isinstance(turn.then, Wait) and turn.then.what == "timer" and not turn.calls else None
    if timer is not None and timer.until_ms is not None and timer.until_ms > situation.now_ms:
        later = _foresee_way_on(saga, state, evaluator, replace(situation, now_ms=timer.until_ms), imagined)
        return replace(later, waits_for=timer)
    calls = tuple(_foresee(0, call) for call in turn.calls)
    then = turn.then
    status = then.status if isinstance(then, Rest) else _status(state)
    return Foresight(calls, status, waits_for=then if isinstance(then, Wait) and not calls else None)


def _make_world(situation: Situation, evaluator: Evaluator) -> World:
    return World(situation.now_ms, situation.slots, evaluator, situation.missing_tools, situation.missing_secrets)


def _take_over(saga: Saga, state: RunState, situation: Situation) -> set[Operation]:
    """Claim the run, or let the driver's calls end; return the actions whose success is imagined."""
    if not situation.is_driven:
        evolve(saga, state, DriverClaimed(situation.now_ms, state.fence + 1, NOBODY, situation.calls_ended))
        return set()
    calling = [each for each in state.in_flight if state.operations[each].phase is Phase.CALLING]
    for operation in calling:
        attempt = state.operations[operation].attempts
        evolve(saga, state, Outcome(situation.now_ms, operation, attempt, OutcomeKind.SUCCEEDED))
    return {operation for operation in calling if operation.direction is Direction.ACTION}


def _status(state: RunState) -> RunStatus:
    if state.ended is not None:
        return state.ended.status
    if state.stuck is not None:
        return RunStatus.STUCK
    return RunStatus.RUNNING if state.direction is Direction.ACTION else RunStatus.ROLLING_BACK


def _foresee(turn: int, call: MakeCall | AskProbe) -> Foreseen:
    if isinstance(call, AskProbe):
        return Foreseen(turn, call.probe.operation, call.probe.tool, call.arguments, is_probe=True)
    return Foreseen(turn, call.intent.operation, call.intent.tool, call.arguments)


def _foresee_way_back(
    saga: Saga, state: RunState, evaluator: Evaluator, situation: Situation, imagined: set[Operation]
) -> Foresight:
    unsure = imagined | {operation for operation in state.touched if _is_unsure(saga, state, operation)}
    blank, blank_tools = _blank_unsure(saga, unsure)
    rehearsal = rehearse(
        blank,
        state,
        _Lenient(evaluator, blank_tools),
        now_ms=situation.now_ms,
        slots=situation.slots,
        missing_tools=situation.missing_tools,
        missing_secrets=situation.missing_secrets,
    )
    calls = [_fill_in(saga, state, evaluator, unsure, call) for call in rehearsal.calls]
    calls += _list_objections(saga, rehearsal)
    waits = rehearsal.then if isinstance(rehearsal.then, Wait) else None
    status = rehearsal.then.status if isinstance(rehearsal.then, Rest) else RunStatus.ROLLING_BACK
    return Foresight(tuple(calls), status, _list_left(state), waits)


def _is_unsure(saga: Saga, state: RunState, operation: Operation) -> bool:
    """Tell whether a probe will be asked about an action before it is undone."""
    action, undo = state.operations[operation], state.operations.get(operation.other)
    in_doubt = action.phase is not Phase.SUCCEEDED and (action.doubt or action.phase is Phase.PENDING)
    has_begun = undo is not None and undo.attempts > 0
    return in_doubt and not has_begun and saga.tools[call_of(saga, operation).tool].probe is not None


def _blank_unsure(saga: Saga, unsure: set[Operation]) -> tuple[Saga, frozenset[str]]:
    """Leave out the arguments of the undos that hang on outputs nobody has; they only decide the order's details."""
    names = {operation.step for operation in unsure}
    steps = tuple(blank_step(step, action=False) if step.id in names else step for step in saga.steps)
    tools = {step.compensation.tool for step in steps if step.id in names and step.compensation is not None}
    return replace(saga, steps=steps), frozenset(tools)


def _fill_in(saga: Saga, state: RunState, evaluator: Evaluator, unsure: set[Operation], call: Rehearsed) -> Foreseen:
    hangs = not call.is_probe and call.operation.other in unsure
    arguments = call.arguments
    is_undo = not call.is_probe and call.operation.direction is Direction.COMPENSATION
    if is_undo and arguments == {}:  # left blank, or there are none
        arguments = _make_arguments(saga, state, evaluator, call.operation, has_output=not hangs)
    return Foreseen(call.turn, call.operation, call.tool, arguments, call.is_probe, hangs)


def _make_arguments(saga: Saga, state: RunState, evaluator: Evaluator, undo: Operation, *, has_output: bool) -> Json:
    """E7: without an output that will be there, arguments that come out as null are left out."""
    action = state.operations[undo.other]
    scope = dict(undo_scope(saga, state, action))
    if not has_output:
        del scope["output"]
    arguments = render_partly(call_of(saga, undo).arguments, scope, evaluator)
    if action.phase is not Phase.SUCCEEDED and isinstance(arguments, dict):
        return {name: value for name, value in arguments.items() if value is not None}
    return arguments


def _list_objections(saga: Saga, rehearsal: Rehearsal) -> Iterator[Foreseen]:
    """Yield the undos that would not be called: refused, or of an action of which only a person knows (E7, E21)."""
    last = rehearsal.calls[-1].turn + 1 if rehearsal.calls else 0
    for record in rehearsal.records:
        if isinstance(record, Decision) and record.kind is DecisionKind.DEAD_LETTER and record.operation is not None:
            tool = call_of(saga, record.operation).tool
            yield Foreseen(last, record.operation, tool, objection=_explain(record))


def _explain(letter: Decision) -> str:
    if letter.cause is Cause.IN_DOUBT or letter.failure is None:
        return "nobody can tell whether it happened"
    return letter.failure.message


def _list_left(state: RunState) -> tuple[NotUndone, ...]:
    if state.ended is not None:
        return state.ended.not_undone
    return tuple(state.not_undone.values())
