"""`--dry-run` of rollback and resume, and the question before a success is undone, as a user meets them."""

from __future__ import annotations

import os
import pty
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.cli.project import WAIT_SECONDS, Project

RUN = ("run", "diamond", "-q", "-i", "email=ada@example.com")
NO_PIVOT = """\
saga: plain
defaults: {start_to_close_timeout: 30s}
steps:
  - {id: lead, tool: crm.create_lead, with: {email: ada@example.com}}
  - {id: note, tool: mail.send, with: {to: ada@example.com, template: hello}, compensate: {none: "the mail stays sent"}}
  - id: servers
    foreach: [web, db]
    tool: cloud.provision_vm
    with: {name: "${{ item }}"}
"""


HANGS = """\
saga: hangs
defaults: {start_to_close_timeout: 10m}
steps:
  - {id: lead, tool: crm.create_lead, with: {email: ada@example.com}}
  - id: deposit
    tool: billing.charge
    with: {lead_id: "${{ steps.lead.output.lead_id }}", amount: 1, card: hang}
"""


@pytest.fixture
def project(tmp_path: Path) -> Project:
    """Make a project with a saga that has no pivot."""
    made = Project.make(tmp_path)
    (tmp_path / "sagas" / "plain.yaml").write_text(NO_PIVOT)
    return made


def _content(project: Project) -> dict[str, bytes]:
    return {
        str(path.relative_to(project.path)): path.read_bytes()
        for path in project.path.rglob("*")
        if path.is_file() and path.suffix not in {".db-wal", ".db-shm"}
    }


def test_a_dry_run_changes_nothing_and_shows_what_then_happens(project: Project) -> None:
    """E7, E11: the calls that are shown are those that the rollback then makes, with those very arguments."""
    assert project.run("run", "plain", "-q").code == 0
    run_id = project.latest()["id"]
    before, ledger = _content(project), project.ledger()
    shown = project.run("rollback", "@latest", "--dry-run", "-o", "json").json["dry_run"]
    assert project.run("rollback", run_id, "--dry-run").code == 0
    assert _content(project) == before
    assert project.ledger() == ledger
    done = project.run("rollback", run_id, "--yes", "-q", "-o", "json").json["run"]
    records = project.run("log", "-o", "json").json["items"]
    made = [each for each in records if each["type"] == "intent" and each["direction"] == "compensation"]
    assert [(each["step"], each["item"], each["body"]["tool"], each["body"]["arguments"]) for each in made] == [
        (each["step"], each["item"], each["tool"], each["arguments"]) for each in shown["calls"]
    ]
    assert done["status"] == shown["ends"]
    assert done["not_undone"] == shown["not_undone"]


def test_what_would_be_refused_is_refused(project: Project) -> None:
    """E22: a dry run of what the run's state doesn't allow ends with 6 and the words of the real one."""
    assert project.run(*RUN).code == 0
    run_id = project.latest()["id"]
    records = len(project.run("log", "-o", "json").json["items"])
    foreseen = project.run("rollback", run_id, "--dry-run", "-o", "json")
    assert len(project.run("log", "-o", "json").json["items"]) == records
    real = project.run("rollback", run_id, "--yes", "-o", "json")
    assert (foreseen.code, real.code) == (6, 6)
    assert foreseen.json["error"]["message"] == real.json["error"]["message"]
    past = project.run("rollback", run_id, "--dry-run", "--past-pivot")
    assert (past.code, "contract: it has no compensation" in past.out) == (0, True)


def test_a_resume_is_foreseen(project: Project) -> None:
    """E17: what a resume would call next, for a run that waits, and that a stuck one calls nothing."""
    assert project.run(*RUN, "-i", "card=flaky", "--no-wait").code == 12
    waiting = project.run("resume", "@latest", "--dry-run", "-o", "json").json["dry_run"]
    assert waiting["command"] == "resume"
    assert [each["step"] for each in waiting["calls"]] in ([], ["deposit"])
    assert project.run("resume", "--all", "--dry-run").code == 2
    limbo = ("run", "onboarding", "-q", "-i", "email=bob@example.com", "-i", "amount:=1", "-i", "card=limbo")
    assert project.run(*limbo).code == 11
    stuck = project.run("resume", "@latest", "--dry-run")
    assert "a resume makes no call" in stuck.out
    assert "sagactl dlq list" in stuck.out


def test_a_run_that_is_driven_is_foreseen_as_such(project: Project) -> None:
    """E10, E15: its call under way is imagined to succeed and then undone; a resume would be refused, exit 5."""
    (project.path / "sagas" / "hangs.yaml").write_text(HANGS)
    process = project.start("run", "hangs", "-q")
    try:
        deadline = time.monotonic() + WAIT_SECONDS
        while time.monotonic() < deadline:
            items = project.run("log", "-o", "json").json.get("items", [])
            if [each["step"] for each in items if each["type"] == "intent"] == ["lead", "deposit"]:
                break
        shown = project.run("rollback", "@latest", "--dry-run", "-o", "json").json["dry_run"]
        assert [(each["step"], each["only_if_it_took_effect"]) for each in shown["calls"]] == [
            ("deposit", True),
            ("lead", False),
        ]
        busy = project.run("resume", "@latest", "--dry-run")
        real = project.run("resume", project.latest()["id"])
        assert (busy.code, busy.err) == (real.code, real.err)
        assert busy.code == 5
    finally:
        process.kill()
        process.communicate()
    shown = project.run("rollback", "@latest", "--dry-run", "-o", "json").json["dry_run"]
    assert [each["kind"] for each in shown["calls"]] == ["probe", "call", "call"]


def _ask(project: Project, run_id: str, answer: str) -> tuple[int, str]:
    """Type *answer* at a terminal and return the exit code and what stood on it."""
    ours, theirs = pty.openpty()
    with subprocess.Popen(
        [sys.executable, "-m", "sagactl", "rollback", run_id, "--color", "never"],
        cwd=project.path,
        env=project.environment(),
        stdin=theirs,
        stderr=theirs,
        stdout=subprocess.PIPE,
    ) as process:
        os.close(theirs)
        os.write(ours, answer.encode())
        shown = b""
        try:
            while part := os.read(ours, 4096):
                shown += part
        except OSError:
            pass  # the terminal is closed when the command has ended
        process.communicate(timeout=WAIT_SECONDS)
    os.close(ours)
    return process.returncode, shown.decode().replace("\r\n", "\n")


def test_the_question_shows_each_call(project: Project) -> None:
    """Before a success is undone, each call is shown and No is the default; the answer is kept to."""
    assert project.run("run", "plain", "-q").code == 0
    run_id = project.latest()["id"]
    code, shown = _ask(project, run_id, "\n")
    assert code == 2
    for words in ("cloud.deallocate_vm  vm_id=vm_", "crm.archive_lead", "note: the mail stays sent", "[y/N]"):
        assert words in shown
    assert project.latest()["status"] == "succeeded"
    assert _ask(project, run_id, "y\n")[0] == 0
    assert project.latest()["status"] == "rolled_back"


def test_nobody_can_be_asked_without_a_terminal(project: Project) -> None:
    """Exit 2, and the hint is the command that does it."""
    assert project.run("run", "plain", "-q").code == 0
    run_id = project.latest()["id"]
    refused = project.run("rollback", run_id)
    assert refused.code == 2
    assert f"hint: sagactl rollback {run_id} --yes" in refused.err
    assert "--dry-run" in refused.err
