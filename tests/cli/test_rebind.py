"""`resume --definition` as a user meets it: the diff first, all reasons of a refusal, and SIGKILL around it (E16)."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.cli.project import WAIT_SECONDS, Project
from tests.cli.verdict import check_calls

SCRIPT = str(Path(__file__).with_name("kill_at.py"))
FIRST = """\
saga: tour
version: 1
steps:
  - {id: lead, tool: crm.create_lead, with: {email: ada@example.com}}
  - {id: rest, tool: time.sleep, with: {for: 1s}}
  - {id: hello, tool: mail.send, with: {to: ada@example.com, template: hello}, compensate: {none: "the mail stays"}}
"""
SECOND = """\
saga: tour
version: 2
steps:
  - {id: lead, tool: crm.create_lead, with: {email: ada@example.com}}
  - {id: rest, tool: time.sleep, with: {for: 1s}}
  - {id: hello, tool: mail.send, with: {to: ada@example.com, template: welcome}, compensate: {none: "the mail stays"}}
  - {id: machine, tool: cloud.provision_vm, with: {name: web}}
"""
WORSE = """\
saga: tour
version: 3
steps:
  - {id: rest, tool: time.sleep, with: {for: 2s}}
  - {id: hello, tool: mail.send, with: {to: ada@example.com, template: hello}, compensate: {none: "the mail stays"}}
"""


@pytest.fixture
def project(tmp_path: Path) -> Project:
    """Make a project with a saga that waits for a moment, and two later versions of it."""
    return _make(tmp_path)


def _make(path: Path) -> Project:
    made = Project.make(path)
    for name, text in (("tour", FIRST), ("tour2", SECOND), ("tour3", WORSE)):
        (path / "sagas" / f"{name}.yaml").write_text(text)
    return made


def _wait(project: Project) -> str:
    """Leave a run of the first version where it waits; return its id."""
    assert project.run("run", "tour", "--no-wait", "-q").code == 12
    run_id: str = project.latest()["id"]
    return run_id


def _types(project: Project) -> list[str]:
    return [each["type"] for each in project.run("log", "-o", "json").json["items"]]


def test_a_run_goes_on_under_a_new_definition(project: Project) -> None:
    """E16: the changes are shown first, one record names both definitions, what is to come is as the new one says."""
    run_id = _wait(project)
    before = project.latest()["definition"]
    done = project.run("resume", run_id, "--definition", "tour2", "--reason", "a machine, too", "-o", "json")
    assert done.code == 0, done.err
    run = done.json["run"]
    assert (run["version"], run["status"], run["steps_total"]) == ("2", "succeeded", 4)
    assert [each["id"] for each in run["steps"]] == ["lead", "rest", "hello", "machine"]
    assert "the step is new" in done.err
    assert "template=hello" in done.err
    (record,) = [each for each in project.run("log", "-o", "json").json["items"] if each["type"] == "operator"]
    request = record["body"]["request"]
    assert (request["verb"], request["reason"]) == ("rebind", "a machine, too")
    assert (request["replaces"], request["digest"]) == (before, run["definition"])
    assert project.run("verify").code == 0
    assert check_calls(project.witness()) == []
    assert f"definition {before[:12]} -> {run['definition'][:12]}" in project.run("log", "--detail").out


def test_all_that_stands_in_the_way_is_named_and_nothing_is_written(project: Project) -> None:
    """E16: refused with 6, dry or not, with every reason; the log is as it was."""
    run_id = _wait(project)
    types = _types(project)
    reasons = [
        "lead: it was called, so it can't be gone",
        "rest: it was called, and its arguments stay",
        "rest: it ran after lead, and is undone before it",
    ]
    dry = project.run("resume", run_id, "--definition", "tour3", "--dry-run", "-o", "json")
    assert (dry.code, dry.json["schema"]) == (6, "sagactl.rebinding/1")
    assert all(any(reason in each for each in dry.json["rebinding"]["refused"]) for reason in reasons)
    assert dry.json["error"]["code"] == "incompatible-definition"
    shown = project.run("resume", run_id, "--definition", "tour3", "--dry-run")
    assert (shown.code, shown.out.count("✗")) == (6, 3)
    real = project.run("resume", run_id, "--definition", "tour3", "-o", "json")
    assert real.code == 6
    assert all(reason in real.json["error"]["message"] for reason in reasons)
    other = project.run("resume", run_id, "--definition", "diamond", "-o", "json")
    assert "it is another saga" in other.json["error"]["message"]
    assert _types(project) == types


def test_a_dry_run_shows_the_changes_and_writes_nothing(project: Project) -> None:
    """E16: `--dry-run` says what would change, and is a value for programs."""
    run_id = _wait(project)
    types = _types(project)
    dry = project.run("resume", "@latest", "--definition", "tour2", "--dry-run", "-o", "json")
    assert dry.code == 0
    changes = [(each["what"], each["step"]) for each in dry.json["rebinding"]["changes"]]
    assert changes == [("step_added", "machine"), ("with", "hello"), ("version", None)]
    assert dry.json["rebinding"]["run"] == run_id
    assert _types(project) == types
    same = project.run("resume", run_id, "--definition", "tour", "--dry-run")
    assert (same.code, "means what the run is bound to already" in same.out) == (0, True)


def test_the_same_definition_is_a_plain_resume(project: Project) -> None:
    """E16: a file that means the same, with other lines, writes no record of its own."""
    run_id = _wait(project)
    moved = project.path / "sagas" / "tour.yaml"
    moved.write_text(f"# a remark\n\n{moved.read_text()}")
    assert project.run("resume", run_id, "--definition", "tour", "-q").code == 0
    assert "operator" not in _types(project)


def test_a_stuck_run_is_mended_and_carried_on(project: Project) -> None:
    """E16, E21, E23: an expression that can't be evaluated behind the pivot is mended in the file, then tried again."""
    broken = (
        "saga: late\nsteps:\n"
        "  - {id: lead, tool: crm.create_lead, with: {email: ada@example.com}}\n"
        "  - {id: contract, pivot: true, tool: mail.send, with: {to: ada@example.com, template: contract}}\n"
        '  - {id: hello, tool: mail.send, guard: "${{ 1 == 2 }}", with: {to: ada@example.com, template: hello}}\n'
    )
    (project.path / "sagas" / "late.yaml").write_text(broken)
    (project.path / "sagas" / "late2.yaml").write_text(broken.replace("1 == 2", "1 == 1"))
    assert project.run("run", "late", "-q").code == 11
    run_id = project.latest()["id"]
    assert project.run("resume", run_id, "--definition", "late2", "-q").code == 11
    assert project.run("dlq", "retry", run_id, "hello", "-q").code == 0
    assert project.latest()["status"] == "succeeded"
    ended = project.run("resume", run_id, "--definition", "late", "-o", "json")
    assert (ended.code, "the run has ended succeeded" in ended.json["error"]["message"]) == (6, True)


def test_what_is_asked_wrongly_is_usage(project: Project) -> None:
    """--definition takes one run by its id, and --reason is its own."""
    for arguments in (["--all", "--definition", "tour2"], ["@latest", "--definition", "tour2"], ["x", "--reason", "y"]):
        _wait(project) if arguments[0] == "@latest" else None
        assert project.run("resume", *arguments).code == 2, arguments
    assert project.run("resume", project.latest()["id"], "--definition", "nothing").code == 4


def test_a_run_killed_while_it_is_bound_ends_under_one_of_the_two(tmp_path: Path) -> None:
    """E16, E17: SIGKILL just before and just after each durable transaction of it; a resume ends the run soundly."""
    whole = _make(tmp_path / "whole")
    run_id = _wait(whole)
    counted = whole.run_python(SCRIPT, "after", "0", "resume", run_id, "--definition", "tour2", "-q")
    count = int(counted.err.rsplit("commits ", 1)[1])
    assert count > 5
    versions: set[str] = set()
    for number in range(1, min(count, 4) + 1):
        for when in ("before", "after"):
            project = _make(tmp_path / f"{when}-{number}")
            run_id = _wait(project)
            killed = project.run_python(SCRIPT, when, str(number), "resume", run_id, "--definition", "tour2", "-q")
            assert killed.code == -9
            run = _resume(project)
            versions.add(run["version"])
            assert run["status"] == "succeeded"
            names = [each["id"] for each in run["steps"]]
            assert names == (["lead", "rest", "hello"] + (["machine"] if run["version"] == "2" else []))
            assert check_calls(project.witness()) == []
    assert versions == {"1", "2"}


def _resume(project: Project) -> dict[str, Any]:
    assert "Traceback" not in project.run("resume", "--all", "-q").err
    shown, verified, log = project.run_several(["show", "-o", "json"], ["verify"], ["log", "-o", "jsonl"])
    assert verified.code == 0
    bound = [json.loads(line) for line in log.out.splitlines() if json.loads(line)["type"] == "operator"]
    run: dict[str, Any] = shown.json["run"]
    assert [each["body"]["request"]["digest"] for each in bound] == ([run["definition"]] if bound else [])
    return run


def test_who_follows_a_run_is_told_that_its_definition_changed(project: Project) -> None:
    """E16: a watcher from before goes on under the new definition instead of stumbling over it."""
    run_id = _wait(project)
    watcher = project.start("watch", run_id, "--patience", "60", "-o", "jsonl")
    try:
        assert watcher.stdout is not None
        assert watcher.stdout.readline()
        assert project.run("resume", run_id, "--definition", "tour2", "-q").code == 0
        out, err = watcher.communicate(timeout=WAIT_SECONDS)
    finally:
        watcher.kill()
        watcher.wait()
    assert watcher.returncode == 0, err
    assert "goes on under another definition" in err
    seqs = [json.loads(line)["seq"] for line in out.splitlines() if '"seq"' in line and "sagactl.record/1" in line]
    assert seqs == sorted(set(seqs))
