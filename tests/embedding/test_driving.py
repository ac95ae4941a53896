"""A driver in a program: from several threads, again and again, and what its runs' endings say."""

from __future__ import annotations

import resource
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from sagactl import (
    BusyError,
    CallContext,
    Committed,
    InvalidError,
    NotFoundError,
    Project,
    RefusedError,
    Rejected,
    RunFilter,
    RunStatus,
    Settings,
    StorageError,
    Why,
    open_project,
    tool,
)

SAGA = """
saga: trip
input:
  type: object
  properties: {hold: {type: boolean, default: false}, fails: {type: boolean, default: false}}
steps:
  - id: seat
    tool: trip.book
    with: {hold: "${{ input.hold }}"}
  - id: meal
    tool: trip.order
    with: {fails: "${{ input.fails }}"}
output: {seat: "${{ steps.seat.output.seat }}"}
"""

PIVOTAL = SAGA.replace("saga: trip", "saga: final").replace("- id: meal", "- id: meal\n    pivot: true")

FAILS = '    with: {fails: "${{ input.fails }}"}\n'

go = threading.Event()
held = threading.Event()


@tool("trip.book", compensation="trip.cancel", compensation_with={})
def book(context: CallContext, hold: bool = False) -> dict[str, str]:
    """Book a seat; with *hold* only when the test says so."""
    if hold:
        held.set()
        go.wait(60)
    return {"seat": context.idempotency_key}


@tool("trip.cancel", null_safe=True)
def cancel() -> None:
    """Give the seat back."""


@tool("trip.order", compensation="trip.cancel", compensation_with={})
def order(fails: bool = False) -> None:
    """Order a meal."""
    if fails:
        raise Rejected("no meals today", code="no_meals")


@tool("trip.fill_disk", compensation="trip.cancel", compensation_with={})
def fill_disk() -> None:
    """Let no file of this process grow any more, as when a disk is full."""
    resource.setrlimit(resource.RLIMIT_FSIZE, (0, resource.getrlimit(resource.RLIMIT_FSIZE)[1]))


TOOLS = (book, cancel, order, fill_disk)


@pytest.fixture
def project(tmp_path: Path) -> Iterator[Project]:
    """Give a project without plugins, whose tools are this module's."""
    go.clear()
    held.clear()
    (tmp_path / "sagas").mkdir()
    (tmp_path / "sagas" / "trip.yaml").write_text(SAGA)
    (tmp_path / "sagas" / "final.yaml").write_text(PIVOTAL)
    with open_project(tmp_path, tools=TOOLS) as opened:
        yield opened


def _wait_for(event: threading.Event) -> None:
    assert event.wait(60)


def test_ending_says_what_became_of_a_run(project: Project) -> None:
    """An ending has status, output, failure and what isn't undone; the same stands in the log."""
    trip = project.load("trip")
    with project.driver() as driver:
        good, bad = driver.start(trip), driver.start(trip, {"fails": True})
        endings = driver.drive()
    assert endings[good].status is RunStatus.SUCCEEDED
    assert good in str(endings[good].output)
    assert (endings[bad].status, endings[bad].why) == (RunStatus.ROLLED_BACK, Why.AT_REST)
    failure = endings[bad].failure
    assert failure is not None
    assert (failure.type, endings[bad].not_undone) == ("no_meals", ())
    read = project.read(bad)
    assert read.summary == endings[bad].summary
    assert [(row.id, row.status) for row in read.steps] == [("seat", "compensated"), ("meal", "failed")]
    assert [stored.record for stored in project.records(bad)] == list(read.records)
    assert [row.run_id for row in project.runs()] == [bad, good]
    assert project.runs(RunFilter(statuses=(RunStatus.ROLLED_BACK,))).total == 1


def test_project_without_a_log_has_no_runs(project: Project, tmp_path: Path) -> None:
    """Asking for runs where there never was one makes no log, and is no error."""
    assert (list(project.runs()), project.runs().total, project.unfinished()) == ([], 0, [])
    assert not (tmp_path / ".sagactl").exists()


def test_driver_drives_again(project: Project) -> None:
    """After `drive` has returned, the same driver takes more runs."""
    trip = project.load("trip")
    with project.driver() as driver:
        first = driver.start(trip)
        assert set(driver.drive()) == {first}
        second = driver.start(trip)
        assert set(driver.drive()) == {second}
        assert driver.wait(first).status is RunStatus.SUCCEEDED


def test_runs_are_added_while_a_driver_drives(project: Project) -> None:
    """`drive` takes what other threads start meanwhile, and returns when all rest."""
    trip = project.load("trip")
    with project.driver() as driver:
        first = driver.start(trip, {"hold": True})
        found: dict[str, object] = {}
        driving = threading.Thread(target=lambda: found.update(driver.drive()))
        driving.start()
        _wait_for(held)
        second = driver.start(trip)
        assert driver.wait(second, timeout_seconds=60).status is RunStatus.SUCCEEDED
        with pytest.raises(TimeoutError):
            driver.wait(first, timeout_seconds=0.01)
        go.set()
        driving.join(60)
    assert set(found) == {first, second}


def test_driver_serves_many_threads_until_it_is_interrupted(project: Project) -> None:
    """A serving driver stays when there is nothing to do, and its runs are waited for by whoever started them."""
    trip = project.load("trip")
    seen = []
    with project.driver(Settings(calls_max=4)) as driver:
        serving = threading.Thread(target=driver.serve)
        serving.start()

        def order_one() -> None:
            seen.append(driver.wait(driver.start(trip), timeout_seconds=60).status)

        for _ in range(2):
            ordering = [threading.Thread(target=order_one) for _ in range(8)]
            for thread in ordering:
                thread.start()
            for thread in ordering:
                thread.join(60)
            time.sleep(0.05)
        assert serving.is_alive()
        driver.interrupt()
        serving.join(60)
        assert not serving.is_alive()
    assert seen == [RunStatus.SUCCEEDED] * 16


def test_interrupted_run_is_resumed(project: Project) -> None:
    """E17: interrupted from another thread, a driver lets the call settle and lets go; the run is resumed later."""
    trip = project.load("trip")
    with project.driver() as driver:
        run_id = driver.start(trip, {"hold": True})

        def stop() -> None:
            _wait_for(held)
            driver.interrupt()
            go.set()

        stopping = threading.Thread(target=stop)
        stopping.start()
        ending = driver.drive()[run_id]
        stopping.join()
    assert (ending.why, ending.left_in_doubt) == (Why.INTERRUPTED, ())
    with project.driver() as other:
        other.resume(run_id)
        assert other.drive()[run_id].status is RunStatus.SUCCEEDED


def test_leaving_a_driver_gives_its_runs_back(project: Project) -> None:
    """Runs that were started and never driven can be taken over at once; nothing of them was called."""
    trip = project.load("trip")
    with project.driver() as driver:
        run_id = driver.start(trip)
        with pytest.raises(BusyError), project.driver() as other:
            other.resume(run_id)
    assert [row.attempts for row in project.read(run_id).steps] == [0, 0]
    with project.driver() as third:
        third.resume(run_id)
        assert third.drive()[run_id].status is RunStatus.SUCCEEDED


def test_key_makes_a_second_start_the_same_run(project: Project) -> None:
    """E8: with a known key nothing is called, and the ending is the run's own; other inputs are refused."""
    trip = project.load("trip")
    with project.driver() as driver:
        run_id = driver.start(trip, key="monday")
        driver.drive()
        assert driver.start(trip, key="monday") == run_id
        ending = driver.drive()[run_id]
        assert (ending.why, ending.status) == (Why.EXISTING, RunStatus.SUCCEEDED)
        with pytest.raises(RefusedError):
            driver.start(trip, {"fails": True}, key="monday")
    assert project.runs().total == 1


def test_unfinished_runs_of_other_projects_are_left_out(tmp_path: Path) -> None:
    """E16: a run goes on with its own project's tools, so nobody is offered those of others that share the log."""
    log = tmp_path / "shared.db"
    begun = []
    for name in ("one", "two"):
        (tmp_path / name / "sagas").mkdir(parents=True)
        (tmp_path / name / "sagas" / "wait.yaml").write_text(
            "saga: wait\nsteps: [{id: nap, tool: time.sleep, with: {for: 1h}}]\n"
        )
        with open_project(tmp_path / name, log=log) as each:
            with each.driver(Settings(waits_for_timers=False)) as driver:
                begun.append(driver.start(each.load("wait"), {}))
                driver.drive()
            assert each.unfinished() == begun[-1:]
    (tmp_path / "one").rename(tmp_path / "moved")
    with open_project(tmp_path / "moved", log=log) as moved:
        assert moved.unfinished() == begun[:1], "a project that was moved carries on with its own runs"


def test_all_unfinished_runs_are_found(project: Project) -> None:
    """After a crash each run is found, oldest first, however many there are; `runs` gives the last 20, counts all."""
    trip = project.load("trip")
    with project.driver() as driver:
        done = driver.start(trip)
        driver.drive()
        begun = [driver.start(trip) for _ in range(30)]
    assert project.unfinished() == begun
    assert (len(project.runs()), project.runs().total) == (20, 31)
    assert project.runs()[0].run_id == begun[-1]
    assert len(project.runs(RunFilter(limit=0))) == 31
    with project.driver() as driver:
        for run_id in project.unfinished():
            driver.resume(run_id)
        assert set(driver.drive()) == set(begun)
    assert project.unfinished() == []
    assert project.row(done).status is RunStatus.SUCCEEDED


def test_success_is_rolled_back(project: Project) -> None:
    """E22: a run that succeeded is undone on request; one at rest is only reported by `resume`."""
    with project.driver() as driver:
        run_id = driver.start(project.load("trip"))
        driver.drive()
        driver.resume(run_id)
        assert driver.drive()[run_id].status is RunStatus.SUCCEEDED
        driver.rollback(run_id, reason="wrong day")
        assert driver.drive()[run_id].status is RunStatus.ROLLED_BACK


def test_refusal_comes_with_the_ending(project: Project) -> None:
    """E13: a rollback behind the pivot is refused; the refusal is recorded, and the ending carries it as its error."""
    with project.driver() as driver:
        run_id = driver.start(project.load("final"))
        driver.drive()
        driver.rollback(run_id)
        ending = driver.drive()[run_id]
        assert isinstance(ending.error, RefusedError)
        assert ending.status is RunStatus.SUCCEEDED
        driver.rollback(run_id, past_pivot=True, reason="void")
        assert driver.drive()[run_id].error is None


def test_run_under_way_is_cancelled_from_another_thread(project: Project) -> None:
    """E22: what is asked of a run that this driver drives is answered while it drives."""
    trip = project.load("trip")
    with project.driver() as driver:
        serving = threading.Thread(target=driver.serve)
        serving.start()
        run_id = driver.start(trip, {"hold": True})
        _wait_for(held)
        driver.cancel(run_id, reason="changed my mind")
        time.sleep(1)  # requests are looked for twice a second
        go.set()
        assert driver.wait(run_id, timeout_seconds=60).status is RunStatus.ROLLED_BACK
        driver.interrupt()
        serving.join(60)


def test_listener_that_fails_costs_no_run_anything(project: Project, caplog: pytest.LogCaptureFixture) -> None:
    """V6: a listener's exception is logged with the run's id, and the run goes on; other listeners are told."""
    seen: list[str] = []

    def fail(committed: Committed) -> None:
        raise ValueError("a mistake of the program")

    with project.driver() as driver:
        driver.subscribe(fail)
        driver.subscribe(lambda committed: seen.append(committed.run_id))
        run_id = driver.start(project.load("trip"))
        assert driver.drive()[run_id].status is RunStatus.SUCCEEDED
    assert set(seen) == {run_id}
    assert f"a listener failed on records of run {run_id}" in caplog.text


def test_trouble_with_the_log_names_its_run(project: Project) -> None:
    """E18: a log that can't be written ends the driving, says which run that broke off, and whoever waits is told."""
    file = project.config.project / "sagas" / "full.yaml"
    file.write_text(SAGA.replace("saga: trip", "saga: full").replace("trip.order", "trip.fill_disk").replace(FAILS, ""))
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    with project.driver() as driver:
        run_id = driver.start(project.load("full"))
        try:
            with pytest.raises(StorageError) as trouble:
                driver.drive()
        finally:
            resource.setrlimit(resource.RLIMIT_FSIZE, before)
        assert f"run {run_id} broken off" in trouble.value.message
        assert f"sagactl resume {run_id}" in str(trouble.value.hint)
        with pytest.raises(StorageError):
            driver.wait(run_id)
        with pytest.raises(BusyError):  # until its lease has run out: calls of before might still be under way
            driver.resume(run_id)


def test_run_without_its_tools_waits_for_them(project: Project, tmp_path: Path) -> None:
    """E16: a run that is resumed in a program without its tools calls nothing and says which one is missing."""
    with project.driver() as driver:
        run_id = driver.start(project.load("trip"))
    with open_project(tmp_path) as poorer, poorer.driver() as driver:
        driver.resume(run_id)
        ending = driver.drive()[run_id]
    assert (ending.why, ending.detail) == (Why.MISSING_TOOL, "trip.book")


def test_mistakes_are_errors_of_ours(project: Project) -> None:
    """Wrong inputs, unknown sagas and runs raise errors with a code."""
    trip = project.load("trip")
    with project.driver() as driver:
        with pytest.raises(InvalidError) as invalid:
            driver.start(trip, {"hold": "perhaps"})
        assert invalid.value.code == "invalid-input"
        with pytest.raises(InvalidError):
            driver.start(trip, {"hold": object()})
        with pytest.raises(NotFoundError):
            driver.resume("2222222222222")
        with pytest.raises(NotFoundError):
            driver.wait("2222222222222")
    with pytest.raises(NotFoundError):
        project.load("nowhere")
