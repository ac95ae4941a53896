"""A terminal for tests: a pseudo-terminal, and as much of an emulator as a live display needs."""

from __future__ import annotations

import codecs
import contextlib
import fcntl
import os
import re
import select
import struct
import subprocess
import sys
import termios
import threading
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from types import TracebackType
from typing import Self

from sagactl.cli.views.text import width_of
from tests.cli.project import WAIT_SECONDS, Project

_BEGUN = re.compile(r"\x1b(\[[?0-9;]*)?")
_CODE = re.compile(r"\x1b\[([?0-9;]*)([A-Za-z])")
HIDE_CURSOR = "\x1b[?25l"


class Terminal:
    """What is on the screen after all that was written to the terminal; `lines` includes what scrolled away."""

    def __init__(self, columns: int = 80, rows: int = 24) -> None:
        self.reader, self.writer = os.openpty()
        self._lock = threading.Lock()
        self._is_left = threading.Event()
        self.columns, self.rows = columns, rows
        self.resize(columns, rows)
        self.raw = ""
        self._pending = b""
        self._decoder = codecs.getincrementaldecoder("utf-8")(errors="replace")
        self._rest = ""
        self._lines = [""]
        self._row = 0
        self._column = 0
        self._thread = threading.Thread(target=self._listen, daemon=True)
        self._thread.start()

    def _listen(self) -> None:
        """Take what is written, as a terminal does: whoever writes must never wait for a test to look."""
        while not self._is_left.is_set():
            if select.select([self.reader], [], [], 0.05)[0]:
                with self._lock, contextlib.suppress(OSError):
                    self._pending += os.read(self.reader, 65_536)

    def stop(self) -> None:
        """Go away."""
        self._is_left.set()
        self._thread.join()
        os.close(self.reader)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()
        os.close(self.writer)

    def resize(self, columns: int, rows: int) -> None:
        """Change the size, as somebody does who pulls at the window; lines that are too long wrap, as most do it."""
        fcntl.ioctl(self.writer, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))
        if columns < self.columns:
            self.read()
            self._reflow(columns)
        self.columns, self.rows = columns, rows

    def _reflow(self, columns: int) -> None:
        lines: list[str] = []
        for number, line in enumerate(self._lines):
            parts = [line[start : start + columns] for start in range(0, max(1, len(line)), columns)]
            lines += parts
            if number == self._row:
                self._row, self._column = len(lines) - 1, len(parts[-1])
        self._lines = lines

    @property
    def lines(self) -> list[str]:
        """Return all lines so far, without what is empty at the end."""
        self.read()
        lines = [line.rstrip() for line in self._lines]
        while lines and not lines[-1]:
            lines.pop()
        return lines

    @property
    def text(self) -> str:
        """Return all lines as one text."""
        return "\n".join(self.lines)

    def read(self) -> None:
        """Take in what has been written."""
        while select.select([self.reader], [], [], 0)[0]:
            time.sleep(0.005)
        with self._lock:
            data, self._pending = self._pending, b""
        text = self._decoder.decode(data)
        self.raw += text
        self._obey(text)

    def _obey(self, text: str) -> None:
        place = 0
        text, self._rest = self._rest + text, ""
        while place < len(text):
            code = _CODE.match(text, place)
            if code is None and _BEGUN.fullmatch(text, place):
                self._rest = text[place:]
                return
            if code is not None:
                self._do(code[1], code[2])
                place = code.end()
                continue
            self._put(text[place])
            place += 1

    def _do(self, argument: str, letter: str) -> None:
        if letter == "A":
            self._row = max(0, self._row - int(argument or 1))
        elif letter == "K":
            self._lines[self._row] = ""
        else:
            assert letter == "m", f"an escape that nobody expects here: {argument}{letter}"

    def _put(self, character: str) -> None:
        if character == "\r":
            self._column = 0
        elif character == "\n":
            self._go_down()
        else:
            assert character.isprintable(), repr(character)
            if self._column + width_of(character) > self.columns:
                self._go_down()
                self._column = 0
            line = self._lines[self._row].ljust(self._column)
            self._lines[self._row] = line[: self._column] + character + line[self._column + 1 :]
            self._column += width_of(character)

    def _go_down(self) -> None:
        self._row += 1
        if self._row == len(self._lines):
            self._lines.append("")

    def wait_for(self, is_there: Callable[[str], bool], *, seconds: float = WAIT_SECONDS) -> str:
        """Wait until the screen shows something, and return its text as it was then."""
        until = time.monotonic() + seconds
        while not is_there(text := self.text):
            assert time.monotonic() < until, text
            time.sleep(0.02)
        return text

    def type(self, keys: str) -> None:
        """Type on the keyboard."""
        os.write(self.reader, keys.encode())

    def start(self, project: Project, *arguments: str, extra: Mapping[str, str] | None = None) -> subprocess.Popen[str]:
        """Start `sagactl` in this terminal, as its foreground program."""
        environ = {**project.environment(), "TERM": "xterm-256color", "LC_ALL": "C.UTF-8", **(extra or {})}
        for name in {"COLUMNS", "LINES", "CI", "NO_COLOR", "FORCE_COLOR"} - set(extra or {}):
            environ.pop(name, None)
        script = (
            "import fcntl, termios; fcntl.ioctl(0, termios.TIOCSCTTY, 0); from sagactl.__main__ import main; main()"
        )
        return subprocess.Popen(
            [sys.executable, "-c", script, *arguments],
            cwd=project.path,
            env=environ,
            stdin=self.writer,
            stdout=self.writer,
            stderr=self.writer,
            start_new_session=True,
            text=True,
        )

    def run(self, project: Project, *arguments: str, extra: Mapping[str, str] | None = None) -> int:
        """Run `sagactl` in this terminal to its end."""
        process = self.start(project, *arguments, extra=extra)
        until = time.monotonic() + WAIT_SECONDS
        while process.poll() is None and time.monotonic() < until:
            self.read()
            time.sleep(0.01)
        return process.wait(timeout=1)


def make_slow_project(path: Path) -> Project:
    """Make a project whose tools take as long as they are told, and fail as they are told.

    What is `held` goes on when the file `go` is there: until `let_go`.
    """
    (path / "plugins").mkdir()
    (path / "sagas").mkdir()
    (path / "plugins" / "slow.py").write_text(_PLUGIN)
    (path / "sagas" / "trip.yaml").write_text(_SAGA)
    return Project(path)


def let_go(project: Project) -> None:
    """Let the calls go on that are held."""
    (project.path / "go").touch()


_PLUGIN = '''
"""Tools that take their time."""

import os
import time

from sagactl import CallContext, Rejected, Unavailable, tool


@tool("slow.book", compensation="slow.cancel", compensation_with={"what": "${{ output.what }}"})
def book(context: CallContext, what: str, seconds: str = "0.3", how: str = "") -> dict[str, str]:
    """Book something."""
    if how == "noisy":
        os.write(2, b"raw \\x1b[2J and \\xff bytes\\n")
        print("printed")
    time.sleep(float(seconds))
    if how.startswith("busy") and context.attempt == 1:
        raise Unavailable("come \\x1b[31mback\\u202e [red]later[/red]")
    if how == "refuse":
        raise Rejected("no room \\x1b]8;;http://evil.example\\x07here", code="full")
    while how.endswith("held") and not (context.project / "go").exists():
        time.sleep(0.01)
    return {"what": what}


@tool("slow.cancel", null_safe=True)
def cancel(what: str | None = None) -> dict[str, str]:
    """Cancel it."""
    time.sleep(0.2)
    return {"what": what or ""}
'''

_SAGA = """
saga: trip
input:
  type: object
  additionalProperties: false
  properties:
    flight: {type: string, default: ""}
    hotel: {type: string, default: ""}
    seconds: {type: string, default: "0.3"}
defaults: {start_to_close_timeout: 300s, retry: {initial_interval: 500ms, jitter: none}}
steps:
  - {id: flight, tool: slow.book, with: {what: flight, seconds: "${{ input.seconds }}", how: "${{ input.flight }}"}}
  - {id: hotel, tool: slow.book, with: {what: hotel, seconds: "${{ input.seconds }}", how: "${{ input.hotel }}"}}
  - {id: car, tool: slow.book, with: {what: car}}
"""
