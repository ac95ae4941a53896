"""What a person sees and orders where a target may have forgotten the key of a call in doubt (E6, E7, E23)."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.cli.project import Project

PLUGIN = '''
"""A bank that keeps keys for a second."""
from sagactl import CallContext, tool


@tool("bank.charge", compensation="bank.refund", compensation_with={}, key_retention="1s")
def charge(context: CallContext) -> str:
    """Charge."""
    if context.attempt < 2:
        raise ConnectionError("lost")
    return "c1"


@tool("bank.refund", null_safe=True)
def refund() -> None:
    """Refund what is found by the forward key."""
    raise AssertionError("it would find nothing")
'''
SAGA = "saga: pay\ndefaults: {start_to_close_timeout: 1s}\nsteps:\n  - {id: pay, tool: bank.charge}\n"


@pytest.fixture
def run_id(project: Project) -> str:
    """Return a run whose charge is in doubt, under a key that may be forgotten."""
    assert project.run("run", "pay", "-q").code == 11
    return project.run("list", "--ids").out.strip()


@pytest.fixture
def project(tmp_path: Path) -> Project:
    """A project with that bank."""
    for name, text in (("plugins/bank.py", PLUGIN), ("sagas/pay.yaml", SAGA)):
        path = tmp_path / name
        path.parent.mkdir(exist_ok=True)
        path.write_text(text)
    return Project(tmp_path)


def test_another_try_under_an_old_key_is_offered_last_and_ordered_with_a_reason(project: Project, run_id: str) -> None:
    """E6, E23: what it may do is said before it is typed; refused (6) without a reason, in the same words."""
    shown = " ".join(project.run("dlq", "show", run_id).out.split())
    assert "keys are kept for 1s, so its key may be forgotten, and another try can be a second effect" in shown
    offered = shown.split(" decide: ")[1].split("sagactl dlq ")
    assert offered[-1].startswith(f'retry {run_id[:6]} pay --reason "..."')
    refused = project.run("dlq", "retry", run_id)
    assert refused.code == 6
    assert "bank.charge may have forgotten its key: another try can be a second effect" in refused.err
    assert project.run("dlq", "retry", run_id, "--reason", "the bank has nothing").code == 0


def test_a_rollback_asks_instead_of_looking_by_an_old_key(project: Project, run_id: str) -> None:
    """E7: the undo isn't called, as finding nothing would count as undone; a word settles it."""
    back = project.run("rollback", run_id, "--reason", "enough")
    assert back.code == 11
    assert "finding nothing would count as undone, so it is not called" in " ".join(back.out.split())
    assert project.run("dlq", "resolve", run_id, "--not-done", "--reason", "looked at the bank").code == 10


def test_validate_warns_of_attempts_that_outlast_the_keys(project: Project) -> None:
    """F5: at load, so that nobody learns it from a stuck run."""
    assert "warning[short-retention]: step pay: one call may take 1s" in project.run("validate").out
