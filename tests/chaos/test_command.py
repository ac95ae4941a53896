"""`sagactl chaos` as it is typed: what it touches, what it refuses, and that what it says can be seen again."""

from __future__ import annotations

import hashlib
import json
import os
import shlex
import signal
import time
import xml.etree.ElementTree as ET
from pathlib import Path
from typing import Any

import pytest

from tests.chaos.project import BEFORE_PIVOT, codes_of, make_project, run_chaos, write_settings
from tests.cli.project import Project
from tests.proof import Prove

SHIPPED = {
    "onboarding": ("-i", "email=ada@example.com", "-i", "amount:=4900", "-i", 'servers:=["web"]'),
    "diamond": ("-i", "email=ada@example.com", "-i", 'servers:=["web", "db"]', "--limit", "40", "--seed", "1"),
}


def _digests(folder: Path) -> dict[str, str]:
    """Return every file below *folder* with what is in it."""
    files = sorted(each for each in folder.rglob("*") if each.is_file() and "__pycache__" not in each.parts)
    return {str(each.relative_to(folder)): hashlib.sha256(each.read_bytes()).hexdigest() for each in files}


@pytest.mark.parametrize("saga", SHIPPED)
def test_the_shipped_sagas_are_safe_to_crash_in(saga: str, tmp_path: Path, prove: Prove) -> None:
    """V0, S1 to S9: each fault of each experiment really came, and nothing is found on a well-made saga."""
    project = Project.make(tmp_path)
    result = project.run("chaos", saga, "-q", "--jobs", "2", "-o", "json", *SHIPPED[saga], timeout=300)
    document = result.json
    assert (result.code, document["findings"], document["safe"]) == (0, [], True)
    assert document["experiments"]["not_reached"] == []
    assert (document["experiments"]["left_out"] == 0) == (saga == "onboarding")
    assert {each["verdict"] for each in document["steps"]} == {"safe"}
    assert not (tmp_path / ".sagactl").exists()
    prove("experiments of chaos on shipped sagas", document["experiments"]["made"], goal=240)


def test_no_real_log_sandbox_or_file_is_touched(tmp_path: Path) -> None:
    """The promise of the page: a project keeps its log and its sandbox to the letter, and no folder is left behind."""
    (tmp_path / "project").mkdir()
    (tmp_path / "temporary").mkdir()
    project = Project.make(tmp_path / "project")
    project.environ |= {"SAGACTL_SANDBOX_KILL": "crm.archive_lead:before_effect"}
    assert project.run("run", "onboarding", "-q", *SHIPPED["onboarding"]).code == 0
    before = _digests(project.path)
    assert ".sagactl/sandbox.db" in before
    arguments = (*SHIPPED["onboarding"], "--only", "lead", "--limit", "12")
    result = project.run("chaos", "onboarding", "-q", *arguments, extra={"TMPDIR": str(tmp_path / "temporary")})
    assert result.code == 0, result.err
    assert _digests(project.path) == before
    assert list((tmp_path / "temporary").iterdir()) == []


def test_tools_that_nobody_called_safe_are_not_called(tmp_path: Path) -> None:
    """Exit 2 at once, naming the tools; `--allow-unsafe` and `safe_tools` let them be called, by name or pattern."""
    project = make_project(tmp_path, BEFORE_PIVOT.format(tool="shop.put", more=""))
    refused = run_chaos(project, "-o", "json")
    error = refused.json["error"]
    assert (refused.code, error["code"]) == (2, "unsafe-tools")
    assert "shop.put" in error["message"]
    assert "good.put" not in error["message"]
    assert not (tmp_path / "shop").exists()
    few = ("--only", "wrong", "--limit", "2")
    assert run_chaos(project, *few, "--allow-unsafe", "shop.*").code == 0
    write_settings(tmp_path, 'safe_tools = ["shop.put"]')
    assert run_chaos(project, *few).code == 0
    write_settings(tmp_path, 'safe = ["shop.put"]')
    assert run_chaos(project, *few).code == 3


REMOTE = '''
import json, os
from pathlib import Path
from sagactl import CallContext, tool

FILE = Path(os.environ["REMOTE"])

def _read():
    return json.loads(FILE.read_text()) if FILE.exists() else []

@tool("remote.put", compensation="remote.take", chaos_safe=True)
def put(context: CallContext) -> dict[str, str]:
    """Put a thing there, once for a key."""
    if context.idempotency_key not in [each["key"] for each in _read()]:
        FILE.write_text(json.dumps([*_read(), {"key": context.idempotency_key}]))
    return {}

@tool("remote.put_twice", compensation="remote.take", chaos_safe=True)
def put_twice(context: CallContext) -> dict[str, str]:
    """Put a thing there, whatever the key."""
    FILE.write_text(json.dumps([*_read(), {"key": context.idempotency_key}]))
    return {}

@tool("remote.take", null_safe=True, chaos_safe=True)
def take(context: CallContext) -> dict[str, str]:
    """Take it away."""
    FILE.write_text(json.dumps([each for each in _read() if each["key"] != context.forward_key]))
    return {}

@tool("remote.list", read_only=True, chaos_safe=True)
def list_things() -> dict[str, object]:
    """Show what there is."""
    return {"things": _read(), "total": len(_read())}
'''


FAULTS = ("reply-lost", "killed-after-effect", "killed-after-effect/rollback", "request-lost", "rejected")


@pytest.mark.parametrize(("tool", "expected"), [("remote.put", set()), ("remote.put_twice", {"double-effect"})])
def test_a_check_tool_shows_a_system_elsewhere(tool: str, expected: set[str], tmp_path: Path) -> None:
    """`[chaos] check`: what a tool shows before and after is judged; without it the effect is said to be unseen."""
    project = make_project(tmp_path, BEFORE_PIVOT.format(tool=tool, more=""))
    project.environ["REMOTE"] = str(tmp_path / "remote.json")
    (tmp_path / "plugins" / "remote.py").write_text(REMOTE)
    unseen = run_chaos(project, "--only", "wrong", "--limit", "1", "-o", "json")
    assert (unseen.code, codes_of(unseen.json)) == (0, {"effect-not-seen"})
    write_settings(tmp_path, 'check = "remote.list"')
    chosen = [word for fault in FAULTS for word in ("--experiment", f"wrong/{fault}")]
    result = run_chaos(project, *chosen, "-o", "json")
    assert codes_of(result.json) == expected
    assert result.json["checks"] == ["remote.list"]


def test_the_command_of_a_finding_shows_it_again(tmp_path: Path) -> None:
    """A failure prints one line that a person can type to see it again, and that experiment alone is made."""
    project = make_project(tmp_path, BEFORE_PIVOT.format(tool="double.put", more=""))
    first = run_chaos(project, "--only", "wrong", "--timeout", "40.5", "-o", "json")
    (finding,) = first.json["findings"]
    assert "--timeout 40.5 " in finding["again"]  # with another one it might not be found
    again = project.run(*shlex.split(finding["again"])[1:], "-q", "-o", "json")
    assert again.code == 1
    assert again.json["findings"][0]["code"] == finding["code"] == "double-effect"
    assert again.json["experiments"]["made"] == 3  # with the two that are always made
    text = project.run(*shlex.split(finding["again"])[1:], "-q").out
    assert finding["again"] in text
    assert "✗ 1 of 1 step isn't safe to crash in" in text


def test_experiments_are_the_same_each_time(tmp_path: Path) -> None:
    """Enumerated before any is made: the same names in the same order, and the same ones drawn by the same seed."""
    project = make_project(tmp_path, BEFORE_PIVOT.format(tool="good.put", more=""))
    first = run_chaos(project, "--list", "-o", "json").json["items"]
    names = [each["name"] for each in first]
    assert len(set(names)) == len(names) > 50
    drawn = [
        [
            each["name"]
            for each in run_chaos(project, "--list", "--limit", "9", "--seed", seed, "-o", "json").json["items"]
        ]
        for seed in ("1", "1", "2")
    ]
    assert drawn[0] == drawn[1] != drawn[2]
    assert drawn[0] == sorted(drawn[0], key=names.index) != names[:9]
    unknown = run_chaos(project, "--experiment", "wrong/no-such-thing", "-o", "json")
    assert (unknown.code, unknown.json["error"]["code"]) == (4, "no-such-experiment")


def test_pairs_crash_what_was_resumed_once_more(tmp_path: Path) -> None:
    """F2: a second crash in the recovery from the first one."""
    project = make_project(tmp_path, BEFORE_PIVOT.format(tool="good.put", more=""))
    result = run_chaos(project, "--pairs", "--only", "wrong", "--limit", "25", "--seed", "7", "-o", "json")
    assert (result.code, result.json["findings"]) == (0, [])
    assert result.json["experiments"]["left_out"] > 300
    pair = "wrong/killed-after-effect+undo-of-wrong/killed-after-effect"
    one = run_chaos(project, "--experiment", pair, "-o", "json")
    assert (one.code, one.json["experiments"]["not_reached"]) == (0, [])


def test_a_former_run_stands_in_for_the_tools(tmp_path: Path) -> None:
    """`--replay`: no tool is called, unmarked ones included, and it is the declarations that are judged."""
    project = make_project(tmp_path, BEFORE_PIVOT.format(tool="needy.put", more=""))
    assert project.run("run", "planted", "-q").code == 0
    before = _digests(tmp_path)
    result = run_chaos(project, "--replay", "@latest", "-o", "json")
    assert (result.code, codes_of(result.json)) == (1, {"undo-needs-output"})
    assert {each["step"] for each in result.json["findings"]} == {"wrong"}
    assert result.json["world"] == "recorded"
    assert _digests(tmp_path) == before
    both = run_chaos(project, "--replay", "@latest", "-i", "a=b")
    assert both.code == 2


def test_a_saga_that_fails_by_itself_is_no_subject(tmp_path: Path) -> None:
    """Without a run that succeeds there is nothing to compare with: refused, saying why."""
    project = Project.make(tmp_path)
    result = project.run("chaos", "onboarding", "-q", "-o", "json", *SHIPPED["onboarding"], "-i", "card=declined")
    error = result.json["error"]
    assert (result.code, error["code"]) == (6, "no-reference")
    assert "card_declined" in error["message"]


WAITING = """
saga: planted
run_timeout: 1h
input: {type: object, properties: {things: {type: array, default: [1, 2]}}}
steps:
  - {id: first, tool: good.put, approval: {by: [ana]}}
  - {id: rest, tool: time.sleep, with: {for: 30m}}
  - {id: skipped, when: false, tool: good.put}
  - {id: each, foreach: "${{ input.things }}", tool: good.put, retry: {initial_interval: 1m, max_interval: 1m}}
  - {id: job, tool: job.do, schedule_to_close_timeout: 1h}
"""
JOB = '''
from sagactl import CallContext, Pending, tool
from ._shop import put

@tool("job.do", chaos_safe=True, compensation="plain.take")
def do(context: CallContext) -> dict[str, str]:
    """Begin a job, and be done with it an hour later."""
    if context.token is None:
        return Pending(after=600, token="asked")
    put(context, context.idempotency_key)
    return {}
'''


def test_neither_waits_nor_people_hold_experiments_up(tmp_path: Path) -> None:
    """Delays are drawn as nothing, waits are skipped, whoever must agree agrees; what isn't run isn't tried."""
    project = make_project(tmp_path, WAITING)
    (tmp_path / "plugins" / "job.py").write_text(JOB)
    began = time.monotonic()
    result = run_chaos(project, "--limit", "25", "--seed", "5", "-o", "json")
    assert (result.code, result.json["findings"]) == (0, []), result.err
    assert time.monotonic() - began < 100
    verdicts = {each["id"]: each["verdict"] for each in result.json["steps"]}
    assert verdicts["skipped"] == "not_tried"
    assert verdicts["each"] == "safe"


def test_ctrl_c_ends_every_process_and_leaves_no_folder(tmp_path: Path) -> None:
    """The first Ctrl-C ends it with 130; nothing is left that would run on or fill the disk."""
    project = make_project(tmp_path, BEFORE_PIVOT.format(tool="hanging.put", more=""))
    temporary = tmp_path / "temporary"
    temporary.mkdir()
    running = project.start("chaos", "planted", "--timeout", "60", extra={"TMPDIR": str(temporary)})
    deadline = time.monotonic() + 120
    while not list(temporary.glob("*/5")) and time.monotonic() < deadline:
        time.sleep(0.05)
    running.send_signal(signal.SIGINT)
    assert running.wait(timeout=120) == 130
    assert list(temporary.iterdir()) == []
    for stream in (running.stdout, running.stderr):
        if stream is not None:
            stream.close()


def test_ci_is_told_of_each_step(tmp_path: Path) -> None:
    """`--junit` has a case for each step, with its time; `--strict` takes notes for failures."""
    project = make_project(tmp_path, BEFORE_PIVOT.format(tool="far.put", more=""))
    arguments = ("--only", "wrong", "--limit", "2", "--junit", "chaos.xml")
    loose = project.run("chaos", "planted", *arguments)
    assert loose.code == 0
    strict = project.run("chaos", "planted", *arguments, "--strict", "-o", "json")
    assert (strict.code, strict.json["safe"]) == (1, True)
    cases: dict[str, Any] = {each.get("name", ""): each for each in ET.parse(tmp_path / "chaos.xml").iter("testcase")}
    assert cases.keys() == {"first", "wrong", "contract"}
    failure = cases["wrong"].find("failure")
    assert failure is not None
    assert failure.get("type") == "effect-not-seen"
    assert cases["contract"].find("skipped") is not None
    took = {name: float(case.get("time", "")) for name, case in cases.items()}
    (suite,) = ET.parse(tmp_path / "chaos.xml").iter("testsuite")
    assert 0 < took["wrong"] < float(suite.get("time", "")), took
    assert took["contract"] == 0


def test_stderr_tells_of_a_finding_as_soon_as_it_is_there(tmp_path: Path) -> None:
    """Progress goes to stderr: a line for each new finding; stdout has the answer alone."""
    project = make_project(tmp_path, BEFORE_PIVOT.format(tool="double.put", more=""))
    result = project.run("chaos", "planted", "--only", "wrong", "-o", "json")
    assert "unsafe wrong: double-effect, wrong/" in result.err
    assert json.loads(result.out)["schema"] == "sagactl.chaos/1"


LEAVING = '''
import subprocess
from sagactl import CallContext, tool
from ._shop import answer, put

@tool("leaving.put", chaos_safe=True, compensation="plain.take")
def put_and_leave(context: CallContext) -> dict[str, str]:
    """Start what runs on, in its group and out of it, and out of its parent's sight."""
    for words in (["sleep", "SECONDS"], ["setsid", "sleep", "SECONDS"], ["sh", "-c", "setsid sleep SECONDS & exit 0"]):
        subprocess.Popen(words)
    return answer(put(context, context.idempotency_key))
'''


def test_what_tools_leave_running_is_ended(tmp_path: Path) -> None:
    """A thousand calls of a tool that starts processes leave none of them, whatever they belong to."""
    project = make_project(tmp_path, BEFORE_PIVOT.format(tool="leaving.put", more=""))
    seconds = f"8{os.getpid()}"  # tells them from those of another test
    (tmp_path / "plugins" / "leaving.py").write_text(LEAVING.replace("SECONDS", seconds))
    result = run_chaos(project, "--only", "wrong", "--limit", "8", "-o", "json")
    assert (result.code, result.json["findings"]) == (0, []), result.err
    left = [_read_words(each) for each in Path("/proc").glob("[0-9]*/cmdline")]
    assert f"sleep\0{seconds}\0".encode() not in left


def _read_words(file: Path) -> bytes:
    try:
        return file.read_bytes()
    except OSError:
        return b""
