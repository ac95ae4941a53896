"""Time for a driver: UTC milliseconds that never jump while the process lives.

The wall clock is read once; from then on the monotonic clock carries it. So a clock that is set back or forward in the
middle of a back-off neither loses the retry nor makes it early. Across a restart only stored UTC is left, and a run's
time never goes back behind its last record (see `Run.skew_ms`).
"""

from __future__ import annotations

import time
from typing import Protocol


class Clock(Protocol):
    """What a driver asks for the time; tests give a virtual one."""

    def now_ms(self) -> int:
        """Return UTC in milliseconds since the epoch."""
        ...

    def monotonic(self) -> float:
        """Return seconds that only grow, also while the process is stopped."""
        ...


class SystemClock:
    """The machine's clock, carried by its monotonic one."""

    def __init__(self) -> None:
        self._source = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)
        self._offset = time.time() - self.monotonic()

    def monotonic(self) -> float:
        """Return seconds since boot, the time in which the machine slept included where the system tells."""
        return time.clock_gettime(self._source)

    def now_ms(self) -> int:
        """Return UTC in milliseconds."""
        return int((self._offset + self.monotonic()) * 1000)
