"""What every log keeps to when ended runs are deleted."""

from __future__ import annotations

from dataclasses import replace

import pytest

from sagactl.core.canonical import canonical
from sagactl.core.definition import spell_snapshot
from sagactl.core.records import RunStatus, Verb
from sagactl.errors import DamagedLogError, PrunedError, RefusedError
from sagactl.log.base import Log, PruneFilter
from tests.log.samples import (
    HOLDER,
    LATER,
    OTHER,
    STEP,
    Time,
    add,
    alert,
    dead,
    ended,
    intent,
    new_run,
    outcome,
    rebind,
    request,
    start,
    stuck,
)

GONE = RunStatus.SUCCEEDED


def finish(log: Log, run_id: str = "run1", status: RunStatus = GONE, **changes: object) -> None:
    """Create a run that ends as *status*, and let go of it."""
    lease = start(log, run_id, **changes)
    add(log, lease, intent(), outcome(), alert(), ended(status), status=status)
    log.release([lease])


class PruneContract:
    """The suite; `log` and `time` are fixtures."""

    def test_a_pruned_run_is_gone_and_says_so(self, log: Log) -> None:
        """A pruned run has no row, no records and no messages, and whoever asks for it is told what became of it."""
        finish(log)
        (buried,) = log.prune(["run1"], pruned_by="ada")
        assert (buried.number, buried.run_id, buried.status, buried.pruned_by) == (1, "run1", GONE, "ada")
        assert log.pruned("run") == [buried]
        assert (log.find("run"), log.outbox.messages(is_pending=False), log.captured("run1")) == ([], [], [])
        for ask in (
            lambda: log.row("run1"),
            lambda: list(log.read("run1")),
            lambda: log.claim("run1", holder=HOLDER),
            lambda: log.ask("run1", request("q", Verb.ROLLBACK, operation=None)),
            lambda: log.verify("run1"),
        ):
            with pytest.raises(PrunedError, match="succeeded and was pruned") as caught:
                ask()
            assert (caught.value.code, caught.value.run_id, caught.value.status) == ("pruned", "run1", "succeeded")
        found = log.verify()
        assert (found.findings, found.runs, found.tombstones, found.tombstones_head) == ((), 0, 1, buried.hash)

    @pytest.mark.parametrize("status", [RunStatus.RUNNING, RunStatus.WAITING, RunStatus.ROLLING_BACK, RunStatus.STUCK])
    def test_a_run_that_has_not_ended_is_never_pruned(self, log: Log, status: RunStatus) -> None:
        """Unfinished and stuck runs are passed over, whoever asks for it."""
        lease = start(log)
        add(log, lease, intent(), dead(), stuck(), status=status)
        log.release([lease])
        assert log.prunable(PruneFilter()) == ([], 0)
        assert log.prune(["run1", "nosuch"], pruned_by="ada") == []
        assert log.row("run1").status is status

    def test_a_run_that_somebody_drives_or_asks_something_of_stays(self, log: Log, time: Time) -> None:
        """E22: a run that succeeded and is being undone, or is to be, is needed; a dead driver's lease is nothing."""
        for run_id in ("run1", "run2", "run3"):
            finish(log, run_id)
        log.claim("run1", holder=HOLDER)
        log.ask("run2", request("q", Verb.ROLLBACK, operation=None))
        log.claim("run3", holder=OTHER)
        time.dead.add(OTHER)
        assert [each.run_id for each in log.prune(["run1", "run2", "run3"], pruned_by="ada")] == ["run3"]
        assert log.verify().findings == ()

    @pytest.mark.parametrize("status", [RunStatus.SUCCEEDED, RunStatus.ROLLED_BACK, RunStatus.TERMINATED])
    @pytest.mark.parametrize("is_explicit", [True, False])
    def test_a_key_stays_taken_as_it_was(self, log: Log, status: RunStatus, is_explicit: bool) -> None:
        """E8: a pruned run holds its key where it held it before: an explicit one for ever, a run_key unless undone."""
        finish(log, status=status, key="k", key_is_explicit=is_explicit)
        log.prune(["run1"], pruned_by="ada")
        again = replace(new_run("run2"), key="k")
        if status is RunStatus.ROLLED_BACK and not is_explicit:
            assert log.create(again, holder=None).is_new
            return
        with pytest.raises(PrunedError) as caught:
            log.create(again, holder=None)
        assert (caught.value.run_id, caught.value.status) == ("run1", status.value)
        with pytest.raises(RefusedError, match="another input"):
            log.create(replace(again, input={"amount": 1}), holder=None)
        assert log.create(replace(again, saga="other"), holder=None).is_new

    def test_a_key_itself_is_not_kept(self, log: Log) -> None:
        """What was pruned is gone: nothing that is kept has the key, which may be a person's address."""
        finish(log, key="ada@example.com")
        (buried,) = log.prune(["run1"], pruned_by="ada")
        assert buried.key_digest is not None
        assert "example" not in repr(buried)

    def test_runs_are_chosen_by_age_and_number(self, log: Log, time: Time) -> None:
        """Oldest first, by their end, of one saga, but for the newest; page by page."""
        for number in range(5):
            lease = start(log, f"run{number}", saga="even" if number % 2 == 0 else "odd")
            add(log, lease, ended(at_ms=number * 1000), status=GONE)
            log.release([lease])
        start(log, "run9")

        def choose(**values: object) -> list[str]:
            rows, total = log.prunable(PruneFilter(**values))  # type: ignore[arg-type]
            assert total == len(rows) or values.keys() & {"limit", "skip"}
            return [row.run_id for row in rows]

        assert choose() == ["run0", "run1", "run2", "run3", "run4"]
        assert choose(ended_until_ms=2000) == ["run0", "run1", "run2"]
        assert choose(keep=2) == ["run0", "run1", "run2"]
        assert choose(keep=2, saga="even") == ["run0"]
        assert choose(keep=9) == []
        assert choose(keep=4, ended_until_ms=2000) == ["run0"]
        assert choose(limit=2, skip=1) == ["run1", "run2"]
        assert log.prunable(PruneFilter(limit=2, skip=1))[1] == 5

    def test_a_definition_goes_with_its_last_run(self, log: Log) -> None:
        """E16: a definition that another run is bound to stays, any other goes."""
        other = spell_snapshot({"saga": "other", "steps": [{"id": "charge"}]})
        finish(log)
        finish(log, "run2", definition=other)
        start(log, "run3")
        log.prune(["run1", "run2"], pruned_by="ada")
        assert canonical(log.definition(new_run().definition.digest)) == new_run().definition.text
        with pytest.raises(DamagedLogError):
            log.definition(other.digest)

    def test_all_definitions_that_a_run_was_bound_to_go_with_it(self, log: Log) -> None:
        """E16: those that it was bound to before another one, too, unless another run is bound to them."""
        lease = start(log)
        rebind(log, lease)
        add(log, lease, ended(), status=GONE)
        log.release([lease])
        log.prune(["run1"], pruned_by="ada")
        for digest in (LATER.digest, new_run().definition.digest):
            with pytest.raises(DamagedLogError):
                log.definition(digest)
        assert log.verify().findings == ()

    def test_a_driver_of_a_pruned_run_writes_nothing_more(self, log: Log, time: Time) -> None:
        """E15: whoever still has a lease of a run that is gone is told that it is lost."""
        lease = start(log)
        add(log, lease, ended(), status=GONE)
        time.dead.add(HOLDER)
        assert len(log.prune(["run1"], pruned_by="ada")) == 1
        assert log.renew([lease]) == [lease]
        with pytest.raises(PrunedError):
            add(log, lease, intent(operation=STEP))
        assert log.verify().findings == ()

    def test_tombstones_are_chained(self, log: Log) -> None:
        """Each tombstone covers the one before, over several prunings; a pruned id isn't given again."""
        for number in range(3):
            finish(log, f"run{number}")
            log.prune([f"run{number}"], pruned_by="ada")
        buried = log.pruned("run")
        assert [each.number for each in buried] == [3, 2, 1]
        assert len({each.hash for each in buried}) == 3
        with pytest.raises(PrunedError):
            log.create(new_run("run1"), holder=None)
        while log.give_back():
            pass
        assert log.verify().findings == ()
