"""A project whose log was put back to an earlier copy: refused, accepted knowingly, and gone on with by a person."""

from __future__ import annotations

import json
import shutil
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from tests.cli.project import Project
from tests.cli.verdict import check_world

KILL_AT = Path(__file__).with_name("kill_at.py")
FLAKY = ("run", "onboarding", "-q", "-i", "email=ada@example.com", "-i", "amount:=4900", "-i", "card=flaky")


@pytest.fixture
def project(tmp_path: Path) -> Project:
    """Return a project whose run has succeeded, and whose log was put back to where it waited."""
    made = Project.make(tmp_path / "p")
    made.environ["XDG_STATE_HOME"] = str(tmp_path / "state")
    assert made.run(*FLAKY, "--no-wait").code == 12
    log, copy = made.path / ".sagactl", tmp_path / "copy"
    shutil.copytree(log, copy, ignore=shutil.ignore_patterns("sandbox*"))
    assert made.run("resume", "--all", "-q").code == 0
    for name in ("log.db", "log.db-gate"):
        shutil.copy(copy / name, log / name)
    return made


def test_a_log_that_was_put_back_is_used_only_once_it_was_accepted(project: Project) -> None:
    """N9: every command refuses it; accepted, its unfinished runs are paused, and nothing happens twice."""
    done = len(project.witness())
    for command in (["resume", "--all"], ["list"], ["verify"], list(FLAKY)):
        refused = project.run(*command)
        assert refused.code == 1, (command, refused.out)
        assert "hint: put the newest copy back" in refused.err
    accepted = project.run("doctor", "--after-restore", "-o", "json")
    assert accepted.code == 0, accepted.err
    assert "the log is accepted as it lies there; 1 run paused" in accepted.err
    run = project.latest()
    assert accepted.json["paused"] == [run["id"]]
    assert f"sagactl unpause {run['id']}" in accepted.err
    assert run["status"] == "waiting"
    assert run["waiting_for"]["what"] == "paused"
    assert "the log is a copy that was put back" in project.run("log", run["id"], "-o", "json").out
    assert project.run("resume", "--all", "-q").code == 12
    assert len(project.witness()) == done, "nothing is called before a person says so"
    assert project.run("unpause", run["id"], "-q").code == 0
    shown, log, sandbox, verified = project.run_several(
        ["show", "-o", "json"], ["log", "-o", "jsonl"], ["sandbox", "show", "-o", "json"], ["verify"]
    )
    assert (shown.json["run"]["status"], verified.code) == ("succeeded", 0)
    records = [json.loads(line) for line in log.out.splitlines()]
    assert check_world(shown.json["run"], sandbox.json["ledger"], records) == []
    again = project.run("doctor", "--after-restore", "-o", "json")
    assert again.json["paused"] == []


def test_there_must_be_a_log_to_accept(project: Project) -> None:
    """N9: an empty place isn't accepted, so nothing begins anew by this."""
    (project.path / ".sagactl" / "log.db").unlink()
    refused = project.run("doctor", "--after-restore", "-o", "json")
    assert (refused.code, refused.json["error"]["code"]) == (4, "no-log")


@pytest.mark.parametrize(("when", "number"), [("after", 1), ("before", 3)])
def test_a_killed_acceptance_accepts_nothing(project: Project, when: str, number: int) -> None:
    """N9: killed at a commit on its way, the log is refused as before; the same command does it all."""
    done = len(project.witness())
    killed = project.run_python(str(KILL_AT), when, str(number), "doctor", "--after-restore", "-o", "json")
    assert killed.code == -9, killed.err
    for command in (["resume", "--all"], ["list"]):
        refused = project.run(*command)
        assert (refused.code, "hint: put the newest copy back" in refused.err) == (1, True), refused.err
    accepted = project.run("doctor", "--after-restore", "-o", "json")
    assert accepted.json["paused"] == [project.latest()["id"]]
    assert project.run("resume", "--all", "-q").code == 12
    assert len(project.witness()) == done


def test_an_unsound_copy_is_refused_by_every_command_afterwards(project: Project) -> None:
    """N9: the copy contradicts itself, so it isn't accepted, and nothing can be done with it."""
    with closing(sqlite3.connect(project.path / ".sagactl" / "log.db")) as connection, connection:
        connection.execute("UPDATE records SET body = replace(body, 'ada', 'eve') WHERE seq = 1")
    done = len(project.witness())
    refused = project.run("doctor", "--after-restore", "-o", "json")
    assert (refused.code, refused.json["error"]["code"]) == (1, "damaged-log")
    assert "put another copy in its place" in refused.err
    for command in (["resume", "--all"], ["list"], ["show"]):
        assert project.run(*command).code == 1, command
    assert len(project.witness()) == done


def test_a_log_that_nothing_speaks_against_is_asked_about(tmp_path: Path) -> None:
    """N9, section 6: on a sound log the command would pause every unfinished run: without a yes it pauses none."""
    project = Project.make(tmp_path / "p")
    project.environ["XDG_STATE_HOME"] = str(tmp_path / "state")
    assert project.run(*FLAKY, "--no-wait").code == 12
    limbo = project.run(*FLAKY[:4], "email=eve@example.com", *FLAKY[5:-1], "card=limbo")
    assert limbo.code == 11, limbo.err
    stuck = project.latest()["id"]
    asked = project.run("doctor", "--after-restore", "-o", "json")
    assert (asked.code, asked.json["error"]["code"]) == (2, "confirmation-needed")
    assert asked.json["error"]["hint"] == "sagactl doctor --after-restore --yes"
    assert "no witness has seen more of this log than it has, and 1 unfinished run would be paused" in asked.err
    runs = {each["id"]: each for each in project.run("list", "-o", "json").json["items"]}
    assert {each["waiting_for"]["what"] for each in runs.values() if each["waiting_for"]} == {"timer"}
    agreed = project.run("doctor", "--after-restore", "--yes", "-o", "json")
    assert len(agreed.json["paused"]) == 1
    assert f"run {stuck} is stuck; what was decided about it since the copy was made is forgotten" in agreed.err
    assert project.run("doctor", "--after-restore", "-o", "json").code == 0, "nothing is left to be paused"
