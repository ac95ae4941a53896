"""When a lease is good, and for how long: arithmetic on a clock that no one can set.

Lease time is counted on the host's clock since boot, which all its processes share and nobody can turn: a wall clock
that jumps neither loses a lease nor makes it eternal. A lease notes the boot it was granted in. One of another boot
can't be compared; where its holder isn't known to be dead (another host name: a container made anew, say), the wall
clock decides, and a lease from the future is over: wrong by one lease time at most.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import replace
from enum import StrEnum
from typing import Final

from sagactl.core.records import Holder
from sagactl.dataclass import dataclass
from sagactl.log.base import LEASE_MS
from sagactl.log.holder import is_dead, read_boot_id

_BOOT_CLOCK: Final = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)


def read_wall_ms() -> int:
    """Return UTC in milliseconds since the epoch."""
    return time.time_ns() // 1_000_000


def read_boot_ms() -> int:
    """Return milliseconds since the host was started."""
    return time.clock_gettime_ns(_BOOT_CLOCK) // 1_000_000


@dataclass(frozen=True, slots=True)
class LeaseClock:
    """What leases are measured with; tests give their own."""

    wall_ms: Callable[[], int] = read_wall_ms
    boot_ms: Callable[[], int] = read_boot_ms
    boot_id: Callable[[], str] = read_boot_id
    is_dead: Callable[[Holder], bool] = is_dead
    lease_ms: int = LEASE_MS


def set_wall_clock(lease_clock: LeaseClock | None, clock: Callable[[], int] | None) -> LeaseClock:
    """Return what a log measures with: the machine's clocks, but for those that its maker gave."""
    lease_clock = lease_clock or LeaseClock()
    return lease_clock if clock is None else replace(lease_clock, wall_ms=clock)


@dataclass(frozen=True, slots=True)
class Granted:
    """When a lease was granted or renewed last, by both clocks."""

    boot_id: str
    boot_ms: int
    wall_ms: int


class Standing(StrEnum):
    """What a lease is worth."""

    GOOD = "good"
    VOID = "void"
    """Its holder is dead, so are its calls."""
    RUN_OUT = "run_out"
    """Nobody knows whether its holder's calls have ended."""


def grant(clock: LeaseClock) -> Granted:
    """Return the time from which a lease counts now."""
    return Granted(clock.boot_id().partition("/")[0], clock.boot_ms(), clock.wall_ms())


def judge(clock: LeaseClock, holder: Holder, granted: Granted) -> Standing:
    """Say what the lease of *holder* is worth now."""
    if clock.is_dead(holder):
        return Standing.VOID
    now = grant(clock)
    if now.boot_id == granted.boot_id:
        is_good = 0 <= now.boot_ms - granted.boot_ms < clock.lease_ms
    else:
        is_good = 0 <= now.wall_ms - granted.wall_ms < clock.lease_ms
    return Standing.GOOD if is_good else Standing.RUN_OUT
