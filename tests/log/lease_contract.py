"""What every saga log must do with leases: who may drive a run, and who no more."""

from __future__ import annotations

from dataclasses import replace

import pytest

from sagactl.core.records import DriverClaimed, RunStatus
from sagactl.errors import BusyError
from sagactl.log.base import LEASE_MS, Lease, Log
from tests.log.samples import (
    HOLDER,
    OTHER,
    Time,
    add,
    batch,
    ended,
    intent,
    start,
)


class LeaseContract:
    """The suite; `log` and `time` are fixtures."""

    def test_a_good_lease_keeps_others_out(self, log: Log, time: Time) -> None:
        """C2: while a lease is good, a claim is refused and told who holds it."""
        start(log)
        time.pass_ms(LEASE_MS - 1)
        with pytest.raises(BusyError, match="process 101 on here"):
            log.claim("run1", holder=OTHER)
        assert log.row("run1").seq == 2

    def test_a_lease_that_ran_out_is_taken_with_doubt(self, log: Log, time: Time) -> None:
        """E15, E4: after its time a lease can be taken; the calls of its driver may still be under way."""
        start(log)
        time.pass_ms(LEASE_MS)
        lease = log.claim("run1", holder=OTHER)
        assert lease == Lease("run1", 2, OTHER)
        assert list(log.read("run1"))[-1].record == DriverClaimed(time.wall, 2, OTHER, calls_ended=False)
        assert log.row("run1").holder == OTHER

    def test_the_lease_of_a_dead_process_is_void_at_once(self, log: Log, time: Time) -> None:
        """E15: nobody waits for a process that is known to be dead, and its calls have ended."""
        start(log)
        time.dead.add(HOLDER)
        log.claim("run1", holder=OTHER)
        assert list(log.read("run1"))[-1].record == DriverClaimed(time.wall, 2, OTHER, calls_ended=True)

    def test_a_released_lease_can_be_taken_at_once(self, log: Log, time: Time) -> None:
        """A driver that let go has ended its calls; the fence grows all the same."""
        lease = start(log)
        log.release([lease])
        assert log.row("run1").holder is None
        assert log.claim("run1", holder=OTHER).fence == 2
        assert list(log.read("run1"))[-1].record == DriverClaimed(time.wall, 2, OTHER, calls_ended=True)

    def test_a_batch_may_give_the_lease_back(self, log: Log, time: Time) -> None:
        """E2: the last records of a run and the end of its lease are one commit; nothing is written after it."""
        lease = start(log)
        last = replace(batch(lease, 2, ended(), status=RunStatus.SUCCEEDED), releases=True)
        assert log.append([last]) == []
        row = log.row("run1")
        assert (row.holder, row.status, row.seq) == (None, RunStatus.SUCCEEDED, 3)
        assert log.renew([lease]) == [lease]
        assert log.append([batch(lease, 3, ended())]) == [lease]
        assert log.claim("run1", holder=OTHER).fence == 2
        assert list(log.read("run1"))[-1].record == DriverClaimed(time.wall, 2, OTHER, calls_ended=True)

    def test_renewing_prolongs(self, log: Log, time: Time) -> None:
        """E15: a lease that is renewed in time never runs out, and renewing writes no record (B55)."""
        lease = start(log)
        for _ in range(5):
            time.pass_ms(LEASE_MS - 1)
            assert log.renew([lease]) == []
        with pytest.raises(BusyError):
            log.claim("run1", holder=OTHER)
        assert log.row("run1").seq == 2

    def test_a_late_renewal_holds_if_nobody_came(self, log: Log, time: Time) -> None:
        """A driver that was stopped for long keeps its run if no other one took it."""
        lease = start(log)
        time.pass_ms(10 * LEASE_MS)
        assert log.renew([lease]) == []
        with pytest.raises(BusyError):
            log.claim("run1", holder=OTHER)

    def test_an_old_fence_can_do_nothing(self, log: Log, time: Time) -> None:
        """C1, B59: after a take-over the old driver's append, renewal and release come to nothing."""
        old = start(log)
        time.pass_ms(LEASE_MS)
        new = log.claim("run1", holder=OTHER)
        assert log.append([batch(old, 3, intent())]) == [old]
        assert log.renew([old, new]) == [old]
        log.release([old])
        assert log.row("run1").holder == OTHER
        assert log.row("run1").seq == 3
        add(log, new, intent())

    def test_a_released_lease_is_worth_nothing(self, log: Log) -> None:
        """C1: who gave a lease back can neither write nor renew under it."""
        lease = start(log)
        log.release([lease, lease])
        assert log.append([batch(lease, 2, intent())]) == [lease]
        assert log.renew([lease]) == [lease]

    def test_fences_only_grow(self, log: Log) -> None:
        """C1: each claim has a higher fence than all before it."""
        fences = [start(log).fence]
        for _ in range(4):
            log.release([Lease("run1", fences[-1], HOLDER)])
            fences.append(log.claim("run1", holder=HOLDER).fence)
        assert fences == [1, 2, 3, 4, 5]

    @pytest.mark.parametrize("jump_ms", [-3_600_000, 315_360_000_000])
    def test_the_wall_clock_has_no_say(self, log: Log, time: Time, jump_ms: int) -> None:
        """H53: a wall clock that jumps neither loses a lease nor makes it eternal."""
        start(log)
        time.wall += jump_ms
        with pytest.raises(BusyError):
            log.claim("run1", holder=OTHER)
        time.boot += LEASE_MS
        assert log.claim("run1", holder=OTHER).fence == 2

    def test_a_claim_is_never_recorded_before_what_is_there(self, log: Log, time: Time) -> None:
        """E5, H53: the wall clock was set back over a restart; the run's time goes on from its last record."""
        lease = start(log)
        last = list(log.read("run1"))[-1].record.at_ms
        log.release([lease])
        time.wall -= 3_600_000
        log.claim("run1", holder=OTHER)
        assert list(log.read("run1"))[-1].record.at_ms == last

    def test_a_clock_that_began_anew_ends_a_lease(self, log: Log, time: Time) -> None:
        """H53: a lease from the future of the boot clock is over, so a restart can't make it eternal."""
        start(log)
        time.boot = 10
        assert log.claim("run1", holder=OTHER).fence == 2

    def test_a_lease_of_another_boot_falls_back_on_the_wall_clock(self, log: Log, time: Time) -> None:
        """Where neither the boot nor the holder's death can be compared, a lease ends after its time."""
        start(log)
        time.boot_id, time.boot = "boot-2", 60
        with pytest.raises(BusyError):
            log.claim("run1", holder=OTHER)
        time.wall += LEASE_MS
        assert log.claim("run1", holder=OTHER).fence == 2
        assert list(log.read("run1"))[-1].record == DriverClaimed(time.wall, 2, OTHER, calls_ended=False)
