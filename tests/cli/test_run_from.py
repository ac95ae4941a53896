"""`run --from RUN`: a new run with the inputs of another one (E8)."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.cli.project import Project

DECLINED = ("run", "onboarding", "-q", "-i", "email=ada@example.com", "-i", "amount:=4900", "-i", "card=declined")


@pytest.fixture
def project(tmp_path: Path) -> Project:
    """Make a project with a run that was rolled back."""
    made = Project.make(tmp_path)
    assert made.run(*DECLINED).code == 10
    return made


def test_a_new_run_has_the_inputs_of_another_and_says_so(project: Project) -> None:
    """The inputs are those of the run, -i changes some; without FILE it is the saga's file as it is now."""
    first = project.latest()
    file = project.path / "sagas" / "onboarding.yaml"
    file.write_text(file.read_text().replace("version: 1", "version: 2"))
    done = project.run("run", "--from", first["id"][:8], "-i", "card=ok", "-o", "json")
    assert done.code == 0, done.err
    run = done.json["run"]
    assert run["input"] == {**first["input"], "card": "ok"}
    assert (run["forked_from"], run["version"]) == (first["id"], "2")
    assert "definition of sagas/onboarding.yaml, as it is now" in done.err
    assert f"from {first['id']}" in project.run("log", "--detail").out
    assert f"the inputs of run {first['id']}" in project.run("show").out
    assert project.run("verify").code == 0


def test_the_same_key_is_the_same_run_and_the_way_out_is_named(project: Project) -> None:
    """E8: the usual rule of run_key; with a key of its own the new run is a new one."""
    first = project.latest()
    assert project.run("run", "--from", first["id"], "-i", "card=ok", "-q").code == 0
    second = project.latest()["id"]
    again = project.run("run", "--from", second, "-o", "json")
    assert (again.code, again.json["run"]["id"]) == (0, second)
    assert "with --idempotency-key the new run has one of its own" in again.err
    taken = project.run("run", "--from", first["id"], "-o", "json")
    assert (taken.code, taken.json["error"]["code"]) == (6, "key-taken")
    assert "--idempotency-key" in taken.json["error"]["hint"]
    own = project.run("run", "--from", second, "--idempotency-key", "again", "-o", "json")
    assert (own.code, own.json["run"]["id"] != second, own.json["run"]["key"]) == (0, True, "again")


def test_another_file_may_be_given(project: Project) -> None:
    """FILE decides which saga; the inputs must fit it."""
    first = project.latest()["id"]
    other = project.run("run", "diamond", "--from", first, "-i", "card=ok", "-o", "json")
    assert (other.code, other.json["run"]["saga"]) == (0, "diamond")
    strict = project.path / "sagas" / "strict.yaml"
    strict.write_text(
        "saga: strict\ninput: {type: object, additionalProperties: false}\n"
        "steps:\n  - {id: hello, tool: crm.create_lead, with: {email: a@example.com}}\n"
    )
    assert project.run("run", "strict", "--from", first).code == 3


def test_what_cannot_be_is_said(project: Project) -> None:
    """No such run is 4, options that exclude each other 2, a saga whose file is gone 4 with what helps."""
    first = project.latest()["id"]
    assert project.run("run", "--from", "zzzzzz").code == 4
    assert project.run("run", "--from", "@latest").code == 2
    assert project.run("run", "--from", first, "--inputs", "x.json").code == 2
    assert project.run("run").code == 2
    (project.path / "sagas" / "onboarding.yaml").unlink()
    gone = project.run("run", "--from", first, "-o", "json")
    assert (gone.code, gone.json["error"]["hint"]) == (4, f"sagactl run FILE --from {first}")
