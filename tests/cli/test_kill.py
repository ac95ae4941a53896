"""Real processes killed by SIGKILL at every commit and inside every tool, then resumed or rolled back."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.cli.project import Project
from tests.cli.verdict import check_calls, check_world

SCRIPT = str(Path(__file__).with_name("kill_at.py"))
GOOD = ("run", "onboarding", "-q", "-i", "email=ada@example.com", "-i", "amount:=4900", "-i", 'servers:=["web","db"]')
REFUSED = ("run", "onboarding", "-q", "-i", "email=refuses@example.com", "-i", "amount:=4900", "-i", 'servers:=["web"]')
DIAMOND = ("run", "diamond", "-q", "-i", "email=ada@example.com")
SCENES = {"succeeds": (GOOD, "succeeded"), "rolls back": (REFUSED, "rolled_back"), "diamond": (DIAMOND, "succeeded")}

POINTS = [
    (tool, point)
    for tool in (
        "crm.create_lead",
        "billing.charge",
        "cloud.provision_vm",
        "crm.sign_contract",
        "mail.send",
        "cloud.deallocate_vm",
        "billing.refund",
        "crm.archive_lead",
    )
    for point in ("before_effect", "after_effect")
]


def _commits(tmp_path: Path, arguments: tuple[str, ...]) -> int:
    """Return how many durable transactions the run makes when nobody kills it."""
    project = Project.make(tmp_path / "whole")
    result = project.run_python(SCRIPT, "after", "0", *arguments)
    return int(result.err.rsplit("commits ", 1)[1])


def _check(project: Project, expected: str) -> dict[str, Any]:
    """Resume until the run rests, and compare the world with the claim."""
    result = project.run("resume", "--all", "-q", "-o", "json")
    assert "Traceback" not in result.err
    shown, log, sandbox, verified = project.run_several(
        ["show", "-o", "json"], ["log", "-o", "jsonl"], ["sandbox", "show", "-o", "json"], ["verify"]
    )
    run: dict[str, Any] = shown.json["run"]
    assert run["status"] == expected, result.err
    records = [json.loads(line) for line in log.out.splitlines()]
    assert check_world(run, sandbox.json["ledger"], records) == []
    witness = project.witness()
    assert check_calls(witness) == []
    assert verified.code == 0
    again = project.run("resume", run["id"], "-q")
    assert again.code == {"succeeded": 0, "rolled_back": 10}[expected]
    assert project.witness() == witness
    return run


@pytest.mark.parametrize("scene", SCENES)
def test_a_run_killed_at_any_commit_ends_as_if_nothing_had_happened(scene: str, tmp_path: Path) -> None:
    """E1, E17: SIGKILL just before and just after each durable transaction; resume ends in the same place."""
    arguments, expected = SCENES[scene]
    count = _commits(tmp_path, arguments)
    assert count > 5
    fired = 0
    for number in range(1, count + 1):
        for when in ("before", "after"):
            project = Project.make(tmp_path / f"{when}-{number}")
            killed = project.run_python(SCRIPT, when, str(number), *arguments)
            if killed.code != -9 and scene == "diamond":
                continue  # its branches share commits as they happen to come, so there may be one less
            assert killed.code == -9
            fired += 1
            if (when, number) == ("before", 1):
                assert project.run("list", "--ids").out == ""
                continue
            _check(project, expected)
    assert fired == 2 * count if scene != "diamond" else fired > count


@pytest.mark.parametrize(("tool", "point"), POINTS)
def test_a_run_killed_inside_a_tool_has_each_effect_once(tool: str, point: str, tmp_path: Path) -> None:
    """E6, S2: killed before or after the effect, in both directions; the world ends as the log says."""
    is_undo = tool in {"cloud.deallocate_vm", "billing.refund", "crm.archive_lead"}
    arguments, expected = SCENES["rolls back" if is_undo else "succeeds"]
    project = Project.make(tmp_path)
    killed = project.run(*arguments, extra={"SAGACTL_SANDBOX_KILL": f"{tool}:{point}:1"})
    assert killed.code == -9
    run = _check(project, expected)
    assert run["not_undone"] == []


@pytest.mark.parametrize(("tool", "point"), [p for p in POINTS if p[0] in {"billing.charge", "cloud.provision_vm"}])
def test_a_killed_run_can_be_rolled_back_instead(tool: str, point: str, tmp_path: Path) -> None:
    """E7, E22: after a kill in doubt `rollback` undoes exactly what happened."""
    project = Project.make(tmp_path)
    killed = project.run(*GOOD, extra={"SAGACTL_SANDBOX_KILL": f"{tool}:{point}:1"})
    assert killed.code == -9
    run_id = project.latest()["id"]
    rolled = project.run("rollback", run_id, "-q", "--reason", "test")
    assert rolled.code == 0, rolled.err
    _check(project, "rolled_back")


def test_a_rollback_that_waits_for_the_pivot_and_comes_too_late_is_refused(tmp_path: Path) -> None:
    """E13, E22: the contract was signed, so nothing is undone, and the exit code says so (6, not 0)."""
    project = Project.make(tmp_path)
    killed = project.run(*GOOD, extra={"SAGACTL_SANDBOX_KILL": "crm.sign_contract:after_effect:1"})
    assert killed.code == -9
    refused = project.run("rollback", project.latest()["id"], "-q", "-o", "json")
    assert (refused.code, refused.json["error"]["code"]) == (6, "refused"), refused.err
    _check(project, "succeeded")


POISON_PLUGIN = """
import os, signal
from sagactl import tool

@tool("poison.swallow", read_only=True)
def swallow() -> None:
    with open("swallowed", "a") as file:
        file.write("x")
    os.kill(os.getpid(), signal.SIGKILL)
"""
POISON_SAGA = """
saga: poison
steps:
  - id: swallow
    tool: poison.swallow
    read_only: true
    retry: {max_attempts: 3, initial_interval: 1ms}
"""


def test_a_poisonous_step_uses_up_its_attempts_over_restarts(tmp_path: Path) -> None:
    """E5, scenario B23: an attempt counts from its intent, so a step that kills its driver isn't tried for ever."""
    project = Project.make(tmp_path)
    (tmp_path / "plugins" / "poison.py").write_text(POISON_PLUGIN)
    (tmp_path / "sagas" / "poison.yaml").write_text(POISON_SAGA)
    codes = [project.run("run", "poison", "-q").code]
    codes += [project.run("resume", "--all", "-q").code for _ in range(3)]
    assert codes == [-9, -9, -9, 10]
    assert (tmp_path / "swallowed").read_text() == "xxx"
