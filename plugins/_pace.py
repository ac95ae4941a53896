"""Ways to lose time, for the plugins beside this file; a name that begins with `_` is no plugin."""

from __future__ import annotations

from sagactl import CallContext


def lose_time(context: CallContext, seconds: float) -> None:
    """Wait, but give up when the call is cancelled: a tool on a thread can't be stopped in any other way."""
    if context.cancelled.wait(timeout=seconds):
        raise TimeoutError("gave up, the call was cancelled")
