"""What a person says of a call in doubt, from the command that asks to the run that goes on."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.cli.project import Project

PLUGIN = '''
from sagactl import tool


@tool("bank.charge", compensation="bank.refund", compensation_with={"charge_id": "${{ output.charge_id }}"},
      idempotent=False)
def charge(amount: int, is_lost: bool = False) -> dict:
    """Charge, and lose the answer if asked to."""
    if is_lost:
        raise ConnectionError("the bank hung up")
    return {"charge_id": "ch_1"}


@tool("bank.refund")
def refund(charge_id: str) -> dict:
    """Give it back."""
    return {}


@tool("crm.note", read_only=True)
def note(text: str) -> dict:
    """Take note."""
    return {}
'''
SAGA = """
saga: doubtful
steps:
  - {id: first, tool: bank.charge, with: {amount: 1}}
  - {id: second, tool: bank.charge, with: {amount: 2, is_lost: true}}
  - {id: third, tool: crm.note, approval: {}, with: {text: "${{ steps.second.output.charge_id }}"}}
"""
DONE = ("--done", "--reason", "seen at the bank")


@pytest.fixture
def project(tmp_path: Path) -> Project:
    """A project with a bank that loses answers."""
    for name, text in (("plugins/bank.py", PLUGIN), ("sagas/doubtful.yaml", SAGA)):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(text)
    return Project(tmp_path)


def _get_stuck(project: Project) -> str:
    stuck = project.run("run", "doubtful", "-q", "-o", "json")
    assert stuck.code == 11
    run_id: str = stuck.json["run"]["id"]
    return run_id


@pytest.mark.parametrize(
    ("output", "objection"),
    [
        ("{}", "output has no charge_id, which the undo of second and third need"),
        ('{"charge_id": {"id": 1}}', "bank.refund, the undo of second, would refuse its arguments: charge_id"),
        ("[1]", "must be an object"),
        (None, "must be an object, not null"),
    ],
)
def test_an_output_that_others_can_not_read_is_refused(project: Project, output: str | None, objection: str) -> None:
    """E23: it is checked before it is recorded, for the undo that can't read it would get stuck in a rollback."""
    run_id = _get_stuck(project)
    given = () if output is None else ("--output", output)
    refused = project.run("dlq", "resolve", run_id, "second", *DONE, *given)
    assert refused.code == 3
    assert objection in refused.err
    assert "sagactl dlq show" in refused.err or "sagactl tools" in refused.err
    types = [json.loads(line)["type"] for line in project.run("log", run_id, "-o", "jsonl").out.splitlines()]
    assert "operator" not in types


def test_what_json_stands_for_is_said_where_it_is_asked_for(project: Project) -> None:
    """Each command that is shown with `--output JSON` comes with what that is, and what it must have."""
    run_id = _get_stuck(project)
    told = "it must have charge_id (for the undo of second, third)"
    for shown in (("dlq", "show", run_id), ("show", run_id), ("resume", run_id)):
        text = project.run(*shown).out
        assert "--output JSON" in text
        assert "JSON      what bank.charge has returned" in text
        assert told in text


def test_what_was_settled_is_shown_as_what_was(project: Project) -> None:
    """S11, E23: the first error stays, but of a run that goes on or has succeeded as history, with who settled it."""
    run_id = _get_stuck(project)
    recorded = project.run("dlq", "resolve", run_id, "second", *DONE, "--output", '{"charge_id": "c2"}', "--no-resume")
    assert recorded.code == 0
    assert "second settled by" in recorded.out.splitlines()[0]
    assert recorded.out.splitlines()[0].endswith("; not resumed")
    assert project.run("resume", run_id).code == 12
    assert project.run("approve", run_id, "third").code == 0
    lines = project.run("show", run_id, extra={"COLUMNS": "200"}).out.splitlines()
    (was,) = [line for line in lines if line.startswith("  was ")]
    assert "ConnectionError" in was
    assert was.endswith(": done")
    assert not [line for line in lines if line.startswith("  error ")]
    (row,) = [line for line in lines if line.startswith("  second ")]
    assert "charge_id c2; settled by " in row
    step = project.run("show", run_id, "-o", "json").json["run"]["steps"][1]
    assert (step["error"]["type"], step["settled"]["as"]) == ("ConnectionError", "done")
    assert step["settled"]["reason"] == "seen at the bank"


def test_an_approval_that_is_only_recorded_says_so(project: Project) -> None:
    """With `--no-resume` the answer says what was done, and what carries the run on; nothing was interrupted."""
    run_id = _get_stuck(project)
    project.run("dlq", "resolve", run_id, *DONE, "--output", '{"charge_id": "c2"}')
    approved = project.run("approve", run_id, "third", "--no-resume")
    assert approved.code == 0
    assert approved.out.splitlines()[0].endswith(": third approved; not resumed")
    assert "interrupted" not in approved.out
    assert "resumed" not in approved.err
    assert f"hint: sagactl resume {run_id[:6]}" in approved.out


@pytest.mark.parametrize("command", [("cancel",), ("approve", "third"), ("rollback",), ("dlq", "retry")])
def test_what_is_refused_carries_nothing_on_and_does_not_say_so(project: Project, command: tuple[str, ...]) -> None:
    """E22: a refusal is recorded, but the run isn't resumed for it: nothing may look so."""
    run_id = _get_stuck(project)
    assert project.run("rollback", run_id, "-q").code == 11
    words = [
        *command[:1],
        *(command[1:] if command[0] == "dlq" else ()),
        run_id,
        *(command[1:] if command[0] != "dlq" else ("second",)),
    ]
    refused = project.run(*words)
    assert refused.code == 6
    assert "resumed" not in refused.err
    assert "error[refused]" in refused.err


def test_a_rollback_that_only_moves_the_question_says_so(project: Project) -> None:
    """E7, E22: what is in doubt stays so when a run turns around; who asked for it is told what the rollback needs."""
    run_id = _get_stuck(project)
    moved = project.run("rollback", run_id)
    assert moved.code == 11
    assert "its rollback goes on when you have said whether second happened" in " ".join(moved.out.split())
    assert "a rollback can't find it out: say it" in " ".join(moved.out.split())
    assert f"sagactl dlq resolve {run_id[:6]} second --not-done" in moved.out


def test_a_plugin_that_takes_long_to_import_is_named(project: Project) -> None:
    """Nothing else is seen meanwhile; with `-q` nothing is said, and stdout is the answer alone."""
    (project.path / "plugins" / "slow.py").write_text("import time\ntime.sleep(2.3)\n")
    told = project.run("tools", "-o", "json")
    assert told.err == "loading plugin slow …\n"
    assert told.json["items"]
    assert project.run("tools", "-q", "-o", "json").err == ""
