"""Limits that are needed before a saga or a log is read; it imports nothing, as every command needs them."""

from __future__ import annotations

from typing import Final

CALLS_MAX: Final = 8
"""How many calls a driver has under way at once, unless it is told otherwise."""

CALLS_MAX_LIMIT: Final = 1_000
"""How many it may be told."""

SHOWN_MS_MAX: Final = 253_402_214_400_000
"""The last day of the year 9999 begins here; later times are shown as this one, in any zone."""
