"""A server as a process of ours: it lives and dies under the spawner of commands, and says one message a line.

The library's own way of starting servers reads a line of any length and leaves to chance what a server's children do
when we are killed. Here a supervisor holds all that the server began (see `shell.spawner`), lines are bounded, and what
is no message is counted.
"""

from __future__ import annotations

import contextlib
import json
import socket
from collections.abc import AsyncIterator, Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from sagactl.dataclass import dataclass
from sagactl.secrets.masking import KNOWN
from sagactl.tools.shell.launcher import Command, Piped
from sagactl.tools.shell.processes import Processes

if TYPE_CHECKING:
    import asyncio

    from anyio.streams.memory import MemoryObjectReceiveStream, MemoryObjectSendStream
    from mcp.client._transport import TransportStreams
    from mcp.shared.message import SessionMessage

MESSAGE_BYTES_MAX: Final = 8_388_608
"""One message of a server; a result may have a megabyte, but pictures in it are not kept."""

NOISE_LINES_MAX: Final = 100
NOISE_BYTES_MAX: Final = 65_536
"""What a server may write to its stdout that is no message: some greet."""

UNASKED_MAX: Final = 10_000
"""Messages of a server, such as news of progress, since the last time that it was asked something."""

LAST_WORDS_BYTES: Final = 2_048
"""What is kept of the end of its stderr, for errors."""

EXIT_SECONDS: Final = 1.0
"""How long a server may take to end when its stdin is closed."""

GRACE_SECONDS: Final = 0.5
"""How long it may take then, after SIGTERM, before SIGKILL."""

DRAIN_SECONDS: Final = 0.5
"""How long is waited, once it has ended, for what it wrote last."""

GONE_SECONDS: Final = 5.0
"""How long what was killed may take to be gone."""

_READ_BYTES: Final = 65_536


class ServerLostError(Exception):
    """The server can't be used any more; the message says why."""


@dataclass(frozen=True, slots=True)
class Program:
    """What is started, and where that is noted: `note` is None where nobody would look."""

    argv: tuple[str, ...]
    env: Mapping[str, str]
    cwd: Path
    note: Path | None = None
    about: Mapping[str, object] | None = None


class StdioTransport:
    """The transport of one server; `lost` says why it ended, once it has."""

    def __init__(self, processes: Processes, program: Program) -> None:
        self._processes = processes
        self._program = program
        self._last_words = b""
        self._events: dict[str, dict[str, Any]] = {}
        self._unasked = 0
        self._has_ended: asyncio.Event | None = None
        self._is_read: asyncio.Event | None = None
        self._is_hasty = False
        self.lost: str | None = None
        self.on_lost: Callable[[], None] = lambda: None

    def read_own(self, data: object) -> str | None:  # noqa: ARG002 - as other transports
        """Return None: every error here is the server's."""
        return None

    def end_at_once(self) -> None:
        """Give the server no time to end by itself when the transport is closed."""
        self._is_hasty = True

    def last_words(self) -> str:
        """Return the end of what the server wrote to stderr."""
        is_cut = len(self._last_words) == LAST_WORDS_BYTES
        return KNOWN.mask_cut(self._last_words.decode(errors="replace"), start=is_cut).strip()

    @contextlib.asynccontextmanager
    async def connect(self) -> AsyncIterator[TransportStreams]:
        """Start the server, yield the streams of messages, and return when nothing of the server runs any more."""
        import asyncio

        import anyio
        from mcp.shared.message import SessionMessage

        self._has_ended, self._is_read = asyncio.Event(), asyncio.Event()
        starting = asyncio.create_task(self._start())
        is_cancelled = False
        try:
            await asyncio.shield(starting)
        except asyncio.CancelledError:  # one that was started half-way would be ended by nobody
            is_cancelled = True
            await asyncio.wait([starting])
        piped, pipes = starting.result()
        to_session, from_server = anyio.create_memory_object_stream[SessionMessage | Exception](0)
        to_server, from_session = anyio.create_memory_object_stream[SessionMessage](0)
        tasks = [
            asyncio.create_task(each)
            for each in (
                self._read(pipes.stdout, to_session),
                self._write(pipes, from_session, to_session),
                self._keep_last_words(pipes.stderr),
                self._watch(piped.control, to_session),
            )
        ]
        try:
            if is_cancelled:
                raise asyncio.CancelledError
            yield from_server, to_server
        finally:
            with anyio.CancelScope(shield=True):
                from_server.close()
                to_server.close()
                await self._end(pipes, piped.control, tasks[3])
                for task in tasks:
                    task.cancel()
                await asyncio.gather(*tasks, return_exceptions=True)
                for stream in (to_session, from_session):
                    stream.close()

    async def _start(self) -> tuple[Piped, _Pipes]:
        import asyncio

        piped = await asyncio.to_thread(self._open)
        return piped, await _Pipes.open(piped)

    def _open(self) -> Piped:
        program = self._program
        command = Command(
            program.argv,
            program.env,
            program.cwd,
            file=program.note,
            about=program.about or {},
            grace_seconds=GRACE_SECONDS,
        )
        try:
            return self._processes.open(command)
        except OSError as error:
            raise ServerLostError(f"it can't be started: {error.strerror or error}") from None

    def _lose(self, why: str, to_session: MemoryObjectSendStream[Any]) -> None:
        """Note why the server is of no use any more; whoever waits for an answer learns it by the end of the stream."""
        if self.lost is None:
            self.lost = why
            self.on_lost()
        to_session.close()

    async def _read(self, stdout: asyncio.StreamReader, to_session: MemoryObjectSendStream[Any]) -> None:
        from anyio import BrokenResourceError, ClosedResourceError

        assert self._is_read is not None
        assert self._has_ended is not None
        buffer, noise = bytearray(), _Noise()
        try:
            while chunk := await stdout.read(_READ_BYTES):
                buffer += chunk
                *lines, rest = buffer.split(b"\n") if b"\n" in chunk else [buffer]
                buffer = bytearray(rest) if lines else buffer
                for line in lines:
                    await self._deliver(bytes(line), noise, to_session)
                _check_size(buffer)
        except ServerLostError as error:
            self._lose(str(error), to_session)
        except (BrokenResourceError, ClosedResourceError, ConnectionError):
            return
        else:
            self._is_read.set()
            await _wait_a_little(self._has_ended)
            self._lose(self._explain_end() or "it closed its stdout", to_session)

    async def _deliver(self, line: bytes, noise: _Noise, to_session: MemoryObjectSendStream[Any]) -> None:
        import mcp_types
        from mcp.shared.message import SessionMessage

        if not line.strip():
            return
        _check_size(line)
        try:
            message = mcp_types.jsonrpc_message_adapter.validate_json(line, by_name=False)
        except ValueError:
            noise.count(len(line))
            return
        self._unasked += 1
        if self._unasked > UNASKED_MAX:
            raise ServerLostError(f"it sent more than {UNASKED_MAX} messages that nobody asked for")
        await to_session.send(SessionMessage(message))

    async def _write(
        self, pipes: _Pipes, from_session: MemoryObjectReceiveStream[SessionMessage], to_session: Any
    ) -> None:
        try:
            async for message in from_session:
                self._unasked = 0
                pipes.stdin.write(message.message.model_dump_json(by_alias=True, exclude_unset=True).encode() + b"\n")
                await pipes.stdin.drain()
        except OSError:
            self._lose("it closed its stdin", to_session)

    async def _keep_last_words(self, stderr: asyncio.StreamReader) -> None:
        while chunk := await stderr.read(_READ_BYTES):
            self._last_words = (self._last_words + chunk)[-LAST_WORDS_BYTES:]

    async def _watch(self, control: socket.socket, to_session: MemoryObjectSendStream[Any]) -> None:
        """Hear how the server fares until nothing of it is left."""
        import asyncio

        assert self._is_read is not None
        assert self._has_ended is not None
        loop, said = asyncio.get_running_loop(), b""
        control.setblocking(False)
        while "gone" not in self._events:
            try:
                data = await loop.sock_recv(control, 4_096)
            except OSError:
                data = b""
            if not data:
                self._lose("what watched over it was killed", to_session)
                return
            *lines, said = (said + data).split(b"\n")
            for line in lines:
                event = json.loads(line)
                self._events[event["event"]] = event
            if why := self._explain_end():
                self._has_ended.set()
                await _wait_a_little(self._is_read)  # its last answer counts
                self._lose(why, to_session)
            if "not_started" in self._events:
                return

    def _explain_end(self) -> str | None:
        import os

        if failed := self._events.get("not_started"):
            what = {"cwd": f"its folder {self._program.cwd}", "exec": f"the program {self._program.argv[0]}"}
            return f"{what.get(failed['what'], 'it')} can't be started: {os.strerror(failed['errno'] or 0)}"
        if ended := self._events.get("exited"):
            code = os.waitstatus_to_exitcode(ended["status"])
            return f"it ended with the exit code {code}" if code >= 0 else f"it was killed by signal {-code}"
        return None

    async def _end(self, pipes: _Pipes, control: socket.socket, watch: asyncio.Task[None]) -> None:
        """Close its stdin, as the protocol has it; what doesn't end then is ended, and all that it began."""
        import asyncio

        pipes.stdin.close()
        if self.lost is None:
            self.lost = "it was closed"
            await asyncio.wait([watch], timeout=0 if self._is_hasty else EXIT_SECONDS)
        if not watch.done():
            with contextlib.suppress(OSError):
                control.send(b"e")
            await asyncio.wait([watch], timeout=GRACE_SECONDS + GONE_SECONDS)
        pipes.close()
        control.close()


def _check_size(line: bytes | bytearray) -> None:
    if len(line) > MESSAGE_BYTES_MAX:
        raise ServerLostError(f"it wrote a message of more than {MESSAGE_BYTES_MAX} bytes")


async def _wait_a_little(event: asyncio.Event) -> None:
    import asyncio

    with contextlib.suppress(TimeoutError):
        await asyncio.wait_for(event.wait(), DRAIN_SECONDS)


class _Noise:
    """Counts what is no message."""

    def __init__(self) -> None:
        self._lines = self._bytes = 0

    def count(self, size: int) -> None:
        self._lines += 1
        self._bytes += size
        if self._lines > NOISE_LINES_MAX or self._bytes > NOISE_BYTES_MAX:
            raise ServerLostError("it writes to its stdout what is no message of the protocol")


@dataclass(frozen=True, slots=True)
class _Pipes:
    """The streams of a server in the event loop."""

    stdin: asyncio.StreamWriter
    stdout: asyncio.StreamReader
    stderr: asyncio.StreamReader
    transports: tuple[Any, ...]

    @classmethod
    async def open(cls, piped: Piped) -> _Pipes:
        import asyncio
        import os

        loop = asyncio.get_running_loop()

        async def read(descriptor: int) -> tuple[asyncio.StreamReader, asyncio.ReadTransport]:
            reader = asyncio.StreamReader()
            protocol = asyncio.StreamReaderProtocol(reader)
            transport, _ = await loop.connect_read_pipe(lambda: protocol, os.fdopen(descriptor, "rb", 0))
            return reader, transport

        stdout, out = await read(piped.stdout)
        stderr, err = await read(piped.stderr)
        flow = asyncio.streams.FlowControlMixin
        writing, protocol = await loop.connect_write_pipe(flow, os.fdopen(piped.stdin, "wb", 0))
        return cls(asyncio.StreamWriter(writing, protocol, None, loop), stdout, stderr, (out, err, writing))

    def close(self) -> None:
        """Let go of all three."""
        for transport in self.transports:
            transport.close()
