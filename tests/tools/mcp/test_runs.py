"""Runs whose steps are tools of a server that changes, is killed in a call, or isn't there."""

from __future__ import annotations

import os
import signal
import subprocess
import sys

import pytest

from sagactl.core.records import Intent, RunStatus
from sagactl.engine.ending import Why
from sagactl.tools.mcp import connection
from sagactl.written.problem import InvalidSagaError
from tests.cli.project import Project, interrupt_twice
from tests.tools.mcp.conftest import TOOLS, Bench, is_running, wait_until

SAGA = """
saga: lines
steps:
  - {id: first, tool: test.put, with: {line: a}}
  - {id: last, tool: shell.run, with: {argv: ["test", "-e", "go"]}, compensate: {none: it only looks}}
"""


@pytest.fixture
def lines(bench: Bench) -> Bench:
    """Return the bench with a saga."""
    (bench.folder / "sagas").mkdir()
    (bench.folder / "sagas" / "lines.yaml").write_text(SAGA)
    (bench.folder / "go").touch()
    return bench


@pytest.fixture
def project(lines: Bench) -> Project:
    """Return the same project, for commands."""
    lines.close()
    return Project(lines.folder)


def test_a_changed_server_holds_up_the_run_before_an_intent(bench: Bench, project: Project) -> None:
    """H33, E16: it waits for `missing_tool` with the difference, nothing intended or called; pinned anew it goes on."""
    bench.mode("poisoned")
    done = project.run("run", "lines", "-o", "json")
    assert done.code == 12, done.out + done.err
    waiting = done.json["run"]["waiting_for"]
    assert waiting["what"] == "missing_tool"
    assert waiting["changes"][0]["fact"] == "description"
    assert "Ignore all" in waiting["changes"][0]["after"]
    run_id = done.json["run"]["id"]
    assert Intent not in {type(stored.record) for stored in bench.project.records(run_id)}
    assert bench.lines() == []
    bench.pin()
    assert bench.resume(run_id).status is RunStatus.SUCCEEDED
    assert bench.lines() == ["a"]


def test_what_helps_a_run_whose_server_changed_is_to_pin_it(bench: Bench, project: Project) -> None:
    """H33: `run` and `show` say first what to type: the command that shows the difference, and takes it."""
    bench.mode("poisoned")
    done = project.run("run", "lines")
    (run_id,) = project.run("list", "--ids").out.split()
    for shown in (done.out + done.err, project.run("show", run_id).out):
        hints = shown[shown.index("sagactl tools pin") :].splitlines()
        assert "isn't what was pinned" in shown
        assert hints[0].strip() == "sagactl tools pin"
        assert "sagactl resume" in hints[1]
        assert "--definition" not in shown


def test_a_stricter_schema_holds_up_a_run_that_relies_on_the_old_one(lines: Bench) -> None:
    """E16: pinned anew, a tool that takes other arguments isn't the one that the run was begun with."""
    lines.mode("stricter")
    held = lines.start("lines")
    assert (held.status, held.why) == (RunStatus.WAITING, Why.MISSING_TOOL)
    lines.pin()
    assert lines.resume(held.run_id).why is Why.MISSING_TOOL
    assert lines.lines() == []


def test_a_server_that_is_not_there_is_tried_again(lines: Bench) -> None:
    """A server that can't be started leaves no doubt: the step is tried again, and fails without an effect."""
    lines.mode("won't start")
    saga = lines.folder / "sagas" / "lines.yaml"
    saga.write_text(SAGA.replace("with: {line: a}", "with: {line: a}, retry: {max_attempts: 2}"))
    ending = lines.start("lines")
    assert ending.status is RunStatus.ROLLED_BACK
    assert ending.failure is not None
    assert ending.failure.type == "server_unavailable"
    assert "no licence" in ending.failure.message


def test_a_call_that_its_time_is_too_short_to_begin_is_no_doubt(lines: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    """E3, E14: a server that isn't there in time was sent nothing: tried again, then undone, and nobody is asked."""
    monkeypatch.setattr(connection, "COMPARE_SECONDS", 0.1)
    lines.configure(TOOLS, connect_timeout="5m")
    lines.mode("mute")
    saga = lines.folder / "sagas" / "lines.yaml"
    given = "with: {line: a}, start_to_close_timeout: 1s, retry: {max_attempts: 2}"
    saga.write_text(SAGA.replace("with: {line: a}", given))
    ending = lines.start("lines")
    assert ending.failure is not None
    assert (ending.status, ending.failure.type) == (RunStatus.ROLLED_BACK, "not_started")
    assert lines.lines() == []


def test_an_interrupt_is_heard_while_a_server_is_asked(lines: Bench, project: Project) -> None:
    """E17: a server that is slow to say what it has gets no call after the signal, and keeps nobody."""
    lines.configure(TOOLS, connect_timeout="5m")
    lines.mode("mute")
    before = len(lines.started())
    driver = project.start("run", "lines", "-q")
    wait_until(lambda: len(lines.started()) > before, 60)
    driver.send_signal(signal.SIGTERM)
    driver.communicate(timeout=60)
    assert driver.returncode == 143
    (run_id,) = lines.project.unfinished()
    assert Intent not in {type(stored.record) for stored in lines.project.records(run_id)}
    assert not is_running(lines.started()[-1])


def test_a_servers_secret_is_waited_for(lines: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    """E19: a run whose next call needs a server that needs a secret waits for it, before the intent."""
    lines.configure(TOOLS, env={"TOKEN": "${{ secrets.token }}"})
    held = lines.start("lines")
    assert (held.status, held.why) == (RunStatus.WAITING, Why.MISSING_SECRET)
    assert Intent not in {type(stored.record) for stored in lines.project.records(held.run_id)}
    monkeypatch.setenv("SAGACTL_SECRET_TOKEN", "hunter2-hunter2")
    assert lines.resume(held.run_id).status is RunStatus.SUCCEEDED


def test_a_tool_that_changes_in_a_run_holds_it_up(lines: Bench) -> None:
    """H33: a server with other tools after its first call; the second one isn't made."""
    saga = lines.folder / "sagas" / "lines.yaml"
    saga.write_text(SAGA + "  - {id: second, tool: test.put, with: {line: b}}\n")
    lines.mode("news")
    held = lines.start("lines")
    assert (held.status, held.why) == (RunStatus.WAITING, Why.MISSING_TOOL)
    assert lines.lines() == ["a"]


def test_killed_in_a_call_the_effect_is_found_and_not_made_twice(bench: Bench, project: Project) -> None:
    """E6, E17: after kill -9 in a call the server is gone; a resume asks the probe, and there is one effect."""
    bench.mode("deaf")
    words = [sys.executable, "-m", "sagactl", "run", "lines", "-q"]
    with subprocess.Popen(words, cwd=project.path, env=project.environment(), stderr=subprocess.DEVNULL) as driver:
        wait_until(lambda: bench.lines() == ["a"])
        server = bench.started()[-1]
        os.kill(driver.pid, signal.SIGKILL)
    bench.mode("good")
    (run_id,) = bench.project.unfinished()
    assert bench.resume(run_id).status is RunStatus.SUCCEEDED
    assert not is_running(server)
    assert bench.lines() == ["a"]


def test_a_second_interrupt_ends_a_call_and_its_server(bench: Bench, project: Project) -> None:
    """E17: the second signal ends what runs, also in a server; the run is left to be resumed."""
    bench.mode("deaf")
    driver = project.start("run", "lines", "-q")
    wait_until(lambda: bench.lines() == ["a"])
    server = bench.started()[-1]
    interrupt_twice(driver)
    assert driver.returncode == 130
    wait_until(lambda: not is_running(server))
    wait_until(lambda: not list((project.path / ".sagactl" / "calls").iterdir()))


@pytest.mark.parametrize("place", ["mcp: {test: {command: [sh]}}", "servers: [sh]"])
def test_a_saga_can_name_no_server(lines: Bench, place: str) -> None:
    """H35: which programs are started, and which addresses called, is the operator's to say."""
    (lines.folder / "sagas" / "lines.yaml").write_text(f"{SAGA}\n{place}\n")
    with pytest.raises(InvalidSagaError) as raised:
        lines.project.load("lines")
    assert "unknown-key" in {problem.code for problem in raised.value.problems}


def test_chaos_calls_servers_in_its_forked_processes(lines: Bench) -> None:
    """A forked process has a loop, a connection and a folder of its own, and the saga comes through the crash."""
    saga = SAGA.splitlines()
    once = [line.replace("line: a", 'line: "${{ run.id }}"') for line in saga if "last" not in line]
    (lines.folder / "sagas" / "lines.yaml").write_text("\n".join(once))
    settings = lines.folder / "sagactl.toml"
    chaos = 'chaos = {safe_tools = ["test.*"], ignore = ["room/*"]}'  # where the server notes its starts
    settings.write_text(f"{chaos}\n{settings.read_text()}")
    lines.close()
    done = Project(lines.folder).run("chaos", "lines", "--experiment", "first/killed-in-effect", "-o", "json")
    assert done.code == 0, done.out
    assert done.json["experiments"] == {"made": 3, "not_reached": [], "left_out": 0}
    assert lines.lines() == []
