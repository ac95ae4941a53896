"""A scenario's project: the probe plugin, sagas in a few words, commands as other processes, and the ledger.

Each command runs in a process of its own (`warm.py` forks it, so that it costs no start) with JSON on stdout; its exit
code, its stdout and its stderr are checked on every way out. What stays to be checked at the end is in `checks.py`.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Self

from sagactl.app import Project as App
from sagactl.app import open_project
from sagactl.cli.views.spelling import spell as spell_json
from sagactl.core.records import Timer
from sagactl.usecases.documents import write_record
from tests.cli.project import ROOT, Project

HERE = Path(__file__).parent
PATIENCE_SECONDS = 120.0
REASONED = {"cancel", "rollback", "terminate", "pause", "unpause", "approve", "deny", "dlq"}


@dataclass
class Done:
    """What a command gave."""

    code: int
    out: str
    err: str

    @property
    def json(self) -> Any:
        """The one JSON value on stdout."""
        return json.loads(self.out)

    @property
    def run(self) -> Any:
        """The run in it."""
        return self.json["run"]

    @property
    def error(self) -> Any:
        """The error in it: its code."""
        error = self.json["error"]
        return None if error is None else error["code"]


class Warm:
    """The process that the commands are forked from."""

    def __init__(self) -> None:
        self._process = subprocess.Popen(
            [sys.executable, str(HERE / "warm.py")],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env=Project(ROOT).environment(),
            cwd=ROOT,
            text=True,
        )

    def ask(self, **request: Any) -> Any:
        """Send a request and return its answer."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(json.dumps(request) + "\n")
        self._process.stdin.flush()
        return json.loads(self._process.stdout.readline())

    def close(self) -> None:
        """End it, and all that it has started."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.close()
        self._process.stdout.close()
        self._process.wait(60)


@dataclass
class Command:
    """A command that was started."""

    scene: Scene
    arguments: tuple[str, ...]
    pid: int
    files: tuple[Path, Path]
    code: int | None = None

    def wait(self, seconds: float = PATIENCE_SECONDS) -> Done:
        """Return what it gave, checked: an exit code that fits, one JSON value, no traceback."""
        if self.code is None:
            self.code = self.scene.warm.ask(wait=self.pid, seconds=seconds)
            assert self.code is not None, f"`sagactl {' '.join(self.arguments)}` does not end\n{self.err()}"
            self.scene.dead.add(self.pid)
        out, err = (file.read_text() for file in self.files)
        done = Done(self.code, out, err)
        self.scene.check_answer(self.arguments, done)
        return done

    def err(self) -> str:
        """Return what stands on stderr by now."""
        return self.files[1].read_text()

    def is_over(self) -> bool:
        """Tell whether it has ended, without waiting."""
        if self.code is None:
            self.code = self.scene.warm.ask(wait=self.pid, seconds=0)
        return self.code is not None

    def signal(self, number: int) -> None:
        """Send it a signal."""
        os.kill(self.pid, number)

    def wait_until_stopped(self) -> None:
        """Wait until the kernel has stopped it."""
        stat = Path(f"/proc/{self.pid}/stat")
        self.scene.wait_for(lambda: stat.read_text().rpartition(")")[2].split()[0] == "T")


@dataclass
class Scene:
    """One project and what is done in it."""

    path: Path
    warm: Warm
    environ: dict[str, str] = field(default_factory=dict)
    dead: set[int] = field(default_factory=set)
    """Processes that are gone for sure."""
    asked: list[str] = field(default_factory=list)
    """The reasons that operators gave, each to be found in the log."""
    commands: int = 0
    is_checked: bool = False

    @classmethod
    def make(cls, path: Path, warm: Warm) -> Self:
        """Make a project with the probe plugin in *path*."""
        (path / "sagas").mkdir(parents=True)
        (path / "plugins").mkdir()
        shutil.copy(HERE / "probe.py", path / "plugins" / "probe.py")
        return cls(path, warm)

    # What is written

    def saga(self, name: str, steps: list[dict[str, Any]], **top: Any) -> str:
        """Write a saga; JSON is YAML too. Returns its name."""
        text = json.dumps({"saga": name, **top, "steps": steps}, indent=1, ensure_ascii=False)
        (self.path / "sagas" / f"{name}.yaml").write_text(text, encoding="utf-8")
        return name

    def plugin(self, name: str, text: str) -> None:
        """Write another plugin."""
        (self.path / "plugins" / f"{name}.py").write_text(text)

    # What is done

    def environment(self, extra: Mapping[str, str] | None = None) -> dict[str, str]:
        """Return the environment of a command."""
        return Project(self.path, self.environ).environment(extra)

    def start(
        self, *arguments: str, extra: Mapping[str, str] | None = None, hooks: Mapping[str, Any] | None = None
    ) -> Command:
        """Start a command and don't wait for it."""
        self.commands += 1
        if "-o" not in arguments and arguments[:1] != ("validate",):
            arguments = (*arguments, "-o", "json")
        if arguments[0] in REASONED and not {"--reason", "list", "show"} & set(arguments):
            arguments = (*arguments, "--reason", f"reason {self.commands}")
        files = self.path / f"out{self.commands}", self.path / f"err{self.commands}"
        pid = self.warm.ask(
            arguments=arguments,
            folder=str(self.path),
            environment=self.environment(extra),
            out=str(files[0]),
            err=str(files[1]),
            hooks=dict(hooks or {}),
        )
        return Command(self, arguments, pid, files)

    def do(
        self, *arguments: str, extra: Mapping[str, str] | None = None, hooks: Mapping[str, Any] | None = None
    ) -> Done:
        """Run a command to its end."""
        return self.start(*arguments, extra=extra, hooks=hooks).wait()

    def check_answer(self, arguments: tuple[str, ...], done: Done) -> None:
        """Check what holds for every command: no traceback, one JSON value, a code that fits it."""
        assert "Traceback" not in done.err, done.err
        form = arguments[arguments.index("-o") + 1] if "-o" in arguments else "text"
        if done.code < 0 or form != "json":
            return
        if done.code in {130, 143} and not done.out:
            return  # left at once
        answer = json.loads(done.out)
        if done.code in {1, 2, 3, 4, 5, 6}:
            assert answer["error"] is not None or arguments[0] in {"run", "resume", "verify"}, done
        elif arguments[0] in {"run", "resume"} and answer.get("run"):
            assert done.code in CODES[answer["run"]["status"]], done
        if done.code not in {1, 2, 3, 4} and "--reason" in arguments and "--dry-run" not in arguments:
            self.asked.append(arguments[arguments.index("--reason") + 1])

    # What is seen

    def wait_for(self, condition: Callable[[], Any], seconds: float = PATIENCE_SECONDS) -> None:
        """Wait until something is so."""
        until = time.monotonic() + seconds
        while not condition():
            assert time.monotonic() < until, "what is waited for does not come"
            time.sleep(0.005)

    def ledger(self, phase: str | None = None, run: str | None = None) -> list[dict[str, Any]]:
        """Return what the target has noted."""
        file = self.path / "ledger.jsonl"
        lines = [json.loads(line) for line in file.read_text().splitlines()] if file.exists() else []
        return [line for line in lines if phase in {None, line["phase"]} and run in {None, line["run"]}]

    def calls(self, run: str | None = None) -> list[str]:
        """Return the calls that began, spelled as in the scenarios: `a`, `a'`, `f[0]`."""
        return [spell(line) for line in self.ledger("begin", run)]

    def has_begun(self, name: str, times: int = 1) -> Callable[[], bool]:
        """Return what tells whether a call of *name* has begun."""
        return lambda: self.calls().count(name) >= times

    def effects(self) -> list[str]:
        """Return the effects, in order."""
        return [spell(line) for line in self.ledger("effect")]

    def app(self) -> App:
        """Open the project as a program would."""
        return open_project(self.path)

    def runs(self) -> list[str]:
        """Return the ids of all runs, newest first."""
        with self.app() as app:
            return [row.run_id for row in app.runs()]

    def latest(self) -> str:
        """Return the id of the newest run."""
        return self.runs()[0]

    def records(self, run: str | None = None) -> list[dict[str, Any]]:
        """Return the log of a run as the command line prints it."""
        with self.app() as app:
            found = [write_record(stored) for stored in app.records(run or app.runs()[0].run_id)]
        return [json.loads(spell_json(each)) for each in found]

    def of(self, kind: str, run: str | None = None) -> list[dict[str, Any]]:
        """Return the records of one type."""
        return [record for record in self.records(run) if record["type"] == kind]

    def waits(self, run: str | None = None) -> list[int]:
        """Return the delays that were drawn, in milliseconds."""
        with self.app() as app:
            records = [stored.record for stored in app.records(run or app.runs()[0].run_id)]
        return [record.due_ms - record.at_ms for record in records if isinstance(record, Timer)]

    def alerts(self) -> list[str]:
        """Return why people were told: who hears that a run is stuck isn't told of the dead letter that made it so."""
        found = [each["reason"] for each in self.do("outbox", "list").json["items"] if each["state"] == "raised"]
        return [reason for reason in found if reason != "dead_letter" or "stuck" not in found]

    def show(self, run: str | None = None) -> Any:
        """Return a run as `show` prints it."""
        return self.do("show", run or self.latest()).run


CODES = {
    "succeeded": {0},
    "rolled_back": {10, 0},
    "stuck": {11},
    "terminated": {13, 0},
    "waiting": {12, 130, 143},
    "running": {130, 143, 5, 12},
    "rolling_back": {130, 143, 5, 12},
}


def spell(line: Mapping[str, Any]) -> str:
    """Return the name of what a line is about."""
    item = "" if line["item"] is None else f"[{line['item']}]"
    return f"{line['step']}{item}" + ("'" if line["direction"] == "compensation" else "")


def step(name: str, word: str = "ok", undo: str = "ok", *, tool: str = "probe.do", **keys: Any) -> dict[str, Any]:
    """Return a step as the scenarios mean it: one attempt, one of its undo, which copes with nothing done."""
    more = keys.pop("args", {})
    arguments = {"word": word, **more} if tool == "probe.sign" else {"word": word, "undo": undo, **more}
    made: dict[str, Any] = {"id": name, "tool": tool, "with": arguments, "retry": tries(1)}
    if tool != "probe.sign" and "read_only" not in keys:
        made["compensate"] = {"retry": tries(1)}
    return {**made, **keys}


def tries(attempts: int, interval: str = "10ms", **more: Any) -> dict[str, Any]:
    """Return a retry policy without chance."""
    return {"max_attempts": attempts, "initial_interval": interval, "jitter": "none", **more}
