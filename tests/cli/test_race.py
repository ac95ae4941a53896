"""Two processes that want the same run at once."""

from __future__ import annotations

import json
from pathlib import Path

from tests.cli.project import Project
from tests.cli.verdict import check_world

SLOW = ("run", "onboarding", "-q", "-i", "email=ada@example.com", "-i", "amount:=1", "-i", "card=slow")


def test_of_two_that_resume_one_drives_and_the_other_exits_5(tmp_path: Path) -> None:
    """E15, C2: one process gets the lease; the other is refused at once and told who holds the run."""
    project = Project.make(tmp_path)
    killed = project.run(*SLOW, extra={"SAGACTL_SANDBOX_KILL": "billing.charge:before_effect:1"})
    assert killed.code == -9
    run_id = project.latest()["id"]
    pair = [project.start("resume", run_id, "-q", "-o", "json") for _ in range(2)]
    answers = [process.communicate(timeout=60) for process in pair]
    codes = [process.returncode for process in pair]
    assert sorted(codes) == [0, 5]
    out, err = answers[codes.index(5)]
    assert json.loads(out)["error"]["code"] == "busy"
    assert f"process {pair[codes.index(0)].pid}" in err
    records = [json.loads(line) for line in project.run("log", run_id, "-o", "jsonl").out.splitlines()]
    attempts = [(r["step"], r["direction"], r["attempt"]) for r in records if r["type"] == "intent"]
    assert len(attempts) == len(set(attempts))
    assert check_world(project.latest(), project.ledger(), records) == []


def test_a_second_run_with_the_same_key_while_the_first_goes_on_calls_nothing(tmp_path: Path) -> None:
    """E8, C4: one key, one run, also while two processes ask for it at the same time."""
    project = Project.make(tmp_path)
    pair = [project.start(*SLOW, "-o", "json") for _ in range(2)]
    answers = [process.communicate(timeout=60) for process in pair]
    assert [process.returncode for process in pair] == [0, 0], [err for _, err in answers]
    runs = [json.loads(out)["run"]["id"] for out, _ in answers]
    assert runs[0] == runs[1]
    charges = [entry for entry in project.ledger() if entry["effect"] == "charged"]
    assert len(charges) == 1


def test_a_cancel_from_a_second_terminal_turns_the_run_around(tmp_path: Path) -> None:
    """E22: the driver answers a request that another process wrote down, and both say what became of it."""
    project = Project.make(tmp_path)
    running = project.start(*SLOW)
    while not any(line["tool"] == "billing.charge" for line in project.witness()):
        assert running.poll() is None
    run_id = project.run("list", "--ids").out.strip()
    cancelled = project.run("cancel", run_id, "--reason", "customer withdrew")
    running.communicate(timeout=60)
    assert (cancelled.code, running.returncode) == (0, 10)
    run = project.latest()
    assert (run["status"], run["cause"]) == ("rolled_back", "cancelled")
    assert [entry["effect"] for entry in project.ledger()][-1] == "lead archived"
