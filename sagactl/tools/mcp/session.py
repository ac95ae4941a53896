"""One life of the connection to a server: from its start, through the list of its tools, to its end.

Everything here happens in the event loop of the connections (see `loop`).
"""

from __future__ import annotations

import contextlib
import logging
from collections.abc import AsyncIterator, Mapping
from typing import TYPE_CHECKING, Any, Final, Protocol

from sagactl.core.canonical import Json, NotJsonError
from sagactl.core.records import ToolChange
from sagactl.secrets.masking import KNOWN
from sagactl.tools.convert import bound_line, write_json
from sagactl.tools.kind import VERSION
from sagactl.tools.mcp.lock import Pin, PinnedServer
from sagactl.tools.mcp.results import explain
from sagactl.tools.mcp.settings import TOOLS_MAX
from sagactl.tools.mcp.stdio import UNASKED_MAX, ServerLostError

if TYPE_CHECKING:
    from contextlib import AbstractAsyncContextManager

    from mcp import Client
    from mcp.client._transport import TransportStreams

PAGES_MAX: Final = 100
CLOSE_SECONDS: Final = 10.0
"""How long a connection may take to be closed, whatever is at its other end."""

SETTLE_SECONDS: Final = 1.0
"""How long it may take from the end of the messages to the end of the connection."""

DESCRIPTION_LENGTH_MAX: Final = 20_000
NAME_LENGTH_MAX: Final = 128


class Transport(Protocol):
    """What brings messages to a server and back."""

    lost: str | None
    on_lost: Any

    def connect(self) -> AbstractAsyncContextManager[TransportStreams]:
        """Yield the streams of messages, until the server is of no use any more or nobody needs it."""
        ...

    def last_words(self) -> str:
        """Return the end of what the server wrote beside its messages."""
        ...

    def read_own(self, data: object) -> str | None:
        """Return what became of a request where the transport itself answered it."""
        ...

    def end_at_once(self) -> None:
        """Give the server no time when the transport is closed."""
        ...


class Session:
    """One connection; `listing` is what the server says of its tools, `is_stale` that it said it has others now."""

    def __init__(self, transport: Transport, connect_seconds: float, credentials: object) -> None:
        import asyncio

        self.transport = transport
        self.credentials = credentials
        self.listing = PinnedServer()
        self.compared: dict[str, tuple[ToolChange, ...]] = {}
        """How tools differ from their pins, as far as anybody asked since they were listed."""
        self.is_stale = False
        self.is_retired = False
        """No further call is to use it."""
        self.calls = 0
        self.client: Client | None = None
        self._connect_seconds = connect_seconds
        self._unasked = 0
        self._failure: BaseException | None = None
        self._ready = asyncio.Event()
        self._closing = asyncio.Event()
        self._idle = asyncio.Event()
        self._idle.set()
        transport.on_lost = self._closing.set
        self._life = asyncio.create_task(self._live())

    @property
    def is_usable(self) -> bool:
        """Tell whether calls can go through it."""
        return not self.is_retired and self.transport.lost is None and not self._life.done()

    async def wait_until_ready(self) -> None:
        """Return once the tools are listed; raises ServerLostError, saying why that can't be."""
        import asyncio

        waiting = asyncio.create_task(self._ready.wait())
        try:
            await asyncio.wait([waiting, self._life], return_when=asyncio.FIRST_COMPLETED)
        finally:
            waiting.cancel()
        if not self._ready.is_set():
            raise ServerLostError(self.why())

    def why(self) -> str:
        """Return why the connection is of no use."""
        lost = self.transport.lost
        reason = lost if lost not in {None, "it was closed"} else _explain(self._failure)
        words = KNOWN.mask(self.transport.last_words())
        return bound_line(f"{reason or 'it was closed'}{f' (it wrote: {words[-200:]})' if words else ''}")

    @contextlib.asynccontextmanager
    async def in_use(self) -> AsyncIterator[Client]:
        """Count a call that goes through the connection."""
        assert self.client is not None
        self.calls += 1
        self._unasked = 0
        self._idle.clear()
        try:
            yield self.client
        finally:
            self.calls -= 1
            if self.calls == 0:
                self._idle.set()

    async def close(self, *, at_once: bool = False) -> None:
        """Let no further call use it, and end it: when the last call is over, or *at_once*.

        One that isn't ready yet has no call, and hears of its end in no other way than this.
        """
        import asyncio

        self.is_retired = True
        if not at_once:
            await self._idle.wait()
        self._closing.set()
        if not self._ready.is_set():
            self._life.cancel()
        done, _ = await asyncio.wait([self._life], timeout=CLOSE_SECONDS)
        if not done:
            self._life.cancel()
            await asyncio.wait([self._life], timeout=CLOSE_SECONDS)

    async def has_ended(self) -> bool:
        """Tell whether the connection has ended, or is about to."""
        import asyncio

        await asyncio.wait([self._life], timeout=SETTLE_SECONDS)
        return not self.is_usable

    async def relist(self) -> None:
        """Ask for the tools anew."""
        assert self.client is not None
        self.is_stale = False
        self.compared.clear()
        self.listing = await _list_tools(self.client)

    async def _live(self) -> None:
        import asyncio

        try:
            async with contextlib.AsyncExitStack() as stack:
                async with asyncio.timeout(self._connect_seconds):
                    client = await stack.enter_async_context(self._make_client())
                    self.listing = await _list_tools(client)
                self.client = client
                async with _listening(client, self._note_change):
                    self._ready.set()
                    await self._closing.wait()
        except TimeoutError as error:
            self._failure = error
            if not self._ready.is_set():
                self._failure = ServerLostError(f"it didn't answer within {self._connect_seconds:g} s")
        except BaseException as error:  # the library raises groups of whatever it likes
            self._failure = error
        finally:
            self.transport.lost = self.transport.lost or _explain(self._failure)

    def _make_client(self) -> Client:
        import mcp_types
        from mcp import Client

        _keep_quiet()
        return Client(
            self.transport.connect(),
            client_info=mcp_types.Implementation(name="sagactl", version=VERSION),
            message_handler=self._hear,
            cache=None,
        )

    async def _hear(self, message: object) -> None:
        import mcp_types

        self._unasked += 1
        if isinstance(message, mcp_types.ToolListChangedNotification):
            self._note_change()
        if self._unasked > UNASKED_MAX and self.transport.lost is None:
            self.transport.lost = f"it sent more than {UNASKED_MAX} messages that nobody asked for"
            self._closing.set()

    def _note_change(self) -> None:
        self.is_stale = True


@contextlib.asynccontextmanager
async def _listening(client: Client, note: Any) -> AsyncIterator[None]:
    """Hear of changed tools the newer way, where the server offers it: such servers send no news unasked."""
    import asyncio

    from mcp_types.version import MODERN_PROTOCOL_VERSIONS

    tools = client.server_capabilities.tools
    if client.protocol_version not in MODERN_PROTOCOL_VERSIONS or tools is None or not tools.list_changed:
        yield
        return

    async def listen() -> None:
        with contextlib.suppress(Exception):  # without news, the list is compared when a run begins
            async with client.listen(tools_list_changed=True) as news:
                async for _ in news:
                    note()

    listening = asyncio.create_task(listen())
    try:
        yield
    finally:
        listening.cancel()
        await asyncio.wait([listening], timeout=1.0)


async def _list_tools(client: Client) -> PinnedServer:
    """Return all tools of a server; raises ServerLostError where it never comes to an end, or has too many."""
    pins: dict[str, Pin] = {}
    cursor: str | None = None
    for _ in range(PAGES_MAX):
        page = await client.list_tools(cursor=cursor)
        for tool in page.tools:
            pins[tool.name] = _pin(tool)
        if len(pins) > TOOLS_MAX:
            raise ServerLostError(f"it has more than {TOOLS_MAX} tools")
        cursor = page.next_cursor
        if cursor is None:
            return PinnedServer(_name_version(client), pins)
    raise ServerLostError(f"the list of its tools has more than {PAGES_MAX} pages")


def _pin(tool: Any) -> Pin:
    if len(tool.name) > NAME_LENGTH_MAX:
        raise ServerLostError(f"it has a tool whose name is longer than {NAME_LENGTH_MAX} characters")
    hints = {} if tool.annotations is None else tool.annotations.model_dump(by_alias=True, exclude_none=True)
    try:
        return Pin(
            tool.name,
            KNOWN.shorten(tool.description or "", DESCRIPTION_LENGTH_MAX),
            _as_map(tool.input_schema),
            None if tool.output_schema is None else _as_map(tool.output_schema),
            _as_map(hints),
        )
    except NotJsonError as error:
        raise ServerLostError(f"what it says of its tool {tool.name!r} is no JSON: {error}") from None


def _as_map(said: object) -> Mapping[str, Json]:
    """Return what a server says as it is pinned: one that repeats its credentials there tells nobody."""
    value = KNOWN.mask_json(write_json(said))
    return value if isinstance(value, dict) else {}


def _name_version(client: Client) -> str:
    info = client.server_info
    return "" if info is None else bound_line(f"{info.name} {info.version}", 200)


def _explain(failure: BaseException | None) -> str:
    """Return what was wrong in the end: the library wraps errors in groups."""
    import asyncio

    while isinstance(failure, BaseExceptionGroup):
        failure = failure.exceptions[0]
    if failure is None or isinstance(failure, asyncio.CancelledError):
        return "it was closed"
    return bound_line(str(failure) if isinstance(failure, ServerLostError) else explain(failure))


def _keep_quiet() -> None:
    """Keep what the library says of servers off the terminal: who sets up logging still gets it."""
    for name in ("mcp", "client"):
        logger = logging.getLogger(name)
        if not logger.handlers:
            logger.addHandler(logging.NullHandler())
