"""A terminal on which a picture is drawn again and again, by a thread of its own.

* Whoever makes the picture gives lines; drawing them costs nobody else anything. The thread looks about eight times a
  second, and draws only what has changed.
* What others write to stderr meanwhile (warnings, tools, threads) goes through a pipe and comes out above the picture,
  with every character that a terminal would obey shown as an escape. The pipe takes the place of stderr's descriptor,
  so nobody has to know.
* The cursor stays visible all the time: a process that is killed leaves no terminal to be mended.
* A picture that ends within `BEGIN_SECONDS` is written once, and nothing is imported for it.
"""

from __future__ import annotations

import contextlib
import os
import signal
import sys
import threading
import time
from collections.abc import Callable
from types import FrameType
from typing import Any, Final, Self, TextIO

from sagactl.cli.painter import COLOR, SIZE_UNKNOWN, Painter, Terminal, write_all
from sagactl.cli.views.text import safe

BEGIN_SECONDS: Final = 0.2
REFRESH_SECONDS: Final = 0.12
STOPPED_SECONDS: Final = 0.5
"""After so long a pause between two pictures the process may have been stopped."""

SIGNAL_SECONDS: Final = 0.05
"""How long the signal that ended such a pause may take to be handled."""

_READ_BYTES: Final = 65_536

Draw = Callable[[os.terminal_size, bool], list[str]]
"""Makes the picture for a size; the second argument is true for the last one, which stays on the screen."""


class Screen:
    """Draws what *draw* gives on the terminal behind *stream* for the time of a `with`."""

    def __init__(self, stream: TextIO, draw: Draw, *, color: bool, gap: bool) -> None:
        self._stream = stream
        self._draw = draw
        self._color = color
        self._gap = gap
        """Whether an empty line follows the last picture."""
        self._leaving = threading.Event()
        self._begins_anew = False
        self._previous: Any = None
        self._drawn_at = time.monotonic()
        self._thread = threading.Thread(target=self._run, name="sagactl-screen", daemon=True)
        self._detour: Detour | None = None

    def __enter__(self) -> Self:
        if threading.current_thread() is threading.main_thread():
            self._previous = signal.signal(signal.SIGCONT, self._go_on)
        self._thread.start()
        return self

    def __exit__(self, *error: object) -> None:
        self._leaving.set()
        self._thread.join()
        if self._previous is not None:
            signal.signal(signal.SIGCONT, self._previous)

    def _go_on(self, number: int, frame: FrameType | None) -> None:
        """Leave the picture where it is, as others have written below it while the process was stopped."""
        del number, frame
        self._begins_anew = True

    @property
    def descriptor(self) -> int:
        """Return the descriptor of the terminal itself."""
        detour = self._detour
        return self._stream.fileno() if detour is None else detour.terminal

    def _run(self) -> None:
        try:
            if self._leaving.wait(BEGIN_SECONDS):
                self._write_once()
            else:
                self._draw_until_left()
        except Exception as error:  # a picture is no reason to break off what it shows
            self._end_detour()
            with contextlib.suppress(OSError, ValueError):
                text = safe(f"{type(error).__name__}: {error}")
                self._stream.write(f"\nwarning: the live display ended: {text}\n")
                self._stream.flush()

    def _write_once(self) -> None:
        lines = self._draw(self._measure(self.descriptor), True)
        if lines:
            text = "\n".join([*lines, ""] if self._gap else lines)
            write_all(self.descriptor, f"{text}\n".encode(self._stream.encoding or "utf-8", "replace"))

    def _draw_until_left(self) -> None:
        self._detour = detour = Detour(self._stream.fileno())
        try:
            painter = Painter(Terminal(detour.terminal, self._stream.encoding or "utf-8"), color=self._color)
            keyboard, is_last = Keyboard(detour.terminal), False
            while not is_last:
                is_last = self._leaving.is_set()
                if is_last:
                    detour.end()
                self._catch_up(painter)
                if keyboard.was_enter_echoed():
                    painter.go_up()
                painter.write_above(detour.read())
                size = self._measure(detour.terminal)
                if is_last or is_in_front(detour.terminal):
                    painter.paint(self._draw(size, is_last), size)
                else:
                    self._begins_anew = True
                self._leaving.wait(REFRESH_SECONDS)
            painter.finish(gap=self._gap)
        finally:
            self._end_detour()

    def _catch_up(self, painter: Painter) -> None:
        """After a pause find out whether the process was stopped: others have used the terminal then."""
        now = time.monotonic()
        if now - self._drawn_at > STOPPED_SECONDS:
            time.sleep(SIGNAL_SECONDS)
        self._drawn_at = now
        if self._begins_anew:
            self._begins_anew = False
            painter.begin_anew()

    def _end_detour(self) -> None:
        detour, self._detour = self._detour, None
        if detour is not None:
            detour.end()
            detour.close()

    @staticmethod
    def _measure(descriptor: int) -> os.terminal_size:
        try:
            size = os.get_terminal_size(descriptor)
        except OSError:
            return SIZE_UNKNOWN
        return size if size.columns > 0 and size.lines > 0 else SIZE_UNKNOWN


def is_in_front(descriptor: int) -> bool:
    """Tell whether the terminal is ours to draw on: a job in the background leaves it to others."""
    try:
        return os.tcgetpgrp(descriptor) == os.getpgrp()
    except OSError:
        return True


class Keyboard:
    """Knows of what is typed on the terminal *descriptor* without reading it: that is for whoever comes next.

    Echo stays on, for a process that is killed must leave no terminal to be mended. So each Enter moves the cursor on,
    and as only whole lines can be read, it is seen by their number of bytes.
    """

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor
        self._bytes = self._count()

    def was_enter_echoed(self) -> bool:
        """Tell whether Enter was pressed since the last look; twice within one look is seen as once."""
        before, self._bytes = self._bytes, self._count()
        return self._bytes > before and self._is_echoing()

    def _count(self) -> int:
        import fcntl
        import termios

        try:
            found = fcntl.ioctl(self._descriptor, termios.FIONREAD, b"\0" * 4)
        except OSError:
            return 0
        return int.from_bytes(found, sys.byteorder)

    def _is_echoing(self) -> bool:
        import termios

        try:
            return bool(termios.tcgetattr(self._descriptor)[3] & termios.ECHO)
        except termios.error:
            return False


class Detour:
    """A pipe in the place of *descriptor*; `terminal` is what was there."""

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor
        self._is_inherited = descriptor <= 2
        self.terminal = os.dup(descriptor)
        self._reader, writer = os.pipe()
        os.set_blocking(self._reader, False)
        os.dup2(writer, descriptor, inheritable=self._is_inherited)
        os.close(writer)
        self._is_there = True
        self._rest = b""

    def end(self) -> None:
        """Put back what was there; what is in the pipe can still be read."""
        if self._is_there:
            self._is_there = False
            os.dup2(self.terminal, self._descriptor, inheritable=self._is_inherited)

    def read(self) -> list[str]:
        """Return the whole lines that came, safe but for colours; at the end also what has no line end."""
        data = self._rest
        with contextlib.suppress(BlockingIOError):
            while more := os.read(self._reader, _READ_BYTES):
                data += more
        head, _, self._rest = data.rpartition(b"\n")
        if not self._is_there:
            head, self._rest = data.removesuffix(b"\n"), b""
        return [make_safe(line) for line in head.decode(errors="replace").split("\n")] if head else []

    def close(self) -> None:
        """Close what only the detour needed."""
        os.close(self._reader)
        os.close(self.terminal)


def make_safe(line: str) -> str:
    """Return *line* with nothing in it that a terminal obeys but colours, which end with the line."""
    parts = COLOR.split(line)
    text = "".join(part if index % 2 else safe(part) for index, part in enumerate(parts))
    return f"{text}\x1b[0m" if len(parts) > 1 else text
