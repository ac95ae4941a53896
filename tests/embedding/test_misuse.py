"""What a driver can't do is an error at once, with a code and a hint, and never a program that hangs."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from sagactl import Committed, Driver, MisuseError, Project, RunStatus, SagactlError, open_project, tool

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
        driver.wait(driver.start(project.load("trip")), timeout_seconds=30)
        for again in (driver.drive, driver.serve):
            with pytest.raises(RuntimeError) as refused:
                again()
            assert isinstance(refused.value, SagactlError)
            assert refused.value.code == "already-driving"
        driver.interrupt()
        serving.join(30)
