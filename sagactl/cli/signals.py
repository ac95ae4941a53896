"""Ctrl-C and SIGTERM while a run is driven (rule E17).

The first signal asks the driver to start nothing new and to let running calls settle; the second leaves at once. Two
that come within half a second are one: terminals and process managers like to send them twice. A handler only does
what is safe at any instant: it posts an event and writes raw bytes to the descriptor of the real stderr.
"""

from __future__ import annotations

import contextlib
import os
import signal
import sys
import threading
import time
from types import FrameType, TracebackType
from typing import Any, Final, Self

from sagactl.driving import Driver
from sagactl.errors import ExitCode

ONE_SIGNAL_SECONDS: Final = 0.5
_CODES: Final = {signal.SIGINT: ExitCode.INTERRUPTED, signal.SIGTERM: ExitCode.TERMINATED_BY_SIGNAL}


class Signals:
    """Handlers for the time of a `with`; `exit_code` is set once a signal came."""

    def __init__(self, driver: Driver, hint: str) -> None:
        self._driver = driver
        self._hint = hint
        self._first_at: float | None = None
        self._previous: dict[int, Any] = {}
        self.exit_code: ExitCode | None = None
        self._stderr = _find_stderr()

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
            calls = [str(call.operation) for call in self._driver.calls_under_way()]
            under_way = f"{len(calls)} under way ({', '.join(calls[:5])})" if calls else "no call under way"
            self._write(f"stopping: {under_way}; once more leaves now, and their outcome is then in doubt\n")
        elif now - self._first_at > ONE_SIGNAL_SECONDS:
            self._write(f"left at once\nhint: {self._hint}\n")
            os._exit(_CODES[signal.Signals(number)])

    def _write(self, text: str) -> None:
        # A stderr that has gone away is no reason to break off what the signal interrupted.
        with contextlib.suppress(OSError):
            os.write(self._stderr, text.encode("utf-8", "replace"))


def _find_stderr() -> int:
    """Return the descriptor behind `sys.stderr`; it isn't 2 where 2 is kept from tools."""
    try:
        return sys.stderr.fileno()
    except (OSError, ValueError, AttributeError):
        return 2
