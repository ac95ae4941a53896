"""What is certain about a request that failed, for the plugins beside this file that reach systems of others.

Three things can be known without an answer: the library isn't there, no connection came about, or the other side
doesn't know who is asking. In each nothing happened. All else that goes wrong on the way stays in doubt.
"""

from __future__ import annotations

import contextlib
import hashlib
import socket
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from typing import Any, Final, NoReturn, Self

from sagactl import CallContext, Rejected, Unavailable

NEVER_CONNECTED: Final = frozenset(
    {
        *("NewConnectionError", "NameResolutionError", "ConnectTimeoutError", "ConnectTimeout", "gaierror"),
        *("ConnectionRefusedError", "SSLCertVerificationError"),  # a certificate is checked before a request is sent
    }
)
"""Exceptions, of several libraries, that say that no request has left this machine."""

DEPTH_MAX: Final = 8
"""How far the causes of an exception are followed."""

ANSWER_BYTES_MAX: Final = 8_388_608
"""How large an answer may be; a page of a hundred charges or machines has less than 1 MiB."""

CHUNK_BYTES: Final = 65_536

SPARE_SECONDS: Final = 0.25
"""How much earlier than its call a request gives up, so that what it came to is told in time."""


def lack(library: str) -> NoReturn:
    """Say that a library is missing: nothing was called."""
    raise Unavailable(f"needs {library}: pip install 'sagactl[plugins]'", code="missing_library")


def refuse(context: CallContext, message: str, code: str) -> NoReturn:
    """Say that the key is wrong, or lacks a right: nothing happened.

    That is final for an action: rolling back now is better than later. An undo waits for the right key, with an alert,
    because one that is rejected would be given to a person at once.
    """
    if context.direction == "compensation":
        raise Unavailable(message, code=code)
    raise Rejected(message, code=code)


def seconds_for(context: CallContext) -> float:
    """Return how long a request of this call may take; raises TimeoutError where there is no time for one."""
    seconds = context.seconds_left() - SPARE_SECONDS
    if seconds <= 0 or context.cancelled.is_set():
        raise TimeoutError("the call is over")
    return seconds


class Alarm:
    """Breaks the connections of one request at its deadline, by the monotonic clock; leaving it then raises.

    Libraries bound each wait by itself: who sends a byte of TLS or of a header now and then holds them as long as they
    like. What is kept here is a second descriptor of each connection, which breaks it whatever wraps the first.
    """

    def __init__(self, deadline: float) -> None:
        self._lock = threading.Lock()
        self._kept: list[socket.socket] = []
        self._is_due = False
        self._has_broken = False
        self._timer = threading.Timer(max(0.0, deadline - time.monotonic()), self._ring)
        self._timer.daemon = True

    def __enter__(self) -> Self:
        self._timer.start()
        return self

    def __exit__(self, _: object, error: BaseException | None, __: object) -> None:
        self._timer.cancel()
        with self._lock:
            for kept in self._kept:
                kept.close()
            has_broken, self._kept = self._has_broken, []
        if has_broken and isinstance(error, Exception) and not isinstance(error, Rejected | Unavailable):
            raise TimeoutError("the request took longer than the call has") from None

    def keep(self, connection: socket.socket) -> None:
        """Break *connection* too when it is time."""
        with self._lock:
            self._kept.append(connection.dup())
            if self._is_due:
                self._break()

    def watch_pool(self, pool: Any) -> Any:
        """Return a pool of urllib3's whose connections are kept here as soon as they are made, before TLS begins."""
        kind: Any = pool.ConnectionCls

        def connect(connection: Any) -> Any:
            made = kind._new_conn(connection)  # noqa: SLF001 - what each of its classes makes its connection by
            self.keep(made)
            return made

        pool.ConnectionCls = type("Watched", (kind,), {"_new_conn": connect})
        return pool

    def watch_pools(self, makers: Mapping[str, Callable[..., Any]]) -> dict[str, Callable[..., Any]]:
        """Return what makes such pools, by the scheme of their addresses."""

        def make(maker: Callable[..., Any], *args: Any, **more: Any) -> Any:
            return self.watch_pool(maker(*args, **more))

        return {scheme: partial(make, maker) for scheme, maker in makers.items()}

    def _ring(self) -> None:
        with self._lock:
            self._is_due = True
            self._break()

    def _break(self) -> None:
        self._has_broken = self._has_broken or bool(self._kept)
        for kept in self._kept:
            with contextlib.suppress(OSError):
                kept.shutdown(socket.SHUT_RDWR)


def read_answer(raw: Any, deadline: float, *, decode: bool, length: int | None = None) -> bytes:
    """Return what comes of an answer until *deadline*, by the monotonic clock, has passed; raises where it isn't whole.

    Args:
        raw: The answer as urllib3 has it, unread.
        deadline: When it must have come.
        decode: Whether it may have been packed.
        length: How long it must be, where that is known and nobody else sees to it.
    """
    content = bytearray()
    read = getattr(raw, "read1", raw.read)  # what has come, however little, so that the time is looked at
    while chunk := read(CHUNK_BYTES, decode_content=decode):
        content += chunk
        if len(content) > ANSWER_BYTES_MAX:
            raise ValueError(f"the answer is larger than {ANSWER_BYTES_MAX} bytes")
        if time.monotonic() > deadline:
            raise TimeoutError("the answer came too slowly")
    if length is not None and len(content) < length:
        raise ConnectionError(f"the answer was cut off: {len(content)} of {length} bytes")
    return bytes(content)


def was_never_sent(error: BaseException) -> bool:
    """Tell whether *error* says that no connection came about, so that the request can't have had an effect."""
    return any(type(each).__name__ in NEVER_CONNECTED for each in _follow(error, DEPTH_MAX))


def _follow(error: BaseException, depth: int) -> Iterator[BaseException]:
    """Walk through what caused *error*, wherever libraries put it; what was merely handled before isn't a cause."""
    yield error
    more = getattr(error, "kwargs", None)
    reasons = [error.__cause__, getattr(error, "reason", None), *error.args]
    reasons += list(more.values()) if isinstance(more, dict) else []
    for reason in reasons if depth else ():
        if isinstance(reason, BaseException):
            yield from _follow(reason, depth - 1)


def name_effect(key: str, length_max: int) -> str:
    """Return the key of an operation as the other side takes it: as it is, or its digest where it is too long."""
    return key if len(key) <= length_max else hashlib.sha256(key.encode()).hexdigest()[:length_max]
