"""Serve command lines: each runs in a process forked from this one, which saves the start; it can be killed for real.

What takes long to import may be named as arguments.

One JSON object a line on stdin, one a line on stdout. `kill` says where the process gets SIGKILL:

    {"tool": NAME, "when": "before" | "after"}      before the tool is entered, or when it has returned and nobody knows
    {"commit": NUMBER, "when": "before" | "after"}  around a durable transaction, counted over the whole run
"""

from __future__ import annotations

import contextlib
import importlib
import io
import json
import os
import signal
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

from sagactl.cli.main import run_command_line
from sagactl.log.sqlite import SqliteLog
from sagactl.tools.invoke import PluginToolbox

COMMITS = ("create", "claim", "append", "release")


def main() -> None:
    """Answer requests until stdin ends."""
    _warm_up()
    for line in sys.stdin:
        answer = _serve(json.loads(line))
        sys.stdout.write(json.dumps(answer) + "\n")
        sys.stdout.flush()


def _warm_up() -> None:
    """Import what every command needs, once and for all."""
    with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()):
        run_command_line(["validate"])
    for name in ("sagactl.engine.driver", "sagactl.log.open", *sys.argv[1:]):
        importlib.import_module(name)


def _serve(request: dict[str, Any]) -> dict[str, Any]:
    with tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as err:
        child = os.fork()
        if child == 0:
            _become(request, out.fileno(), err.fileno())
        _, status = os.waitpid(child, 0)
        out.seek(0)
        err.seek(0)
        code = os.waitstatus_to_exitcode(status)
        return {"code": code, "out": out.read().decode(), "err": err.read().decode(errors="replace")}


def _become(request: dict[str, Any], out: int, err: int) -> None:
    """Be the command of *request*, and never return."""
    code = 70
    try:
        os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
        os.dup2(out, 1)
        os.dup2(err, 2)
        os.chdir(request["folder"])
        os.environ.clear()
        os.environ.update(request["environment"])
        Path(request["pid_file"]).write_text(str(os.getpid()))
        count = _arm(request["kill"])
        code = int(run_command_line(request["arguments"]))
        sys.stderr.write(f"commits {count()}\n")
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)


def _die() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def _arm(kill: dict[str, Any] | None) -> Callable[[], int]:
    """Stand before the log and the tools; return what counts the commits."""
    kill = kill or {}
    commits = 0

    def stand_before(real: Callable[..., Any]) -> Callable[..., Any]:
        def write(*arguments: Any, **options: Any) -> Any:
            nonlocal commits
            commits += 1
            is_here = commits == kill.get("commit")
            if is_here and kill["when"] == "before":
                _die()
            result = real(*arguments, **options)
            if is_here:
                _die()
            return result

        return write

    def call(self: PluginToolbox, invocation: Any) -> Any:
        is_here = invocation.tool == kill.get("tool")
        if is_here and kill["when"] == "before":
            _die()
        answer = real_call(self, invocation)
        if is_here:
            _die()
        return answer

    for name in COMMITS:
        setattr(SqliteLog, name, stand_before(getattr(SqliteLog, name)))
    real_call = PluginToolbox.call
    PluginToolbox.call = call  # type: ignore[method-assign]
    return lambda: commits


if __name__ == "__main__":
    main()
