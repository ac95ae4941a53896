"""A project whose tools testify to what reaches them, and hostile commands run in it as a user would, measured."""

from __future__ import annotations

import json
import re
import sqlite3
import subprocess
import sys
import tempfile
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.cli.project import Project

MEASURED = Path(__file__).with_name("measured.py")
STRIKES_GOAL = 200
"""Hostile commands that are tried in all."""

PEAK_MIB_MAX = 200
"""Of the whole process, which takes some 25 MiB before it does anything."""

CPU_SECONDS_MAX = 1.0
"""Beyond what the same command takes where nothing is wrong; processor time, since the machine has other work too."""

PLUGIN = '''
"""Tools that write down what they are given, exactly."""

import json
from decimal import Decimal
from pathlib import Path
from typing import Annotated, Any

from sagactl import CallContext, Rejected, tool


def testify(context, value):
    line = [context.step, context.item, context.direction, repr(value)]
    with (context.project / "seen.jsonl").open("a") as file:
        file.write(json.dumps(line) + "\\n")


UNDO = {"value": "${{ args.value }}", "got": "${{ output }}"}


@tool("trap.take", compensation="trap.give_back", compensation_with=UNDO)
def take(value: Any, context: CallContext) -> Any:
    """Take a value, and give it back as output."""
    testify(context, value)
    return {"value": value}


@tool("trap.give_back", null_safe=True)
def give_back(context: CallContext, value: Any = None, got: Any = None) -> None:
    """Undo."""
    testify(context, [value, got])


@tool("trap.read", read_only=True)
def read(file: str, context: CallContext) -> Any:
    """Give what stands in a file of the project, whatever it is: an answer of somebody else's."""
    return json.loads((context.project / file).read_text(), parse_float=Decimal)


@tool("trap.fail", compensation="trap.give_back")
def fail(context: CallContext, message: str = "no", code: str = "refused", value: Any = None) -> None:
    """Fail, in any words."""
    testify(context, value)
    raise Rejected(message, code=code)
'''

ECHO = """
saga: echo
input: {type: object}
steps:
  - {id: one, tool: trap.take, with: {value: "${{ input.value }}"}}
  - {id: two, tool: trap.take, with: {value: "${{ steps.one.output.value }}"}}
  - id: three
    tool: trap.fail
    when: "${{ has(input.fails) }}"
    with: {value: "${{ steps.two.output.value }}"}
    compensate: {none: it fails}
output: "${{ steps.two.output.value }}"
"""
"""What is given is handed from call to call, and to the undo of each."""

CONTROL = re.compile("[\x00-\x09\x0b-\x1f\x7f-\x9f\u200b-\u200f\u2028-\u202e\u2060-\u2069\ufeff]")
"""What no terminal may be sent; the line end alone is ours."""


@dataclass(frozen=True)
class Blow:
    """What a hostile command came to, and what it cost."""

    code: int
    out: str
    err: str
    cpu_seconds: float
    peak_mib: float

    @property
    def json(self) -> Any:
        """The one JSON value on stdout."""
        return json.loads(self.out)

    @property
    def problems(self) -> list[tuple[str, int, int]]:
        """Code, line and column of each error of a saga file or data file, from the JSON answer."""
        value = self.json
        items = value["items"] if "items" in value else value["error"]["problems"]
        return [(each["code"], each["line"], each["column"]) for each in items if each["severity"] == "error"]


@dataclass
class Target:
    """A project under attack."""

    project: Project
    harmless_seconds: float = 0.0
    tell: Callable[[], None] = lambda: None
    """Counts each hostile command."""

    @classmethod
    def make(cls, path: Path) -> Target:
        """Make a project with the tools that testify and the saga that hands a value on."""
        for name, text in {"plugins/trap.py": PLUGIN, "sagas/echo.yaml": ECHO, "sagactl.toml": ""}.items():
            (path / name).parent.mkdir(exist_ok=True, parents=True)
            (path / name).write_text(text)
        return cls(Project(path))

    @property
    def path(self) -> Path:
        """The project's folder."""
        return self.project.path

    def write(self, text: str | bytes, name: str = "evil.yaml") -> str:
        """Write a file into the project; return its name."""
        data = text if isinstance(text, bytes) else text.encode("utf-8", "surrogatepass")
        (self.path / name).write_bytes(data)
        return name

    def strike(
        self,
        *arguments: str,
        stdin: bytes | None = None,
        extra: Mapping[str, str] | None = None,
        timeout: float = 120,
        is_again: bool = False,
    ) -> Blow:
        """Run `sagactl` with *arguments*, measured; nothing that it is given may bring a traceback or control bytes."""
        if not is_again:
            self.tell()
        with tempfile.NamedTemporaryFile(mode="r", suffix=".json") as cost:
            done = subprocess.run(
                [sys.executable, "-I", str(MEASURED), cost.name, sys.executable, "-m", "sagactl", *arguments],
                cwd=self.path,
                env=self.project.environment(extra),
                capture_output=True,
                timeout=timeout,
                check=False,
                input=stdin or b"",
            )
            spent = json.loads(cost.read())
        out, err = done.stdout.decode("utf-8", "surrogateescape"), done.stderr.decode("utf-8", "surrogateescape")
        told = f"sagactl {' '.join(arguments)[:300]!r}: {done.returncode}\n{out[-2000:]}\n{err[-2000:]}"
        assert "Traceback" not in out + err, told
        assert "error[bug]" not in err, told
        assert not CONTROL.search(out), told
        assert not CONTROL.search(err), told
        return Blow(done.returncode, out, err, spent["cpu_seconds"], spent["peak_mib"])

    def repel(self, *arguments: str, code: int = 3, stdin: bytes | None = None, cpu_seconds: float = CPU_SECONDS_MAX,
              peak_mib: float = PEAK_MIB_MAX) -> Blow:  # fmt: skip
        """Strike with what must be refused with exit *code*, within the bounds, with nothing called and no record.

        A machine that is busy may take longer than it should; only what is slow three times is slow.
        """
        for attempt in range(3):
            blow = self.strike(*arguments, stdin=stdin, is_again=attempt > 0)
            assert blow.code == code, (arguments, blow.out[-2000:], blow.err[-2000:])
            self.refuse_traces()
            if blow.cpu_seconds - self.harmless_seconds <= cpu_seconds:
                break
        assert blow.cpu_seconds - self.harmless_seconds <= cpu_seconds, (arguments, blow.cpu_seconds)
        assert blow.peak_mib <= peak_mib, (arguments, blow.peak_mib)
        return blow

    def refuse_traces(self) -> None:
        """Fail where a tool was called or a run was recorded."""
        assert not self.seen()
        assert self.runs() == []

    def seen(self) -> list[list[Any]]:
        """Return what reached the tools: step, item, direction, and the `repr` of the value."""
        file = self.path / "seen.jsonl"
        return [json.loads(line) for line in file.read_text().splitlines()] if file.exists() else []

    def runs(self) -> list[str]:
        """Return the ids of all runs that the log has, read without us."""
        file = self.path / ".sagactl" / "log.db"
        if not file.exists():
            return []
        with sqlite3.connect(f"file:{file}?mode=ro", uri=True) as database:
            return [row[0] for row in database.execute("SELECT run_id FROM runs")]

    def files(self) -> set[str]:
        """Return every file of the project, and what lies beside it, by its path."""
        top = self.path.parent
        return {str(each.relative_to(top)) for each in top.rglob("*") if "__pycache__" not in each.parts}

    def stored_bytes(self) -> bytes:
        """Return all bytes of all files of the project."""
        return b"".join(each.read_bytes() for each in sorted(self.path.rglob("*")) if each.is_file())
