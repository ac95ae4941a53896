"""Delays between tries: exponential with a cap, full jitter after the cap (rule E5).

The shape is that of AWS Step Functions' FULL jitter; the numbers are integers, so no attempt however high overflows,
turns negative or becomes infinite.
"""

from __future__ import annotations

from sagactl.core.saga import INTERVAL_MS_MAX, Jitter, Retry


def delay_ceiling_ms(retry: Retry, attempt: int) -> int:
    """Return the longest wait after *attempt* (from 1), in milliseconds."""
    growth = attempt - 1
    delay: int = retry.initial_interval_ms * retry.backoff_coefficient_percent**growth // 100**growth
    return min(delay, retry.max_interval_ms)


def delay_range_ms(retry: Retry, attempt: int, retry_after_ms: int | None) -> tuple[int, int]:
    """Return the shortest and longest wait after *attempt*; a tool that names the delay decides it alone."""
    if retry_after_ms is not None:
        exact = max(0, min(retry_after_ms, INTERVAL_MS_MAX))
        return exact, exact
    ceiling = delay_ceiling_ms(retry, attempt)
    return (ceiling, ceiling) if retry.jitter is Jitter.NONE else (0, ceiling)


def pick_delay_ms(floor_ms: int, ceiling_ms: int, fraction: float) -> int:
    """Place *fraction* (0 to below 1, drawn by the caller) between floor and ceiling, both included."""
    return floor_ms + int((ceiling_ms - floor_ms + 1) * fraction)
