"""Ctrl-C and SIGTERM while a run is driven (rule E17).

The first signal asks the driver to start nothing new and to let running calls settle; the second leaves at once. Two
that come within half a second are one: terminals and process managers like to send them twice. A handler only does
what is safe at any instant: it posts an event, and the display writes raw bytes or has the next picture say it.
"""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Callable, Iterator
from types import FrameType, TracebackType
from typing import Any, Final, Self

from sagactl.cli.display import Display
from sagactl.core.records import Direction, Operation
from sagactl.driving.driver import Driver
from sagactl.engine.clock import SystemClock
from sagactl.errors import ExitCode

ONE_SIGNAL_SECONDS: Final = 0.5
_CODES: Final = {signal.SIGINT: ExitCode.INTERRUPTED, signal.SIGTERM: ExitCode.TERMINATED_BY_SIGNAL}


class Signals:
    """Handlers for the time of a `with`; `exit_code` is set once a signal came."""

    def __init__(self, driver: Driver, display: Display, *, hints: Callable[[], list[str]], grace_ms: int) -> None:
        self._driver = driver
        self._display = display
        self._hints = hints
        self._grace_ms = grace_ms
        self._first_at: float | None = None
        self._previous: dict[int, Any] = {}
        self.exit_code: ExitCode | None = None

    def __enter__(self) -> Self:
        if threading.current_thread() is threading.main_thread():
            for number in _CODES:
                self._previous[number] = signal.signal(number, self._handle)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for number, handler in self._previous.items():
            signal.signal(number, handler)

    def _handle(self, number: int, frame: FrameType | None) -> None:
        del frame
        now = time.monotonic()
        if self._first_at is None:
            self._first_at = now
            self.exit_code = _CODES[signal.Signals(number)]
            self._driver.interrupt()
            self._display.say_stopping(list(self._list_calls()))
        elif now - self._first_at > ONE_SIGNAL_SECONDS:
            hints = [f"hint: {command}" for command in self._hints()]
            self._display.say_now("\n".join(["left at once", *hints]))
            os._exit(_CODES[signal.Signals(number)])

    def _list_calls(self) -> Iterator[tuple[Operation, int]]:
        """Yield the calls under way and how many milliseconds each is waited for at most."""
        now = SystemClock().monotonic()
        for call in self._driver.calls_under_way():
            left_ms = int((call.deadline - now) * 1000)
            left_ms = left_ms if left_ms > 0 else self._grace_ms  # past its time, and not returned: it has the grace
            is_undo = call.operation.direction is Direction.COMPENSATION  # never cut short by the first signal (E12)
            yield call.operation, left_ms if is_undo else min(left_ms, self._grace_ms)
