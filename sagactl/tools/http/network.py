"""Connections as the policy wants them, each wait bounded by the deadline of the whole call (E14).

A name is looked up here, each address it leads to is judged, and the very address that passed is connected to: between
the check and the connection nothing is looked up again. Every wait is cut into slices, so that a call ends soon after
its deadline, or after somebody cancels it, however slowly the other side sends.
"""

from __future__ import annotations

import contextlib
import os
import selectors
import socket
import ssl
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from contextvars import ContextVar
from functools import partial
from ipaddress import ip_address
from typing import Any, Final

import httpcore

from sagactl.tools.http.policy import Destination, object_to_address
from sagactl.tools.http.settings import Address, HttpSettings

SLICE_SECONDS: Final = 0.1
ADDRESSES_MAX: Final = 8
"""Addresses of one name that are tried."""

HEAD_BYTES_MAX: Final = 262_144
"""What may come before the body: status, headers, and answers that only say that one is on its way."""


class Hurdle(Exception):  # noqa: N818 - what became of a call, as `Rejected` is
    """A request came to nothing; `code` is a word for it."""

    def __init__(self, message: str, code: str) -> None:
        super().__init__(message)
        self.code = code


class Blocked(Hurdle):
    """The policy of the network is against it, and nothing was connected to."""


class Bounds:
    """What one exchange may still take, and whether anything of it has been sent."""

    def __init__(self, destination: Destination, seconds: float, cancelled: threading.Event) -> None:
        self.destination = destination
        self.seconds = seconds
        self.has_sent = False
        self.bytes_left = HEAD_BYTES_MAX
        self._ends_at = time.monotonic() + seconds
        self._cancelled = cancelled

    def slice_seconds(self) -> float:
        """Return how long to wait next; raises Hurdle where there is no more waiting."""
        if self._cancelled.is_set():
            raise Hurdle("the call was cancelled", "cancelled")
        left = self._ends_at - time.monotonic()
        if left <= 0:
            raise Hurdle(f"no whole answer within {round(self.seconds, 1):g} s", "timeout")
        return min(SLICE_SECONDS, left)

    def take(self, amount: int) -> None:
        """Count bytes that came; raises Hurdle where they are too many."""
        self.bytes_left -= amount
        if self.bytes_left < 0:
            raise Hurdle("it sends more than is read of an answer", "answer_too_large")


CURRENT: Final[ContextVar[Bounds]] = ContextVar("bounds of the exchange")
"""The exchange that this thread is in; connections are shared, and belong to whoever uses them now."""


class CheckedBackend(httpcore.NetworkBackend):
    """Connects as the settings allow; *resolve* looks names up."""

    def __init__(self, settings: HttpSettings, resolve: Callable[[str, int], list[str]] | None = None) -> None:
        self._settings = settings
        self._resolve = look_up_name if resolve is None else resolve

    def connect_tcp(
        self,
        host: str,
        port: int,
        timeout: float | None = None,  # noqa: ARG002 - the bounds of the exchange count
        local_address: str | None = None,  # noqa: ARG002 - nobody gives one
        socket_options: Iterable[httpcore.SOCKET_OPTION] | None = None,  # noqa: ARG002 - likewise
    ) -> httpcore.NetworkStream:
        """Return a connection to *host*; raises Blocked, or Hurdle where it isn't reached."""
        bounds = CURRENT.get()
        found = self._find_addresses(host, port, bounds)
        failures = []
        for address in found:
            try:
                return BoundedStream(_connect(address, port, bounds))
            except OSError as error:
                failures.append(error.strerror or type(error).__name__)
        raise Hurdle(f"{host}:{port} can't be reached: {failures[0]}", "unreachable")

    def _find_addresses(self, host: str, port: int, bounds: Bounds) -> list[Address]:
        addresses = [ip_address(each) for each in _wait_for(lambda: self._resolve(host, port), bounds, host)]
        if self._settings.proxy is not None and host == self._settings.proxy.host:
            return addresses[:ADDRESSES_MAX]
        objections = {each: object_to_address(each, bounds.destination, self._settings) for each in addresses}
        passed = [each for each, objection in objections.items() if objection is None]
        if not passed:
            raise Blocked(str(next(iter(objections.values()), f"{host} leads nowhere")), "blocked")
        return passed[:ADDRESSES_MAX]


def look_up_name(host: str, port: int) -> list[str]:
    """Return the addresses of *host*, or those that it spells out; raises OSError."""
    found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    return list(dict.fromkeys(str(each[4][0]).partition("%")[0] for each in found))


def _wait_for(resolve: Callable[[], list[str]], bounds: Bounds, host: str) -> list[str]:
    """Look a name up on a thread of its own, since nothing else can end that wait."""
    found: list[str] = []
    failed: list[Exception] = []
    is_done = threading.Event()

    def run() -> None:
        try:
            found.extend(resolve())
        except (OSError, UnicodeError) as error:
            failed.append(error)
        finally:
            is_done.set()

    threading.Thread(target=run, name="look up a host", daemon=True).start()
    while not is_done.wait(bounds.slice_seconds()):
        pass
    if failed:
        why = getattr(failed[0], "strerror", None) or type(failed[0]).__name__
        raise Hurdle(f"the host {host} can't be found: {why}", "unreachable")
    return found


def _connect(address: Address, port: int, bounds: Bounds) -> socket.socket:
    """Return a connected socket; raises OSError, or Hurdle at the deadline."""
    made = socket.socket(socket.AF_INET if address.version == 4 else socket.AF_INET6, socket.SOCK_STREAM)
    try:
        made.setblocking(False)
        with contextlib.suppress(BlockingIOError):
            made.connect((str(address), port))
        _wait_until(made, selectors.EVENT_WRITE, bounds)
        _raise_error_of(made)
        made.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    except BaseException:
        made.close()
        raise
    return made


def _raise_error_of(made: socket.socket) -> None:
    error = made.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR)
    if error:
        raise OSError(error, os.strerror(error))


def _wait_until(made: socket.socket, event: int, bounds: Bounds) -> None:
    with selectors.DefaultSelector() as selector:
        selector.register(made, event)
        while not selector.select(bounds.slice_seconds()):
            pass


class BoundedStream(httpcore.NetworkStream):
    """A connection whose every wait is bounded by the exchange that uses it."""

    def __init__(self, made: socket.socket) -> None:
        self._socket = made

    def read(self, max_bytes: int, timeout: float | None = None) -> bytes:  # noqa: ARG002 - as above
        """Return what comes next; empty at its end."""
        bounds = CURRENT.get()
        with _as_read_error():
            data: bytes = _in_slices(self._socket, bounds, lambda: self._socket.recv(max_bytes))
        bounds.take(len(data))
        return data

    def write(self, buffer: bytes, timeout: float | None = None) -> None:  # noqa: ARG002 - as above
        """Send all of *buffer*."""
        bounds = CURRENT.get()
        bounds.has_sent = bounds.has_sent or bool(buffer)
        view = memoryview(buffer)
        with _as_write_error():
            while view:
                sent: int = _in_slices(self._socket, bounds, partial(self._socket.send, view))
                view = view[sent:]

    def close(self) -> None:
        """Close it, without waiting for the other side."""
        self._socket.close()

    def start_tls(
        self,
        ssl_context: ssl.SSLContext,
        server_hostname: str | None = None,
        timeout: float | None = None,  # noqa: ARG002 - as above
    ) -> httpcore.NetworkStream:
        """Return the same connection with TLS; raises Hurdle where the certificate isn't trusted."""
        bounds = CURRENT.get()
        try:
            wrapped = ssl_context.wrap_socket(
                self._socket, server_hostname=server_hostname, do_handshake_on_connect=False
            )
        except (OSError, ValueError) as error:
            self._socket.close()
            raise Hurdle(f"TLS can't begin: {type(error).__name__}", "tls") from None
        try:
            _in_slices(wrapped, bounds, wrapped.do_handshake)
        except ssl.SSLCertVerificationError as error:
            wrapped.close()
            message = f"the certificate of {server_hostname} is not trusted: {error.verify_message}"
            raise Hurdle(message, "bad_certificate") from None
        except OSError as error:
            wrapped.close()
            reason = getattr(error, "reason", None) or error.strerror or type(error).__name__
            raise Hurdle(f"TLS with {server_hostname} failed: {reason}", "tls") from None
        except BaseException:
            wrapped.close()
            raise
        return BoundedStream(wrapped)

    def get_extra_info(self, info: str) -> Any:
        """Return what the pool asks about: whether the other side has said something, so closed the connection."""
        if info == "is_readable":
            return _is_readable(self._socket)
        return self._socket if info == "socket" else None


def _in_slices(made: socket.socket, bounds: Bounds, act: Callable[[], Any]) -> Any:
    """Do what waits for the other side, again and again while it doesn't come to anything."""
    while True:
        made.settimeout(bounds.slice_seconds())
        try:
            return act()
        except TimeoutError:
            continue


def _is_readable(made: socket.socket) -> bool:
    if made.fileno() < 0:
        return True
    with selectors.DefaultSelector() as selector:
        selector.register(made, selectors.EVENT_READ)
        return bool(selector.select(0))


@contextlib.contextmanager
def _as_read_error() -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise httpcore.ReadError(error.strerror or type(error).__name__) from None


@contextlib.contextmanager
def _as_write_error() -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise httpcore.WriteError(error.strerror or type(error).__name__) from None
