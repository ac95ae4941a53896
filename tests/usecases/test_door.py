"""The use cases from another door than the command line: plain functions, typed results, nothing of a terminal."""

from __future__ import annotations

import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from sagactl import CallContext, InvalidError, NotFoundError, Project, open_project, tool
from tests.usecases import door

SAGA = """
saga: trip
steps:
  - id: seat
    tool: trip.book
    approval: {}
  - id: meal
    tool: trip.order
output: {meal: "${{ steps.meal.output.meal }}"}
"""

ROOT = Path(__file__).parents[2]
called: list[str] = []
is_held = threading.Event()
go = threading.Event()


@tool("trip.book", compensation="trip.cancel", compensation_with={})
def book(context: CallContext) -> None:
    """Book a seat."""
    called.append("book")


@tool("trip.cancel", null_safe=True)
def cancel() -> None:
    """Give back what was taken."""
    called.append("cancel")


@tool("trip.order", compensation="trip.cancel", compensation_with={}, idempotent=False)
def order() -> dict[str, str]:
    """Order a meal: nobody knows whether it came through."""
    raise OSError("the line went dead")


@tool("trip.wait", compensation="trip.cancel", compensation_with={})
def wait() -> None:
    """Wait until the test lets go."""
    is_held.set()
    go.wait(60)


@pytest.fixture
def project(tmp_path: Path) -> Iterator[Project]:
    """Give a project with a saga that stops twice for a person."""
    (tmp_path / "sagas").mkdir()
    (tmp_path / "sagas" / "trip.yaml").write_text(SAGA)
    (tmp_path / "sagas" / "slow.yaml").write_text("saga: slow\nsteps: [{id: pause, tool: trip.wait}]\n")
    called.clear()
    with open_project(tmp_path, tools=[book, cancel, order, wait]) as opened:
        yield opened


def test_a_run_lives_its_whole_life_through_another_door(project: Project) -> None:
    """E22, E23: approved, stuck in doubt, resolved with an output that is checked, foreseen, rolled back."""
    first = door.run(project, "trip")
    assert first["status"] == "waiting"
    run = first["run"]
    assert door.approve(project, run[:6])["status"] == "stuck"
    assert door.options(project, run) == {"options": ["done", "not_done", "retry"]}
    with pytest.raises(InvalidError, match="can't stand for"):
        door.resolve(project, run, {"drink": "tea"})
    done = door.resolve(project, run, {"meal": "soup"}, "meal")
    assert (done["status"], done["output"]) == ("succeeded", {"meal": "soup"})
    assert door.show(project, "@latest") == done
    assert door.rollback(project, run, dry_run=True) == {"calls": ["trip.cancel", "trip.cancel"]}
    assert called == ["book"]
    assert door.rollback(project, run)["status"] == "rolled_back"
    assert called == ["book", "cancel", "cancel"]


def test_what_the_rules_refuse_another_door_is_told(project: Project) -> None:
    """E22: a request that can't be met is an answer with its reason; a name that means nothing is an error."""
    run = door.run(project, "trip")["run"]
    with pytest.raises(NotFoundError, match="no step"):
        door.approve(project, run, "sea")
    assert door.approve(project, run, "meal") == {"refused": True, "why": f"run {run}: meal waits for no approval"}
    assert door.resume(project, run)["status"] == "waiting"


def test_who_drives_a_run_answers_another_door(project: Project, tmp_path: Path) -> None:
    """E15, E22: a request to a run that somebody else drives is answered by that driver."""
    is_held.clear()
    go.clear()
    with open_project(tmp_path, tools=[book, cancel, order, wait]) as other:
        driving = threading.Thread(target=door.run, args=(other, "slow"))
        driving.start()
        assert is_held.wait(60)
        asking = threading.Thread(target=lambda: answers.append(door.rollback(project, project.unfinished()[0])))
        answers: list[door.Answer] = []
        asking.start()
        asking.join(60)
        go.set()
        driving.join(60)
    assert answers == [{"refused": False}]


def test_no_door_needs_the_command_line(tmp_path: Path) -> None:
    """The use cases import nothing that belongs to a terminal, and no module of the command line."""
    script = "import sys, tests.usecases.door; print(*sorted(sys.modules))"
    done = subprocess.run(
        [sys.executable, "-c", script], cwd=ROOT, capture_output=True, text=True, check=True, timeout=60
    )
    names = done.stdout.split()
    assert "sagactl.usecases.letters" in names
    assert not [name for name in names if name.split(".")[0] in {"typer", "click", "rich"} or name == "sagactl.cli"]
