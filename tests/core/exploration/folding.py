"""States of the core as values: a copy that a fold may consume, and a key under which equal states are one state.

The key holds all of a state that can make a difference to what comes next. Times are told from now on: what is over is
over, a short delay is exact, and a long one counts in whole seconds, as the short delays that went by on the way are
taken for nothing. Sequence numbers are told by order alone, and the number of the fence not at all: drivers are alike.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from sagactl.core.backward import is_due_for_undo
from sagactl.core.canonical import Json
from sagactl.core.people import approval_until_ms
from sagactl.core.records import Failure
from sagactl.core.saga import Saga
from sagactl.core.state import Backward, OperationState, RunState, StepState
from sagactl.core.transitions import SETTLED_PHASES, Phase

SHORT_MS: Final = 500
"""Below it a time is a short delay; nothing that lasts is as short, and no path has as many short delays."""
LONG_MS: Final = 1_000

_RUN_FIELDS: Final = tuple(RunState.__slots__)
_OPERATION_FIELDS: Final = tuple(OperationState.__slots__)
_STEP_FIELDS: Final = tuple(StepState.__slots__)
_UNDER_WAY: Final = frozenset({Phase.CALLING, Phase.PROBING})
_CONTAINERS: Final = frozenset({dict, list, set})


def copy_state(state: RunState) -> RunState:
    """Return a state that shares nothing with *state* that a fold may change."""
    copy = object.__new__(RunState)
    for name in _RUN_FIELDS:
        value = getattr(state, name)
        setattr(copy, name, value.copy() if type(value) in _CONTAINERS else value)
    copy.operations = {operation: _copy_operation(op) for operation, op in state.operations.items()}
    copy.steps = {step_id: _copy_step(step) for step_id, step in state.steps.items()}
    copy.backward = None if state.backward is None else _copy_backward(state.backward)
    return copy


def _copy_operation(op: OperationState) -> OperationState:
    copy = object.__new__(OperationState)
    for name in _OPERATION_FIELDS:
        setattr(copy, name, getattr(op, name))
    return copy


def _copy_step(step: StepState) -> StepState:
    copy = object.__new__(StepState)
    for name in _STEP_FIELDS:
        setattr(copy, name, getattr(step, name))
    copy.outputs = step.outputs.copy()
    return copy


def _copy_backward(frontier: Backward) -> Backward:
    return Backward(
        blockers=frontier.blockers.copy(),
        open_items={step: items.copy() for step, items in frontier.open_items.items()},
        waiting={step: items.copy() for step, items in frontier.waiting.items()},
        next_item=frontier.next_item.copy(),
        heap=frontier.heap.copy(),
        left=frontier.left,
    )


def key_of(saga: Saga, state: RunState, now_ms: int) -> tuple[Any, ...]:
    """Return a value that is equal for states which no future can tell apart."""
    has_retention = any(tool.key_retention_ms is not None for tool in saga.tools.values())
    return (
        tuple(_operation_key(state.operations[each], now_ms, has_retention) for each in sorted(state.operations)),
        tuple(_step_key(state, step.id) for step in saga.steps if step.id in state.steps),
        tuple(state.touched),
        tuple(state.needs_left.items()),
        tuple(state.undecided),
        tuple(
            (step_id, asked.digest, _ahead(approval_until_ms(state, asked, now_ms), now_ms))
            for step_id, asked in state.awaiting.items()
        ),
        tuple(state.startable),
        tuple(state.ready),
        tuple(state.undrawn),
        tuple(state.doubtful),
        tuple(state.exhausted),
        tuple(state.dead),
        tuple(state.in_flight),
        tuple(state.alerts),
        (tuple(state.troubled), state.has_recovered),
        _failure_key(state.failure),
        *(state.direction, state.cause, state.failed_step, state.failing, state.terminating, state.pivot),
        *(state.pivot_passed, state.pivot_announced, state.paused_since_ms is None, state.people_since_ms is None),
        *(state.deadline_alerted, state.abandoned, state.unfinished, state.definition),
        None if state.failing is None and not state.terminating else _behind(state.failing_since_ms, now_ms),
        _ahead(state.deadline_ms, now_ms),
        tuple(request.id for request in state.deferred),
        frozenset(state.answered),
        tuple(
            operation for due_ms, _, operation in sorted(state.timers) if state.operations[operation].due_ms == due_ms
        ),
        None if state.backward is None else _backward_key(state, state.backward),
        frozenset(state.not_undone.values()),
        None if state.stuck is None else (state.stuck.kind, state.stuck.cause),
        None if state.ended is None else (state.ended.status, state.ended.cause, state.ended.not_undone),
    )


def _operation_key(op: OperationState, now_ms: int, has_retention: bool) -> tuple[Any, ...]:
    is_under_way = op.phase in _UNDER_WAY
    is_settled = op.phase in SETTLED_PHASES
    return (
        op.operation,
        op.phase,
        op.attempts > 0,
        op.doubt,
        _value_key(op.arguments),
        _value_key(op.output),
        _ahead(op.due_ms, now_ms),
        _ahead(op.late_until_ms, now_ms),
        op.probes,
        _failure_key(op.failure),
        _ahead(op.deadline_ms, now_ms) if is_under_way else None,
        None if is_settled else (op.attempts_in_budget, op.is_final, op.asking, op.cause, op.delay),
        None if is_settled else _ahead(op.not_before_ms, now_ms),
        None if is_settled else _ahead(op.schedule_deadline_ms, now_ms),
        _behind(op.first_intent_ms, now_ms) if has_retention else None,
    )


def _step_key(state: RunState, step_id: str) -> tuple[Any, ...]:
    step = state.steps[step_id]
    outputs = tuple((item, _value_key(value)) for item, value in step.outputs.items())
    return (
        *(step_id, step.items, step.decided, step.skipped, step.finished, step.asked is None),
        *(step.items_started, step.items_open, step.items_done, outputs, step.output is None),
    )


def _backward_key(state: RunState, frontier: Backward) -> tuple[Any, ...]:
    return (
        tuple(each for _, each in sorted(frontier.heap) if is_due_for_undo(state, state.operations[each])),
        tuple(frontier.blockers.items()),
        tuple((step, tuple(items)) for step, items in frontier.open_items.items() if items),
        tuple((step, tuple(items)) for step, items in frontier.waiting.items() if items),
        tuple(frontier.next_item.items()),
        frontier.left,
    )


def _failure_key(failure: Failure | None) -> tuple[str, str] | None:
    return None if failure is None else (failure.type, failure.message)


def _value_key(value: Json) -> Any:
    return tuple(value.items()) if isinstance(value, dict) else value


def _ahead(at_ms: int | None, now_ms: int) -> int | None:
    """Return how far a time lies ahead, as coarsely as the key tells times; all that is over is the same."""
    if at_ms is None:
        return None
    ahead_ms = at_ms - now_ms
    if ahead_ms <= 0:
        return 0
    return ahead_ms if ahead_ms < SHORT_MS else -(-ahead_ms // LONG_MS) * LONG_MS


def _behind(at_ms: int, now_ms: int) -> int:
    """Return how long ago a time was, in whole seconds."""
    return (now_ms - at_ms) // LONG_MS


HELD: Final[dict[type, tuple[Callable[..., Any], frozenset[str]]]] = {
    RunState: (key_of, frozenset({"seq", "created", "fence", "claimed_at_ms", "waiting"})),
    OperationState: (
        _operation_key,
        frozenset({"raw", "token", "attempts_before_retry", "first_seq", "settled"}),
    ),
    StepState: (_step_key, frozenset({"arguments"})),
    Backward: (_backward_key, frozenset()),
}
"""What makes the key of each kind of state, and what it leaves out: what is told by order alone, what only people read,
and what the shapes have none of."""
