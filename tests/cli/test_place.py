"""Hints work where they were typed: `-C`, `--log` and a saga file of another project are in them."""

from __future__ import annotations

import re
import shlex
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from sagactl.cli.views.place import complete
from tests.cli.project import Project, Result

APPROVED = """
saga: agreed
steps:
  - {id: lead, tool: crm.create_lead, with: {email: ada@example.com}, approval: true}
"""

Type = Callable[..., Result]


@pytest.fixture
def project(tmp_path: Path) -> Project:
    """Return a project whose folder's name a shell would take apart."""
    folder = tmp_path / "a project"
    folder.mkdir()
    made = Project.make(folder)
    (folder / "sagas" / "agreed.yaml").write_text(APPROVED)
    return made


@pytest.fixture
def type_elsewhere(project: Project, tmp_path: Path) -> Type:
    """Return what types a command in a folder that has no project."""
    folder = tmp_path / "elsewhere"
    folder.mkdir()

    def type_there(*words: str) -> Result:
        done = subprocess.run(
            [sys.executable, "-m", "sagactl", *words],
            cwd=folder,
            env=project.environment(),
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=240,
            check=False,
        )
        return Result(done.returncode, done.stdout, done.stderr)

    return type_there


def _find_hints(text: str) -> list[list[str]]:
    return [shlex.split(line)[1:] for line in re.findall(r"^hint: (sagactl .*)$", text, re.MULTILINE)]


@pytest.mark.parametrize("how", ["-C", "--log", "-C --log", "file"])
def test_hints_work_where_they_were_typed(project: Project, type_elsewhere: Type, how: str) -> None:
    """Section 6: each hint of a report and of an error can be pasted, whatever said which project and log are meant."""
    there = ["-C", str(project.path)] if "-C" in how else []
    log = ["--log", "its own.db"] if "--log" in how else []
    file = "agreed" if there else str(project.path / "sagas" / "agreed.yaml")
    waiting = type_elsewhere("run", file, *there, *log)
    hints = _find_hints(waiting.out)
    assert waiting.code == 12, waiting.err
    assert "approve" in hints[0]
    unnamed = type_elsewhere(*hints[0][:-3], "approve", hints[0][-2], "nosuch", "-o", "json")
    assert unnamed.code == 4, unnamed.err
    told = shlex.split(unnamed.json["error"]["hint"])[1:]
    assert [told] == _find_hints(unnamed.err)
    for hint in (told, *(each for each in hints if not {"deny", "rollback"} & set(each))):
        typed = type_elsewhere(*hint)
        assert typed.code == 0, f"{hint}: {typed.err}"
    done = type_elsewhere(*hints[0][:-3], "list", "--status", "succeeded", "--ids")
    assert len(done.out.split()) == 1


def test_a_problem_is_looked_at_from_elsewhere(project: Project, type_elsewhere: Type) -> None:
    """A file of the project is found by the name that reports have for it."""
    place = ("-C", str(project.path))
    assert type_elsewhere("validate", "sagas/agreed.yaml", *place).code == 0
    assert type_elsewhere("validate", "sagas/nosuch.yaml", *place).code == 4


def test_doctor_names_the_project(project: Project, type_elsewhere: Type) -> None:
    """What mends a trouble works where `doctor` was asked."""
    (project.path / "sagas" / "agreed.yaml").write_text("saga: {}")
    items = type_elsewhere("doctor", "-C", str(project.path), "-o", "json").json["items"]
    hint = next(each["hint"] for each in items if each["name"] == "sagas")
    assert type_elsewhere(*shlex.split(hint)[1:]).code == 3, hint
    assert hint == f"sagactl -C '{project.path}' validate"


@pytest.mark.parametrize(
    ("text", "completed"),
    [
        ("sagactl show 7kq2m9", "sagactl -C p show 7kq2m9"),
        ("free it, then: sagactl resume --all", "free it, then: sagactl -C p resume --all"),
        ("`sagactl tools` lists, `sagactl verify` checks", "`sagactl -C p tools` lists, `sagactl -C p verify` checks"),
        *((each, each) for each in ("sagactl help mcp", "sagactl run --help", "sagactl -C q show 7kq2m9")),
        *((each, each) for each in ("sagactl init demo", "a newer sagactl may have")),
    ],
)
def test_what_is_completed(text: str, completed: str) -> None:
    """A command gets the options once, and only where a project makes a difference."""
    assert complete(text, "-C p") == completed
    assert complete(completed, "-C p") == completed
    assert complete(text, "") == text
