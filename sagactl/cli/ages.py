"""Ages and moments as people type them: `30d`, `2h`, `2026-03-04`."""

from __future__ import annotations

from datetime import datetime

from sagactl.cli.session import local_zone, now_ms
from sagactl.errors import UsageError
from sagactl.schemas.durations import BadDurationError, parse_duration


def read_age_ms(text: str) -> int | None:
    """Return the milliseconds that `30d` or `1h30m` means, or None where *text* is no age."""
    try:
        return parse_duration(text)
    except BadDurationError:
        return None


def read_moment_ms(text: str) -> int:
    """Return the moment that an age or a date means; raises UsageError."""
    age_ms = read_age_ms(text)
    if age_ms is not None:
        return now_ms() - age_ms
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        raise UsageError(f"{text!r} is no time", code="bad-time", hint="2h, 3d, 2026-03-04, 2026-03-04T14:02") from None
    if moment.tzinfo is None:
        moment = moment.replace(tzinfo=local_zone())
    return int(moment.timestamp() * 1000)
