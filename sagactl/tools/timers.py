"""The tools `time.sleep` and `time.until`: waits that hold nothing, and that a crash neither loses nor begins anew.

The moment is worked out at the first asking and comes back as the token of `Pending` from then on (rule E5).
"""

from __future__ import annotations

import time
from datetime import UTC, datetime
from typing import Any, Final

from sagactl.core.canonical import Json
from sagactl.core.saga import POLL_MS_MIN
from sagactl.schemas.durations import UNITS_MS, BadDurationError, format_duration, parse_duration
from sagactl.tools.api import CallContext, Pending, Rejected
from sagactl.tools.kind import declares

WAIT_MS_MAX: Final = 366 * 86_400_000
"""The longest `time.sleep`, and how far ahead `time.until` may look."""

_PENDING_MAX: Final = "367d"
"""Longer than any wait, so that the wait itself is the bound."""


def _schema(name: str, **argument: Json) -> dict[str, Json]:
    return {"type": "object", "properties": {name: argument}, "required": [name], "additionalProperties": False}


_DURATION: Final = "^" + "".join(f"(?:[0-9]{{1,9}}{unit})?" for unit in UNITS_MS) + "$"
_SLEEP: Final = _schema(
    "for", type="string", pattern=_DURATION, minLength=1, maxLength=64, description="How long: 90s, 10m, 1h30m, 2d."
)
_UNTIL: Final = _schema("at", type="string", format="date-time", description="When: RFC 3339, with an offset or Z.")
_OUTPUT: Final[dict[str, Json]] = {
    "type": "object",
    "properties": {"until": {"type": "string", "format": "date-time"}},
    "required": ["until"],
}
_FACTS: Final[dict[str, Any]] = {"output_schema": _OUTPUT, "read_only": True, "pending_max": _PENDING_MAX}


@declares("time.sleep", _SLEEP, **_FACTS)
def sleep(context: CallContext, **arguments: Any) -> object:
    """Wait for a time. It is durable: a resume neither begins it anew nor cuts it short."""
    if context.token is not None:
        return _wait_on(_read_token(context.token))
    try:
        duration_ms = parse_duration(arguments["for"])
    except BadDurationError as error:
        raise Rejected(str(error), code="bad_duration") from None
    return _wait_on(_now_ms() + _bounded(duration_ms))


@declares("time.until", _UNTIL, **_FACTS)
def wait_until(context: CallContext, **arguments: Any) -> object:
    """Wait until a moment; one that has passed is no wait at all."""
    if context.token is not None:
        return _wait_on(_read_token(context.token))
    moment = datetime.fromisoformat(arguments["at"].upper().replace(" ", "T"))
    try:
        due_ms = round(moment.timestamp() * 1_000)
    except (OverflowError, ValueError):  # the first and the last day that there are, seen from another zone
        raise Rejected(f"{arguments['at']} is out of range", code="out_of_range") from None
    _bounded(due_ms - _now_ms())
    return _wait_on(due_ms)


def _now_ms() -> int:
    return time.time_ns() // 1_000_000


def _bounded(duration_ms: int) -> int:
    if duration_ms > WAIT_MS_MAX:
        raise Rejected(f"at most {format_duration(WAIT_MS_MAX)} can be waited for", code="too_long")
    return duration_ms


def _read_token(token: Json) -> int:
    assert isinstance(token, dict), "the token is ours"
    due_ms = token["due_ms"]
    assert isinstance(due_ms, int), "the token is ours"
    return due_ms


def _wait_on(due_ms: int) -> object:
    """Return the output if the moment has come, and otherwise ask to be asked again then."""
    left_ms = due_ms - _now_ms()
    if left_ms > POLL_MS_MIN:
        return Pending(after=left_ms / 1_000, token={"due_ms": due_ms})
    time.sleep(max(0, left_ms) / 1_000)
    return {"until": datetime.fromtimestamp(due_ms / 1_000, UTC).isoformat(timespec="milliseconds")}
