"""Where a call is made: on a thread of its own, on the event loop, or on the thread that turns the driver's loop.

A tool that answers at once is called fastest where the loop is turned (see `relay`); any other needs a thread, or the
runs beside it would wait. Which of the two a tool is, its last call tells. One that was never called here is tried on
the loop's thread if its call is the only one: then nobody waits for it but its own run.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from functools import partial
from typing import Final

from sagactl.engine.calls import CallStarter, CallUnderWay
from sagactl.engine.relay import Relay
from sagactl.engine.workers import Workers

QUICK_SECONDS: Final = 0.001
"""A tool whose last call took no longer is called on the thread that turns the loop."""


class Dispatcher:
    """Makes calls; `answered` is told of each end, on whatever thread it comes about."""

    def __init__(self, starter: CallStarter, workers: Workers) -> None:
        self._starter = starter
        self._is_slow: dict[str, bool] = {}
        self._relay = Relay(workers.submit)
        self._own: deque[CallUnderWay] = deque()

    @property
    def has_own_calls(self) -> bool:
        """Tell whether there are calls for the thread that turns the loop: see `turn_with_calls`."""
        return bool(self._own)

    def begin(self, call: CallUnderWay, *, is_alone: bool) -> None:
        """Begin *call*, or put it where `turn_with_calls` finds it."""
        is_slow = self._is_slow.get(call.invocation.tool, not is_alone)
        if is_slow or self._starter.is_async(call):
            self._starter.start(call)
        else:
            self._own.append(call)

    def note(self, call: CallUnderWay) -> None:
        """Learn from a call that has ended."""
        self._is_slow[call.invocation.tool] = call.seconds_taken > QUICK_SECONDS

    def turn_with_calls(self, turn: Callable[[], bool], take_answer: Callable[[CallUnderWay], None]) -> None:
        """Turn the loop on a worker, which makes the quick calls itself, until there are none or one isn't quick.

        *turn* turns the loop once and returns whether it goes on; *take_answer* is told of each call between turns.
        """
        self._relay.lend(partial(self._turn_on_worker, turn, take_answer))

    def _turn_on_worker(self, turn: Callable[[], bool], take_answer: Callable[[CallUnderWay], None], term: int) -> None:
        while self._own and not self._relay.is_recalled:
            while self._own:
                call = self._own.popleft()
                if not self._relay.step_out(term, partial(self._starter.make, call)):
                    self._starter.answered(call)
                    return
                take_answer(call)
            if not turn():
                return
