"""Onboarding on real servers: whatever fails and wherever it is killed, the systems hold what the log says.

Tryton is the real one; Stripe and AWS are fakes that others wrote (see `tests/servers`).
"""

from __future__ import annotations

import contextlib
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from tests.cli.project import Project, Result
from tests.docs.test_readme import README, _split
from tests.proof import Prove
from tests.sagas.served import Server
from tests.sagas.started import started
from tests.servers.together import Systems, World, write_exports
from tests.servers.tryton import find_set_up

AMOUNT = 4_900
SERVERS = ("web",)
IMPORTS = ("httpx", "stripe", "botocore.session", "botocore.httpsession", "cel_expr_python")
FORWARD = (
    ("tryton.create_party", "after"),
    ("tryton.create_sale", "after"),
    ("stripe.charge", "before"),
    ("stripe.charge", "after"),
    ("aws.run_instance", "after"),
    ("tryton.confirm_sale", "after"),
    ("aws.send_message", "after"),
)
ON_DEMAND = ("stripe.charge", "aws.run_instance")
BACKWARD = ("stripe.refund", "tryton.cancel_sale")
MEASURE = "kills of a run on real servers"
GOAL = len(FORWARD) + len(ON_DEMAND) + len(BACKWARD)


@pytest.fixture(scope="module")
def systems(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Systems]:
    """Give all three systems, started as the README says."""
    with started(tmp_path_factory.mktemp("systems")) as found:
        yield found


@pytest.fixture(scope="module")
def warm() -> Iterator[Server]:
    """Give a server of command lines that has imported the vendors' libraries."""
    served = Server(*IMPORTS)
    yield served
    served.close()


@dataclass
class Scene:
    """A project of one test, and what the systems held before."""

    project: Project
    systems: Systems
    server: Server
    before: World

    def sagactl(self, *arguments: str, kill: Mapping[str, Any] | None = None) -> Result:
        """Run `sagactl`."""
        return self.server.run(self.project, *arguments, kill=kill)

    def run(self, *more: str, kill: Mapping[str, Any] | None = None) -> Result:
        """Onboard a customer."""
        name = self.project.path.name
        given = ("-i", f"name={name}", "-i", f"email={name}@example.com", "-i", f"amount:={AMOUNT}")
        servers = ("-i", f"servers:={list(SERVERS)}".replace("'", '"'))
        return self.sagactl("run", "onboarding-live", "-q", "-o", "json", *given, *servers, *more, kill=kill)

    def run_id(self) -> str:
        """Return the id of the only run."""
        return self.sagactl("list", "--ids").out.strip()

    def change(self) -> dict[str, int]:
        """Return how much more there is in the systems than before."""
        before, after = count(self.before), count(self.systems.look())
        return {name: after[name] - before[name] for name in after}

    def check(self, result: Result, status: str) -> None:
        """Compare the systems with what the log says that happened."""
        run = result.json["run"]
        assert (run["status"], run["not_undone"]) == (status, []), result.err
        is_done = int(status == "succeeded")
        for step in run["steps"]:
            assert (step["status"] == "succeeded") == bool(is_done), step
        assert self.change() == expect(is_done)


def count(world: World) -> dict[str, int]:
    """Return how much there is of everything; orders that aren't confirmed are counted apart."""
    return {
        "parties": len(world.parties),
        "addresses": world.addresses,
        "orders": len(world.orders),
        "confirmed": sum(state in {"confirmed", "processing", "done"} for state in world.orders),
        "cents": world.kept,
        "machines": world.running,
        "messages": world.messages,
    }


def expect(customers: int) -> dict[str, int]:
    """Return what so many customers are in the systems."""
    each = dict.fromkeys(("parties", "addresses", "orders", "confirmed", "messages"), 1)
    return {name: customers * value for name, value in {**each, "cents": AMOUNT, "machines": len(SERVERS)}.items()}


@pytest.fixture
def scene(systems: Systems, warm: Server, tmp_path: Path) -> Scene:
    """Give a project whose plugins reach the systems."""
    folder = tmp_path / f"c{abs(hash(tmp_path)) % 10**9}"
    project = Project.make(folder)
    project.environ.update(systems.environ)
    return Scene(project, systems, warm, systems.look())


def _block(name: str) -> str:
    """Return a block of the README about these servers."""
    found = re.search(rf"<!-- live {name} -->\n```\w+\n(.*?)```", README, re.DOTALL)
    assert found is not None
    return found[1]


@dataclass
class Shell:
    """A terminal in a project, in which each line of the README is typed; variables last."""

    project: Project
    systems: Systems

    def type(self, line: str) -> str:
        """Return what a line prints."""
        whole = f". ./variables; {line}\nexport -p > variables"
        done = subprocess.run(
            ["bash", "-c", whole],
            cwd=self.project.path,
            env=self.project.environment({"LC_ALL": "C.UTF-8"}),
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            stdin=subprocess.DEVNULL,
            text=True,
            check=False,
        )
        return done.stdout

    def kill_once(self, line: str, is_time: Callable[[], bool]) -> None:
        """Kill what a line runs, in the midst of it."""
        whole = [*("bash", "-c"), f". ./variables; exec {line}"]
        with (self.project.path / "killed").open("w") as out:
            running = subprocess.Popen(
                whole, cwd=self.project.path, env=self.project.environment(), stdout=out, stderr=out
            )
        while not is_time():
            assert running.poll() is None, (self.project.path / "killed").read_text()
            time.sleep(0.02)
        running.kill()
        assert running.wait(60) == -signal.SIGKILL

    def play(self, transcript: str) -> None:
        """Type each line of a transcript, and compare what it prints."""
        for line, expected in _split(transcript):
            assert _normalize(self.type(line)) == _normalize(expected), line


def _normalize(text: str) -> str:
    text = re.sub(r"(onboarding-live|log) [2-9a-hjkmnp-z]{6}\b", r"\1 RUN", text)
    text = re.sub(r"(sale_id=|digest +)[0-9a-f]+", r"\1ID", text)
    text = re.sub(r"denied by \S+:", "denied by WHO:", text)
    return re.sub(r"\b[\d.]+m?s\b", "TOOK", text).strip()


@pytest.fixture
def shell(systems: Systems, tmp_path: Path) -> Iterator[Shell]:
    """Give a terminal beside servers that have no customers yet."""
    project = Project.make(tmp_path / "project")
    binaries = project.path / "bin"
    binaries.mkdir()
    for name, line in (("sagactl", f"{sys.executable} -m sagactl"), ("python", sys.executable)):
        (binaries / name).write_text(f'#!/bin/sh\nexec {line} "$@"\n')
        (binaries / name).chmod(0o755)
    (project.path / "variables").write_text(f"PATH={binaries}:$PATH\n")
    with contextlib.ExitStack() as stack:
        if systems.look().machines or systems.look().charges:
            systems = stack.enter_context(started(tmp_path))
        (project.path / "servers.env").write_text(write_exports(systems.environ))
        yield Shell(project, systems)


def test_the_readme_about_real_servers_is_true(shell: Shell) -> None:
    """What the README types fails, is refused, is killed with the deposit taken, and leaves what it says."""
    assert _block("servers") == "python -m tests.servers\n"  # what `started` runs
    shell.play(_block("declined"))
    shell.play(_block("refused"))
    run, kill, resume, show = _block("killed").splitlines()
    assert kill == "kill -9 $!"
    assert run.endswith(" &")
    shell.kill_once(run.removesuffix(" &"), lambda: len(shell.systems.read_charges()) == 2)
    assert "onboarding-live" in shell.type(resume)
    expected = """
tryton  parties     1
        addresses   1
        orders      1  processing
stripe  charges     2  49.00 of 98.00 given back
aws     machines    2  2 terminated
        messages    1
"""
    assert shell.type(show).strip() == expected.strip()


def test_a_customer_is_onboarded(scene: Scene) -> None:
    """In each system is exactly what the saga says, no key is in the log, and a second run is the first one."""
    done = scene.run()
    assert done.code == 0, done.err
    scene.check(done, "succeeded")
    kept = b"".join(file.read_bytes() for file in (scene.project.path / ".sagactl").rglob("*") if file.is_file())
    for name in ("SAGACTL_SECRET_TRYTON_KEY", "SAGACTL_SECRET_STRIPE_API_KEY", "AWS_SECRET_ACCESS_KEY"):
        assert scene.systems.environ[name].encode() not in kept, name
        assert scene.systems.environ[name] not in done.out + done.err, name
    assert scene.run().json["run"]["id"] == done.json["run"]["id"]
    assert scene.change() == expect(1)


@pytest.mark.parametrize(("tool", "when"), FORWARD)
def test_a_run_killed_in_any_call_is_completed(scene: Scene, tool: str, when: str, prove: Prove) -> None:
    """E6, E17: SIGKILL before the request or behind its answer; resumed, each effect is there once."""
    assert scene.run(kill={"tool": tool, "when": when}).code == -9
    done = scene.sagactl("resume", scene.run_id(), "-q", "-o", "json")
    scene.check(done, "succeeded")
    prove(MEASURE, 1, goal=GOAL)


@pytest.mark.parametrize("tool", ON_DEMAND)
def test_a_killed_run_is_rolled_back_on_demand(scene: Scene, tool: str, prove: Prove) -> None:
    """E7, E22: the answer was lost with the process; the effect is found by its key and taken back."""
    assert scene.run(kill={"tool": tool, "when": "after"}).code == -9
    undone = scene.sagactl("rollback", scene.run_id(), "-q", "-o", "json", "--yes")
    scene.check(undone, "rolled_back")
    prove(MEASURE, 1, goal=GOAL)


@pytest.mark.parametrize("tool", BACKWARD)
def test_a_rollback_killed_in_any_undo_is_completed(scene: Scene, tool: str, prove: Prove) -> None:
    """E12, E17: nothing is undone twice, and nothing is left."""
    assert scene.run("-i", "ask:=true").code == 12
    denying = ("deny", scene.run_id(), "contract", "--reason", "no")
    assert scene.sagactl(*denying, kill={"tool": tool, "when": "after"}).code == -9
    undone = scene.sagactl("resume", scene.run_id(), "-q", "-o", "json")
    scene.check(undone, "rolled_back")
    prove(MEASURE, 1, goal=GOAL)


def test_without_a_server_the_command_says_what_it_lacks(tmp_path: Path) -> None:
    """No traceback and nothing left running where Node.js isn't there: one line, and exit code 1."""
    find_set_up()
    done = Project(tmp_path).run_python("-m", "tests.servers", extra={"PATH": str(tmp_path)})
    assert (done.code, done.out) == (1, "")
    assert "Node.js" in done.err
    assert "Traceback" not in done.err


def test_without_variables_there_is_nothing_to_show(tmp_path: Path) -> None:
    """What must be typed first is said."""
    done = Project(tmp_path).run_python("-m", "tests.servers", "show")
    assert (done.code, done.err) == (2, "there are no variables: . ./servers.env\n")
