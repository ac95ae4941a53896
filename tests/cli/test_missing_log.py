"""A log that isn't there: begun anew where none ever was, and told where one was kept."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from tests.cli.project import Project

ADA = ("run", "onboarding", "-q", "-i", "email=ada@example.com", "-i", "amount:=4900")


@pytest.fixture
def project(tmp_path: Path) -> Project:
    """Return a project without a log, whose witnesses are its own."""
    made = Project.make(tmp_path / "p")
    made.environ["XDG_STATE_HOME"] = str(tmp_path / "state")
    return made


def test_where_none_ever_was_there_is_nothing_to_resume(project: Project) -> None:
    """V6: a project that hasn't begun is no trouble, at its own place."""
    resumed = project.run("resume", "--all")
    assert (resumed.code, resumed.out.strip()) == (0, "nothing to resume")
    assert "warning: there is no log" not in project.run(*ADA).err


def test_a_named_log_that_is_not_there_is_no_empty_one(project: Project) -> None:
    """Section 6: `resume --all` with a mistyped or unmounted log is exit 4, as `list` is, and makes no log."""
    for command in (["resume", "--all"], ["list"]):
        refused = project.run("--log", "other/log.db", *command, "-o", "json")
        assert (refused.code, refused.json["error"]["code"]) == (4, "no-log"), command
    assert not (project.path / "other").exists()


def test_a_log_that_was_kept_and_is_gone_is_told(project: Project) -> None:
    """N9: with its whole folder gone the runs aren't done with: resume fails, run warns, doctor warns."""
    assert project.run(*ADA).code == 0
    shutil.rmtree(project.path / ".sagactl")
    resumed = project.run("resume", "--all", "-o", "json")
    assert (resumed.code, resumed.json["error"]["code"]) == (4, "no-log")
    assert "but one was kept there until 20" in resumed.err
    assert "hint: mount its disk, or put it back" in resumed.err
    (told,) = [each for each in project.run("doctor", "-o", "json").json["items"] if each["name"] == "log"]
    assert told["level"] == "warn"
    assert "but one was kept there until" in told["text"]
    begun = project.run("run", "onboarding", *ADA[3:])
    assert begun.code == 0
    assert "warning: there is no log at" in begun.err
    assert "the new one knows no run and no key of it" in begun.err
    assert project.run("resume", "--all").code == 0, "a log lies there again"
