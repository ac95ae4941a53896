"""What a driver can't do is an error at once, with a code and a hint, and never a program that hangs."""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, cast

import pytest

from sagactl import (
    Committed,
    Driver,
    InvalidError,
    MisuseError,
    NotFoundError,
    Project,
    RunStatus,
    Saga,
    SagactlError,
    Settings,
    Why,
    open_project,
    tool,
)

SAGA = """
saga: trip
steps:
  - id: seat
    tool: misuse.book
"""


@tool("misuse.book", compensation="misuse.cancel", compensation_with={})
def book() -> None:
    """Book a seat."""


@tool("misuse.cancel", null_safe=True)
def cancel() -> None:
    """Give it back."""


TOOLS = (book, cancel)


@pytest.fixture
def project(tmp_path: Path) -> Iterator[Project]:
    """Give a project with one quick saga."""
    (tmp_path / "sagas").mkdir()
    (tmp_path / "sagas" / "trip.yaml").write_text(SAGA)
    with open_project(tmp_path, tools=TOOLS) as opened:
        yield opened


WAITING: dict[str, Callable[[Driver, str], object]] = {
    "close": lambda driver, _: driver.close(),
    "drive": lambda driver, _: driver.drive(),
    "serve": lambda driver, _: driver.serve(),
    "wait": lambda driver, run_id: driver.wait(run_id),
}


@pytest.mark.parametrize("what", WAITING)
@pytest.mark.parametrize("is_at_start", [True, False])
def test_listener_that_would_wait_for_itself_is_told(project: Project, what: str, *, is_at_start: bool) -> None:
    """A listener that drives, closes or waits gets an error at once, on whichever thread it is; the run goes on."""
    errors: list[SagactlError] = []
    trip = project.load("trip")
    with project.driver() as driver:
        before = driver.start(trip)

        def listen(committed: Committed) -> None:
            if (committed.first_seq == 1) == is_at_start and not errors:
                try:
                    WAITING[what](driver, before)
                except SagactlError as error:
                    errors.append(error)

        driver.subscribe(listen)
        run_id = driver.start(trip)
        assert driver.drive()[run_id].status is RunStatus.SUCCEEDED
    assert [(type(error), error.code) for error in errors] == [(MisuseError, "in-listener")]
    assert what in errors[0].message
    assert errors[0].hint


def test_second_thread_that_drives_is_told(project: Project) -> None:
    """One thread drives: another that tries gets an error, with a code, that is a RuntimeError as well."""
    with project.driver() as driver:
        serving = threading.Thread(target=driver.serve)
        serving.start()
        driver.wait(driver.start(project.load("trip")), timeout_seconds=60)
        for again in (driver.drive, driver.serve):
            with pytest.raises(RuntimeError) as refused:
                again()
            assert isinstance(refused.value, SagactlError)
            assert refused.value.code == "already-driving"
        driver.interrupt()
        serving.join(60)


USES: dict[str, Callable[[Project, Driver, Saga], object]] = {
    "start": lambda _, driver, trip: driver.start(trip),
    "resume": lambda _, driver, __: driver.resume("2222222222222"),
    "rollback": lambda _, driver, __: driver.rollback("2222222222222"),
    "drive": lambda _, driver, __: driver.drive(),
    "serve": lambda _, driver, __: driver.serve(),
    "with": lambda _, driver, __: driver.__enter__(),
}
PROJECT_USES: dict[str, Callable[[Project, Driver, Saga], object]] = {
    "load": lambda project, _, __: project.load("trip"),
    "runs": lambda project, _, __: project.runs(),
    "unfinished": lambda project, _, __: project.unfinished(),
    "row": lambda project, _, __: project.row("2222222222222"),
    "driver": lambda project, _, __: project.driver(),
    "with": lambda project, _, __: project.__enter__(),
}


@pytest.mark.parametrize("what", USES)
def test_closed_driver_takes_nothing(project: Project, what: str) -> None:
    """A run that nobody would drive is never begun: a closed driver says so; closing it again is fine."""
    driver, trip = project.driver(), project.load("trip")
    driver.close()
    driver.close()
    with pytest.raises(MisuseError) as closed:
        USES[what](project, driver, trip)
    assert closed.value.code == "closed"
    assert project.runs().total == 0


@pytest.mark.parametrize("what", [*USES, *(f"project.{name}" for name in PROJECT_USES)])
def test_closed_project_takes_nothing(project: Project, what: str) -> None:
    """A closed project has closed its drivers, given their runs back, and opens nothing again."""
    driver, trip = project.driver(), project.load("trip")
    run_id = driver.start(trip)
    project.close()
    use = PROJECT_USES[what.partition(".")[2]] if "." in what else USES[what]
    with pytest.raises(MisuseError) as closed:
        use(project, driver, trip)
    assert closed.value.code == "closed"
    with open_project(project.config.project, tools=TOOLS) as again:
        assert again.row(run_id).holder is None


def test_driver_that_serves_no_more_takes_no_run(project: Project) -> None:
    """After an interrupted `serve` nobody drives: a start is refused, until somebody drives again."""
    trip = project.load("trip")
    with project.driver() as driver:
        serving = threading.Thread(target=driver.serve)
        serving.start()
        driver.wait(driver.start(trip), timeout_seconds=60)
        driver.interrupt()
        serving.join(60)
        with pytest.raises(MisuseError) as refused:
            driver.start(trip)
        assert refused.value.code == "interrupted"
        assert project.unfinished() == []
        driver.drive()
        run_id = driver.start(trip)
        assert driver.drive()[run_id].status is RunStatus.SUCCEEDED


def test_interrupt_that_comes_just_before_is_kept(project: Project) -> None:
    """E17: a signal between `start` and `drive` isn't lost; the next `drive` lets go of its runs, once."""
    with project.driver() as driver:
        run_id = driver.start(project.load("trip"))
        driver.interrupt()
        assert driver.drive()[run_id].why is Why.INTERRUPTED
        driver.resume(run_id)
        assert driver.drive()[run_id].status is RunStatus.SUCCEEDED


@pytest.mark.parametrize(
    ("name", "value"),
    [
        *(("calls_max", value) for value in (0, -1, 1.5, "8", None, True, 1_001)),
        *(("grace_ms", value) for value in (-1, 0.5, None, 3_600_001)),
        *(("lease_ms", value) for value in (0, 2_000, 15_001, "15s")),
        *(("heartbeat_ms", value) for value in (0, -5, 15_001)),
        ("waits_for_timers", 1),
    ],
)
def test_settings_that_cannot_be_are_refused(name: str, value: object) -> None:
    """Each setting is checked when it is made, and the error names it, the value, and what may be."""
    wrong: dict[str, Any] = {name: value}
    with pytest.raises(InvalidError) as refused:
        Settings(**wrong)
    assert refused.value.code == "invalid-settings"
    assert refused.value.message.startswith(f"{name} must be ")
    assert repr(value) in refused.value.message


ODD: Any = object()
WRONG: dict[str, Callable[[Project, Driver, Saga], object]] = {
    "saga name": lambda _, driver, __: driver.start(cast("Any", "trip")),
    "saga path": lambda _, driver, __: driver.start(cast("Any", Path("trip"))),
    "key": lambda _, driver, trip: driver.start(trip, key=cast("Any", 3)),
    "requested_by": lambda _, driver, trip: driver.start(trip, requested_by=ODD),
    "resume": lambda _, driver, __: driver.resume(cast("Any", None)),
    "wait": lambda _, driver, __: driver.wait(ODD),
    "rollback": lambda _, driver, __: driver.rollback(ODD),
    "cancel": lambda _, driver, __: driver.cancel(ODD),
    "reason": lambda _, driver, __: driver.terminate("2222222222222", reason=ODD),
    "subscribe": lambda _, driver, __: driver.subscribe(ODD),
    "settings": lambda project, _, __: project.driver(ODD),
    "falsy settings": lambda project, _, __: project.driver(cast("Any", {})),
    "load": lambda project, _, __: project.load(ODD),
    "row": lambda project, _, __: project.row(ODD),
    "read": lambda project, _, __: project.read(ODD),
    "records": lambda project, _, __: project.records(ODD),
    "runs": lambda project, _, __: project.runs(ODD),
    "folder": lambda _, __, ___: open_project(ODD),
    "log": lambda _, __, ___: open_project(log=ODD),
    "tools": lambda _, __, ___: open_project(tools=cast("Any", 3)),
    "tools as text": lambda _, __, ___: open_project(tools=cast("Any", "trip.book")),
    "one tool": lambda _, __, ___: open_project(tools=cast("Any", book)),
    "no tool": lambda _, __, ___: open_project(tools=[print]),
    "name of a tool": lambda _, __, ___: open_project(tools=[cast("Any", "misuse.book")]),
    "tool twice": lambda _, __, ___: open_project(tools=[book, book]),
}


@pytest.mark.parametrize("what", WRONG)
def test_wrong_types_are_errors_of_ours(project: Project, what: str) -> None:
    """Every error is a SagactlError: what is no run, saga, key or tool is named, with a hint, and nothing begins."""
    trip = project.load("trip")
    with project.driver() as driver, pytest.raises(InvalidError) as refused:
        WRONG[what](project, driver, trip)
    assert refused.value.hint
    assert project.runs().total == 0


def test_folder_that_is_not_there_is_named(tmp_path: Path) -> None:
    """A project in a folder that isn't there is an error when it is opened, not an empty project."""
    with pytest.raises(NotFoundError) as missing:
        open_project(tmp_path / "nowhere")
    assert str(tmp_path / "nowhere") in missing.value.message


@tool("misuse.lone", compensation="misuse.absent", compensation_with={})
def lone() -> None:
    """Name an undo that nobody gives."""


@tool("misuse.vague")
def vague(what: complex) -> None:
    """Take what no JSON is."""


@pytest.mark.parametrize(("wrong", "names"), [(lone, ("misuse.lone", "misuse.absent")), (vague, ("what",))])
def test_tool_of_a_program_that_is_unfit_is_named(
    project: Project, wrong: Callable[..., object], names: tuple[str, ...]
) -> None:
    """A tool that can't be described, or whose undo isn't given, is named as soon as a saga is loaded."""
    with open_project(project.config.project, tools=[*TOOLS, wrong]) as odd, pytest.raises(InvalidError) as unfit:
        odd.load("trip")
    assert unfit.value.code == "invalid-tool"
    assert all(name in unfit.value.message for name in names)


def test_missing_tool_of_a_program_hints_at_its_list(project: Project) -> None:
    """Where tools are the program's, the hint for a missing one says where it gives them."""
    with open_project(project.config.project) as poor, pytest.raises(InvalidError) as missing:
        poor.load("trip")
    assert "open_project" in str(missing.value.hint)


def test_driver_in_a_forked_child_is_an_error(project: Project) -> None:
    """A child has none of the threads of its parent: its copy of a driver says so at once, and touches no run."""
    trip = project.load("trip")
    with project.driver() as driver:
        run_id = driver.start(trip)
        serving = threading.Thread(target=driver.serve)
        serving.start()
        driver.wait(run_id, timeout_seconds=60)
        child = os.fork()
        if child == 0:
            os._exit(_use_copy(driver, trip, run_id))
        assert _join(child) == 0
        driver.interrupt()
        serving.join(60)


def _use_copy(driver: Driver, trip: Saga, run_id: str) -> int:
    """Return how many uses of a forked driver were not refused."""
    uses: list[Callable[[], object]] = [
        lambda: driver.start(trip),
        lambda: driver.resume(run_id),
        lambda: driver.cancel(run_id),
        lambda: driver.wait(run_id),
        driver.drive,
        driver.serve,
    ]
    taken = len(uses)
    for use in uses:
        try:
            use()
        except MisuseError as error:
            taken -= error.code == "forked"
        except BaseException:
            pass
    driver.close()
    return taken


def _join(child: int) -> int:
    """Return the exit code of *child*; one that hangs is ended."""
    until = time.monotonic() + 20
    while time.monotonic() < until:
        done, status = os.waitpid(child, os.WNOHANG)
        if done:
            return os.waitstatus_to_exitcode(status)
        time.sleep(0.05)
    os.kill(child, signal.SIGKILL)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


def test_listener_that_has_unsubscribed_is_told_no_more(project: Project) -> None:
    """`subscribe` returns what ends it, which may be called twice, and from the listener itself."""
    seen: list[str] = []
    trip = project.load("trip")
    with project.driver() as driver:

        def listen(committed: Committed) -> None:
            seen.append(committed.run_id)
            end()

        end = driver.subscribe(listen)
        first = driver.start(trip)
        driver.start(trip)
        driver.drive()
        end()
    assert seen == [first]
