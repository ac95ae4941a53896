"""Two processes that want the same run at once."""

from __future__ import annotations

import json
import signal
import time
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from sagactl.core.records import Verb
from sagactl.log.open import open_log
from sagactl.requests import make_request
from tests.cli.project import WAIT_SECONDS, Project

SLOW = ("run", "onboarding", "-q", "-i", "email=ada@example.com", "-i", "amount:=1", "-i", "card=slow")


GATE = '''"""A tool that waits until the test lets it pass."""

import time

from sagactl import CallContext, tool


@tool("gate.enter", compensation="gate.leave", compensation_with={})
def enter(context: CallContext) -> None:
    """Wait before the gate."""
    (context.project / "waiting").touch()
    while not (context.project / "open").exists():
        time.sleep(0.02)


@tool("gate.leave", null_safe=True)
def leave() -> None:
    """Do nothing."""
'''
HELD = """saga: held
steps:
  - {id: lead, tool: crm.create_lead, with: {email: ada@example.com}}
  - {id: gate, tool: gate.enter}
"""


def _make_held(tmp_path: Path) -> Project:
    project = Project.make(tmp_path)
    (project.path / "plugins" / "gate.py").write_text(GATE)
    (project.path / "sagas" / "held.yaml").write_text(HELD)
    return project


def _wait_for(condition: Callable[[], object]) -> None:
    until = time.monotonic() + WAIT_SECONDS
    while not condition():
        assert time.monotonic() < until
        time.sleep(0.05)


def _records(project: Project, run_id: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in project.run("log", run_id, "-o", "jsonl").out.splitlines()]


def test_of_two_that_resume_one_drives_and_the_other_exits_5(tmp_path: Path) -> None:
    """E15, C2: one process gets the lease; the other is refused at once and told who holds the run."""
    project = _make_held(tmp_path)
    killed = project.run("run", "held", "-q", extra={"SAGACTL_SANDBOX_KILL": "crm.create_lead:before_effect:1"})
    assert killed.code == -9
    run_id = project.latest()["id"]
    pair = [project.start("resume", run_id, "-q", "-o", "json") for _ in range(2)]
    _wait_for(lambda: any(process.poll() is not None for process in pair))
    (project.path / "open").touch()
    answers = [process.communicate(timeout=WAIT_SECONDS) for process in pair]
    codes = [process.returncode for process in pair]
    assert sorted(codes) == [0, 5]
    out, err = answers[codes.index(5)]
    assert json.loads(out)["error"]["code"] == "busy"
    assert f"process {pair[codes.index(0)].pid}" in err
    records = _records(project, run_id)
    attempts = [(r["step"], r["direction"], r["attempt"]) for r in records if r["type"] == "intent"]
    assert len(attempts) == len(set(attempts))
    assert [entry["effect"] for entry in project.ledger()] == ["lead created"]


def test_a_second_run_with_the_same_key_while_the_first_goes_on_calls_nothing(tmp_path: Path) -> None:
    """E8, C4: one key, one run, also while two processes ask for it at the same time."""
    project = Project.make(tmp_path)
    pair = [project.start(*SLOW, "-o", "json") for _ in range(2)]
    answers = [process.communicate(timeout=WAIT_SECONDS) for process in pair]
    assert [process.returncode for process in pair] == [0, 0], [err for _, err in answers]
    runs = [json.loads(out)["run"]["id"] for out, _ in answers]
    assert runs[0] == runs[1]
    charges = [entry for entry in project.ledger() if entry["effect"] == "charged"]
    assert len(charges) == 1


def test_a_cancel_from_a_second_terminal_turns_the_run_around(tmp_path: Path) -> None:
    """E22: the driver answers a request that another process wrote down, and both say what became of it."""
    project = _make_held(tmp_path)
    running = project.start("run", "held", "-q")
    _wait_for((project.path / "waiting").exists)
    run_id = project.latest()["id"]
    cancelling = project.start("cancel", run_id, "--reason", "customer withdrew")
    _wait_for(lambda: any(record["type"] == "operator" for record in _records(project, run_id)))
    (project.path / "open").touch()
    running.communicate(timeout=WAIT_SECONDS)
    cancelling.communicate(timeout=WAIT_SECONDS)
    assert (cancelling.returncode, running.returncode) == (0, 10)
    run = project.latest()
    assert (run["status"], run["cause"]) == ("rolled_back", "cancelled")
    assert [entry["effect"] for entry in project.ledger()][-1] == "lead archived"


@pytest.mark.parametrize(
    ("verb", "pivot", "code", "hinted"), [("pause", "", 0, "unpause"), ("cancel", ", pivot: true", 12, "watch")]
)
def test_what_is_hinted_of_a_run_that_another_process_drives_can_be_typed(
    verb: str, pivot: str, code: int, hinted: str, tmp_path: Path
) -> None:
    """E22: after a pause or a cancel that waits for the pivot no `resume` is proposed: it would be refused as busy."""
    project = _make_held(tmp_path)
    saga = project.path / "sagas" / "held.yaml"
    saga.write_text(HELD.replace("gate.enter", f"gate.enter{pivot}"))
    running = project.start("run", "held", "-q")
    _wait_for((project.path / "waiting").exists)
    run_id = project.latest()["id"]
    asked = project.run(verb, run_id)
    assert (asked.code, f"hint: sagactl {hinted} {run_id[:6]}" in asked.out) == (code, True), asked
    assert "sagactl resume" not in asked.out
    (project.path / "open").touch()
    assert project.run(hinted, run_id, "-q").code == 0
    running.communicate(timeout=WAIT_SECONDS)
    assert project.latest()["status"] == "succeeded"


def test_who_asks_a_driver_that_dies_before_it_answers_answers_itself(tmp_path: Path) -> None:
    """E22: a request outlives the driver that it was made to, and nobody is told that a dead process drives the run."""
    project = _make_held(tmp_path)
    running = project.start("run", "held", "-q")
    _wait_for((project.path / "waiting").exists)
    run_id = project.latest()["id"]
    running.send_signal(signal.SIGSTOP)
    asking = project.start("cancel", run_id, "--reason", "customer withdrew")
    assert asking.stderr is not None
    assert "it is asked" in asking.stderr.readline()
    running.kill()
    running.communicate(timeout=WAIT_SECONDS)
    (project.path / "open").touch()
    asking.communicate(timeout=WAIT_SECONDS)
    assert (asking.returncode, project.latest()["status"]) == (0, "rolled_back")


def test_a_resume_never_answers_what_was_asked_of_a_run_that_has_ended(tmp_path: Path) -> None:
    """E22: a rollback that nobody answered in time isn't carried out days later by a resume."""
    project = Project.make(tmp_path)
    assert project.run(*SLOW, "-q").code == 0
    run_id = project.latest()["id"]
    with closing(open_log(project.path / ".sagactl" / "log.db")) as log:
        log.ask(run_id, make_request(Verb.ROLLBACK, reason="too late"))
    before = project.ledger()
    assert project.run("resume", run_id, "-q").code == 0
    assert (project.latest()["status"], project.ledger()) == ("succeeded", before)
