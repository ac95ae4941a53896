"""`sagactl plan` as a user types it: true, and without any effect."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.cli.project import Project

ADA = ("-i", "email=ada@example.com", "-i", "amount:=4900", "-i", 'servers:=["web", "db"]')


@pytest.fixture
def project(tmp_path: Path) -> Project:
    """Make a project with the plugins and sagas that ship."""
    return Project.make(tmp_path)


def _files(project: Project) -> Iterator[tuple[str, int]]:
    for path in sorted(project.path.rglob("*")):
        yield str(path.relative_to(project.path)), path.stat().st_mtime_ns if path.is_file() else 0


@pytest.mark.parametrize("extra", [(), ("--show-inputs", *ADA), (*ADA, "-o", "json")])
def test_a_plan_writes_and_calls_nothing(project: Project, extra: tuple[str, ...]) -> None:
    """A plan makes no log, no folder and no call, with inputs or without."""
    before = list(_files(project))
    found = project.run("plan", "onboarding", *extra)
    assert found.code == 0, found.err
    assert found.err == ""
    assert list(_files(project)) == before
    assert project.witness() == []


@pytest.mark.parametrize(
    ("inputs", "failed"),
    [((*ADA, "-i", "card=declined"), "deposit"), (("-i", "email=refuses@example.com", *ADA[2:]), "contract")],
)
def test_a_run_undoes_what_its_plan_says(project: Project, inputs: tuple[str, ...], failed: str) -> None:
    """E7, E11: the calls of a run that fails, both ways, are those of its plan in that order."""
    plan = project.run("plan", "onboarding", *inputs, "-o", "json").json["plan"]
    assert project.run("run", "onboarding", "-q", *inputs).code == 10
    records = project.run("log", "-o", "json").json["items"]
    calls = [(each["step"], each["direction"]) for each in records if each["type"] == "intent"]
    made = [step for step, direction in dict.fromkeys(calls) if direction == "action"]
    undone = [step for step, direction in dict.fromkeys(calls) if direction == "compensation"]
    steps = {each["id"]: each for each in plan["steps"]}
    planned = [each["id"] for each in plan["steps"]]
    assert made == planned[: planned.index(failed) + 1]
    assert undone == [each["step"] for each in steps[failed]["on_failure"]["undone"]]
    assert plan["definition"] == project.latest()["definition"]


def test_inputs_are_checked(project: Project) -> None:
    """F5: a plan of an input that `run` would refuse ends as `run` does."""
    for command in ("plan", "run"):
        refused = project.run(command, "onboarding", "-i", "email=ada@example.com", "-o", "json")
        assert (refused.code, refused.json["error"]["code"]) == (3, "invalid-input")


def test_a_saga_with_errors_has_no_plan(project: Project) -> None:
    """F5: what can't be loaded isn't planned, and JSON says why in one value."""
    (project.path / "sagas" / "bad.yaml").write_text("saga: bad\nsteps:\n  - id: a\n    tool: no.such\n")
    found = project.run("plan", "bad", "-o", "json")
    assert found.code == 3
    assert found.json["error"]["problems"][0]["code"] == "unknown-tool"


def test_a_plan_says_what_this_input_would_have_refused(project: Project) -> None:
    """E21: arguments that are known are checked against the tool's schema before anything is called."""
    found = project.run("plan", "onboarding", "-i", "email=ada@example.com", "-i", "amount:=1", "-i", 'servers:=[""]')
    assert found.code == 0
    assert "warning[would-be-refused]: servers[0] would be refused" in found.out
    refused = project.run("plan", "onboarding", *ADA[:4], "-i", 'servers:=[""]', "-o", "json").json["plan"]["refused"]
    assert [each["place"] for each in refused] == ["servers[0]"]


def test_a_graph_writes_and_calls_nothing(project: Project) -> None:
    """A graph makes no log and no call, in each of its formats; two answers at once are a usage error."""
    before = list(_files(project))
    for extra, begins in (
        ((), "diamond   sagas"),
        (("--format", "mermaid"), "%% saga"),
        (("--format", "dot"), "digraph"),
    ):
        found = project.run("graph", "diamond", *extra)
        assert (found.code, found.err) == (0, "")
        assert found.out.startswith(begins)
    assert project.run("graph", "diamond", "-o", "json").json["schema"] == "sagactl.graph/1"
    assert project.run("graph", "diamond", "-o", "json", "--format", "dot").code == 2
    assert list(_files(project)) == before
