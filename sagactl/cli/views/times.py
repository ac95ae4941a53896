"""Times as people read them: local, with the offset. `documents` writes them for programs."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta, tzinfo
from typing import Final

from sagactl.core.limits import SHOWN_MS_MAX

_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)


def _moment(at_ms: int, tz: tzinfo) -> datetime:
    return (_EPOCH + timedelta(milliseconds=min(max(0, at_ms), SHOWN_MS_MAX))).astimezone(tz)


def show_clock(at_ms: int, tz: tzinfo) -> str:
    """Return `14:02:11`."""
    return _moment(at_ms, tz).strftime("%H:%M:%S")


def show_clock_ms(at_ms: int, tz: tzinfo) -> str:
    """Return `14:02:11.204`."""
    return _moment(at_ms, tz).isoformat(timespec="milliseconds")[11:23]


def show_date(at_ms: int, tz: tzinfo) -> str:
    """Return `2026-03-04`."""
    return _moment(at_ms, tz).date().isoformat()


def show_offset(at_ms: int, tz: tzinfo) -> str:
    """Return what the zone adds to UTC at that time, `+01:00`."""
    return _moment(at_ms, tz).isoformat(timespec="seconds")[19:]


def show_moment(at_ms: int, tz: tzinfo) -> str:
    """Return `2026-03-04 14:02:11 +01:00`."""
    return f"{show_date(at_ms, tz)} {show_clock(at_ms, tz)} {show_offset(at_ms, tz)}"


def show_due(at_ms: int, now_ms: int, tz: tzinfo) -> str:
    """Return `14:02:30`, with the date where it isn't the day of *now_ms*."""
    clock = show_clock(at_ms, tz)
    return clock if show_date(at_ms, tz) == show_date(now_ms, tz) else f"{show_date(at_ms, tz)} {clock}"


def show_duration(duration_ms: int) -> str:
    """Return `12ms`, `0.8s`, `2m05s`, `1h04m`, `2d03h`; what seems negative, after a step of the clock, is `0ms`."""
    duration_ms = max(0, duration_ms)
    if duration_ms < 100:
        return f"{duration_ms}ms"
    if duration_ms < 59_950:
        return f"{duration_ms / 1000:.1f}s"
    seconds = (duration_ms + 500) // 1000
    if seconds < 3_600:
        return f"{seconds // 60}m{seconds % 60:02}s"
    minutes = seconds // 60
    if minutes < 24 * 60:
        return f"{minutes // 60}h{minutes % 60:02}m"
    hours = minutes // 60
    return f"{hours // 24}d{hours % 24:02}h"


def show_seconds(duration_ms: int) -> str:
    """Return `8s`, `2m05s`, `1h04m`, for what is said of time that goes by."""
    seconds = max(0, duration_ms) // 1000
    return f"{seconds}s" if seconds < 60 else show_duration(seconds * 1000)


def show_rough(duration_ms: int) -> str:
    """Return a duration in its largest unit: `12s`, `2m`, `5h`, `3d`."""
    seconds = max(0, duration_ms) // 1000
    for unit, length in (("d", 86_400), ("h", 3_600), ("m", 60)):
        if seconds >= length:
            return f"{seconds // length}{unit}"
    return f"{seconds}s"


def show_ago(at_ms: int, now_ms: int) -> str:
    """Return `2m ago`, or `now`."""
    return "now" if now_ms - at_ms < 1000 else f"{show_rough(now_ms - at_ms)} ago"
