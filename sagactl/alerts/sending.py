"""How sending fails, and how long to wait then."""

from __future__ import annotations

from typing import Final

from sagactl.secrets.masking import KNOWN

FIRST_DELAY_MS: Final = 1_000
DELAY_MS_MAX: Final = 3_600_000
ERROR_LENGTH_MAX: Final = 300


class SendError(Exception):
    """A message could not be sent; another try may succeed, unless it *is_final*.

    The text is bounded and names no secret, whatever the receiver has said: it is kept in the log and shown.
    """

    def __init__(self, message: str, *, retry_after_ms: int | None = None, is_final: bool = False) -> None:
        super().__init__(KNOWN.shorten(message, ERROR_LENGTH_MAX))
        self.retry_after_ms = retry_after_ms
        self.is_final = is_final


def delay_ms(attempts: int, retry_after_ms: int | None = None) -> int:
    """Return how long to wait after so many attempts; what the receiver asked for counts, up to the longest delay."""
    own_ms = FIRST_DELAY_MS * 2 ** min(max(0, attempts - 1), 30)
    return int(min(DELAY_MS_MAX, max(own_ms, retry_after_ms or 0)))
