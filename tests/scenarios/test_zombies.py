"""Drivers that are stopped beyond their lease and come back, and drivers that can't renew it: nobody is written over.

The processes are real and so is the time; only the lease is four seconds instead of fifteen. All zombies of a test
wait side by side.
"""

from __future__ import annotations

import signal
import sqlite3
import time
from contextlib import ExitStack, closing
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from tests.proof import Prove
from tests.scenarios.checks import check_all
from tests.scenarios.scene import Command, Scene, Warm, step, tries

LEASE_MS = 4_000
HOOKS = {"lease_ms": LEASE_MS}
POINTS = ("before_intent", "after_intent", "entered", "effect", "before_outcome", "after_outcome")
ZOMBIES_GOAL = 31


@dataclass
class Zombie:
    """A run whose driver is stopped at a point of the call of `b`."""

    scene: Scene
    point: str
    direction: str
    tool: str
    command: Command
    run: str = ""
    heir: Command | None = None

    def __str__(self) -> str:
        return f"{self.tool} b/{self.direction}/{self.point}"


def stop(path: Path, warm: Warm, point: str, direction: str, tool: str) -> Zombie:
    """Start a run that stops itself at *point*."""
    scene = Scene.make(path, warm)
    # A target that is late-safe refuses by itself; any other has a request with a time limit.
    word = "ok" if tool == "probe.late" else "timely"
    keys: dict[str, Any] = {"retry": tries(3), "compensate": {"retry": tries(3), "start_to_close_timeout": "1s"}}
    last = step("c", "reject no" if direction == "compensation" else "ok", tool=tool, **keys)
    scene.saga(
        "three",
        [step("a", tool=tool, **keys), step("b", word, word, tool=tool, **keys), last],
        defaults={"start_to_close_timeout": "1s"},
    )
    order = {"at": point, "step": "b", "direction": direction, "signal": int(signal.SIGSTOP)}
    if point in {"entered", "effect"}:
        extra = {"PROBE_STOP": f"b/{direction}/{point}/1/{int(signal.SIGSTOP)}"}
        command = scene.start("run", "three", hooks=HOOKS, extra=extra)
    else:
        command = scene.start("run", "three", hooks={**HOOKS, "signal": order})
    return Zombie(scene, point, direction, tool, command)


def stop_in_command(path: Path, warm: Warm) -> Zombie:
    """Start a run whose driver is stopped while a command runs on without it."""
    scene = Scene.make(path / "project", warm)
    script = "echo begin >> ../calls; test $SAGACTL_ATTEMPT -gt 1 || sleep 60; echo end $SAGACTL_ATTEMPT >> ../calls"
    undo = {"tool": "shell.undo", "with": {"script": "true"}}
    b = {"id": "b", "tool": "shell.run_idempotent", "with": {"script": script}, "compensate": undo, "retry": tries(3)}
    scene.saga("three", [step("a"), {**b, "start_to_close_timeout": "2s"}, step("c", retry=tries(2))])
    command = scene.start("run", "three", hooks=HOOKS)
    scene.wait_for((path / "calls").exists)
    command.signal(signal.SIGSTOP)
    return Zombie(scene, "command", "action", "shell.run_idempotent", command)


def take_over(zombies: list[Zombie], verb: str) -> None:
    """Wait until all are stopped and their leases have run out; then let others take the runs over, to their ends."""
    for zombie in reversed(zombies):
        zombie.command.wait_until_stopped()
        zombie.run = zombie.scene.latest()
        if zombie is zombies[-1]:  # the youngest lease, before the others are waited for
            busy = zombie.scene.do("resume", zombie.run, hooks=HOOKS)
            assert (busy.code, busy.error) == (5, "busy"), "a lease that hasn't run out is respected"
    time.sleep(LEASE_MS / 1000)
    for zombie in zombies:
        zombie.heir = zombie.scene.start(verb, zombie.run, hooks=HOOKS)
    for zombie in zombies:
        assert zombie.heir is not None
        zombie.heir.wait()


def check_return(zombie: Zombie, status: str) -> None:
    """Let the zombie go on: it calls nothing, changes nothing, writes nothing, says why, and ends with 5."""
    scene, ledger, records = zombie.scene, zombie.scene.ledger(), zombie.scene.records(zombie.run)
    assert scene.show(zombie.run)["status"] == status
    zombie.command.signal(signal.SIGCONT)
    ended = zombie.command.wait()
    assert (ended.code, ended.error) == (5, "lease-lost"), ended
    assert "lease could not be renewed" in ended.err or "another driver took it over" in ended.err, ended.err
    assert f"sagactl resume {zombie.run}" in ended.err or "sagactl show" in ended.err, ended.err
    assert scene.records(zombie.run) == records
    later = scene.ledger()[len(ledger) :]
    assert [line["phase"] for line in later if line["phase"] != "end"] == []
    claims = scene.of("driver_claimed", zombie.run)
    assert [claim["body"]["calls_ended"] for claim in claims] == [True, False], "its calls were held for possible"
    check_all(scene, overlaps=True, looks=False)


def check_group(zombies: list[Zombie], verb: str, status: str) -> int:
    """Take all over by *verb* and let each return."""
    take_over(zombies, verb)
    for zombie in zombies:
        try:
            check_return(zombie, status)
        except AssertionError as error:
            raise AssertionError(f"{verb}, {zombie}: {error}") from error
    return len(zombies)


@pytest.mark.parametrize(("verb", "status"), [("resume", "succeeded"), ("rollback", "rolled_back")])
def test_b59_a_zombie_of_the_way_forward_changes_nothing(
    verb: str, status: str, tmp_path: Path, warm: Warm, prove: Prove
) -> None:
    """C1, E9, E15, scenario B59: stopped at each point of a call, beyond its lease; another completes or rolls back."""
    zombies = [
        stop(tmp_path / f"{tool}-{point}", warm, point, "action", tool)
        for tool in ("probe.do", "probe.late")
        for point in POINTS
    ]
    if verb == "resume":
        zombies.append(stop_in_command(tmp_path / "command", warm))
    prove("zombies (SIGSTOP beyond the lease)", check_group(zombies, verb, status), goal=ZOMBIES_GOAL)
    if verb == "resume":
        calls = (tmp_path / "command" / "calls").read_text().split("\n")
        assert calls == ["begin", "begin", "end 2", ""], "who takes over ends the command before it decides anything"


def test_b59_a_zombie_of_the_way_back_changes_nothing(tmp_path: Path, warm: Warm, prove: Prove) -> None:
    """C1, E9, E12, E15: the same in a compensation; the one who takes over undoes what is left."""
    zombies = [stop(tmp_path / point, warm, point, "compensation", "probe.do") for point in POINTS]
    prove("zombies (SIGSTOP beyond the lease)", check_group(zombies, "resume", "rolled_back"), goal=ZOMBIES_GOAL)


SHELL = {
    "tool": "shell.run_idempotent",
    "with": {"script": "test ! -e ../pid || exit 0; echo $$ > ../pid; exec sleep 60"},
}


def _start_one(scene: Scene, kind: str) -> Command:
    """Start a run whose only call is under way: one that hears, one that doesn't, one that is a command."""
    word = {"told": "hang", "deaf": "busy 60", "command": ""}[kind]
    a = step("a", word) if word else {"id": "a", **SHELL, "compensate": {"none": "nothing"}}
    scene.saga("one", [a])
    command = scene.start("run", "one", hooks=HOOKS)
    scene.wait_for((scene.path.parent / "pid").exists if kind == "command" else scene.has_begun("a"))
    return command


def _has_ended(scene: Scene, kind: str) -> bool:
    """Tell whether the call is over, as far as it can be ended at all."""
    if kind == "command":
        return not Path(f"/proc/{int((scene.path.parent / 'pid').read_text())}").exists()
    return kind == "deaf" or bool(scene.ledger("end"))


def test_b59_a_driver_that_cannot_renew_has_ended_its_calls_in_time(tmp_path: Path, warm: Warm) -> None:
    """C3, E15, E18: the log is locked for longer than the lease: the calls end before it runs out, and exit 1 says why.

    Even while heart and loop both wait for the log. A call that hears nothing ends with its process.
    """
    scenes = {kind: Scene.make(tmp_path / kind / "project", warm) for kind in ("told", "deaf", "command")}
    commands = {kind: _start_one(scene, kind) for kind, scene in scenes.items()}
    with ExitStack() as locks:
        for scene in scenes.values():
            log = sqlite3.connect(scene.path / ".sagactl" / "log.db", isolation_level=None)
            locks.enter_context(closing(log)).execute("BEGIN IMMEDIATE")
        locked_at = time.monotonic()
        for kind, scene in scenes.items():
            scene.wait_for(partial(_has_ended, scene, kind))
        assert time.monotonic() - locked_at < LEASE_MS / 1000, "another driver may begin before these calls have ended"
        ended = {kind: command.wait() for kind, command in commands.items()}
    for kind, scene in scenes.items():
        assert (ended[kind].code, ended[kind].error) == (1, "locked")
        assert f"then sagactl resume {scene.latest()}" in ended[kind].err
        assert len(scene.of("intent")) == len(scene.of("driver_claimed")) == 1
        assert scene.do("resume", scene.latest()).code == (0 if kind == "command" else 10)
        check_all(scene, looks=False)
