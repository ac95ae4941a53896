"""A log that several projects share: nobody calls another project's tools by mistake."""

from __future__ import annotations

import shlex
import shutil
from pathlib import Path

from tests.cli.project import Project, Result

FLAKY = ("-q", "-i", "email=ada@example.com", "-i", "amount:=1", "-i", "card=flaky", "--no-wait")


def _resume_all(project: Project, log: Path) -> Result:
    return project.run("resume", "--all", "--log", str(log))


def test_resuming_all_leaves_out_runs_of_other_projects(tmp_path: Path) -> None:
    """E16: a run goes on with its own project's tools; the hint carries it on there."""
    (tmp_path / "one").mkdir()
    (tmp_path / "two").mkdir()
    one, two = Project.make(tmp_path / "one"), Project.make(tmp_path / "two")
    log = tmp_path / "shared" / "log.db"
    first = one.run("run", "onboarding", *FLAKY, "--log", str(log), "-o", "json")
    assert (first.code, first.json["run"]["project"]) == (12, str(tmp_path / "one"))
    run_id = first.json["run"]["id"]
    left = _resume_all(two, log)
    assert (left.code, two.witness()) == (0, [])
    assert f"run {run_id} is left out" in left.err
    hint = left.err.splitlines()[-1].removeprefix("hint: ")
    assert "the tools here are called" not in one.run(*shlex.split(hint)[1:]).err
    assert one.run("show", run_id, "--log", str(log), "-o", "json").json["run"]["status"] == "succeeded"


def test_one_run_may_be_carried_on_elsewhere_with_a_warning(tmp_path: Path) -> None:
    """E16: who names the run is warned; where the old folder is gone, the project was moved, and nothing is said."""
    (tmp_path / "one").mkdir()
    one = Project.make(tmp_path / "one")
    log = tmp_path / "shared" / "log.db"
    ids = [
        one.run("run", "onboarding", *FLAKY, "--idempotency-key", key, "--log", str(log), "-o", "json").json["run"][
            "id"
        ]
        for key in ("a", "b")
    ]
    shutil.copytree(one.path, tmp_path / "copy")
    copy = Project(tmp_path / "copy", one.environ)
    warned = copy.run("resume", ids[0], "--log", str(log))
    assert warned.code == 0
    assert "warning: run" in warned.err
    shutil.move(one.path, tmp_path / "moved")
    moved = Project(tmp_path / "moved", {"SAGACTL_SANDBOX_LEDGER": str(tmp_path / "moved" / "witness.jsonl")})
    assert _resume_all(moved, log).code == 0
    assert moved.run("show", ids[1], "--log", str(log), "-o", "json").json["run"]["status"] == "succeeded"


def test_a_request_for_a_run_of_another_project_is_warned_of_as_well(tmp_path: Path) -> None:
    """E16: what undoes a run calls tools too; what is only written down calls none, and warns of nothing."""
    (tmp_path / "one").mkdir()
    one = Project.make(tmp_path / "one")
    log = tmp_path / "log" / "log.db"
    run_id = one.run("run", "onboarding", *FLAKY, "--log", str(log), "-o", "json").json["run"]["id"]
    shutil.copytree(one.path, tmp_path / "copy")
    copy = Project(tmp_path / "copy", one.environ)
    refused = copy.run("dlq", "retry", run_id, "lead", "--log", str(log))
    undone = copy.run("rollback", run_id, "--log", str(log))
    assert (refused.code, "warning: run" in refused.err) == (6, False)
    assert "warning: run" in undone.err
