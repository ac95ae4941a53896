"""When a driver lets go of a run, and as what: it rests, or only waits, or the driver was told to stop."""

from __future__ import annotations

from sagactl.core.records import Direction
from sagactl.core.summary import summarize
from sagactl.engine.clock import Clock
from sagactl.engine.ending import Ending, Why
from sagactl.engine.run import Run
from sagactl.engine.settings import Settings
from sagactl.errors import SagactlError


class Parting:
    """Tells of each run whether to let go of it; after `stop` of every one, once what is under way had its grace."""

    def __init__(self, clock: Clock, settings: Settings) -> None:
        self._clock = clock
        self._grace_seconds = settings.grace_ms / 1000
        self._waits_for_timers = settings.waits_for_timers
        self._stopping_since: float | None = None

    @property
    def is_stopping(self) -> bool:
        """Tell whether nothing new is begun any more."""
        return self._stopping_since is not None

    def stop(self) -> None:
        """Let running calls settle, and then let go; the grace counts from the first time."""
        if self._stopping_since is None:
            self._stopping_since = self._clock.monotonic()

    def why_leave(self, run: Run) -> Why | None:
        """Return why the driver lets go of *run* now; None where it keeps it."""
        if run.under_way and not self._is_grace_over(run):
            return None
        if run.is_at_rest:
            return Why.AT_REST
        if run.held_up is not None:
            return run.held_up[0]
        if self.is_stopping:
            return Why.INTERRUPTED
        is_waiting = run.is_waiting_for_person or (run.is_waiting_for_timer and not self._waits_for_timers)
        return Why.WAITING if is_waiting and not run.questions else None

    def _is_grace_over(self, run: Run) -> bool:
        """The first signal never cuts an undo short (E12); an action has the grace (E17), and what hangs has had it."""
        if self._stopping_since is None:
            return False
        now, grace = self._clock.monotonic(), self._grace_seconds
        all_hang = all(now >= call.deadline + grace for call in run.under_way.values())
        is_undoing = any(operation.direction is Direction.COMPENSATION for operation in run.under_way)
        return all_hang or (not is_undoing and now - self._stopping_since >= grace)


def make_ending(run: Run, why: Why, error: SagactlError | None = None) -> Ending:
    """Return what became of *run*; the calls that it still has under way are in doubt."""
    detail = None if run.held_up is None else run.held_up[1]
    return Ending(run.run_id, summarize(run.saga, run.state), why, detail, run.list_doubts(), error)
