"""`plan --out` and `run --plan` as a user meets them: exactly what was planned, or nothing."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from pathlib import Path

import pytest

from sagactl.core.canonical import parse
from sagactl.core.planned import PLAN_BYTES_MAX, read_planned
from tests.cli.project import Project

PLAN = ("plan", "onboarding", "-i", "email=ada@example.com", "-i", "amount:=4900", "-i", 'servers:=["web"]')


@pytest.fixture
def project(tmp_path: Path) -> Project:
    """Make a project with a kept plan."""
    made = Project.make(tmp_path)
    kept = made.run(*PLAN, "--out", "deposit.plan")
    assert (kept.code, "sagactl run --plan deposit.plan" in kept.err) == (0, True)
    return made


def test_a_kept_plan_is_carried_out_and_named_in_the_log(project: Project) -> None:
    """E1, E20: each call that the plan knows is made with those arguments; the run names the plan by its digest."""
    file = project.path / "deposit.plan"
    planned = read_planned(parse(file.read_text()))
    assert file.stat().st_mode & 0o777 == 0o600
    done = project.run("run", "--plan", "deposit.plan", "-o", "json")
    assert done.code == 0, done.err
    run = done.json["run"]
    assert (run["plan"], run["input"]) == (planned.digest, planned.input)
    assert run["definition"] == planned.definition
    records = project.run("log", "-o", "json").json["items"]
    made = [(each["step"], each["item"], each["body"]["tool"]) for each in records if each["type"] == "intent"]
    body = json.loads(file.read_text())
    assert made == [(each["step"], each["item"], each["tool"]) for each in body["calls"]]
    assert f"plan {planned.digest[:12]}" in project.run("log", "--detail").out
    assert planned.digest[:12] in project.run("show").out
    again = project.run("run", "--plan", "deposit.plan", "-o", "json")
    assert (again.code, again.json["run"]["id"]) == (0, run["id"])
    assert f"run {run['id']} is that of this plan" in again.err


UNKEYED = """
saga: note
input:
  type: object
  properties: {text: {type: string}, code: {type: integer}}
steps:
  - id: first
    tool: shell.run
    with: {argv: [sh, -c, "echo done >>made"]}
    compensate: {tool: shell.undo, with: {argv: [sh, -c, "echo undone >>made"]}}
  - id: second
    tool: shell.run
    with: {argv: [test, -f, allowed], rejected_exit_codes: all}
    compensate: {none: it only looks}
"""


def _made(project: Project) -> str:
    return (project.path / "made").read_text().replace("\n", " ").strip()


def test_a_plan_is_carried_out_once(project: Project) -> None:
    """E8: without a `run_key` the plan is the key: twice is one run; one plan more, or another key, is another run."""
    (project.path / "sagas" / "note.yaml").write_text(UNKEYED)
    (project.path / "allowed").touch()
    assert project.run("plan", "note", "-i", "text=x", "--out", "one.plan").code == 0
    first, again = (project.run("run", "--plan", "one.plan", "-o", "json") for _ in range(2))
    assert (first.code, again.code, again.json["run"]["id"]) == (0, 0, first.json["run"]["id"])
    assert f"run {first.json['run']['id']} is that of this plan" in again.err
    assert _made(project) == "done"
    assert project.run("plan", "note", "-i", "text=x", "--out", "same.plan").code == 0
    assert project.run("run", "--plan", "same.plan", "-q").code == 0
    assert project.run("run", "--plan", "one.plan", "-q", "--idempotency-key", "once more").code == 0
    assert _made(project) == "done done done"
    assert len(project.run("list", "--ids").out.split()) == 3


def test_a_plan_that_was_rolled_back_may_be_carried_out(project: Project) -> None:
    """E8: what was taken back leaves the plan free, as it does a `run_key`."""
    (project.path / "sagas" / "note.yaml").write_text(UNKEYED)
    assert project.run("plan", "note", "-i", "text=x", "--out", "one.plan").code == 0
    assert project.run("run", "--plan", "one.plan", "-q").code == 10
    (project.path / "allowed").touch()
    assert project.run("run", "--plan", "one.plan", "-q").code == 0
    assert project.run("run", "--plan", "one.plan", "-q").code == 0
    assert _made(project) == "done undone done"


def test_a_plan_of_a_pruned_run_stays_carried_out(project: Project) -> None:
    """E8: the plan's key outlives the records of its run."""
    (project.path / "sagas" / "note.yaml").write_text(UNKEYED)
    (project.path / "allowed").touch()
    assert project.run("plan", "note", "-i", "text=x", "--out", "one.plan").code == 0
    assert project.run("run", "--plan", "one.plan", "-q").code == 0
    assert project.run("prune", "--older-than", "0s", "--yes", "-q").code == 0
    again = project.run("run", "--plan", "one.plan")
    assert (again.code, "was pruned; nothing is called" in again.err) == (0, True)
    assert _made(project) == "done"


def test_what_changed_since_is_named_and_nothing_is_run(project: Project) -> None:
    """E16: another saga file, another release of a tool: refused with 6, all reasons at once, and no run."""
    saga, plugin = project.path / "sagas" / "onboarding.yaml", project.path / "plugins" / "billing.py"
    saga.write_text(saga.read_text().replace("version: 1", "version: 2"))
    plugin.write_text(f"{plugin.read_text()}\n# a later release\n")
    refused = project.run("run", "--plan", "deposit.plan", "-o", "json")
    assert (refused.code, refused.json["error"]["code"]) == (6, "plan-differs")
    message = refused.json["error"]["message"]
    assert "the saga file changed (version 1 -> 2)" in message
    assert re.search(r"the tools billing\.charge, .* changed \(version ", message)
    assert project.run("list", "--ids").out == ""


def test_a_plan_that_was_changed_is_none(project: Project) -> None:
    """A plan file is checked before anything else: changed, cut, too large, another thing: 3; not there: 2."""
    text = (project.path / "deposit.plan").read_text()
    odd = {
        "changed": text.replace("4900", "490000"),
        "cut": text[: len(text) // 2],
        "twice": text.replace('"saga":', '"saga": "x", "saga":', 1),
        "other": "{}",
        "large": " " * (PLAN_BYTES_MAX + 1),
    }
    for name, content in odd.items():
        (project.path / name).write_text(content)
        found = project.run("run", "--plan", name, "-o", "json")
        assert (found.code, found.json["error"]["code"]) == (3, "invalid-plan"), name
    (project.path / "bytes").write_bytes(b"\xff\xfe{")
    assert project.run("run", "--plan", "bytes").code == 3
    assert project.run("run", "--plan", "nowhere").code == 2
    assert project.run("list", "--ids").out == ""


def test_a_plan_chooses_no_file_outside_the_project(project: Project, tmp_path: Path) -> None:
    """A plan may come from anybody: it doesn't bring a saga of its own; FILE may be given by the person who runs it."""
    planned = read_planned(parse((project.path / "deposit.plan").read_text()))
    outside = tmp_path.parent / f"{tmp_path.name}-elsewhere.yaml"
    outside.write_text((project.path / "sagas" / "onboarding.yaml").read_text())
    for file in (str(outside), f"../{outside.name}", "", "sagas", "sagas/\x00"):
        (project.path / "forged").write_text(json.dumps(replace(planned, file=file).write()))
        found = project.run("run", "--plan", "forged", "-o", "json")
        assert (found.code, found.json["error"]["code"]) == (4, "no-such-saga"), file
    assert project.run("run", "onboarding", "--plan", "forged", "-q").code == 0


def test_options_that_do_not_go_together_are_usage(project: Project) -> None:
    """A plan has its input; a file that is there is never overwritten; a plan to keep needs an input that fits."""
    assert project.run("run", "--plan", "deposit.plan", "-i", "amount:=1").code == 2
    assert project.run("run", "--plan", "deposit.plan", "--from", "x").code == 2
    kept = project.run(*PLAN, "--out", "deposit.plan", "-o", "json")
    assert (kept.code, kept.json["error"]["code"]) == (2, "exists")
    assert project.run(*PLAN, "--out", "no/such/folder").code == 2
    assert project.run("plan", "onboarding", "--out", "empty.plan").code == 3
    assert not (project.path / "empty.plan").exists()
