"""Who is blamed: the step that is to be mended, in the same words each time, and no step for what is none's doing."""

from __future__ import annotations

import shlex
from pathlib import Path

import pytest

from tests.chaos.project import BEFORE_PIVOT, make_project, run_chaos, write_settings
from tests.cli.project import Project

ODD = '''
import time
from sagactl import CallContext, CannotTell, tool

from ._shop import answer, put, shelf, take


@tool("strange.put", compensation="strange.take", chaos_safe=True)
def put_one(context: CallContext) -> dict[str, str]:
    """Put a thing there once for a key."""
    return answer(put(context, context.idempotency_key))


@tool("strange.take", null_safe=True, chaos_safe=True)
def take_one(context: CallContext) -> dict[str, int]:
    """Take it away, and leave a line about it."""
    with (context.project / "credits").open("a") as file:
        file.write("credit\\n")
    return {"taken": take(context)}


@tool("raw.put", compensation="raw.take", chaos_safe=True)
def put_raw(context: CallContext) -> dict[str, str]:
    """Put a thing there once for a key."""
    return answer(put(context, context.idempotency_key))


@tool("raw.take", null_safe=True, chaos_safe=True)
def take_raw(context: CallContext) -> dict[str, str]:
    """Take it away, if it is there."""
    (shelf(context) / context.forward_key.replace("/", "-")).unlink()
    return {}


@tool("unsure.put", compensation="strange.take", probe="unsure.find", chaos_safe=True)
def put_unsurely(context: CallContext) -> dict[str, str]:
    """Put a thing there once for a key."""
    return answer(put(context, context.idempotency_key))


@tool("unsure.find", read_only=True, chaos_safe=True)
def find_nothing(context: CallContext) -> CannotTell:
    """Never know."""
    return CannotTell("no idea")


@tool("clock.tell", read_only=True, chaos_safe=True)
def tell_time() -> dict[str, int]:
    """Say what time it is."""
    return {"now": time.monotonic_ns()}
'''
TWO = """
saga: planted
steps:
  - {id: first, tool: good.put}
  - {id: wrong, tool: strange.put}
  - {id: contract, tool: good.sign, pivot: true}
"""
LYING = TWO.replace("strange.put", "claimed.put")


def _make(folder: Path, saga: str, settings: str = "") -> Project:
    project = make_project(folder, saga, settings)
    (folder / "plugins" / "odd.py").write_text(ODD)
    return project


@pytest.mark.parametrize(
    ("saga", "experiment"),
    [
        (TWO, "undo-of-first/unavailable-always"),  # `first` is stuck, and what stays is the other's
        (LYING, "first/killed-after-outcome"),  # the next intent is written with that outcome, and its probe lies
    ],
)
def test_a_step_is_not_blamed_for_what_another_has_done(saga: str, experiment: str, tmp_path: Path) -> None:
    """What several steps add to is laid to the one that is wrong without the fault, or that lied in it."""
    project = _make(tmp_path, saga)
    result = run_chaos(project, "--experiment", experiment, "-o", "json")
    assert result.json["findings"], result.err
    assert {each["step"] for each in result.json["findings"]} == {"wrong"}, result.json["findings"]


def test_what_is_found_without_a_fault_is_shown_again_alone(tmp_path: Path) -> None:
    """The `again` of such a finding makes the runs without a fault, and no experiment beside them."""
    project = _make(tmp_path, TWO)
    first = run_chaos(project, "--only", "wrong", "--limit", "1", "-o", "json")
    (finding,) = first.json["findings"]
    assert finding["experiments"][0] == "reference/is-undone"
    again = project.run(*shlex.split(finding["again"])[1:], "-q", "-o", "json")
    assert [each["code"] for each in again.json["findings"]] == [finding["code"]] == ["left-behind"]
    assert again.json["experiments"]["made"] == 2


def test_a_tools_message_is_the_same_each_time(tmp_path: Path) -> None:
    """Neither the folder of the experiment nor the run's id is in it, so two reports can be compared."""
    project = _make(tmp_path, BEFORE_PIVOT.format(tool="raw.put", more=""))
    chosen = ("--experiment", "wrong/killed-after-intent/rollback")
    first, second = (run_chaos(project, *chosen, "-o", "json").out for _ in range(2))
    assert "'shop/RUN-wrong-action'" in first
    assert first == second


def test_a_check_that_differs_by_itself_is_refused(tmp_path: Path) -> None:
    """What changes while nothing happens would be laid to every step: it is said once, of the check."""
    project = _make(tmp_path, TWO)
    write_settings(tmp_path, 'check = "clock.tell"')
    result = run_chaos(project, "--only", "wrong", "-o", "json")
    assert (result.code, result.json["error"]["code"]) == (6, "no-experiment")
    assert "differ, and nothing happened between them: clock.tell" in result.json["error"]["message"]


def test_a_probe_that_cannot_tell_is_not_called_missing(tmp_path: Path) -> None:
    """asks-a-person: why and what to change hold where there is a probe as well as where there is none."""
    project = _make(tmp_path, BEFORE_PIVOT.format(tool="unsure.put", more=""))
    chosen = ("--experiment", "wrong/reply-lost", "-o", "json")
    found = {each["code"]: each for each in run_chaos(project, *chosen).json["findings"]}
    assert found["asks-a-person"]["why"].startswith("nothing can find out: no probe can tell")


def test_step_and_experiment_exclude_each_other(tmp_path: Path) -> None:
    """An option that would be without effect is refused."""
    project = _make(tmp_path, TWO)
    result = run_chaos(project, "--only", "first", "--experiment", "wrong/rejected")
    assert result.code == 2
    assert "leave one of them out" in result.err


def test_a_run_that_fails_by_itself_names_its_step(tmp_path: Path) -> None:
    """Without a reference: which call it was, also where it never returned."""
    saga = TWO.replace("strange.put", "stalling.put")
    project = _make(tmp_path, saga)
    (tmp_path / "plugins" / "stalling.py").write_text(
        "import time\nfrom sagactl import tool\n"
        '@tool("stalling.put", chaos_safe=True, compensation="strange.take")\n'
        "def put() -> dict[str, str]:\n    time.sleep(600)\n    return {}\n"
    )
    result = run_chaos(project, "--timeout", "10", "-o", "json")
    assert (result.code, result.json["error"]["code"]) == (6, "no-reference")
    assert result.json["error"]["message"].endswith("doesn't succeed: wrong: timeout")


def test_the_step_that_failed_is_named_and_no_undo(tmp_path: Path) -> None:
    """Without a reference: a rollback calls others after the step that failed, and succeeds."""
    project = _make(tmp_path, TWO.replace("strange.put", "refusing.put"))
    (tmp_path / "plugins" / "refusing.py").write_text(
        "from sagactl import Rejected, tool\n"
        '@tool("refusing.put", chaos_safe=True, compensation="strange.take")\n'
        'def put() -> dict[str, str]:\n    raise Rejected("never", code="no")\n'
    )
    result = run_chaos(project, "-o", "json")
    assert (result.code, result.json["error"]["code"]) == (6, "no-reference")
    assert result.json["error"]["message"].endswith("doesn't succeed: wrong: no: never")


def test_a_runner_of_ci_is_told_at_the_line_of_the_step(tmp_path: Path) -> None:
    """GitHub Actions: what is unsafe is an error, a note a warning, at the saga's line; not where CI is off."""
    project = _make(tmp_path, TWO)
    runner = {"GITHUB_ACTIONS": "true", "GITHUB_WORKSPACE": str(tmp_path)}
    arguments = ("chaos", "planted", "-q", "--experiment", "reference/is-undone")
    told = project.run(*arguments, extra=runner)
    assert told.code == 1
    (line,) = [each for each in told.err.splitlines() if each.startswith("::")]
    assert line.startswith("::error file=sagas/planted.yaml,line=5,")
    assert "left-behind" in line
    assert "--experiment reference/is-undone" in line
    assert "::" not in project.run(*arguments, extra={**runner, "SAGACTL_CI": "off"}).err
