"""Secrets that a tool needs itself: no saga names them, and a run without one waits (E19)."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.cli.project import Project

VALUE = "told to no saga 141421356"

PLUGIN = '''
"""Needs keys that no saga gives it."""
from sagactl import CallContext, Done, NotDone, Rejected, tool


@tool("bank.look", read_only=True)
def look():
    """Find out."""
    return NotDone()


@tool("bank.pay", compensation="bank.take_back", compensation_with={}, secrets=("BANK_KEY",))
def pay(context: CallContext) -> dict[str, str]:
    """Pay."""
    print("with", context.secrets["BANK_KEY"], context)
    return {"said": f"Bearer {context.secrets['BANK_KEY']}"}


@tool("bank.take_back", null_safe=True, secrets=("BACK_KEY",))
def take_back(context: CallContext) -> str:
    """Take it back."""
    return context.secrets["BACK_KEY"]


@tool("bank.fail")
def fail() -> None:
    """Fail."""
    raise Rejected("no")
'''

SAGA = """
saga: pay
defaults: {start_to_close_timeout: 30s}
steps:
  - {id: look, tool: bank.look, read_only: true}
  - {id: pay, tool: bank.pay}
  - {id: fail, tool: bank.fail, compensate: {none: "nothing"}}
"""


@pytest.fixture
def project(tmp_path: Path) -> Project:
    """A project whose tools need keys."""
    for name, text in (("plugins/bank.py", PLUGIN), ("sagas/pay.yaml", SAGA)):
        path = tmp_path / name
        path.parent.mkdir(exist_ok=True)
        path.write_text(text.replace("return NotDone()", "return 'seen'"))
    return Project(tmp_path)


def test_a_run_waits_for_the_secret_of_a_tool_forward_and_back(project: Project) -> None:
    """E19: before the first intent that needs it, and again for the undo's own; no value stands anywhere."""
    waiting = project.run("run", "pay", "-o", "json")
    run = waiting.json["run"]
    assert (waiting.code, run["waiting_for"]["what"]) == (12, "missing_secret")
    assert "SAGACTL_SECRET_BANK_KEY is not set" in waiting.out
    assert [step["status"] for step in run["steps"]] == ["succeeded", "pending", "pending"]
    keys = {"SAGACTL_SECRET_BANK_KEY": VALUE}
    back = project.run("resume", run["id"], "-o", "json", extra=keys)
    assert (back.code, back.json["run"]["waiting_for"]["what"]) == (12, "missing_secret")
    assert "SAGACTL_SECRET_BACK_KEY is not set" in back.out
    keys["SAGACTL_SECRET_BACK_KEY"] = VALUE[::-1]
    dry = project.run("resume", run["id"], "--dry-run")
    assert "BACK_KEY" in dry.out
    done = project.run("resume", run["id"], extra=keys)
    printed = project.run("show", run["id"], "--printed", extra=keys)
    assert (done.code, "with *** CallContext(" in printed.out) == (10, True)
    said = "".join((waiting.out, waiting.err, back.out, back.err, done.out, done.err, printed.out, dry.out))
    kept = [path.read_bytes() for path in (project.path / ".sagactl").rglob("*") if path.is_file()]
    for value in keys.values():
        assert value not in said
        assert not [data for data in kept if value.encode() in data]


def test_what_looks_says_which_secrets_of_tools_are_missing(project: Project) -> None:
    """E19: `validate`, `plan`, `run` and `doctor` before anything is called; `tools` what a tool needs."""
    for command in ("validate", "plan", "run"):
        result = project.run(command, "pay")
        assert "warning: the secret BANK_KEY can't be had here, so a call that needs it would wait" in result.err
    extra = {"SAGACTL_SECRET_BANK_KEY": VALUE, "SAGACTL_SECRET_BACK_KEY": VALUE}
    assert "warning" not in project.run("validate", "pay", extra=extra).err
    assert "2 secrets can't be had here: BACK_KEY: the variable SAGACTL_SECRET_BACK_KEY is not set" in " ".join(
        project.run("doctor").out.split()
    )
    assert "secrets    BANK_KEY" in project.run("tools", "bank.pay").out
    assert project.run("tools", "bank.pay", "-o", "json").json["tool"]["secrets"] == ["BANK_KEY"]
