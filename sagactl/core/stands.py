"""Where a run stands for who wants to stop it or turn it back, and what each verb does there (rules E13, E22).

Between the pivot's intent and its outcome nobody knows on which side of the point of no return the run stands, so a
request to turn back is deferred: recorded, and answered when the pivot's fate is known.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from typing import Final

from sagactl.core.records import (
    Direction,
    RunStatus,
    Verb,
)
from sagactl.core.state import RunState


class Stand(StrEnum):
    """Where a run stands as far as an operator's verb is concerned."""

    FORWARD = "forward"
    ENDING = "ending"
    PIVOT_OPEN = "pivot_open"
    BEHIND = "behind"
    BACKWARD = "backward"
    STUCK_BEFORE = "stuck_before"
    STUCK_PIVOT = "stuck_pivot"
    STUCK_BEHIND = "stuck_behind"
    STUCK_BACKWARD = "stuck_backward"
    SUCCEEDED = "succeeded"
    SUCCEEDED_PAST_PIVOT = "succeeded_past_pivot"
    ROLLED_BACK = "rolled_back"
    TERMINATED = "terminated"
    TERMINATED_PAST_PIVOT = "terminated_past_pivot"


class Effect(StrEnum):
    """What a verb does at a stand."""

    TURN_BACK = "turn_back"
    TURN_BACK_PAST_PIVOT = "turn_back_past_pivot"
    END = "end"
    DEFER = "defer"
    PAUSE = "pause"
    NOTHING = "nothing"
    REFUSE = "refuse"


_S = Stand
_E = Effect
EFFECTS: Final[Mapping[Verb, Mapping[Stand, tuple[Effect, str]]]] = {
    Verb.CANCEL: {
        _S.FORWARD: (_E.TURN_BACK, ""),
        _S.ENDING: (_E.REFUSE, "the run is being terminated"),
        _S.PIVOT_OPEN: (_E.DEFER, "the pivot's outcome is open"),
        _S.BEHIND: (_E.REFUSE, "the pivot has passed: the run only goes forward"),
        _S.BACKWARD: (_E.NOTHING, "the run is rolling back already"),
        _S.STUCK_BEFORE: (_E.TURN_BACK, ""),
        _S.STUCK_PIVOT: (_E.REFUSE, "the pivot is in doubt: say first whether it happened"),
        _S.STUCK_BEHIND: (_E.REFUSE, "the pivot has passed: the run only goes forward"),
        _S.STUCK_BACKWARD: (_E.REFUSE, "the rollback waits for a person: see the dead letters"),
        _S.SUCCEEDED: (_E.REFUSE, "the run has succeeded"),
        _S.SUCCEEDED_PAST_PIVOT: (_E.REFUSE, "the run has succeeded"),
        _S.ROLLED_BACK: (_E.REFUSE, "the run is rolled back"),
        _S.TERMINATED: (_E.REFUSE, "the run is terminated"),
        _S.TERMINATED_PAST_PIVOT: (_E.REFUSE, "the run is terminated"),
    },
    Verb.ROLLBACK: {
        _S.FORWARD: (_E.TURN_BACK, ""),
        _S.ENDING: (_E.REFUSE, "the run is being terminated: roll it back when it has ended"),
        _S.PIVOT_OPEN: (_E.DEFER, "the pivot's outcome is open"),
        _S.BEHIND: (_E.TURN_BACK_PAST_PIVOT, "the pivot has passed"),
        _S.BACKWARD: (_E.NOTHING, "the run is rolling back already"),
        _S.STUCK_BEFORE: (_E.TURN_BACK, ""),
        _S.STUCK_PIVOT: (_E.REFUSE, "the pivot is in doubt: say first whether it happened"),
        _S.STUCK_BEHIND: (_E.TURN_BACK_PAST_PIVOT, "the pivot has passed"),
        _S.STUCK_BACKWARD: (_E.REFUSE, "the rollback waits for a person: see the dead letters"),
        _S.SUCCEEDED: (_E.TURN_BACK, ""),
        _S.SUCCEEDED_PAST_PIVOT: (_E.TURN_BACK_PAST_PIVOT, "the pivot has passed"),
        _S.ROLLED_BACK: (_E.REFUSE, "the run is rolled back already"),
        _S.TERMINATED: (_E.TURN_BACK, ""),
        _S.TERMINATED_PAST_PIVOT: (_E.TURN_BACK_PAST_PIVOT, "the pivot has passed"),
    },
    Verb.TERMINATE: {
        _S.FORWARD: (_E.END, ""),
        _S.ENDING: (_E.NOTHING, "the run is being terminated already"),
        _S.PIVOT_OPEN: (_E.END, ""),
        _S.BEHIND: (_E.END, ""),
        _S.BACKWARD: (_E.END, ""),
        _S.STUCK_BEFORE: (_E.END, ""),
        _S.STUCK_PIVOT: (_E.END, ""),
        _S.STUCK_BEHIND: (_E.END, ""),
        _S.STUCK_BACKWARD: (_E.END, ""),
        _S.SUCCEEDED: (_E.REFUSE, "the run has succeeded"),
        _S.SUCCEEDED_PAST_PIVOT: (_E.REFUSE, "the run has succeeded"),
        _S.ROLLED_BACK: (_E.REFUSE, "the run is rolled back"),
        _S.TERMINATED: (_E.REFUSE, "the run is terminated already"),
        _S.TERMINATED_PAST_PIVOT: (_E.REFUSE, "the run is terminated already"),
    },
    Verb.PAUSE: {
        _S.FORWARD: (_E.PAUSE, ""),
        _S.ENDING: (_E.REFUSE, "the run is being terminated"),
        _S.PIVOT_OPEN: (_E.PAUSE, ""),
        _S.BEHIND: (_E.PAUSE, ""),
        _S.BACKWARD: (_E.PAUSE, ""),
        _S.STUCK_BEFORE: (_E.REFUSE, "the run is stuck: nothing goes on anyhow"),
        _S.STUCK_PIVOT: (_E.REFUSE, "the run is stuck: nothing goes on anyhow"),
        _S.STUCK_BEHIND: (_E.REFUSE, "the run is stuck: nothing goes on anyhow"),
        _S.STUCK_BACKWARD: (_E.REFUSE, "the run is stuck: nothing goes on anyhow"),
        _S.SUCCEEDED: (_E.REFUSE, "the run has succeeded"),
        _S.SUCCEEDED_PAST_PIVOT: (_E.REFUSE, "the run has succeeded"),
        _S.ROLLED_BACK: (_E.REFUSE, "the run is rolled back"),
        _S.TERMINATED: (_E.REFUSE, "the run is terminated"),
        _S.TERMINATED_PAST_PIVOT: (_E.REFUSE, "the run is terminated"),
    },
}
"""Each verb at each stand: complete, so that nothing is decided by omission."""


def stand_of(state: RunState) -> Stand:
    """Return where the run stands."""
    if state.ended is not None:
        return _stand_ended(state)
    if state.terminating:
        return Stand.ENDING
    if state.stuck is not None:
        return _stand_stuck(state)
    if state.direction is Direction.COMPENSATION or state.failing is not None:
        return Stand.BACKWARD
    if state.pivot_passed:
        return Stand.BEHIND
    return Stand.PIVOT_OPEN if state.is_pivot_open else Stand.FORWARD


def _stand_ended(state: RunState) -> Stand:
    assert state.ended is not None
    past = state.pivot_passed
    match state.ended.status:
        case RunStatus.SUCCEEDED:
            return Stand.SUCCEEDED_PAST_PIVOT if past else Stand.SUCCEEDED
        case RunStatus.ROLLED_BACK:
            return Stand.ROLLED_BACK
        case _:
            past = past or state.is_pivot_open
            return Stand.TERMINATED_PAST_PIVOT if past and state.backward is None else Stand.TERMINATED


def _stand_stuck(state: RunState) -> Stand:
    if state.direction is Direction.COMPENSATION:
        return Stand.STUCK_BACKWARD
    if state.pivot_passed:
        return Stand.STUCK_BEHIND
    return Stand.STUCK_PIVOT if state.is_pivot_open else Stand.STUCK_BEFORE
