"""How far a run is, in numbers: of one that goes forward what is done, of one that goes back what is undone."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from sagactl.cli.views.text import plural
from sagactl.cli.views.words import plain
from sagactl.core.left import count_undone, find_left
from sagactl.core.records import Direction
from sagactl.core.summary import StepStatus, step_rows, tally_steps

if TYPE_CHECKING:
    from sagactl.core.saga import Saga
    from sagactl.core.state import RunState

_WORDS: Final = {
    StepStatus.SUCCEEDED: "done",
    StepStatus.COMPENSATED: "undone",
    StepStatus.COMPENSATING: "being undone",
    StepStatus.PENDING: "not run",
}


def say_steps(saga: Saga, state: RunState) -> str:
    """Return `2 of 5 done`, or, as what was done is undone again, `1 failed, 3 undone, 1 not run`."""
    total = len(saga.steps)
    if state.direction is Direction.ACTION:
        return f"{total - state.unfinished:,} of {total:,} done"
    counts = tally_steps(step_rows(saga, state))
    return ", ".join(f"{count:,} {_WORDS.get(status, plain(status))}" for status, count in counts.items())


def say_progress(saga: Saga, state: RunState) -> str:
    """Return `2 of 5 steps done`, or on the way back `3 undone, 1 to go`."""
    if state.direction is Direction.COMPENSATION:
        return f"{count_undone(state):,} undone, {len(find_left(saga, state)):,} to go"
    return f"{len(saga.steps) - state.unfinished:,} of {plural(len(saga.steps), 'step')} done"
