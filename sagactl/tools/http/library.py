"""The library that sends requests: an extra of its own, without which the tools are there and can't be called."""

from __future__ import annotations

from importlib.util import find_spec
from typing import Final

from sagactl.core.pinned import NOT_CALLABLE, Misfit
from sagactl.core.saga import ToolFacts

INSTALL: Final = "pip install 'sagactl[http]'"
MISSING_LIBRARY: Final = f"HTTP tools need httpx: {INSTALL}"


def is_installed() -> bool:
    """Tell whether the library is there, without importing it."""
    return find_spec("httpx") is not None


def guard_library(_: ToolFacts) -> Misfit | None:
    """Hold a run up before the intent where the call couldn't be made: what is done already needn't be undone (E16)."""
    return None if is_installed() else Misfit(f"{NOT_CALLABLE}: {MISSING_LIBRARY}")
