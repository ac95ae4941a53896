"""Clocks that are turned: while a driver lives, and between two of them (E5, V5, H53)."""

from __future__ import annotations

import time
from dataclasses import dataclass, field

import pytest

from sagactl.core.records import Intent, Record, RunStatus, Timer
from sagactl.core.saga import Jitter, Retry
from sagactl.engine.clock import SystemClock
from sagactl.engine.ending import Why
from sagactl.log.leases import LeaseClock
from sagactl.log.memory import MemoryLog
from tests.engine.fakes import DONE, UNAVAILABLE, FakeToolbox, make_driver, make_new_run, make_saga, make_step

HOUR_MS, YEARS_MS = 3_600_000, 10 * 365 * 86_400_000
DELAY_MS = 300


@dataclass
class TurnedClock:
    """The system's clock, but its wall clock is ahead by so much."""

    ahead_ms: int
    real: SystemClock = field(default_factory=SystemClock)

    def now_ms(self) -> int:
        """Return UTC as this machine believes."""
        return self.real.now_ms() + self.ahead_ms

    def monotonic(self) -> float:
        """Return seconds that nobody turns."""
        return self.real.monotonic()


@pytest.mark.parametrize("jump_seconds", [-3_600.0, YEARS_MS / 1_000])
def test_the_system_clock_does_not_jump_with_the_wall(jump_seconds: float, monkeypatch: pytest.MonkeyPatch) -> None:
    """V5: the wall clock is read once; from then on nobody can turn the time of a driver."""
    clock, real = SystemClock(), time.time
    before = clock.now_ms()
    monkeypatch.setattr(time, "time", lambda: real() + jump_seconds)
    assert 0 <= clock.now_ms() - before < 60_000


@pytest.mark.parametrize("ahead_ms", [-HOUR_MS, HOUR_MS, YEARS_MS])
def test_a_wait_over_two_drivers_whose_clocks_differ(ahead_ms: int) -> None:
    """E5: behind, the whole delay is waited and no more; ahead of the moment, it is due. Records never go back."""
    answers = [UNAVAILABLE, DONE]
    saga = make_saga(make_step("a", tool="do", retry=Retry(2, DELAY_MS, 100, DELAY_MS, Jitter.NONE)))
    toolbox = FakeToolbox({"do": lambda _: answers.pop(0)})
    turned = TurnedClock(ahead_ms)
    ahead = [0]
    log = MemoryLog(lease_clock=LeaseClock(wall_ms=lambda: turned.real.now_ms() + ahead[0]))
    first = make_driver(log, saga, toolbox, waits_for_timers=False)
    first.create(make_new_run(saga), saga)
    assert first.drive()["run1"].why is Why.WAITING
    ahead[0] = ahead_ms
    second = make_driver(log, saga, toolbox, clock=turned)
    second.adopt("run1")
    assert second.drive()["run1"].summary.status is RunStatus.SUCCEEDED
    records: list[Record] = [stored.record for stored in log.read("run1")]
    times = [record.at_ms for record in records]
    assert times == sorted(times)
    (timer,) = [record for record in records if isinstance(record, Timer)]
    assert timer.due_ms - timer.at_ms == DELAY_MS
    late_ms = [record.at_ms for record in records if isinstance(record, Intent)][-1] - timer.due_ms
    assert 0 <= late_ms < 30_000 if ahead_ms < 0 else late_ms > HOUR_MS // 2
