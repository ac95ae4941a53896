"""Descriptors 1 and 2 taken away from what writes past Python: C code, `os.write`, child processes.

Both lead into a pipe. A thread reads it and passes the text on to the real stderr: decoded, with every character that
a terminal or a runner of CI would obey shown as an escape, without secrets, and only so much of it. Nothing of what it
does can hold a tool up for long or fail: a reader of stderr that has stopped or gone away loses text, and the pipe is
emptied all the same.
"""

from __future__ import annotations

import atexit
import codecs
import contextlib
import os
import threading
from typing import Final

from sagactl import workflow
from sagactl.secrets.masking import KNOWN

SHOWN_BYTES_MAX: Final = 1_048_576
"""How much of what comes by the descriptors is shown in the life of a process; the rest is dropped."""

STALLED_SECONDS: Final = 1.0
"""How long a stderr that takes nothing is waited for, once; then text is dropped until it takes some again."""

HELD_SECONDS: Final = 0.1
"""How long the end of a text is held back when nothing follows: the beginning of a secret may stand there."""

FINISH_SECONDS: Final = 1.0
"""How long the end of the process waits for what is still in the pipe."""

FIRST_FREE_DESCRIPTOR: Final = 3
"""Descriptors below have a meaning to programs, even where they are closed."""

_CUT: Final = f"\n[what tools write past sagactl is shown up to {SHOWN_BYTES_MAX} bytes; the rest is dropped]\n"
_READ_BYTES: Final = 65_536
_WRITE_BYTES: Final = 512
"""What a descriptor that says it can be written to takes without blocking."""


def show_controls(text: str) -> str:
    r"""Return *text* with newlines as they are and everything else that isn't printable as an escape: `\x1b`, `\r`."""
    if text.isprintable():
        return text
    return "".join(each if each.isprintable() or each == "\n" else _escape(each) for each in text)


def _escape(character: str) -> str:
    return character.encode("unicode_escape").decode("ascii")


class Drain:
    """The pipe behind descriptors 1 and 2, and the thread that empties it onto *sink*."""

    def __init__(self, sink: int, encoding: str) -> None:
        self._sink = sink
        self._encoding = encoding
        self._decoder = codecs.getincrementaldecoder("utf-8")(errors="replace")
        self._room_bytes = SHOWN_BYTES_MAX
        self._is_full = False
        self._held = ""
        self._tamer = workflow.Tamer() if workflow.is_read() else None
        self._patience_seconds = STALLED_SECONDS
        self._pid = os.getpid()
        self._reader = _take_descriptors()
        self._woken, self._waker = (move_up(each) for each in os.pipe())
        self._thread = threading.Thread(target=self._empty, name="sagactl-descriptors", daemon=True)
        self._thread.start()
        atexit.register(self.finish)

    def finish(self) -> None:
        """Let the descriptors lead nowhere, and wait a little until what is in the pipe has come out."""
        if os.getpid() != self._pid or not self._thread.is_alive():
            return
        nowhere = os.open(os.devnull, os.O_WRONLY)
        for descriptor in (1, 2):
            os.dup2(nowhere, descriptor)
        os.close(nowhere)
        os.write(self._waker, b".")
        with contextlib.suppress(KeyboardInterrupt):  # at the very end there is nothing left to be broken off but this
            self._thread.join(FINISH_SECONDS)

    def _empty(self) -> None:
        import select

        poll = select.poll()
        poll.register(self._reader, select.POLLIN)
        poll.register(self._woken, select.POLLIN)
        while True:
            ready = {descriptor for descriptor, _ in poll.poll(HELD_SECONDS * 1_000 if self._held else None)}
            if not ready:
                self._show_held()
                continue
            if self._reader not in ready:
                break
            data = os.read(self._reader, _READ_BYTES)
            self._take(self._decoder.decode(data, final=not data))
            if not data:
                break
        self._show_held()

    def _take(self, text: str) -> None:
        """Show *text*, but for an end in which a secret may have begun."""
        if not KNOWN.is_active or self._is_full:
            self._show(text)
            return
        shown, self._held = KNOWN.split(self._held + text)
        self._show(shown)

    def _show_held(self) -> None:
        held, self._held = self._held, ""
        self._show(KNOWN.mask(held))

    def _show(self, text: str) -> None:
        """Write *text*, as far as there is room."""
        if self._is_full or not text:
            return
        shown = show_controls(text)
        shown = shown if self._tamer is None else self._tamer.feed(shown)
        data = shown.encode(self._encoding, "backslashreplace")
        self._is_full = len(data) > self._room_bytes
        if self._is_full:
            data = data[: self._room_bytes] + _CUT.encode()
        self._room_bytes -= len(data)
        for start in range(0, len(data), _WRITE_BYTES):
            self._write(data[start : start + _WRITE_BYTES])

    def _write(self, data: bytes) -> None:
        import select

        poll = select.poll()
        poll.register(self._sink, select.POLLOUT)
        with contextlib.suppress(OSError):
            while data and poll.poll(self._patience_seconds * 1_000):
                self._patience_seconds = STALLED_SECONDS
                data = data[os.write(self._sink, data) :]
        if data:
            self._patience_seconds = 0


def _take_descriptors() -> int:
    """Point descriptors 1 and 2 at a new pipe; return where it is read."""
    reader, writer = (move_up(each) for each in os.pipe())
    for descriptor in (1, 2):
        os.dup2(writer, descriptor)
    os.close(writer)
    return reader


def move_up(descriptor: int) -> int:
    """Return *descriptor*, or in its place one that isn't among the first three; children don't inherit it."""
    if descriptor >= FIRST_FREE_DESCRIPTOR:
        return descriptor
    moved = keep(descriptor)
    os.close(descriptor)
    return moved


def keep(descriptor: int) -> int:
    """Return a second descriptor of the same file, not among the first three, that children don't inherit."""
    import fcntl

    return fcntl.fcntl(descriptor, fcntl.F_DUPFD_CLOEXEC, FIRST_FREE_DESCRIPTOR)
