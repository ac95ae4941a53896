"""Which thread makes a call, and which one turns the driver's loop.

A call is made on a thread of its own, on the event loop, or where the loop is turned. The last is fastest for a tool
that answers at once (see `relay`); any other would make the runs beside it wait. Which of the two a tool is, its last
call tells. One that was never called here is tried on the loop's thread if its call is the only one: then nobody waits
for it but its own run.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from functools import partial
from threading import get_ident
from typing import Final

from sagactl.engine.calls import CallStarter, CallUnderWay
from sagactl.engine.relay import Relay
from sagactl.engine.workers import Workers

QUICK_SECONDS: Final = 0.001
"""A tool whose last call took no longer is called on the thread that turns the loop."""


class Dispatcher:
    """Makes calls and turns the loop; see the essay above."""

    def __init__(self, starter: CallStarter, workers: Workers) -> None:
        self._starter = starter
        self._is_slow: dict[str, bool] = {}
        self._relay = Relay(workers.submit)
        self._own: deque[CallUnderWay] = deque()
        self.turning_thread: int | None = None
        """Who turns the loop; nobody while a call is made that it has to wait for."""

    def begin(self, call: CallUnderWay, *, is_alone: bool) -> None:
        """Begin *call*, or keep it for the thread that turns the loop."""
        is_slow = self._is_slow.get(call.invocation.tool, not is_alone)
        if is_slow or self._starter.is_async(call):
            self._starter.start(call)
        else:
            self._own.append(call)

    def note(self, call: CallUnderWay) -> None:
        """Learn from a call that has ended."""
        self._is_slow[call.invocation.tool] = call.seconds_taken > QUICK_SECONDS

    def turn_loop(
        self,
        turn: Callable[[], bool],
        *,
        wait: Callable[[], None],
        look: Callable[[], None],
        take_answer: Callable[[CallUnderWay], None],
    ) -> None:
        """Turn the loop until *turn*, which does it once, says that it is over.

        Between two turns of this thread *wait* waits for what comes next. Where there are quick calls, a worker makes
        them and turns the loop, with *take_answer* for each call and *look* for what has come meanwhile.
        """
        self.turning_thread = get_ident()
        try:
            while turn():
                if not self._own:
                    wait()
                    continue
                self.turning_thread = None
                self._relay.lend(partial(self._turn_on_worker, turn, look, take_answer))
                self.turning_thread = get_ident()
        finally:
            self.turning_thread = None

    def _turn_on_worker(
        self,
        turn: Callable[[], bool],
        look: Callable[[], None],
        take_answer: Callable[[CallUnderWay], None],
        term: int,
    ) -> None:
        goes_on = True
        while goes_on and self._own and not self._relay.is_recalled:
            while self._own:
                call = self._own.popleft()
                if not self._relay.step_out(term, partial(self._starter.make, call)):
                    self._starter.answered(call)
                    return
                take_answer(call)
            self.turning_thread = get_ident()
            try:
                look()
                goes_on = turn()
            finally:
                self.turning_thread = None
