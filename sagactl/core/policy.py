"""What follows an answer: the policy of a step applied to one operation (rules E3-E7, E12, E13).

`judge` is asked whenever the transition table leaves a choice. It looks at nothing but the saga, the operation, where
the run stands, and the time in the record, so a replay judges as the first run did.

Three zones decide what giving up means. *Before* the pivot an action that fails turns the run around. *At* the pivot
it does so only without doubt: a pivot in doubt belongs to a person. *Behind* it, and in a compensation, there is
nothing to turn to, so what is used up becomes a dead letter.
"""

from __future__ import annotations

from enum import StrEnum
from typing import Final

from sagactl.core.records import Cause, Direction, Operation
from sagactl.core.saga import PROBE_ATTEMPTS_MAX, OnUnknown, Saga, StepClass
from sagactl.core.state import OperationState, RunState, call_of
from sagactl.core.transitions import Event, Phase

KEY_EXPIRED: Final = "key_expired"
"""The word of a failure that says that a key may be forgotten by its target."""

_PROBE_ANSWERS = frozenset({Event.PROBE_NOT_DONE, Event.PROBE_CANNOT_TELL})


class Zone(StrEnum):
    """Where an operation stands with regard to the point of no return."""

    BEFORE = "before"
    PIVOT = "pivot"
    BEHIND = "behind"
    UNDO = "undo"


def zone_of(saga: Saga, operation: Operation) -> Zone:
    """Return the zone of *operation*."""
    if operation.direction is Direction.COMPENSATION:
        return Zone.UNDO
    klass = saga.by_id[operation.step].klass
    if klass is StepClass.PIVOT:
        return Zone.PIVOT
    return Zone.BEHIND if klass is StepClass.RETRIABLE else Zone.BEFORE


def judge(saga: Saga, state: RunState, op: OperationState, event: Event, at_ms: int) -> Phase:
    """Return the phase that *event* leads to, and note in `op.cause` why where it is given up."""
    zone = zone_of(saga, op.operation)
    phase = _judge(saga, state, op, event, at_ms)
    if zone is Zone.UNDO and phase is Phase.EXHAUSTED and has_trail_expired(saga, state, op, at_ms):
        op.cause = Cause.IN_DOUBT  # whether there is anything to undo is a person's to find out
    return phase


def _judge(saga: Saga, state: RunState, op: OperationState, event: Event, at_ms: int) -> Phase:
    zone = zone_of(saga, op.operation)
    if event in {Event.REFUSED, Event.DENIED}:
        return _give_up(op, zone, Cause.DENIED if event is Event.DENIED else Cause.STEP_FAILED)
    if zone is not Zone.UNDO and (state.direction is Direction.COMPENSATION or state.failing is not None):
        return Phase.FAILED
    if event in _PROBE_ANSWERS or (event is Event.LOST and op.phase is Phase.PROBING):
        return _after_probe(saga, op, event, zone, at_ms)
    if event is Event.EXPIRED or not _may_try_again(saga, op, at_ms):
        return _when_used_up(saga, op, zone, at_ms)
    if not op.doubt:
        return Phase.RETRYING
    return _in_doubt(saga, op, zone, at_ms)


def _may_try_again(saga: Saga, op: OperationState, at_ms: int) -> bool:
    if op.is_final or op.attempts_in_budget >= call_of(saga, op.operation).retry.max_attempts:
        return False
    return op.schedule_deadline_ms is None or at_ms < op.schedule_deadline_ms


def _in_doubt(saga: Saga, op: OperationState, zone: Zone, at_ms: int) -> Phase:
    policy = policy_in_doubt(saga, op, at_ms)
    if policy is OnUnknown.RETRY:
        return Phase.RETRYING
    if policy is OnUnknown.PROBE and op.probes < PROBE_ATTEMPTS_MAX:
        return Phase.IN_DOUBT
    if policy is OnUnknown.COMPENSATE and zone is Zone.BEFORE:
        return Phase.FAILED
    return _give_up(op, zone, Cause.IN_DOUBT, to_person=True)


def policy_in_doubt(saga: Saga, op: OperationState, at_ms: int) -> OnUnknown:
    """Return what doubt means for *op* now: a key that its tool has forgotten can't be retried (E6)."""
    call = call_of(saga, op.operation)
    if call.on_unknown is not OnUnknown.RETRY or not has_key_expired(saga, op, at_ms):
        return call.on_unknown
    return OnUnknown.PROBE if saga.tools[call.tool].probe else OnUnknown.ASK


def _when_used_up(saga: Saga, op: OperationState, zone: Zone, at_ms: int) -> Phase:
    """No further try: a probe may still clear the doubt (E4: a late rejection doesn't)."""
    if not op.doubt:
        return _give_up(op, zone, Cause.STEP_FAILED)
    policy = policy_in_doubt(saga, op, at_ms)
    if policy is OnUnknown.PROBE and op.probes < PROBE_ATTEMPTS_MAX:
        return Phase.IN_DOUBT
    ask = policy in {OnUnknown.ASK, OnUnknown.PROBE}
    return _give_up(op, zone, Cause.IN_DOUBT, to_person=ask)


def _after_probe(saga: Saga, op: OperationState, event: Event, zone: Zone, at_ms: int) -> Phase:
    if event is Event.PROBE_NOT_DONE:
        if _may_try_again(saga, op, at_ms):
            return Phase.RETRYING
        return _give_up(op, zone, Cause.STEP_FAILED)
    if op.probes < PROBE_ATTEMPTS_MAX:
        return Phase.IN_DOUBT
    return _give_up(op, zone, Cause.IN_DOUBT, to_person=True)


def _give_up(op: OperationState, zone: Zone, cause: Cause, *, to_person: bool = False) -> Phase:
    if zone is Zone.UNDO:
        op.cause = Cause.COMPENSATION_FAILED
        return Phase.EXHAUSTED
    if zone is Zone.BEHIND:
        op.cause = Cause.FORWARD_STUCK
        return Phase.EXHAUSTED
    op.cause = cause
    asks_person = to_person or (zone is Zone.PIVOT and op.doubt)
    return Phase.EXHAUSTED if asks_person else Phase.FAILED


def has_key_expired(saga: Saga, op: OperationState, at_ms: int) -> bool:
    """Tell whether a call that begins now could arrive at a target that has forgotten the key, and so act twice (E6).

    That can only be where an earlier call is in doubt. The key is as old as its first intent, as the target may have
    seen it then; and a call may arrive as late as it may take.
    """
    return _may_outlast_key(saga, op, call_of(saga, op.operation).start_to_close_ms, at_ms)


def has_trail_expired(saga: Saga, state: RunState, undo: OperationState, at_ms: int) -> bool:
    """Tell whether an undo that begins now may find nothing of an effect that is there (E7).

    Without an output it looks by the action's key. Where that is forgotten it would find nothing, and call that undone.
    """
    action = state.operations[undo.operation.other]
    return _may_outlast_key(saga, action, call_of(saga, undo.operation).start_to_close_ms, at_ms)


def _may_outlast_key(saga: Saga, op: OperationState, call_ms: int, at_ms: int) -> bool:
    if not op.doubt:
        return False
    retention_ms = saga.tools[call_of(saga, op.operation).tool].key_retention_ms
    return retention_ms is not None and at_ms + call_ms > op.first_intent_ms + retention_ms
