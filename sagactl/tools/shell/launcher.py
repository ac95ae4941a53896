"""Starting a command by way of the spawner, and staying with it until nothing of it runs.

The thread that makes the call reads what the command writes as it comes, always to the end: a bound on what is kept
never holds the command up.
"""

from __future__ import annotations

import contextlib
import errno
import json
import os
import socket
import sys
import threading
from collections.abc import Callable, Mapping
from dataclasses import field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from sagactl.dataclass import dataclass

if TYPE_CHECKING:
    import subprocess

TERM_GRACE_SECONDS: Final = 2.0
"""How long a command may take to end after SIGTERM; then comes SIGKILL."""

CLOSE_SECONDS: Final = 0.5
"""How long closing waits for the spawner, which stays as long as a command of it is under way."""

WATCH_SECONDS: Final = 0.05
"""How soon a call notices that it shall end."""

STDOUT, STDERR = "stdout", "stderr"
_READ_BYTES: Final = 65_536
_SPAWNER: Final = Path(__file__).with_name("spawner.py")


class NotStartedError(Exception):
    """The command did not start, so nothing happened: `what` was being done when `errno` came."""

    def __init__(self, what: str, number: int) -> None:
        super().__init__(f"{what}: {os.strerror(number)}")
        self.what = what
        self.errno = number


class SupervisorLostError(Exception):
    """Whoever watched over the command was killed, so nobody says what became of it."""


@dataclass(frozen=True, slots=True)
class Command:
    """What is run: `file` is where its supervisor is noted, `about` what is noted with it, `name` what it is called.

    `stdin` is what it reads, or a descriptor for that, which stays the caller's.
    """

    argv: tuple[str, ...]
    env: Mapping[str, str]
    cwd: Path
    stdin: bytes | int = b""
    file: Path | None = None
    about: Mapping[str, object] = field(default_factory=dict)
    grace_seconds: float = TERM_GRACE_SECONDS
    name: str = ""

    def describe(self) -> bytes:
        """Return all of it that the supervisor needs, with the length before it."""
        fields = {
            "argv": self.argv,
            "env": dict(self.env),
            "cwd": str(self.cwd),
            "file": None if self.file is None else str(self.file),
            "about": dict(self.about),
            "grace_seconds": self.grace_seconds,
        }
        data = json.dumps(fields).encode()
        return len(data).to_bytes(8, "big") + data


@dataclass(frozen=True, slots=True)
class Piped:
    """A command that runs on beside its driver: what says how it fares and hears `e` to end it, and three pipes."""

    control: socket.socket
    stdin: int
    stdout: int
    stderr: int


class Launcher:
    """The spawner of this process, started when the first command is, and again where it was lost."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._spawner: subprocess.Popen[bytes] | None = None
        self._channel: socket.socket | None = None
        self._pid = 0

    def run(self, command: Command, hear: Callable[[str, bytes], None], must_end: Callable[[], bool]) -> int:
        """Run *command* and return its wait status once nothing of it is left.

        Args:
            command: What is run.
            hear: Is told what it writes: `stdout` or `stderr`, and the bytes.
            must_end: Is asked often; once it says so, everything is ended.

        Raises NotStartedError, or SupervisorLostError.
        """
        try:
            control, readers = self._hand_over(command.stdin)
        except OSError as error:
            raise NotStartedError("start", error.errno or errno.EIO) from error
        with control:
            return _Watch(control, readers, hear, must_end).follow(command)

    def open(self, command: Command) -> Piped:
        """Start *command* with pipes to its streams and leave it to the caller; its `stdin` isn't looked at.

        Raises OSError where the spawner can't be had. Whether the command itself began, comes over `control`.
        """
        with contextlib.ExitStack() as near, contextlib.ExitStack() as far:
            control, theirs = socket.socketpair()
            near.callback(control.close)
            handed, kept = [far.enter_context(theirs).fileno()], []
            for is_input in (True, False, False):
                reader, writer = os.pipe()
                mine, its = (writer, reader) if is_input else (reader, writer)
                near.callback(os.close, mine)
                far.callback(os.close, its)
                kept.append(mine)
                handed.append(its)
            self._send(handed)
            control.sendall(command.describe())
            near.pop_all()
        return Piped(control, *kept)

    def _hand_over(self, stdin: bytes | int) -> tuple[socket.socket, dict[int, str]]:
        """Give the spawner the far ends of a socket and of the command's streams; return the near ones."""
        readers: dict[int, str] = {}
        with contextlib.ExitStack() as near, contextlib.ExitStack() as far:
            control, theirs = socket.socketpair()
            near.enter_context(control)
            handed = [far.enter_context(theirs).fileno(), _make_stdin(stdin)]
            far.callback(os.close, handed[-1])
            for name in (STDOUT, STDERR):
                reader, writer = os.pipe()
                near.callback(os.close, reader)
                far.callback(os.close, writer)
                readers[reader] = name
                handed.append(writer)
            self._send(handed)
            near.pop_all()
        return control, readers

    def _send(self, descriptors: list[int]) -> None:
        """Hand a command's descriptors to the spawner; one that has died is replaced once."""
        with self._lock:
            for is_last in (False, True):
                channel = self._open_channel()
                try:
                    socket.send_fds(channel, [b"c"], descriptors)
                except OSError:
                    self._close()
                    if is_last:
                        raise
                else:
                    return

    def _open_channel(self) -> socket.socket:
        if self._channel is None or self._pid != os.getpid():
            self._channel, theirs = socket.socketpair()
            with theirs:
                self._spawner = _start_spawner(theirs.fileno())
            self._pid = os.getpid()
        return self._channel

    def close(self) -> None:
        """Let the spawner end; commands still under way are watched to their end all the same."""
        with self._lock:
            self._close()

    def _close(self) -> None:
        import subprocess

        spawner, channel, self._spawner, self._channel = self._spawner, self._channel, None, None
        if channel is None or spawner is None:
            return
        channel.close()
        if self._pid == os.getpid():
            with contextlib.suppress(subprocess.TimeoutExpired):
                spawner.wait(CLOSE_SECONDS)


def _start_spawner(channel: int) -> subprocess.Popen[bytes]:
    """Start it in a session of its own, so that the terminal's signals don't reach it (E17)."""
    import subprocess

    options = ["-I", "-S", "-B", "-X", "utf8"]
    return subprocess.Popen(  # noqa: S603 - our own script
        [sys.executable, *options, str(_SPAWNER), str(channel), str(os.getpid())],
        pass_fds=[channel],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
        cwd="/",
    )


def _make_stdin(data: bytes | int) -> int:
    """Return a descriptor from which *data* is read: a file in memory, so nobody has to feed it."""
    if isinstance(data, int):
        return os.dup(data)
    if not data:
        return os.open(os.devnull, os.O_RDONLY)
    if hasattr(os, "memfd_create"):
        descriptor = os.memfd_create("stdin")
    else:
        from tempfile import TemporaryFile

        with TemporaryFile() as file:
            descriptor = os.dup(file.fileno())
    with os.fdopen(os.dup(descriptor), "wb") as file:
        file.write(data)
    os.lseek(descriptor, 0, os.SEEK_SET)
    return descriptor


class _Watch:
    """One command under way, as its driver sees it."""

    def __init__(
        self,
        control: socket.socket,
        readers: dict[int, str],
        hear: Callable[[str, bytes], None],
        must_end: Callable[[], bool],
    ) -> None:
        self._control = control
        self._readers = readers
        self._hear = hear
        self._must_end = must_end
        self._told = False
        self._said = b""
        self._events: dict[str, dict[str, Any]] = {}

    def follow(self, command: Command) -> int:
        try:
            self._ask(command)
            while not self._is_over():
                self._end_if_told()
                self._take(WATCH_SECONDS)
            while self._readers and self._take(0):
                pass
        finally:
            for descriptor in self._readers:
                os.close(descriptor)
        return self._read_status()

    def _ask(self, command: Command) -> None:
        try:
            self._control.sendall(command.describe())
        except OSError as error:  # nothing begins before all of it has come
            raise NotStartedError("start", error.errno or errno.EPIPE) from error

    def _is_over(self) -> bool:
        return "gone" in self._events or "lost" in self._events or self._is_unstarted()

    def _is_unstarted(self) -> bool:
        return self._events.get("not_started", {}).get("what") == "start"

    def _end_if_told(self) -> None:
        if not self._told and self._must_end():
            self._told = True
            with contextlib.suppress(OSError):  # what has gone is seen at the next look
                self._control.sendall(b"e")

    def _take(self, seconds: float) -> bool:
        """Take in what is there within the time; tell whether anything was."""
        import select

        poll = select.poll()
        for descriptor in self._readers:
            poll.register(descriptor, select.POLLIN)
        poll.register(self._control, select.POLLIN)
        ready = [descriptor for descriptor, _ in poll.poll(seconds * 1000)]
        for descriptor in ready:
            if descriptor in self._readers:
                self._read(descriptor)
            else:
                self._listen()
        return any(descriptor in self._readers for descriptor in ready)

    def _read(self, descriptor: int) -> None:
        data = os.read(descriptor, _READ_BYTES)
        if data:
            self._hear(self._readers[descriptor], data)
        else:
            del self._readers[descriptor]
            os.close(descriptor)

    def _listen(self) -> None:
        try:
            data = self._control.recv(4_096)
        except OSError:
            data = b""
        *lines, self._said = (self._said + data).split(b"\n")
        for line in lines:
            event = json.loads(line)
            self._events[event["event"]] = event
        if not data:
            self._events.setdefault("lost", {})

    def _read_status(self) -> int:
        if "not_started" in self._events:
            raise NotStartedError(self._events["not_started"]["what"], self._events["not_started"]["errno"])
        if "gone" not in self._events or "exited" not in self._events:
            raise SupervisorLostError
        status: int = self._events["exited"]["status"]
        return status
