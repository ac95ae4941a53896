"""The README's workflow is true: it is YAML, and its script does what the text beside it says, run as CI runs it."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.cli.project import ROOT, Result
from tests.sagas.repositories import Repositories, make_template, read_refs
from tests.sagas.test_migration import EXPAND, REVERT, World

README = (ROOT / "README.md").read_text()
VALUES = {"inputs.version": "1.0.0", "github.run_id": "77", "github.run_attempt": "1"}
STUB = 'echo $$ > "{base}/pid"\nexec {python} -m sagactl "$@"'
MAKE = "mkdir -p dist\nprintf 'app %s' \"$VERSION\" > dist/app.tar.gz"

pytestmark = pytest.mark.skipif(shutil.which("jq") is None, reason="the workflow reads sagactl's answer with jq")


def _read_job(name: str) -> dict[str, Any]:
    found = re.search(r"<!-- ci \.github/workflows/release\.yaml -->\n```yaml\n(.*?)```", README, re.DOTALL)
    assert found is not None
    text = re.sub(r"\$\{\{ (.*?) \}\}", lambda expression: VALUES[expression[1]], found[1])
    job: dict[str, Any] = yaml.safe_load(text)["jobs"][name]
    return job


JOB = _read_job("release")
DEPLOY = _read_job("deploy")
STEPS = {step.get("name", step.get("uses")): step for step in JOB["steps"]}


@pytest.fixture
def world(tmp_path: Path) -> Repositories:
    """Give a workspace as the first steps of the job leave it."""
    make_template(tmp_path / "template")
    found = Repositories.copy(tmp_path / "template", tmp_path / "world")
    bin_folder = found.app / ".venv" / "bin"
    bin_folder.mkdir(parents=True)
    for name, script in (("sagactl", STUB.format(base=found.folder, python=sys.executable)), ("make", MAKE)):
        (bin_folder / name).write_text(f"#!/bin/sh\n{script}\n")
        (bin_folder / name).chmod(0o755)
    return found


def _release(world: Repositories) -> tuple[Result, dict[str, str]]:
    """Run the script of the job as CI does; return its outputs as well."""
    outputs = world.folder / "outputs"
    outputs.write_text("")
    environment = {
        **JOB["env"],
        "STORE": "../store",
        "GITHUB_OUTPUT": str(outputs),
        "GITHUB_REF_NAME": "main",
        "GITHUB_ACTIONS": "true",
        "CI": "true",
    }
    done = subprocess.run(
        ["bash", "-e", "-c", STEPS["Release"]["run"]],
        cwd=world.app,
        env=world.project.environment(environment),
        capture_output=True,
        text=True,
        check=False,
        stdin=subprocess.DEVNULL,
    )
    written = outputs.read_text()
    pairs = dict(re.findall(r"^(\w+)=(.*)$", written, re.MULTILINE))
    pairs |= {name: value for name, _, value in re.findall(r"^(\w+)<<(\w+)\n(.*)\n\2$", written, re.MULTILINE)}
    return Result(done.returncode, done.stdout, done.stderr), pairs


def test_the_log_is_kept_whatever_happens_and_found_again_by_a_re_run() -> None:
    """What one attempt saves under its number, the next restores by the number of the workflow's run."""
    restore, save = STEPS["Get the log of an earlier attempt"]["with"], STEPS["Keep the log"]
    assert save["if"] == "always()"
    assert save["with"] == {"path": ".sagactl", "key": "sagactl-77-1"}
    assert restore["path"] == save["with"]["path"]
    assert save["with"]["key"].startswith(restore["restore-keys"])
    assert JOB["env"]["KEY"] == "release-77"


def test_the_job_releases_and_a_re_run_of_it_shows_the_same_run(world: Repositories) -> None:
    """Exit 0 and outputs; again, and nothing is called."""
    first, outputs = _release(world)
    assert first.code == 0, first.err
    assert (outputs["status"], len(outputs["sha256"])) == ("succeeded", 64)
    assert "refs/tags/v1.0.0" in read_refs(world.remote)
    assert (world.store / "1.0.0" / "app.tar.gz").read_text() == "app 1.0.0"
    seen = world.snapshot()
    again, same = _release(world)
    assert (again.code, same) == (0, outputs)
    assert world.snapshot() == seen


def test_a_re_run_of_an_interrupted_job_completes_it(world: Repositories) -> None:
    """The machine's process is killed as the remote takes the push; the re-run carries on and ends with 0."""
    world.hook(world.remote, "post-receive", "[ -e $BASE/fired ] || { touch $BASE/fired; kill -9 $PID; }")
    killed, _ = _release(world)
    assert killed.code == 137
    assert "::error::interrupted" in killed.out
    done, outputs = _release(world)
    assert (done.code, outputs["status"]) == (0, "succeeded"), done.err
    assert len((world.store / "releases.jsonl").read_text().splitlines()) == 1


def test_a_job_that_could_not_release_says_that_nothing_is_left(world: Repositories) -> None:
    """Exit 10, an annotation, and everything is as it was; a re-run shows the same."""
    world.hook(world.remote, "pre-receive", "exit 1")
    before = {name: value for name, value in world.snapshot().items() if name != "status"}
    for _ in range(2):
        failed, outputs = _release(world)
        assert (failed.code, outputs["status"]) == (10, "rolled_back"), failed.err
        assert "::error::not released; what this run had done was put back" in failed.out
        assert {name: value for name, value in world.snapshot().items() if name != "status"} == before


def test_a_job_that_is_stuck_lists_what_waits_for_a_person(world: Repositories) -> None:
    """Exit 11: the remote doesn't take the branch back, and the step shows the dead letter."""
    world.hook(
        world.remote,
        "pre-receive",
        "while read old new ref; do case $new in 0000*) exit 1;; esac; done",  # tags and branches may come, not go
    )
    world.hook(world.remote, "post-receive", "mkdir -p $BASE/store/1.0.0 && touch $BASE/store/1.0.0/theirs")
    stuck, outputs = _release(world)
    assert (stuck.code, outputs["status"]) == (11, "stuck"), stuck.err
    assert "::error::a person must decide" in stuck.out
    assert "push" in stuck.out


def test_a_job_that_calls_sagactl_wrongly_says_so(world: Repositories) -> None:
    """Exit 3: nothing was called, and the step shows sagactl's own error."""
    (world.app / "sagas" / "release.yaml").write_text("saga: release\n")
    failed, _ = _release(world)
    assert failed.code == 3
    assert "::error::sagactl itself failed" in failed.out
    assert '"code":' in failed.out


def _deploy(world: World) -> int:
    """Run the script of the second job as CI does and return its exit code."""
    (script,) = [step["run"] for step in DEPLOY["steps"] if step.get("name") == "Migrate and switch"]
    here = {"SAGACTL_LOG": "log.db", "SITE": "site", "DATABASE": "app.db", "VERSION": "7", "CI": "true"}
    return subprocess.run(
        ["bash", "-e", "-c", script],
        cwd=world.path,
        env=world.project.environment({**DEPLOY["env"], **here}),
        capture_output=True,
        check=False,
        stdin=subprocess.DEVNULL,
    ).returncode


def test_the_second_job_migrates_and_switches_or_leaves_everything_as_it_was(tmp_path: Path) -> None:
    """Exit 10 when the question fails, and nothing is left; then 0, and a re-run changes nothing."""
    world = World.make(tmp_path)
    bin_folder = world.path / ".venv" / "bin"
    bin_folder.mkdir(parents=True)
    (bin_folder / "sagactl").write_text(f'#!/bin/sh\nexec {sys.executable} -m sagactl "$@"\n')
    (bin_folder / "sagactl").chmod(0o755)
    (world.path / "migrations").mkdir()
    (world.path / "migrations" / "expand.sql").write_text(EXPAND.rpartition("UPDATE")[0])
    (world.path / "migrations" / "revert.sql").write_text(REVERT)
    before = world.snapshot()
    assert _deploy(world) == 10
    assert world.snapshot() == before
    (world.path / "migrations" / "expand.sql").write_text(EXPAND)
    DEPLOY["env"]["KEY"] = "deploy-78"  # another run of the workflow
    assert _deploy(world) == 0
    world.check_switched()
    after = world.snapshot()
    assert _deploy(world) == 0
    assert world.snapshot() == after
