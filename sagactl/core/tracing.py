"""The ids of a run's trace: worked out from the run and the call, so that every process and every attempt agrees.

A run is one trace, whoever drives it and however often it is resumed. A span that is sent twice, since nobody knows
whether it arrived, has the same id both times. Tools get the id of their own call as `traceparent` (W3C Trace Context),
whether or not anything is sent anywhere.
"""

from __future__ import annotations

import re
from typing import Final, NamedTuple

from sagactl.core.keys import idempotency_key
from sagactl.core.records import Operation
from sagactl.hashing import sha256

_TRACE_ID_BYTES: Final = 16
_SPAN_ID_BYTES: Final = 8
_SAMPLED: Final = 1
_TRACEPARENT: Final = r"([0-9a-f]{2})-([0-9a-f]{32})-([0-9a-f]{16})-([0-9a-f]{2})(-[\x21-\x7e]*)?\Z"

TRACEPARENT_LENGTH_MAX: Final = 256
"""Characters of a `traceparent` that is taken from outside."""


def trace_id(run_id: str) -> str:
    """Return the id of the trace of a run: 32 hexadecimal digits."""
    return _digest(f"sagactl/trace/{run_id}", _TRACE_ID_BYTES)


def run_span_id(run_id: str) -> str:
    """Return the id of the span of the run itself, the root: 16 hexadecimal digits."""
    return _digest(f"sagactl/span/{run_id}", _SPAN_ID_BYTES)


def call_span_id(run_id: str, operation: Operation, attempt: int) -> str:
    """Return the id of the span of a call; all askings of an attempt that is pending are one call."""
    return _digest(f"sagactl/span/{idempotency_key(run_id, operation)}/{attempt}", _SPAN_ID_BYTES)


def probe_span_id(run_id: str, operation: Operation, number: int, *, fence: int, deadline_ms: int) -> str:
    """Return the id of the span of a probe; numbers begin again with each doubt, so driver and deadline tell them."""
    key = idempotency_key(run_id, operation)
    return _digest(f"sagactl/span/{key}/probe/{number}/{fence}/{deadline_ms}", _SPAN_ID_BYTES)


def write_traceparent(run_id: str, span_id: str, *, is_sampled: bool = True) -> str:
    """Return what is handed to whoever is called, as the header `traceparent`."""
    return f"00-{trace_id(run_id)}-{span_id}-{_SAMPLED if is_sampled else 0:02x}"


class Remote(NamedTuple):
    """A span of somebody else's trace."""

    trace_id: str
    span_id: str
    flags: int


def read_traceparent(text: str) -> Remote | None:
    """Return the span that *text* names, as W3C Trace Context has it, or None where it names none.

    It comes from outside. A version that isn't known yet may say more behind its flags.
    """
    found = re.match(_TRACEPARENT, text) if len(text) <= TRACEPARENT_LENGTH_MAX else None
    if found is None:
        return None
    version, trace, span, flags, more = found.groups()
    if version == "ff" or (version == "00" and more) or not int(trace, 16) or not int(span, 16):
        return None
    return Remote(trace, span, int(flags, 16))


def _digest(text: str, size: int) -> str:
    return sha256(text.encode()).digest()[:size].hex()
