"""The connection of this process to one server: made when it is first needed, used by all calls, made anew when lost.

A call that takes too long is ended for sure where the server is a process of ours: the server is ended once no other
call goes through it, and only then does the call return (E14). The next call starts it anew.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future
from concurrent.futures import TimeoutError as FutureTimeoutError
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, TypeAlias

from sagactl.core.canonical import Json
from sagactl.core.pinned import describe_change
from sagactl.core.records import ToolChange
from sagactl.dataclass import dataclass
from sagactl.errors import SecretError
from sagactl.tools.mcp.lock import PinnedServer, compare_pins
from sagactl.tools.mcp.loop import LoopThread
from sagactl.tools.mcp.names import NOTE_NAME
from sagactl.tools.mcp.results import explain, strip_quote
from sagactl.tools.mcp.settings import Server
from sagactl.tools.mcp.stdio import Program, ServerLostError, StdioTransport
from sagactl.tools.shell.processes import Processes
from sagactl.tools.shell.request import PASSED

if TYPE_CHECKING:
    import threading

    from sagactl.tools.mcp.session import Session, Transport

Resolve: TypeAlias = Callable[[str], str]
"""Returns the value of a secret; raises SecretError."""

COMPARE_SECONDS: Final = 10.0
"""How long a run waits for a server's list of tools before the intent of a call; then the call itself has to see."""

PATIENCE_SECONDS: Final = 30.0
"""How long a server that couldn't be asked then isn't asked again before an intent."""

EARLY_SECONDS: Final = 0.2
"""How long before its deadline a call gives up that was not sent: what is said in time says that nothing was done."""

LOOK_SECONDS: Final = 0.05
"""How soon a call notices that it shall end."""


class NotReachedError(Exception):
    """The call never left: the server can't be had now, or isn't what was pinned."""

    def __init__(self, message: str, *, code: str) -> None:
        super().__init__(message)
        self.code = code


class ToolChangedError(NotReachedError):
    """The server says of the tool now what was not pinned."""

    def __init__(self, tool: str, changes: Sequence[ToolChange]) -> None:
        said = "; ".join(map(describe_change, changes))
        super().__init__(f"{tool} isn't what was pinned: {said}", code="tool_changed")


class CallEndedError(Exception):
    """The call was ended from here: its time was up, or the driver ends."""


class CallFailedError(Exception):
    """The call failed on its way, or the server answered that it failed; `what` is where we know ourselves."""

    def __init__(self, message: str, *, code: int = 0, what: str | None = None) -> None:
        super().__init__(message)
        self.code = code
        self.what = what


@dataclass(frozen=True, slots=True)
class Host:
    """What all connections of a project share."""

    loop: LoopThread
    processes: Processes
    project: Path
    resolve: Resolve


class _Course:
    """How far a call has come.

    The loop notes the session and then looks whether the call is over; who ends the call says so and then looks at the
    session. So either the call isn't sent, or it counts as sent.
    """

    def __init__(self) -> None:
        self.session: Session | None = None
        self.is_over = False


class Connection:
    """The connection to one server; any thread may call it."""

    def __init__(self, server: Server, pinned: PinnedServer, host: Host) -> None:
        self._server = server
        self._pinned = pinned
        self._host = host
        self._session: Session | None = None
        self._opening: Any = None
        self._patient_from = 0.0
        self._is_closed = False
        self._pid = os.getpid()

    def move(self, server: Server) -> None:
        """Start the server otherwise from the next time on."""
        self._server = server

    def list_tools(self) -> PinnedServer:
        """Return what the server says of its tools now; raises NotReachedError."""
        return self._host.loop.submit(self._list()).result()

    def compare(self, tool: str) -> tuple[ToolChange, ...]:
        """Return how *tool* differs from what was pinned, connecting if need be.

        Raises NotReachedError, soon where it did so a moment ago: each run would wait for that before its call. Whoever
        asks may have been left alone by all who wanted to know, so nothing is connected any more after `close`.
        """
        if self._is_closed:
            raise NotReachedError(f"the connection to {self._server.name} was closed", code="server_unavailable")
        if time.monotonic() < self._patient_from and not (self._session is not None and self._session.is_usable):
            raise NotReachedError(f"{self._server.name} couldn't be reached a moment ago", code="server_unavailable")
        future = self._host.loop.submit(self._compare(tool))
        try:
            return future.result(COMPARE_SECONDS)
        except (FutureTimeoutError, NotReachedError):
            future.cancel()
            self._patient_from = time.monotonic() + PATIENCE_SECONDS
            message = f"{self._server.name} can't be asked for its tools now"
            raise NotReachedError(message, code="server_unavailable") from None

    def call(
        self,
        tool: str,
        arguments: dict[str, Any],
        meta: Mapping[str, Json],
        *,
        resolve: Resolve,
        seconds_left: Callable[[], float],
        cancelled: threading.Event,
    ) -> Any:
        """Return the result of a call as the library has it.

        Raises NotReachedError, CallEndedError, CallFailedError, or what the library raises of an answer that is none.
        """
        course, early_seconds = _Course(), min(EARLY_SECONDS, seconds_left() / 2)
        future = self._host.loop.submit(self._call(tool, arguments, meta, course, resolve))
        while True:
            try:
                return future.result(LOOK_SECONDS)
            except FutureTimeoutError:
                if future.done():  # the call's own error is of that class
                    raise
            kept_seconds = early_seconds if course.session is None else 0.0
            if (cancelled.is_set() or seconds_left() <= kept_seconds) and not future.done():
                self._end_call(future, course)

    def _end_call(self, future: Future[Any], course: _Course) -> None:
        course.is_over = True
        future.cancel()
        session = course.session
        if session is None:
            raise NotReachedError(f"the time was up before {self._server.name} was reached", code="not_started")
        session.transport.end_at_once()
        if self._server.command:
            self._host.loop.submit(session.close()).result()
        raise CallEndedError(f"{self._server.name} didn't answer in time" + self._say_fate())

    def _say_fate(self) -> str:
        return "; its process was ended" if self._server.command else ""

    def close(self) -> None:
        """End the connection, and the server where it is a process of ours."""
        self._is_closed = True
        session, self._session = self._session, None
        if session is not None and self._pid == os.getpid() and self._host.loop.is_running:
            self._host.loop.submit(session.close(at_once=True)).result()

    async def _list(self) -> PinnedServer:
        session = await self._find_session(self._host.resolve)
        await self._relist(session)
        return session.listing

    async def _compare(self, tool: str) -> tuple[ToolChange, ...]:
        return await self._find_changes(await self._find_session(self._host.resolve), tool)

    async def _find_changes(self, session: Session, tool: str) -> tuple[ToolChange, ...]:
        """Return how *tool* differs from its pin, by the server's list as it is now."""
        if session.is_stale:
            await self._relist(session)
        if tool not in session.compared:
            session.compared[tool] = compare_pins(self._pinned.tools[tool], session.listing.tools.get(tool))
        return session.compared[tool]

    async def _relist(self, session: Session) -> None:
        import asyncio

        try:
            async with asyncio.timeout(self._server.connect_ms / 1_000):
                await session.relist()
        except Exception as error:
            await self._retire(session)
            message = f"{self._server.name} doesn't list its tools: {explain(error)}"
            raise NotReachedError(message, code="server_unavailable") from None

    async def _call(
        self, tool: str, arguments: dict[str, Any], meta: Mapping[str, Json], course: _Course, resolve: Resolve
    ) -> Any:
        import mcp_types
        from mcp import MCPError

        session = await self._find_session(resolve)
        if changes := await self._find_changes(session, tool):
            raise ToolChangedError(tool, changes)
        params = mcp_types.CallToolRequestParams.model_validate(
            {"name": tool, "arguments": arguments, **({"_meta": dict(meta)} if meta else {})}
        )
        async with session.in_use() as client:
            course.session = session
            if course.is_over:
                raise NotReachedError(f"the time was up before {self._server.name} was asked", code="not_started")
            try:
                # Not `client.call_tool`: that checks the answer with the server's own patterns, which may run wild.
                return await client.session.send_request(
                    mcp_types.CallToolRequest(params=params), mcp_types.CallToolResult
                )
            except MCPError as error:
                raise await self._explain(session, error) from None

    async def _explain(self, session: Session, error: Any) -> Exception:
        from mcp_types import CONNECTION_CLOSED

        what, said = session.transport.read_own(error.data), strip_quote(error.message)
        if what in {"unreached", "session_lost"}:
            session.is_retired = True
            self._host.loop.submit(session.close())
            return NotReachedError(f"{self._server.name}: {said}", code="server_unavailable")
        if what is None and error.code == CONNECTION_CLOSED and await session.has_ended():
            return CallFailedError(f"{self._server.name} was lost in the call: {session.why()}", what="lost")
        return CallFailedError(f"{self._server.name}: {said}", code=error.code, what=what)

    async def _find_session(self, resolve: Resolve) -> Session:
        """Return the connection, made anew where it is lost or the credentials are others; raises NotReachedError."""
        import asyncio

        self._forget_parent()
        if self._opening is None:
            self._opening = asyncio.Lock()
        try:
            credentials = await asyncio.to_thread(self._fill_in, resolve)
        except SecretError as error:
            raise NotReachedError(f"{self._server.name}: {error.message}", code="missing_secret") from None
        async with self._opening:
            session = self._session
            if session is None or not session.is_usable or session.credentials != credentials:
                if session is not None:
                    await self._retire(session)
                self._session = session = self._open(credentials)
            try:
                await session.wait_until_ready()
            except ServerLostError as error:
                message = f"{self._server.name} can't be reached: {error}"
                raise NotReachedError(message, code="server_unavailable") from None
        return session

    async def _retire(self, session: Session) -> None:
        """End a connection that is of no use any more; one with calls under way ends with the last of them."""
        session.is_retired = True
        if session.calls:
            self._host.loop.submit(session.close())
        else:
            await session.close(at_once=True)

    def _forget_parent(self) -> None:
        """In a forked child, leave the parent's connection alone."""
        if self._pid != os.getpid():
            self._session, self._opening, self._pid = None, None, os.getpid()

    def _fill_in(self, resolve: Resolve) -> dict[str, str]:
        texts = self._server.env if self._server.command else self._server.headers
        return {name: text.fill(resolve) for name, text in texts.items()}

    def _open(self, credentials: dict[str, str]) -> Session:
        from sagactl.tools.mcp.session import Session

        seconds = self._server.connect_ms / 1_000
        return Session(self._make_transport(credentials, seconds), seconds, credentials)

    def _make_transport(self, credentials: dict[str, str], seconds: float) -> Transport:
        server = self._server
        if server.url is not None:
            from sagactl.tools.mcp.web import WebTransport

            ca_file = None if server.ca_file is None else str(self._host.project / server.ca_file)
            return WebTransport(server.url, credentials, ca_file, seconds)
        from sagactl.tools.shell.orphans import TOKEN_VARIABLE
        from sagactl.tools.shell.spawner import read_started

        try:
            note = self._host.processes.make_file(NOTE_NAME)
        except OSError as error:
            raise NotReachedError(f"{server.name} can't be noted: {error}", code="server_unavailable") from None
        passed = [*PASSED, *(name for name in os.environ if name.startswith("LC_")), *server.pass_env]
        env = {name: os.environ[name] for name in passed if name in os.environ}
        about = {"boot": note.boot, "server": server.name, "driver": [os.getpid(), read_started(os.getpid())]}
        program = Program(
            argv=server.command,
            env={**env, **credentials, TOKEN_VARIABLE: note.token},
            cwd=self._host.project / Path(server.cwd).expanduser(),
            note=note.path,
            about=about,
        )
        return StdioTransport(self._host.processes, program)
