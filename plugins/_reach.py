"""What is certain about a request that failed, for the plugins beside this file that reach systems of others.

Three things can be known without an answer: the library isn't there, no connection came about, or the other side
doesn't know who is asking. In each nothing happened. All else that goes wrong on the way stays in doubt.
"""

from __future__ import annotations

import hashlib
import time
from collections.abc import Iterator
from typing import Any, Final, NoReturn

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
