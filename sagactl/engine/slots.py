"""How many calls may be under way at once, and which runs wait for one of them to end."""

from __future__ import annotations

from collections import OrderedDict


class Slots:
    """Slots for calls, and the queue for them; the question of a guard takes one as well."""

    def __init__(self, calls_max: int) -> None:
        self._calls_max = calls_max
        self._queue: OrderedDict[str, None] = OrderedDict()
        self._asking: dict[str, int] = {}
        self.taken = 0

    @property
    def free(self) -> int:
        """Return how many calls may start now."""
        return max(0, self._calls_max - self.taken - sum(self._asking.values()))

    @property
    def is_one_taken(self) -> bool:
        """Tell whether a single call is under way, and nothing is asked."""
        return self.taken == 1 and not self._asking

    def hold(self, run_id: str, count: int) -> None:
        """Keep *count* slots for the questions of a run, in place of those kept for it before."""
        if count:
            self._asking[run_id] = count
        else:
            self._asking.pop(run_id, None)

    @property
    def are_wanted(self) -> bool:
        """Tell whether a run waits for a slot."""
        return bool(self._queue)

    def queue(self, run_id: str) -> None:
        """Let a run wait for a slot, behind those that wait already."""
        self._queue[run_id] = None

    def next_run(self) -> str | None:
        """Take the run that has waited longest, if a slot is free."""
        if not self._queue or self.free == 0:
            return None
        return self._queue.popitem(last=False)[0]
