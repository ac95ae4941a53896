"""`verify --head` as it is typed: printing, keeping elsewhere, comparing."""

from __future__ import annotations

import shutil
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from tests.cli.project import Project

RUN = ("run", "onboarding", "-q", "-i", "email=ada@example.com", "-i", "amount:=4900")
KEY = "a key that nobody guesses"


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the folder of a project with a run and its heads beside it."""
    project = Project.make(tmp_path_factory.mktemp("made") / "project")
    (project.path / "sagactl.toml").write_text('[events]\nfile = "events.jsonl"\n')
    assert project.run(*RUN).code == 0
    (project.path / "heads").write_text(project.run("verify", "--head").out)
    return project.path


@pytest.fixture
def project(made: Path, tmp_path: Path) -> Project:
    """Return a copy of that project, without the gate that knows what was durable."""
    shutil.copytree(made, tmp_path / "p", symlinks=True)
    (tmp_path / "p" / ".sagactl" / "log.db-gate").unlink()
    return Project(tmp_path / "p", {"SAGACTL_SANDBOX_LEDGER": str(tmp_path / "p" / "witness.jsonl")})


def test_heads_are_printed_and_hold(project: Project) -> None:
    """L7: what is printed holds as a file, on stdin, as one word, as JSON and as events; each ends with 0."""
    whole, json_, run, compared, word, events = project.run_several(
        ["verify", "--head"],
        ["verify", "--head", "-o", "json"],
        ["verify", "@latest", "--head"],
        ["verify", "--head", "@heads", "-o", "json"],
        ["verify", "--head", (project.path / "heads").read_text().split()[0]],
        ["verify", "@latest", "--head=@events.jsonl"],
    )
    assert whole.out == (project.path / "heads").read_text()
    assert json_.json["heads"] == whole.out.split()
    assert run.out.split() == whole.out.split()[:1]
    assert (compared.code, compared.json["ok"], compared.json["compared_heads"]) == (0, True, 1)
    assert "1 kept head holds" in word.out
    assert "1 kept head holds" in events.out
    (project.path / "document").write_text(json_.out)
    assert project.run("verify", "--head", "@document").code == 0


def test_a_run_that_was_cut_off_with_care_is_found(project: Project) -> None:
    """L7: a cut tail with all tables set back verifies, and not beside its head."""
    with closing(sqlite3.connect(project.path / ".sagactl" / "log.db")) as log:
        for table in ("leases", "records", "outbox", "cursors", "runs"):
            log.execute(f"DELETE FROM {table}")
        log.execute("DELETE FROM definitions")
        log.commit()
    assert project.run("verify").code == 0
    found = project.run("verify", "--head", "@heads", "-o", "json")
    assert found.code == 1
    assert "gone" in found.json["findings"][0]["problem"]
    shown = project.run("verify", "--head", "@events.jsonl")
    assert shown.code == 1
    assert "the run is gone: taken out, or the log was set back" in shown.out


def test_events_of_two_logs_are_told_apart(project: Project) -> None:
    """L7: a file that two logs write to: what is of the other one is said to be that, and not to be damage."""
    other = ("--log", str(project.path / "other.db"))
    assert project.run(*other, *RUN).code == 0
    both = project.run("verify", "--head", "@events.jsonl")
    assert both.code == 1
    assert "don't fit together" in both.out
    assert "1 of 2 heads are those of another log (store " in " ".join(both.out.split())
    assert "gone" not in both.out
    for log in ((), other):
        store = project.run(*log, "verify", "--head", "-o", "json").json["store"]
        lines = (project.path / "events.jsonl").read_text().splitlines(keepends=True)
        (project.path / "ours").write_text("".join(line for line in lines if store in line))
        assert project.run(*log, "verify", "--head", "@ours", "-q").code == 0
    bare = project.run(*other, "log", "@latest", "-o", "jsonl").out
    (project.path / "bare").write_text(bare)
    found = project.run("verify", "--head", "@bare", "-o", "json")
    assert "or it is one of another log" in found.json["findings"][0]["problem"]


def test_a_head_of_a_damaged_log_is_not_given(project: Project) -> None:
    """L7: a head would vouch for what is wrong, so there is none; the error is exit 1."""
    with closing(sqlite3.connect(project.path / ".sagactl" / "log.db")) as log:
        log.execute("UPDATE records SET at_ms = at_ms + 1 WHERE seq = 3")
        log.commit()
    found = project.run("verify", "--head")
    assert (found.code, found.out) == (1, "")
    assert "no head of it is given" in found.err


def test_signed_heads(project: Project) -> None:
    """N8: with a key heads are signed; unsigned ones are findings, and the key is printed nowhere."""
    (project.path / "sagactl.toml").write_text('[verify]\nkey = {env = "HEAD_KEY"}\n')
    extra = {"HEAD_KEY": KEY}
    signed = project.run("verify", "--head", extra=extra)
    assert len(signed.out.split()[0].split(":")) == 6
    (project.path / "signed").write_text(signed.out)
    good = project.run("verify", "--head", "@signed", extra=extra)
    unsigned = project.run("verify", "--head", "@heads", extra=extra)
    forged = project.run("verify", "--head", "@signed", extra={"HEAD_KEY": "another one of them"})
    assert (good.code, unsigned.code, forged.code) == (0, 1, 1)
    assert "has no signature" in unsigned.out
    assert "another signature" in forged.out
    missing = project.run("verify", "--head")
    assert missing.code == 3
    assert "HEAD_KEY" in missing.err
    assert all(KEY not in each.out + each.err for each in (signed, good, unsigned, forged, missing))


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ('key = "plain"', "one of the keys env, file, keyring"),
        ("", "key is missing"),
        ('kee = {env = "X"}', "unknown setting kee"),
        ('key = {env = "SHORT"}', "16 or more"),
    ],
)
def test_a_key_that_can_not_be_used_is_an_error(project: Project, settings: str, said: str) -> None:
    """Settings: a wrong key is exit 3 and says what is wrong; without `--head` nobody asks for it."""
    (project.path / "sagactl.toml").write_text(f"[verify]\n{settings}\n")
    found = project.run("verify", "--head", extra={"SHORT": "too short"})
    assert found.code == 3
    assert said in found.err
    assert project.run("verify").code == 0


@pytest.mark.parametrize(
    ("value", "code"), [("@nosuch", 4), ("@.", 2), ("@events.toml", 3), ("sagactl-head-1:x", 3), ("@-", 3)]
)
def test_what_holds_no_head_is_an_error(project: Project, value: str, code: int) -> None:
    """UX 9: a missing file is 4, a folder 2, anything that isn't heads 3."""
    (project.path / "events.toml").write_text("x = 1\n")
    assert project.run("verify", "--head", value).code == code
