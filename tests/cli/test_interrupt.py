"""Signals to a process that drives a run (E17)."""

from __future__ import annotations

import signal
import subprocess
import time
from pathlib import Path

import pytest

from tests.cli.project import WAIT_SECONDS, Project, interrupt_twice

RUN = ("run", "onboarding", "-i", "email=ada@example.com", "-i", "amount:=1")


def _wait_for(project: Project, process: subprocess.Popen[str], tool: str) -> None:
    """Wait until *tool* has been called."""
    while not any(line["tool"] == tool for line in project.witness()):
        assert process.poll() is None, process.communicate()
        time.sleep(0.01)


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_the_first_signal_lets_the_call_settle_and_the_run_is_resumable(
    project: Project, number: signal.Signals, code: int
) -> None:
    """E17: the running call's outcome is recorded, nothing new starts, and what is printed says how to go on."""
    process = project.start(*RUN, "-i", "card=slow")
    _wait_for(project, process, "billing.charge")
    process.send_signal(number)
    out, err = process.communicate(timeout=WAIT_SECONDS)
    assert process.returncode == code
    assert "stopping: 1 call in flight (deposit up to " in err
    assert "press Ctrl-C again to leave now; its outcome will then be in doubt" in err
    run_id = project.latest()["id"]
    assert f"hint: sagactl resume {run_id[:6]}" in out
    assert f"hint: sagactl rollback {run_id[:6]}" in out
    assert "in doubt" not in out or "nothing in doubt" in out
    assert {line["tool"] for line in project.witness()} == {"crm.create_lead", "billing.charge"}
    assert project.run("resume", run_id, "-q").code == 0
    assert sum(entry["effect"] == "charged" for entry in project.ledger()) == 1


def test_the_second_signal_leaves_at_once_and_the_call_is_in_doubt(project: Project) -> None:
    """E17: twice, half a second apart, ends the process; the run's probe finds out what had happened."""
    process = project.start(*RUN, "-i", "card=hang")
    _wait_for(project, process, "billing.charge")
    err = interrupt_twice(process)
    assert process.returncode == 130
    run_id = project.latest()["id"]
    assert f"hint: sagactl resume {run_id}\nhint: sagactl rollback {run_id}" in err
    assert project.run("rollback", run_id, "-q", "--reason", "test").code == 0
    assert [entry["effect"] for entry in project.ledger()] == ["lead created", "lead archived"]


def test_two_signals_at_once_are_one(project: Project) -> None:
    """Terminals send a signal twice: within half a second that is the first one only."""
    for number in range(5):  # a busy machine may take half a second between the two, which are two then
        process = project.start(
            "run", "onboarding", "-i", f"email=a{number}@b.cc", "-i", "amount:=1", "-i", "card=slow"
        )
        _wait_for(project, process, "billing.charge")
        process.send_signal(signal.SIGINT)
        time.sleep(0.05)
        process.send_signal(signal.SIGINT)
        _, err = process.communicate(timeout=WAIT_SECONDS)
        assert process.returncode == 130
        if "left at once" not in err:
            break
        project.run("sandbox", "reset")
        (project.path / "witness.jsonl").unlink()
    assert "left at once" not in err
    assert sum(entry["effect"] == "charged" for entry in project.ledger()) == 1


def test_an_interrupt_while_waiting_for_a_retry_leaves_at_once(project: Project) -> None:
    """E17, scenario B85: in back-off nothing is under way, so the process ends at once and the lease is free."""
    process = project.start("run", "onboarding", "-i", "email=offline@example.com", "-i", "amount:=1")
    _wait_for(project, process, "mail.send")
    time.sleep(0.3)
    process.send_signal(signal.SIGINT)
    began = time.monotonic()
    process.communicate(timeout=WAIT_SECONDS)
    assert process.returncode == 130
    assert time.monotonic() - began < 30


@pytest.fixture
def project(tmp_path: Path) -> Project:
    """Return a project with the shipped plugins and sagas."""
    return Project.make(tmp_path)
