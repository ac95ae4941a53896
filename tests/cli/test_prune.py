"""`sagactl prune` as people and scripts use it: what is asked, what is deleted, and what the rest says of it."""

from __future__ import annotations

import json
import shlex
from pathlib import Path

import pytest

from tests.cli.project import WAIT_SECONDS, Project
from tests.cli.terminal import Terminal

ADA = ("run", "onboarding", "-q", "-i", "email=ada@example.com", "-i", "amount:=4900")
BOB = ("run", "onboarding", "-q", "-i", "email=bob@example.com", "-i", "amount:=4900", "-i", "card=declined")


@pytest.fixture
def project(tmp_path: Path) -> Project:
    """Return a project with a run that succeeded, one that was rolled back, and one that is stuck."""
    made = Project.make(tmp_path)
    assert made.run(*ADA).code == 0
    assert made.run(*BOB, "--idempotency-key", "bob").code == 10
    assert made.run(*ADA[:3], "-i", "email=eve@example.com", "-i", "amount:=1", "-i", "card=limbo").code == 11
    return made


def _ids(project: Project) -> list[str]:
    return project.run("list", "--ids").out.split()


def test_only_ended_runs_are_deleted_and_their_keys_stay(project: Project) -> None:
    """E8: the stuck run stays; the same key is still the same run, with its exit code, and nothing is called."""
    stuck, bob, ada = _ids(project)
    calls = len(project.witness())
    done = project.run("prune", "--older-than", "0s", "--yes", "-o", "json")
    assert (done.code, done.json["schema"], done.json["pruned"], done.json["total"]) == (0, "sagactl.prune/1", 2, 2)
    assert _ids(project) == [stuck]
    for command, run_id, code, status in (
        ((*BOB, "--idempotency-key", "bob"), bob, 10, "rolled_back"),
        (ADA, ada, 0, "succeeded"),
    ):
        again = project.run(*command, "-o", "json")
        assert (again.code, again.json["run"]["id"], again.json["run"]["status"]) == (code, run_id, status)
        assert again.json["run"]["pruned_by"]
        assert "was pruned; nothing is called" in again.err
        text = project.run(*command)
        assert (text.code, "its records are gone" in " ".join(text.out.split())) == (code, True)
    other = project.run(*ADA[:5], "-i", "amount:=1", "-o", "json")
    assert (other.code, other.json["error"]["code"]) == (6, "key-taken")
    assert len(project.witness()) == calls
    verified = project.run("verify", "-o", "json")
    assert (verified.code, verified.json["tombstones"]) == (0, 2)


@pytest.mark.parametrize("command", ["show", "log", "resume", "rollback", "verify", "dlq show"])
def test_a_pruned_run_is_told_from_one_that_never_was(project: Project, command: str) -> None:
    """Section 6: exit 4 with the code `pruned`, by the whole id and by a prefix."""
    ada = _ids(project)[2]
    assert project.run("prune", "--keep", "0", "--yes", "-q").code == 0
    for name in (ada, ada[:6]):
        gone = project.run(*command.split(), name, "-o", "json")
        assert (gone.code, gone.json["error"]["code"]) == (4, "pruned"), gone.err


def test_a_dry_run_deletes_nothing_and_its_hint_works(project: Project) -> None:
    """Section 6: `--dry-run` writes nothing; what it hints at deletes what it showed."""
    log = project.path / ".sagactl" / "log.db"
    before = log.read_bytes()
    shown = project.run("prune", "--keep", "1", "--saga", "onboarding", "--dry-run")
    assert (shown.code, log.read_bytes()) == (0, before)
    listed = project.run("prune", "--keep", "1", "--dry-run", "-o", "json").json
    assert ([each["status"] for each in listed["items"]], listed["dry_run"]) == (["succeeded"], True)
    hint = shown.out.splitlines()[-1].removeprefix("hint: ")
    assert project.run(*shlex.split(hint)[1:]).code == 0
    assert len(_ids(project)) == 2


def test_without_a_terminal_nothing_is_asked_and_nothing_deleted(project: Project) -> None:
    """Section 6: exit 2 names `--yes`; the same where nothing may be asked, and where it isn't said what to delete."""
    for command, word in (
        (("prune", "--keep", "0"), "confirmation-needed"),
        (("prune", "--keep", "0", "--no-input"), "confirmation-needed"),
        (("prune", "--yes"), "usage"),
        (("prune", "--older-than", "soon", "--yes"), "bad-time"),
    ):
        refused = project.run(*command, "-o", "json")
        assert (refused.code, refused.json["error"]["code"]) == (2, word)
    assert project.run("prune", "--keep", "0").err.endswith("hint: sagactl prune --keep 0 --yes\n")
    assert len(_ids(project)) == 3


@pytest.mark.parametrize(("answer", "left"), [("y", 1), ("", 3), ("no", 3)])
def test_on_a_terminal_it_is_asked(project: Project, answer: str, left: int) -> None:
    """Section 6: the question shows what is deleted, and anything but yes deletes nothing."""
    with Terminal() as terminal:
        process = terminal.start(project, "prune", "--keep", "0")
        shown = terminal.wait_for(lambda text: "[y/N]" in text)
        assert "2 runs would be deleted for good" in shown
        terminal.type(f"{answer}\n")
        assert process.wait(timeout=WAIT_SECONDS) == (0 if left == 1 else 2)
    assert len(_ids(project)) == left


def test_where_there_is_nothing_to_delete_nothing_is_made(tmp_path: Path) -> None:
    """An empty project has nothing to prune, and no log afterwards."""
    project = Project.make(tmp_path)
    assert project.run("prune", "--older-than", "30d", "--yes").out == "nothing to prune\n"
    assert json.loads(project.run("prune", "--keep", "3", "-o", "json").out)["total"] == 0
    assert not (tmp_path / ".sagactl").exists()


def test_the_retention_that_is_set_is_the_age_that_is_not_given(project: Project) -> None:
    """`help config`: `retention` is what `--older-than` is left out for, a flag beats it, and `--keep` adds to it."""
    settings = project.path / "sagactl.toml"
    for wrong in ('"soon"', '"0s"', '""', "30", "true"):
        settings.write_text(f"retention = {wrong}\n")
        assert project.run("prune", "--dry-run", "-o", "json").json["error"]["code"] == "invalid-config"
    settings.write_text("")
    assert project.run("prune", "-o", "json").json["error"]["code"] == "usage"
    settings.write_text('retention = "1h30m"\n')
    for given, total in (((), 0), (("--keep", "0"), 0), (("--older-than", "0s"), 2)):
        assert project.run("prune", *given, "--dry-run", "-o", "json").json["total"] == total
    settings.write_text('retention = "1ms"\n')
    assert project.run("prune", "-o", "json").json["error"]["hint"] == "sagactl prune --older-than 1ms --yes"
    assert project.run("prune", "--keep", "1", "--dry-run", "-o", "json").json["total"] == 1
    assert project.run("prune", "--yes", "-o", "json").json["pruned"] == 2
