"""Ages and moments as people type them: `30d`, `2h`, `2026-03-04`."""

from __future__ import annotations

import re
from datetime import datetime
from typing import Final

from sagactl.cli.session import local_zone, now_ms
from sagactl.errors import UsageError

_AGE: Final = re.compile(r"(\d{1,6})([smhd])", re.ASCII)
_UNIT_MS: Final = {"s": 1_000, "m": 60_000, "h": 3_600_000, "d": 86_400_000}


def read_age_ms(text: str) -> int | None:
    """Return the milliseconds that `30d` means, or None where *text* is no age."""
    found = _AGE.fullmatch(text)
    return None if found is None else int(found[1]) * _UNIT_MS[found[2]]


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
