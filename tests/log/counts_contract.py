"""What every saga log must count, whatever it keeps its records in."""

from __future__ import annotations

from dataclasses import replace

from sagactl.core.alerting import Reason
from sagactl.core.counts import RECENT_MS, Counts, Group
from sagactl.core.records import Direction, Operation, OutcomeKind, RunStatus
from sagactl.log.base import Log
from tests.log.samples import STEP, UNDO, Time, add, dead, ended, intent, new_run, outcome, request, start, stuck


class CountsContract:
    """The suite; `log` and `time` are fixtures."""

    def test_an_empty_log_has_nothing(self, log: Log, time: Time) -> None:
        """Nothing is counted where there is nothing."""
        assert replace(log.count(time.wall), file_bytes={}) == Counts()

    def test_runs_are_counted_by_saga_and_status(self, log: Log, time: Time) -> None:
        """Each run once, as its row says; the oldest of a group tells since when."""
        log.create(new_run("r1"), holder=None)
        time.pass_ms(5)
        log.create(new_run("r2"), holder=None)
        add(log, start(log, "r3", saga="ship"), ended(), status=RunStatus.SUCCEEDED)
        found = log.count(time.wall).runs
        assert found == (
            Group(("onboarding", "running"), 2, time.wall - 5),
            Group(("ship", "succeeded"), 1, time.wall),
        )

    def test_what_waits_for_a_person_is_counted_while_it_does(self, log: Log, time: Time) -> None:
        """Open dead letters with their reasons, open alerts, messages and requests."""
        lease = start(log)
        add(log, lease, intent(), dead(), stuck(), status=RunStatus.STUCK)
        log.ask("run1", request("q1"))
        counts = log.count(time.wall)
        assert counts.letters == (Group(("onboarding", "action", "forward_stuck"), 1, 4_000),)
        assert {each.labels[0] for each in counts.alerts} >= {Reason.STUCK}
        assert counts.pending.total == sum(each.total for each in counts.alerts)
        assert (counts.requests.total, counts.pending.since_ms is None) == (1, False)

    def test_calls_are_counted_once_by_what_they_came_to(self, log: Log, time: Time) -> None:
        """A pending call counts once however often it was asked; one without an outcome is told apart."""
        time.wall = 5_000
        lease = start(log)
        pending = replace(outcome(2), kind=OutcomeKind.PENDING, after_ms=1)
        add(log, lease, intent(), replace(outcome(), kind=OutcomeKind.UNAVAILABLE), intent(2), pending)
        assert dict(_calls(log, time)) == {
            ("billing.charge", "action", "unavailable"): 1,
            ("billing.charge", "action", "none"): 1,
        }
        add(log, lease, replace(intent(2), asking=1), outcome(2), intent(operation=UNDO))
        item = Operation("vm", 3, Direction.ACTION)
        add(log, lease, intent(operation=item), outcome(operation=item))
        assert dict(_calls(log, time)) == {
            ("billing.charge", "action", "unavailable"): 1,
            ("billing.charge", "action", "succeeded"): 2,
            ("billing.charge", "compensation", "none"): 1,
        }
        retries = {each.labels: each.total for each in log.count(time.wall).recent.retries}
        assert retries == {("billing.charge", "action"): 1, ("billing.charge", "compensation"): 0}

    def test_old_records_are_not_looked_at(self, log: Log, time: Time) -> None:
        """What is recent has a bound in time, and how far back it goes is said."""
        time.wall = 10_000
        lease = start(log)
        add(log, lease, intent(at_ms=10_000), outcome(at_ms=11_000))
        recent = log.count(10_000 + RECENT_MS).recent
        assert (recent.records, recent.since_ms) == (4, 10_000)
        assert log.count(11_001 + RECENT_MS).recent.records == 0

    def test_counting_needs_no_record_to_be_sound(self, log: Log, time: Time) -> None:
        """STEP is what samples call; what it printed or returned is never looked at."""
        add(log, start(log), intent(operation=STEP, at_ms=time.wall, arguments={"tool": "x", "kind": "y"}))
        assert [labels for labels, _ in _calls(log, time)] == [("billing.charge", "action", "none")]


def _calls(log: Log, time: Time) -> list[tuple[tuple[str, ...], int]]:
    return [(each.labels, each.total) for each in log.count(time.wall).recent.calls]
