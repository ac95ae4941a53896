"""Approvals and pauses as people and scripts use them: what is shown, what it is bound to, and the exit codes."""

from __future__ import annotations

import json
import time
from pathlib import Path

import pytest

from tests.cli.project import Project

RUN = ("run", "onboarding", "-q", "-i", "email=ada@example.com", "-i", "amount:=4900", "-o", "json")


@pytest.fixture
def project(tmp_path: Path) -> Project:
    """Return the shipped project, with a contract that a person must agree to."""
    made = Project.make(tmp_path)
    saga = made.path / "sagas" / "onboarding.yaml"
    saga.write_text(saga.read_text().replace("pivot: true", "pivot: true\n    approval: {timeout: 2d}", 1))
    return made


def _start(project: Project) -> str:
    result = project.run(*RUN)
    assert result.code == 12
    run = result.json["run"]
    assert (run["status"], run["waiting_for"]["what"]) == ("waiting", "approval")
    (asked,) = run["approvals"]
    assert asked["step"] == "contract"
    assert list(asked["arguments"][0]) == ["lead_id"]
    return str(run["id"])


def _calls(project: Project) -> list[str]:
    """Return the tools that were called, by the sandbox's own witness."""
    lines = (project.path / "witness.jsonl").read_text().splitlines()
    return [entry["tool"] for line in lines if (entry := json.loads(line))["phase"] == "begin"]


def test_a_run_waits_for_a_person_and_goes_on(project: Project) -> None:
    """E22: 12 until somebody agrees; then the very same run succeeds, and who agreed is in its log."""
    run = _start(project)
    assert "crm.sign_contract" not in _calls(project)
    shown = project.run("show", run).out
    assert f"sagactl approve {run[:6]} contract" in shown
    done = project.run("approve", run, "contract", "--reason", "checked")
    assert done.code == 0
    assert "with      lead_id=" in done.err  # what was agreed to
    assert _calls(project).count("crm.sign_contract") == 1
    log = [json.loads(line) for line in project.run("log", run, "-o", "jsonl").out.splitlines()]
    (answer,) = [line for line in log if line["type"] == "operator"]
    assert (answer["body"]["request"]["verb"], answer["body"]["request"]["reason"]) == ("approve", "checked")
    assert project.run("verify", run).code == 0


def test_an_answer_that_comes_too_late_is_told_what_to_type(project: Project) -> None:
    """E21: what nobody has answered in time counts as denied; the hint of the refusal, typed as printed, does it."""
    saga = project.path / "sagas" / "onboarding.yaml"
    saga.write_text(saga.read_text().replace("timeout: 2d", "timeout: 2s", 1))
    run = _start(project)
    time.sleep(2.1)
    shown = " ".join(project.run("show", run).out.split())
    assert "contract waits for an approval, which nobody has given until " in shown
    assert "nobody has answered: a resume carries out that it is denied" in shown
    for verb in ("approve", "deny"):
        refused = project.run(verb, run, "contract")
        assert refused.code == 6
        assert f"hint: sagactl resume {run}" in refused.err
    assert project.run("resume", run).code == 10


def test_a_denial_rolls_back(project: Project) -> None:
    """E21: nothing was called, what came before is undone, and the code is that of a failed run."""
    run = _start(project)
    denied = project.run("deny", run, "--reason", "wrong customer", "-o", "json")
    assert denied.code == 10
    assert (denied.json["run"]["status"], denied.json["run"]["cause"]) == ("rolled_back", "denied")
    assert denied.json["run"]["error"]["message"].endswith("wrong customer")
    assert "crm.sign_contract" not in _calls(project)


def test_recording_an_answer_only(project: Project) -> None:
    """`--no-resume` writes the answer down; whoever resumes the run goes on."""
    run = _start(project)
    assert project.run("approve", run, "--no-resume").code == 0
    assert "crm.sign_contract" not in _calls(project)
    assert project.run("resume", run).code == 0


def test_who_may_answer_and_for_what(project: Project) -> None:
    """Each refusal has its code, and says what is wrong."""
    run = _start(project)
    assert project.run("approve", run, "nosuch").code == 4
    assert project.run("approve", run, "lead").code == 6
    assert project.run("approve", "@latest").code == 2
    assert project.run("approve", run).code == 0
    late = project.run("deny", run, "contract", "-o", "json")
    assert (late.code, late.json["error"]["code"]) == (6, "refused")


def test_a_paused_run_waits_for_unpause(project: Project) -> None:
    """E22: pause ends with 0 when it is done; the run then waits, `resume` calls nothing, `unpause` goes on."""
    run = _start(project)
    assert project.run("pause", run).code == 0
    assert project.run("resume", run).code == 12
    assert ", paused" in project.run("list").out
    assert project.run("approve", run, "-q").code == 12
    assert "crm.sign_contract" not in _calls(project)
    assert project.run("unpause", run).code == 0
    assert project.run("pause", run).code == 6


def test_an_answer_that_comes_too_late_is_told_how_the_run_goes_on(project: Project) -> None:
    """E22: when the time is over `show` names no answer any more but the resume that carries the denial out."""
    saga = project.path / "sagas" / "onboarding.yaml"
    saga.write_text(saga.read_text().replace("timeout: 2d", "timeout: 2s"))
    run = _start(project)
    time.sleep(2.1)
    shown = project.run("show", run).out
    assert ("sagactl approve" in shown, f"sagactl resume {run[:6]}" in shown) == (False, True)
    late = project.run("approve", run, "contract")
    assert (late.code, "a resume carries that out" in late.err) == (6, True)
    assert project.run("resume", run, "-q").code == 10


def test_the_time_to_answer_of_a_paused_run_is_not_over(project: Project) -> None:
    """E22, E14: while a run is paused no screen and no JSON takes an approval for expired that can still be given."""
    saga = project.path / "sagas" / "onboarding.yaml"
    saga.write_text(saga.read_text().replace("timeout: 2d", "timeout: 30s"))
    run = _start(project)
    assert project.run("show", run, "-o", "json").json["run"]["approvals"][0]["until"] is not None
    project.run("pause", run)
    (paused,) = project.run("show", run, "-o", "json").json["run"]["approvals"]
    assert (paused["step"], paused["until"]) == ("contract", None)


def test_approving_a_paused_run_says_that_nothing_starts_yet(project: Project) -> None:
    """E22: the answer counts, and the step starts when the run goes on; with it goes the way on."""
    run = _start(project)
    project.run("pause", run)
    approved = project.run("approve", run, "contract", "--reason", "checked")
    assert "the run is paused: contract starts once it goes on" in approved.err
    assert f"hint: sagactl unpause {run[:6]}" in approved.out
    assert (approved.code, "crm.sign_contract" in _calls(project)) == (12, False)
    assert project.run("unpause", run).code == 0
    assert "crm.sign_contract" in _calls(project)
