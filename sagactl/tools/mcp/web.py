"""A server behind a URL: streamable HTTP, with answers that are bounded before they are parsed.

The operator wrote the URL, so an address of this machine or of a private network is right. Nothing follows a redirect
to elsewhere, takes a proxy from the environment, or unpacks what is compressed.

A request that fails on its way is answered here, in the words of the protocol, so that it fails alone: left to the
library, it would take the calls beside it down. Such an answer bears a token, which no server can know.
"""

from __future__ import annotations

import contextlib
import json
import secrets
from collections.abc import AsyncIterator, Callable, Mapping
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from sagactl.tools.mcp.results import shorten
from sagactl.tools.mcp.stdio import MESSAGE_BYTES_MAX

if TYPE_CHECKING:
    from mcp.client._transport import TransportStreams

EVENT_BYTES_MAX: Final = MESSAGE_BYTES_MAX
STREAM_BYTES_MAX: Final = 8 * MESSAGE_BYTES_MAX
"""What all events of one answer may come to; and what may come beside answers from one request of ours to the next."""

IDLE_SECONDS: Final = 300.0
"""How long a stream of events may be silent; a call ends by its own deadline long before."""

REFUSALS: Final = frozenset({400, 401, 403, 404, 405, 410, 413, 415, 422})
"""Statuses that say that the request wasn't taken, and won't be."""

END_SECONDS: Final = 2.0
"""How long a server may take to hear that a session is over."""

_PHASES: Final = ("connect", "read", "write", "pool")
UNREACHED, REFUSED, SESSION_LOST, LOST = "unreached", "refused", "session_lost", "lost"
_SESSION_HEADER: Final = "mcp-session-id"


class WebTransport:
    """The transport of one server; `lost` says why it can't be used, once that is so."""

    def __init__(self, url: str, headers: Mapping[str, str], ca_file: str | None, connect_seconds: float) -> None:
        self._url = url
        self._headers = dict(headers)
        self._ca_file = ca_file
        self._connect_seconds = connect_seconds
        self._token = secrets.token_hex(16)
        self._beside_bytes = 0
        """What came since our last request in streams that answer none, or go on with an answer."""
        self.lost: str | None = None
        self.on_lost: Callable[[], None] = lambda: None

    def last_words(self) -> str:
        """Return nothing: what such a server writes stays with it."""
        return ""

    def read_own(self, data: object) -> str | None:
        """Return what became of a request that was answered here, by the data of its error; None for a server's."""
        is_own = isinstance(data, dict) and data.get("token") == self._token
        return str(data["what"]) if is_own and isinstance(data, dict) else None

    def end_at_once(self) -> None:
        """Do nothing: what runs elsewhere can't be ended from here."""

    @contextlib.asynccontextmanager
    async def connect(self) -> AsyncIterator[TransportStreams]:
        """Yield the streams of messages."""
        from mcp.client.streamable_http import streamable_http_client

        async with (
            self._make_client() as client,
            streamable_http_client(self._url, http_client=client, max_sse_event_size=EVENT_BYTES_MAX) as streams,
        ):
            try:
                yield streams
            finally:
                self.lost = self.lost or "it was closed"

    def _make_client(self) -> Any:
        import ssl

        import httpx2

        verify = True if self._ca_file is None else ssl.create_default_context(cafile=self._ca_file)
        timeout = httpx2.Timeout(self._connect_seconds, read=IDLE_SECONDS)
        return httpx2.AsyncClient(
            headers={**self._headers, "Accept-Encoding": "identity"},
            timeout=timeout,
            trust_env=False,
            follow_redirects=False,
            transport=_make_careful(httpx2.AsyncHTTPTransport(verify=verify, trust_env=False), self),
        )

    def answer(self, request: Any, what: str, why: str) -> Any:
        """Return the answer to a request that failed; what asks for no answer fails as it did."""
        import httpx2

        message = self._write_error(request, what, why)
        return None if message is None else httpx2.Response(200, json=message, request=request)

    def _write_error(self, request: Any, what: str, why: str) -> dict[str, Any] | None:
        if (number := _read_number(request)) is None:
            return None
        error = {"code": -32000, "message": why, "data": {"token": self._token, "what": what}}
        return {"jsonrpc": "2.0", "id": number, "error": error}

    def bound(self, request: Any, stream: Any) -> Any:
        """Return a stream of events that ends, and says so, where too much comes of it."""
        why = f"more than {STREAM_BYTES_MAX} bytes of events"
        error = self._write_error(request, LOST, why)
        if error is None:
            return _make_bounded(
                stream, self._count_beside, partial(self._lose, f"it sent {why} that nobody asked for")
            )
        own_bytes = 0

        def count(more_bytes: int) -> bool:
            nonlocal own_bytes
            own_bytes += more_bytes
            return own_bytes > STREAM_BYTES_MAX

        self._beside_bytes = 0
        return _make_bounded(stream, count, lambda: _spell_event(error))

    def _count_beside(self, more_bytes: int) -> bool:
        self._beside_bytes += more_bytes
        return self._beside_bytes > STREAM_BYTES_MAX

    def _lose(self, why: str) -> bytes:
        """Give the server up."""
        if self.lost is None:
            self.lost = why
            self.on_lost()
        return b""


def _read_number(request: Any) -> object:
    """Return what the answer to a request will bear; None for what asks for none, an answer of ours among it."""
    try:
        message = json.loads(request.content)
        return message["id"] if "method" in message else None
    except (ValueError, KeyError, TypeError):
        return None


def _spell_event(message: dict[str, Any]) -> bytes:
    """Return an event with *message*; half a one before it becomes one of a kind that nobody knows."""
    return f"\nevent: cut\n\ndata: {json.dumps(message)}\n\n".encode()


def _make_bounded(inner: Any, is_too_much: Callable[[int], bool], end: Callable[[], bytes]) -> Any:
    """Return a stream that holds what *inner* does until that is too much, and then what *end* gives."""
    import httpx2

    class Bounded(httpx2.AsyncByteStream):
        async def __aiter__(self) -> AsyncIterator[bytes]:
            async for chunk in inner:
                if is_too_much(len(chunk)):
                    yield end()
                    return
                yield chunk

        async def aclose(self) -> None:
            await inner.aclose()

    return Bounded()


def _make_careful(inner: Any, transport: WebTransport) -> Any:
    """Return a transport whose answers are bounded and uncompressed, and whose failures are answers."""
    import httpx2

    class Careful(httpx2.AsyncBaseTransport):
        async def handle_async_request(self, request: httpx2.Request) -> Any:
            if request.method == "DELETE":  # the end of a session, which nobody waits for
                request.extensions = {**request.extensions, "timeout": dict.fromkeys(_PHASES, END_SECONDS)}
            try:
                response = await inner.handle_async_request(request)
            except httpx2.TransportError as error:
                is_unsent = isinstance(error, httpx2.ConnectError | httpx2.ConnectTimeout | httpx2.PoolTimeout)
                what = UNREACHED if is_unsent else LOST
                if (instead := transport.answer(request, what, _explain(error))) is None:
                    raise
                return instead
            if (failed := _judge(request, response)) is not None and (
                instead := transport.answer(request, *failed)
            ) is not None:
                await response.aclose()
                return instead
            if response.headers.get("content-type", "").startswith("text/event-stream"):
                response.stream = transport.bound(request, response.stream)  # and each event by itself
                return response
            try:
                content = await _read(response)
            except httpx2.TransportError as error:
                if (instead := transport.answer(request, LOST, _explain(error))) is None:
                    raise
                return instead
            if (failed := _judge_body(request, response.status_code, content)) is not None and (
                instead := transport.answer(request, *failed)
            ) is not None:
                return instead
            return httpx2.Response(response.status_code, headers=response.headers, content=content, request=request)

        async def aclose(self) -> None:
            await inner.aclose()

    return Careful()


def _explain(error: Exception) -> str:
    return str(error) or type(error).__name__


def _judge(request: Any, response: Any) -> tuple[str, str] | None:
    """Return what an answer says of the request where it is none of the protocol."""
    status = response.status_code
    if response.headers.get("content-encoding", "identity") != "identity":
        return LOST, "the answer is compressed, though nobody asked for that"
    if status == 404 and _SESSION_HEADER in request.headers:
        return SESSION_LOST, "the server doesn't know the session any more"
    if 300 <= status < 400:
        return REFUSED, f"HTTP {status}: a redirect isn't followed"
    is_said = response.headers.get("content-type", "").startswith("application/json")
    if status >= 400 and not is_said:
        return (REFUSED if status in REFUSALS else LOST), f"HTTP {status}"
    return None


def _judge_body(request: Any, status: int, content: bytes) -> tuple[str, str] | None:
    """Return what a body of JSON says of the request where whoever answered didn't get as far as that very request.

    An error of the protocol with the request's number is the server's own, and the settings say what it means. One
    without a number is of a request that wasn't read; only at a call, as the library finds by them how to greet.
    """
    if status < 400:
        return None
    said = _read_error(content)
    if said is None:
        return (REFUSED if status in REFUSALS else LOST), f"HTTP {status}"
    if said.get("id") is not None or status not in REFUSALS or not _is_call(request):
        return None
    return REFUSED, shorten(f"HTTP {status}: {said['error'].get('message', '')}")


def _is_call(request: Any) -> bool:
    try:
        return bool(json.loads(request.content)["method"] == "tools/call")
    except (ValueError, KeyError, TypeError):
        return False


def _read_error(content: bytes) -> dict[str, Any] | None:
    """Return *content* where it is an error in the words of the protocol."""
    try:
        said = json.loads(content)
    except (ValueError, RecursionError):
        return None
    is_error = isinstance(said, dict) and said.get("jsonrpc") == "2.0" and isinstance(said.get("error"), dict)
    return said if is_error else None


async def _read(response: Any) -> bytes:
    """Return what an answer holds; raises ReadError where that is too much."""
    import httpx2

    content = bytearray()
    try:
        async for chunk in response.stream:
            content += chunk
            if len(content) > MESSAGE_BYTES_MAX:
                raise httpx2.ReadError(f"an answer of more than {MESSAGE_BYTES_MAX} bytes")
    finally:
        await response.aclose()
    return bytes(content)
