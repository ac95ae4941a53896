"""Durations as people write them: `200ms`, `30s`, `5m`, `1h`, `1d`, and `1h30m` from the large to the small."""

from __future__ import annotations

import re
from typing import Final

UNITS_MS: Final = {"d": 86_400_000, "h": 3_600_000, "m": 60_000, "s": 1_000, "ms": 1}
DURATION_PATTERN: Final = "".join(rf"(?:(?P<{unit}>[0-9]{{1,9}}){unit})?" for unit in UNITS_MS)

_DURATION: Final = re.compile(DURATION_PATTERN, re.ASCII)


class BadDurationError(ValueError):
    """The text is no duration."""


def parse_duration(text: str) -> int:
    """Return milliseconds; raises BadDurationError."""
    found = _DURATION.fullmatch(text)
    if found is None or not text:
        raise BadDurationError("a duration is written like 200ms, 30s, 5m, 1h30m or 1d")
    return sum(int(amount) * UNITS_MS[unit] for unit, amount in found.groupdict().items() if amount is not None)


def format_duration(duration_ms: int) -> str:
    """Return the duration as `parse_duration` reads it."""
    parts = []
    rest = duration_ms
    for unit, unit_ms in UNITS_MS.items():
        amount, rest = divmod(rest, unit_ms)
        if amount:
            parts.append(f"{amount}{unit}")
    return "".join(parts) or "0s"
