"""A call that never returns can't be ended inside a process; who asked not to wait gets the process's end instead."""

from __future__ import annotations

from pathlib import Path

from tests.cli.project import Project

PLUGIN = '''
import time
from sagactl import Rejected, tool


@tool("hang.take", compensation="hang.undo")
def take() -> str:
    """Hang."""
    time.sleep(100)
    return "late"


@tool("hang.undo", null_safe=True)
def undo() -> None:
    """Undo."""


@tool("hang.pass", compensation="hang.take")
def go_on() -> None:
    """Succeed."""


@tool("hang.refuse")
def refuse() -> None:
    """Refuse."""
    raise Rejected("no")
'''
SAGA = """
saga: hang
steps:
  - {id: one, tool: hang.take, start_to_close_timeout: 2s, retry: {max_attempts: 1}}
"""


UNDONE = """
saga: hang
steps:
  - {id: one, tool: hang.pass, compensate: {tool: hang.take, start_to_close_timeout: 2s}}
  - {id: two, tool: hang.refuse, read_only: true}
"""


def make_project(path: Path, saga: str) -> Project:
    """Return a project with the saga and the tools that hang."""
    (path / "plugins").mkdir()
    (path / "plugins/hang.py").write_text(PLUGIN, encoding="utf-8")
    (path / "hang.yaml").write_text(saga, encoding="utf-8")
    return Project(path)


def test_who_does_not_wait_leaves_an_undo_that_hangs(tmp_path: Path) -> None:
    """E12, E14: an undo is never cut short, but one that hangs has had its time."""
    left = make_project(tmp_path, UNDONE).run("run", "hang.yaml", "--no-wait", "-o", "json")
    assert left.code == 12, left.err
    assert left.json["run"]["status"] == "rolling_back"


def test_who_does_not_wait_leaves_a_call_that_hangs(tmp_path: Path) -> None:
    """E14, E17: the process ends with 12 and the call is in doubt; a resume decides about it, as after a kill."""
    project = make_project(tmp_path, SAGA)
    left = project.run("run", "hang.yaml", "--no-wait", "-o", "json")
    assert left.code == 12, left.err
    assert "past its time" in left.err
    run = left.json["run"]["id"]
    assert project.run("show", run, "-o", "json").json["run"]["driver"] is None
    assert "left without an answer" in project.run("show", run).out
    assert project.run("resume", run, "--no-wait").code == 10
