"""The pooled connections of a process, as a transport of httpx, and one exchange over them.

A whole client of httpx would keep cookies, read proxies and passwords from the environment, and write URLs to a log;
its transport does none of these.
"""

from __future__ import annotations

import contextlib
import ssl
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Final

import httpcore
import httpx

from sagactl.dataclass import dataclass
from sagactl.tools.convert import bound_line
from sagactl.tools.http.network import CURRENT, Bounds, CheckedBackend, Hurdle
from sagactl.tools.http.settings import HttpSettings

IDLE_CONNECTIONS_MAX: Final = 20
IDLE_SECONDS: Final = 30.0
CHUNK_BYTES: Final = 65_536
FRAMING_FACTOR: Final = 4
"""What comes over the wire may be this much more than what is read: chunks have heads."""


@dataclass(frozen=True, slots=True)
class Received:
    """An answer; `trouble` says why its body isn't whole."""

    status: int
    headers: tuple[tuple[str, str], ...]
    body: bytes
    trouble: Hurdle | None

    def header(self, name: str) -> str | None:
        """Return the values of a header, joined by commas."""
        found = [value for key, value in self.headers if key == name]
        return ", ".join(found) if found else None


class PooledTransport(httpx.BaseTransport):
    """Sends requests over connections that are kept, one pool for each host, as the settings allow."""

    def __init__(self, settings: HttpSettings, resolve: Callable[[str, int], list[str]] | None = None) -> None:
        backend, context = CheckedBackend(settings, resolve), make_tls(settings.ca)
        self._pool: httpcore.ConnectionPool
        if settings.proxy is None:
            self._pool = httpcore.ConnectionPool(
                ssl_context=context,
                max_connections=None,
                max_keepalive_connections=IDLE_CONNECTIONS_MAX,
                keepalive_expiry=IDLE_SECONDS,
                network_backend=backend,
            )
        else:
            self._pool = httpcore.HTTPProxy(
                proxy_url=settings.proxy.origin,
                ssl_context=context,
                max_connections=None,
                max_keepalive_connections=IDLE_CONNECTIONS_MAX,
                keepalive_expiry=IDLE_SECONDS,
                network_backend=backend,
            )

    def handle_request(self, request: httpx.Request) -> httpx.Response:
        """Return the answer with its body still to come."""
        answer = self._pool.handle_request(
            httpcore.Request(
                method=request.method,
                url=httpcore.URL(
                    scheme=request.url.raw_scheme,
                    host=request.url.raw_host,
                    port=request.url.port,
                    target=request.url.raw_path,
                ),
                headers=request.headers.raw,
                content=request.stream,
            )
        )
        return httpx.Response(answer.status, headers=answer.headers, stream=_Body(answer))

    def close(self) -> None:
        """Close all connections."""
        self._pool.close()


class _Body(httpx.SyncByteStream):
    def __init__(self, answer: httpcore.Response) -> None:
        self._answer = answer

    def __iter__(self) -> Iterator[bytes]:
        yield from self._answer.iter_stream()

    def close(self) -> None:
        self._answer.close()


def make_tls(ca: Path | None) -> ssl.SSLContext:
    """Return what verifies certificates: those the system trusts, and those in *ca* besides."""
    context = ssl.create_default_context()
    if context.cert_store_stats()["x509_ca"] == 0 and not _has_folder_of_certificates():
        import certifi

        context.load_verify_locations(certifi.where())
    if ca is not None:
        context.load_verify_locations(ca)
    return context


def _has_folder_of_certificates() -> bool:
    folder = ssl.get_default_verify_paths().capath
    return bool(folder) and any(Path(folder).iterdir())


def exchange(
    transport: httpx.BaseTransport, request: httpx.Request, bounds: Bounds, *, body_bytes_max: int
) -> Received:
    """Send a request and read its answer, at most *body_bytes_max* of it; raises Hurdle, and nothing else."""
    token = CURRENT.set(bounds)
    try:
        with _as_hurdle(bounds):
            answer = transport.handle_request(request)
        try:
            bounds.bytes_left = FRAMING_FACTOR * body_bytes_max + CHUNK_BYTES
            body, trouble = _read_body(answer, bounds, body_bytes_max)
        finally:
            with contextlib.suppress(Exception):  # it is over, whatever closing says
                answer.close()
        headers = tuple((name.lower(), value) for name, value in answer.headers.multi_items())
        return Received(answer.status_code, headers, body, trouble)
    finally:
        CURRENT.reset(token)


@contextlib.contextmanager
def _as_hurdle(bounds: Bounds) -> Iterator[None]:
    try:
        yield
    except Hurdle:
        raise
    except httpcore.RemoteProtocolError as error:
        raise Hurdle(_say_protocol(error), "bad_answer") from None
    except (
        httpcore.NetworkError,
        httpcore.ProtocolError,
        httpcore.TimeoutException,
        httpcore.ProxyError,
        OSError,
    ) as error:
        what = "the connection broke" if bounds.has_sent else "it can't be reached"
        raise Hurdle(f"{what}: {str(error) or type(error).__name__}", "connection_lost") from None


def _say_protocol(error: Exception) -> str:
    text = str(error)
    if "without sending" in text or "closed" in text:
        return "the server closed the connection before its answer was whole"
    return f"the server broke the rules of HTTP: {text}"


def _read_body(answer: httpx.Response, bounds: Bounds, bytes_max: int) -> tuple[bytes, Hurdle | None]:
    length = answer.headers.get("content-length", "")
    if length.isdecimal() and len(length) < 20 and int(length) > bytes_max:
        return b"", _too_large(bytes_max)
    body = bytearray()
    try:
        decoder = _Decoder(answer.headers.get("content-encoding", "identity"))
        with _as_hurdle(bounds):
            for chunk in answer.iter_raw():
                body += decoder.decode(chunk, bytes_max + 1 - len(body))
                if len(body) > bytes_max:
                    return bytes(body[:bytes_max]), _too_large(bytes_max)
        decoder.check_end()
    except Hurdle as hurdle:
        return bytes(body), hurdle
    return bytes(body), None


def _too_large(bytes_max: int) -> Hurdle:
    return Hurdle(f"the answer is larger than {bytes_max} bytes", "answer_too_large")


class _Decoder:
    """Undoes gzip, never giving more than was asked for: a small answer may unfold to a very large one."""

    def __init__(self, encoding: str) -> None:
        name = encoding.strip().lower()
        if name not in {"", "identity", "gzip", "x-gzip", "deflate"}:
            raise Hurdle(
                f"the answer is encoded in a way that wasn't asked for: {bound_line(encoding, 40)}", "bad_answer"
            )
        self._has_begun = False
        self._zlib = None if name in {"", "identity"} else zlib.decompressobj(47 if "gzip" in name else 15)

    def decode(self, chunk: bytes, bytes_max: int) -> bytes:
        """Return what *chunk* holds, at most so much of it; the caller gives up where it is all that."""
        if self._zlib is None:
            return chunk
        self._has_begun = True
        try:
            return self._zlib.decompress(chunk, bytes_max)
        except zlib.error:
            raise Hurdle("the answer says that it is compressed, and isn't", "bad_answer") from None

    def check_end(self) -> None:
        """Raise Hurdle where the compressed answer isn't whole."""
        if self._zlib is not None and self._has_begun and not self._zlib.eof:
            raise Hurdle("the compressed answer isn't whole", "bad_answer")
