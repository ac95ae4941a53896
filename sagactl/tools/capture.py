"""What tools print, kept with their call and away from the answer on stdout.

`sys.stdout` and `sys.stderr` are replaced by routers. Text written within a call goes to the buffer of that call,
which is bounded: its beginning and its end are kept. A task that outlives its call can reach stderr but never stdout.

Python streams are all that routers see. `protect_stdout` closes the other doors, file descriptors 1 and 2, which belong
to C code and to child processes; a command that calls tools opens with it. From then on the real stdout and stderr are
known by other numbers, and to routers only, and they belong to our own threads outside calls: whatever thread a tool
leaves behind writes to descriptor 2. A program that embeds us keeps its descriptors, and its threads print where they
did. Secrets are masked in all that passes here, but for our own answer and what such a program prints itself.
"""

from __future__ import annotations

import io
import os
import sys
import threading
from collections.abc import Iterable
from contextvars import ContextVar
from typing import TYPE_CHECKING, Any, Final, TextIO, cast

from sagactl.secrets.masking import KNOWN

if TYPE_CHECKING:
    import logging

PRINTED_BYTES_MAX: Final = 1_048_576
"""What is kept of the text of one call: the first half and the last."""

THREAD_PREFIX: Final = "sagactl-"
"""How the names of our own threads begin."""

_HALF: Final = PRINTED_BYTES_MAX // 2
_DESCRIPTORS: Final = {"stdout": 1, "stderr": 2}


class Captured:
    """The text that one call writes, from however many threads; closed when the call is over."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._head = bytearray()
        self._tail = bytearray()
        self._size = 0
        self.is_open = True

    def write(self, data: bytes) -> None:
        """Add *data* and forget what lies between the kept beginning and the kept end."""
        with self._lock:
            self._size += len(data)
            room = _HALF - len(self._head)
            if room > 0:
                self._head += data[:room]
                data = data[room:]
            self._tail += data[-_HALF:]
            if len(self._tail) > 2 * _HALF:
                del self._tail[:-_HALF]

    @property
    def text(self) -> str:
        """Return what was kept, without secrets; a line in the middle says how much was not."""
        with self._lock:
            head, tail = bytes(self._head), bytes(self._tail[-_HALF:])
        cut = self._size - len(head) - len(tail)
        if not cut:
            return KNOWN.mask((head + tail).decode(errors="replace"))
        parts = (
            KNOWN.mask_cut(head.decode(errors="replace"), end=True),
            KNOWN.mask_cut(tail.decode(errors="replace"), start=True),
        )
        return f"\n[{cut} bytes cut]\n".join(parts)


_current: ContextVar[Captured | None] = ContextVar("sagactl_captured", default=None)
_lock: Final = threading.Lock()
_thread: Final = threading.local()


class capturing:  # noqa: N801 - a context manager, used as a verb
    """Keep what is written within the block, on this thread and in the tasks that it starts."""

    def __enter__(self) -> Captured:
        _install()
        _thread.makes_calls = True
        self._captured = Captured()
        self._before = _current.set(self._captured)
        return self._captured

    def __exit__(self, *_: object) -> None:
        self._captured.is_open = False
        _current.reset(self._before)


def _install() -> None:
    """Put routers before whatever streams stand there now; those already there stay."""
    if isinstance(sys.stdout, _Router) and isinstance(sys.stderr, _Router):
        return
    with _lock:
        if sys.stderr is not None and not isinstance(sys.stderr, _Router):
            sys.stderr = cast("TextIO", _Router(sys.stderr, is_answer=False))
        if sys.stdout is not None and not isinstance(sys.stdout, _Router):
            sys.stdout = cast("TextIO", _Router(sys.stdout, is_answer=True))


def protect_stdout() -> None:
    """Take descriptors 1 and 2 away from tools and their children; what comes there is shown on stderr, tamed.

    Call it once, before anything keeps a reference to `sys.stdout` or opens a file. Where the two streams aren't the
    descriptors of their names there is nothing to protect, and nothing is done.
    """
    if not all(_is_plain(getattr(sys, name), descriptor) for name, descriptor in _DESCRIPTORS.items()):
        return
    from sagactl.tools.descriptors import Drain

    stdout, stderr = (_keep_stream(getattr(sys, name), number) for name, number in _DESCRIPTORS.items())
    Drain(stderr.fileno(), stderr.encoding)
    sys.stderr = cast("TextIO", _Router(stderr, is_answer=False, inherited=_DESCRIPTORS["stderr"]))
    sys.stdout = cast("TextIO", _Router(stdout, is_answer=True, inherited=_DESCRIPTORS["stdout"]))


def _is_plain(stream: Any, descriptor: int) -> bool:
    """Tell whether *stream* is what Python made of *descriptor*: nothing, where that was closed."""
    try:
        return stream is None or (not isinstance(stream, _Router) and bool(stream.fileno() == descriptor))
    except (OSError, ValueError, AttributeError):
        return False


def _keep_stream(stream: TextIO | None, descriptor: int) -> TextIO:
    """Return a stream like *stream* under another descriptor; one that leads nowhere in place of a closed one."""
    from sagactl.tools.descriptors import keep, move_up

    if stream is None:
        nowhere = move_up(os.open(os.devnull, os.O_WRONLY))
        return os.fdopen(nowhere, "w", encoding="utf-8", errors="backslashreplace")
    stream.flush()
    by_line = stream.isatty() or descriptor == _DESCRIPTORS["stderr"]
    return os.fdopen(
        keep(descriptor),
        "w",
        encoding=stream.encoding,
        errors=stream.errors,
        newline="\n",
        buffering=1 if by_line else -1,
    )


def _is_ours() -> bool:
    """Tell whether this thread is one of sagactl's: the first one, one that we named, or one that makes calls."""
    thread = threading.current_thread()
    is_named = thread is threading.main_thread() or thread.name.startswith(THREAD_PREFIX)
    return is_named or getattr(_thread, "makes_calls", False)


class _Router(io.TextIOBase):
    """A text stream that asks at each write where the text belongs."""

    def __init__(self, stream: TextIO, *, is_answer: bool, inherited: int | None = None) -> None:
        self._stream = stream
        self._is_answer = is_answer
        self._inherited = inherited

    def _target(self) -> Captured | TextIO | None:
        captured = _current.get()
        if captured is not None and captured.is_open:
            return captured
        return sys.stderr if self._is_answer and self._is_stray() else self._stream

    def _is_stray(self) -> bool:
        """Tell whether a tool speaks outside its call: what outlived it, and threads that it left behind.

        They must not speak where the answer stands, nor tell secrets. A program that embeds us has threads of its own,
        and no answer there.
        """
        return _current.get() is not None or (self._inherited is not None and not _is_ours())

    def write(self, text: str) -> int:
        target = self._target()
        if isinstance(target, Captured):
            target.write(str.encode(text, errors="backslashreplace"))
        elif self._is_stray() and self._inherited is not None:
            os.write(_DESCRIPTORS["stderr"], str.encode(text, errors="backslashreplace"))
        elif target is not None:
            # Our own answer is made of what was masked when it was recorded; digits in it must stay what they are.
            is_masked = self._is_stray() or (self._inherited is not None and not self._is_answer)
            target.write(KNOWN.mask(text) if is_masked else text)
        return len(text)

    def writelines(self, lines: Iterable[Any]) -> None:
        for line in lines:
            self.write(line)

    def flush(self) -> None:
        target = self._target()
        if target is not None and not isinstance(target, Captured):
            target.flush()

    @property
    def buffer(self) -> _Bytes:
        return _Bytes(self)

    def write_bytes(self, data: bytes) -> int:
        target = self._target()
        if isinstance(target, Captured):
            target.write(bytes(data))
        elif self._is_stray():
            self.write(bytes(data).decode(errors="replace"))
        elif (binary := getattr(target, "buffer", None)) is not None:
            binary.write(data)
        elif target is not None:
            target.write(bytes(data).decode(errors="replace"))
        return len(data)

    def isatty(self) -> bool:
        return not isinstance(self._target(), Captured) and self._stream.isatty()

    def fileno(self) -> int:
        # Within a call the descriptor is handed to child processes: theirs is the protected one, or stderr.
        if isinstance(self._target(), Captured):
            if self._inherited is not None:
                return self._inherited
            if self._is_answer and sys.stderr is not self:
                return sys.stderr.fileno()
        return self._stream.fileno()

    def writable(self) -> bool:
        return True

    def close(self) -> None:
        """Do nothing: a tool that closes stdout must not close ours."""

    @property
    def encoding(self) -> str:  # type: ignore[override]  # writable in the base class
        return self._stream.encoding

    @property
    def errors(self) -> str | None:  # type: ignore[override]  # writable in the base class
        return self._stream.errors

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)


class _Bytes(io.RawIOBase):
    """The binary side of a router."""

    def __init__(self, router: _Router) -> None:
        self._router = router

    def write(self, data: Any) -> int:
        return self._router.write_bytes(data)

    def flush(self) -> None:
        self._router.flush()

    def writable(self) -> bool:
        return True


def logger_of(tool: str) -> logging.Logger:
    """Return the logger of a tool, whose lines go where the tool's prints go."""
    import logging

    logger = logging.getLogger(f"sagactl.tools.{tool}")
    if not logger.handlers:
        handler = _make_handler()
        handler.setFormatter(logging.Formatter("%(levelname)s %(message)s"))
        logger.addHandler(handler)
        logger.setLevel(logging.INFO)
        logger.propagate = False
    return logger


def _make_handler() -> logging.Handler:
    import logging

    class CapturedHandler(logging.Handler):
        """Write to the stderr of the moment: the router, and with it the buffer of the call."""

        def emit(self, record: logging.LogRecord) -> None:
            if sys.stderr is not None:
                sys.stderr.write(self.format(record) + "\n")

    return CapturedHandler()
