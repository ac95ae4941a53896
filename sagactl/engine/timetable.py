"""When runs wake up and when calls must end, on the monotonic clock."""

from __future__ import annotations

import heapq
from collections.abc import Iterator

from sagactl.engine.calls import CallUnderWay


class Timetable:
    """What a driver has to look at, and when.

    Calls under way are few (as many as there are slots), so they are looked through; of runs there may be thousands.
    A wake of a run may be stale, and whoever takes one just decides once more.
    """

    def __init__(self) -> None:
        self._wakes: list[tuple[float, str]] = []
        self._calls: dict[CallUnderWay, float] = {}

    def wake(self, run_id: str, at: float) -> None:
        """Look at a run again at *at*."""
        heapq.heappush(self._wakes, (at, run_id))

    def watch(self, call: CallUnderWay, at: float) -> None:
        """Look at a call at *at*, and no more at any other time set before."""
        self._calls[call] = at

    def forget(self, call: CallUnderWay) -> None:
        """Look at a call no more."""
        self._calls.pop(call, None)

    def take_runs(self, now: float) -> Iterator[str]:
        """Take the runs whose time has come."""
        while self._wakes and self._wakes[0][0] <= now:
            yield heapq.heappop(self._wakes)[1]

    def take_calls(self, now: float) -> list[CallUnderWay]:
        """Take the calls whose time has come."""
        due = [call for call, at in self._calls.items() if at <= now]
        for call in due:
            del self._calls[call]
        return due

    def next_at(self) -> float | None:
        """Return when there is something to look at."""
        first_call = min(self._calls.values(), default=None)
        if not self._wakes:
            return first_call
        return self._wakes[0][0] if first_call is None else min(first_call, self._wakes[0][0])
