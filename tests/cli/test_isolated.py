"""Isolated calls as a user meets them: killed at each phase, interrupted, hanging, and all that ships isolated."""

from __future__ import annotations

import json
import signal
from pathlib import Path
from typing import Any

import pytest

from tests.cli.project import WAIT_SECONDS, Project, interrupt_twice
from tests.cli.verdict import check_calls
from tests.proof import Prove
from tests.tools.shell.commands import wait_until

POINTS_GOAL = 19
KILL_AT = str(Path(__file__).with_name("kill_at.py"))
PLUGIN = '''
"""A desk whose tools hold on where a file says so, each time they come to it."""
import os, signal, time
from pathlib import Path
from sagactl import CallContext, Done, NotDone, tool

def hold(folder, phase):
    deaths = (folder / "dies").read_text().splitlines() if (folder / "dies").exists() else []
    if deaths[:1] == [phase]:
        (folder / "dies").write_text(chr(10).join(deaths[1:]))
        os.kill(os.getpid(), signal.SIGKILL)
    if (folder / "hold").exists() and (folder / "hold").read_text() == phase:
        (folder / "held").touch()
        time.sleep(60)

def note(folder, *words):
    with (folder / "ledger").open("a") as file:
        file.write(" ".join(words) + chr(10))

if "SAGACTL_CALL" in os.environ:
    hold(Path.cwd(), "import")

@tool("desk.open", isolation="process", idempotent=False, probe="desk.find", compensation="desk.close")
def open_desk(context: CallContext, takes: float = 0) -> str:
    hold(context.project, "before")
    (context.project / "begun").touch()
    time.sleep(takes)
    note(context.project, "open", context.idempotency_key)
    hold(context.project, "after")
    return "opened"

@tool("desk.close", isolation="process", null_safe=True, late_safe=True)
def close_desk(context: CallContext) -> str:
    hold(context.project, "undo before")
    if ["close", context.forward_key] not in [line.split() for line in read(context.project)]:
        note(context.project, "close", context.forward_key)
    hold(context.project, "undo after")
    return "closed"

def read(folder):
    return (folder / "ledger").read_text().splitlines() if (folder / "ledger").exists() else []

@tool("desk.find", isolation="process", read_only=True)
def find_desk(context: CallContext):
    hold(context.project, "probe")
    return Done("opened") if f"open {context.forward_key}" in read(context.project) else NotDone()

@tool("desk.refuse", isolation="process", read_only=True)
def refuse() -> None:
    raise ValueError("no")

@tool("desk.hang", isolation="process")
def hang(context: CallContext) -> None:
    import ctypes, signal
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    (context.project / "hanging").touch()
    while True:
        ctypes.CDLL(None).sleep(60)
'''
OPENS = """
saga: opens
steps:
  - {id: open, tool: desk.open}
"""
REFUSES = """
saga: refuses
steps:
  - {id: open, tool: desk.open}
  - {id: refuse, tool: desk.refuse, read_only: true, retry: {max_attempts: 1}}
"""
HANGS = """
saga: hangs
steps:
  - {id: open, tool: desk.open}
  - id: hang
    tool: desk.hang
    start_to_close_timeout: 5s
    retry: {max_attempts: 1}
    compensate: {none: nothing was done}
"""
HOLDS = HANGS.replace("saga: hangs", "saga: holds").replace("timeout: 5s", "timeout: 1m")
SLOW = """
saga: slow
steps:
  - {id: open, tool: desk.open, with: {takes: 4}}
  - {id: again, tool: desk.open}
"""


@pytest.fixture
def desk(tmp_path: Path) -> Project:
    """Return a project with the desk and its sagas."""
    (tmp_path / "sagactl.toml").touch()
    for folder in ("plugins", "sagas"):
        (tmp_path / folder).mkdir()
    (tmp_path / "plugins" / "desk.py").write_text(PLUGIN)
    for text in (OPENS, REFUSES, HANGS, HOLDS, SLOW):
        (tmp_path / "sagas" / f"{text.split()[1]}.yaml").write_text(text)
    return Project(tmp_path)


def _read_ledger(project: Project) -> list[str]:
    file = project.path / "ledger"
    return [line.split()[0] for line in file.read_text().splitlines()] if file.exists() else []


def _prove(prove: Prove) -> None:
    """Count one point at which an isolated call, or its driver, was killed or ended, and nothing was wrong after it."""
    prove("isolated calls killed or ended at a point", 1, goal=POINTS_GOAL)


def _kill_at(project: Project, phase: str, *arguments: str) -> None:
    """Run, and kill the driver when a call has come to *phase*."""
    (project.path / "hold").write_text(phase)
    process = project.start(*arguments, "-q")
    wait_until((project.path / "held").exists)
    process.kill()
    process.communicate()
    for name in ("hold", "held"):
        (project.path / name).unlink()


@pytest.mark.parametrize(
    ("saga", "phase", "status"),
    [
        *(("opens", phase, "succeeded") for phase in ("import", "before", "after")),
        *(("refuses", phase, "rolled_back") for phase in ("undo before", "undo after")),
    ],
)
def test_a_driver_killed_in_an_isolated_call_leaves_one_effect(
    desk: Project, saga: str, phase: str, status: str, prove: Prove
) -> None:
    """E6, E12, E17: killed while its process starts, before and after the effect, in both directions."""
    _kill_at(desk, phase, "run", saga)
    resumed = desk.run("resume", "--all", "-q")
    assert desk.latest()["status"] == status, resumed.err
    assert _read_ledger(desk) == (["open"] if status == "succeeded" else ["open", "close"])
    wait_until(lambda: not list((desk.path / ".sagactl" / "calls").iterdir()))
    assert desk.run("verify", "-q").code == 0
    _prove(prove)


@pytest.mark.parametrize(
    ("saga", "phases", "effects"),
    [
        *(("opens", phase, ["open"]) for phase in ("import", "before", "after")),
        ("opens", "after, probe", ["open"]),
        *(("refuses", phase, ["open", "close"]) for phase in ("undo before", "undo after")),
    ],
)
def test_a_process_killed_in_its_call_leaves_one_effect(
    desk: Project, saga: str, phases: str, effects: list[str], prove: Prove
) -> None:
    """E4, E6, E12: the driver lives on and finds out what the call that died has come to, forward and back."""
    (desk.path / "dies").write_text("\n".join(phases.split(", ")))
    ran = desk.run("run", saga, "-q")
    assert (desk.path / "dies").read_text() == ""  # V0: it did die
    assert (ran.code, _read_ledger(desk)) == (0 if saga == "opens" else 10, effects), ran.err
    assert not list((desk.path / ".sagactl" / "calls").iterdir())
    _prove(prove)


@pytest.mark.parametrize("number", [2, 3])
def test_a_driver_killed_before_it_wrote_the_answer_down_asks_for_it(desk: Project, number: int, prove: Prove) -> None:
    """E1, E4: the reply was there and its commit was not; a resume finds out, and there is one effect."""
    killed = desk.run_python(KILL_AT, "before", str(number), "run", "opens", "-q")
    assert killed.code == -9
    assert desk.run("resume", "--all", "-q").code == 0
    assert _read_ledger(desk) == ["open"]
    _prove(prove)


def test_a_driver_killed_in_the_probe_asks_again(desk: Project, prove: Prove) -> None:
    """E6, E17: twice killed, in the call and in the probe of its resume, and still one effect."""
    _kill_at(desk, "after", "run", "opens")
    _kill_at(desk, "probe", "resume", "--all")
    assert desk.run("resume", "--all", "-q").code == 0
    assert _read_ledger(desk) == ["open"]
    _prove(prove)


def test_a_tool_that_hangs_for_ever_is_over_at_its_timeout(desk: Project, prove: Prove) -> None:
    """E14: where an in-process tool would keep the run waiting (`cannot_end`), an isolated one is ended and undone."""
    ran = desk.run("run", "hangs", "-q", "-o", "json")
    run: dict[str, Any] = ran.json["run"]
    assert (ran.code, run["status"], run["cause"]) == (10, "rolled_back", "step_failed")
    assert _read_ledger(desk) == ["open", "close"]
    (hang,) = [step for step in run["steps"] if step["id"] == "hang"]
    assert hang["error"]["type"] == "timeout"
    _prove(prove)


def test_the_first_interrupt_lets_an_isolated_call_settle(desk: Project) -> None:
    """E17: Ctrl-C doesn't reach its process; its outcome is recorded, nothing new starts, and the run is resumable."""
    process = desk.start("run", "slow")
    wait_until((desk.path / "begun").exists)
    process.send_signal(signal.SIGINT)
    process.communicate(timeout=WAIT_SECONDS)
    assert process.returncode == 130
    assert _read_ledger(desk) == ["open"]
    assert desk.run("resume", "--all", "-q").code == 0
    assert _read_ledger(desk) == ["open", "open"]


def test_the_second_interrupt_ends_it_at_once(desk: Project, prove: Prove) -> None:
    """E17: what was under way is in doubt and ended; a resume finds out."""
    process = desk.start("run", "holds")
    wait_until((desk.path / "hanging").exists)
    interrupt_twice(process)
    assert process.returncode == 130
    wait_until(lambda: not list((desk.path / ".sagactl" / "calls").iterdir()))
    assert desk.run("rollback", desk.latest()["id"], "-q", "--reason", "test").code == 0
    assert _read_ledger(desk) == ["open", "close"]
    _prove(prove)


def test_a_cancelled_run_ends_a_call_that_hangs(desk: Project, prove: Prove) -> None:
    """E14, E22: `cancel` in a deaf call ends it once it had time to settle, and undoes the rest."""
    (desk.path / "sagas" / "holds.yaml").write_text(HOLDS.replace("steps:", "settle_timeout: 1s\nsteps:", 1))
    process = desk.start("run", "holds", "-q")
    wait_until((desk.path / "hanging").exists)
    cancelled = desk.run("cancel", desk.latest()["id"], "-q", "--reason", "test")
    process.communicate(timeout=WAIT_SECONDS)
    assert (process.returncode, cancelled.code) == (10, 0)
    assert _read_ledger(desk) == ["open", "close"]
    _prove(prove)


@pytest.fixture
def shipped(tmp_path: Path) -> Project:
    """Return all that ships, every tool isolated by the operator."""
    project = Project.make(tmp_path)
    (tmp_path / "sagactl.toml").write_text('[isolation]\nprocess = ["*"]\n')
    return project


GOOD = ("run", "onboarding", "-q", "-i", "email=ada@example.com", "-i", "amount:=4900", "-i", 'servers:=["web"]')


def test_what_ships_runs_isolated(shipped: Project) -> None:
    """An operator may isolate every tool of a project, and nothing else changes."""
    assert shipped.run(*GOOD).code == 0
    assert check_calls(shipped.witness()) == []
    assert len({line["pid"] for line in shipped.witness()}) == len({line["tool"] for line in shipped.witness()}) == 5


@pytest.mark.parametrize("point", ["before_effect", "after_effect"])
def test_an_isolated_process_that_is_killed_takes_nobody_along(shipped: Project, point: str, prove: Prove) -> None:
    """E3, E6: the run goes on in the same process: the call is in doubt, the probe finds out, one charge."""
    ran = shipped.run(*GOOD, "-o", "json", extra={"SAGACTL_SANDBOX_KILL": f"billing.charge:{point}:1"})
    assert ran.code == 0, ran.err
    assert sum(entry["effect"] == "charged" for entry in shipped.ledger()) == 1
    (deposit,) = [step for step in ran.json["run"]["steps"] if step["id"] == "deposit"]
    assert deposit["attempts"] == (2 if point == "before_effect" else 1)
    _prove(prove)


def test_tools_and_plan_say_what_is_isolated(shipped: Project) -> None:
    """What the operator wants is shown where one looks for it."""
    charge, shell, plan = shipped.run_several(
        ["tools", "billing.charge", "-o", "json"],
        ["tools", "shell.run", "-o", "json"],
        ["plan", "onboarding", "-o", "json"],
    )
    assert (charge.json["tool"]["isolation"], charge.json["tool"]["isolated_by"]) == ("process", "operator")
    assert (shell.json["tool"]["isolation"], shell.json["tool"]["isolated_by"]) == ("none", None)
    assert {"billing.charge", "billing.refund"} <= set(plan.json["plan"]["isolated"])


CHAOS_PLUGIN = """
from sagactl import CallContext, tool

@tool("box.put", compensation="box.take", isolation="process", chaos_safe=True)
def put(context: CallContext) -> str:
    (context.project / context.idempotency_key.replace("/", "_")).touch()
    return "put"

@tool("box.take", isolation="process", null_safe=True, chaos_safe=True)
def take(context: CallContext) -> str:
    (context.project / context.forward_key.replace("/", "_")).unlink(missing_ok=True)
    return "taken"
"""


def test_chaos_tries_isolated_tools(tmp_path: Path) -> None:
    """Kills and faults of `sagactl chaos` leave a saga of isolated tools as safe as it is."""
    for folder in ("plugins", "sagas"):
        (tmp_path / folder).mkdir()
    (tmp_path / "plugins" / "box.py").write_text(CHAOS_PLUGIN)
    (tmp_path / "sagas" / "box.yaml").write_text("saga: box\nsteps:\n  - {id: put, tool: box.put}\n")
    project = Project(tmp_path)
    tried = project.run("chaos", "box", "-o", "json", "--limit", "12", "--seed", "3", timeout=300)
    assert tried.code == 0, tried.err
    assert json.loads(tried.out)["error"] is None
