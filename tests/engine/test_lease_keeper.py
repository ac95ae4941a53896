"""The heart of a driver, and what watches over it."""

from __future__ import annotations

import threading
import time
from collections.abc import Sequence
from typing import cast

from sagactl.core.records import Holder
from sagactl.engine.clock import SystemClock
from sagactl.engine.lease_keeper import MARGIN_SECONDS, LeaseKeeper
from sagactl.engine.workers import Workers
from sagactl.log.base import Lease, Log

LEASE_MS = 2_500
LEASE = Lease("run1", 1, Holder("here", 1, "", ""))


class HeldUpLog:
    """A log whose lock somebody else holds until the test lets go of it."""

    def __init__(self) -> None:
        self.is_free = threading.Event()

    def renew(self, leases: Sequence[Lease]) -> list[Lease]:
        """Wait for the lock."""
        self.is_free.wait(60)
        return []


def test_calls_are_told_to_end_while_a_renewal_is_held_up() -> None:
    """C3, E15: the margin before the lease runs out is there for calls to end, whatever heart and loop wait for."""
    log, ended, calls = HeldUpLog(), threading.Event(), 0

    def end_calls() -> None:
        nonlocal calls
        calls += 1
        ended.set()

    keeper = LeaseKeeper(
        cast("Log", log), SystemClock(), lambda _: None, Workers().submit, end_calls, lease_ms=LEASE_MS, heartbeat_ms=50
    )
    began = time.monotonic()
    keeper.hold(LEASE, SystemClock().monotonic())
    assert ended.wait(60)
    assert time.monotonic() - began >= LEASE_MS / 1_000 - MARGIN_SECONDS
    log.is_free.set()
    keeper.close()
    assert calls >= 1


def test_a_heart_that_beats_ends_no_calls() -> None:
    """E15: while renewals come through, nobody is told to end."""
    log, calls = HeldUpLog(), [0]
    log.is_free.set()

    def end_calls() -> None:
        calls[-1] += 1

    for _ in range(3):  # on a machine that is held up itself a renewal may come too late
        keeper = LeaseKeeper(
            cast("Log", log),
            SystemClock(),
            lambda _: None,
            Workers().submit,
            end_calls,
            lease_ms=4_000,
            heartbeat_ms=50,
        )
        keeper.hold(LEASE, SystemClock().monotonic())
        time.sleep(2.6)
        keeper.close()
        if calls[-1] == 0:
            break
        calls.append(0)
    assert 0 in calls
