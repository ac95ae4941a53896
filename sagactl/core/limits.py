"""Limits that settings name before a saga is read; it imports nothing, as every command reads the settings."""

from __future__ import annotations

from typing import Final

CALLS_MAX: Final = 8
"""How many calls a driver has under way at once, unless it is told otherwise."""
