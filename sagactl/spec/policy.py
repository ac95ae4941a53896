"""How calls are made: retries, timeouts and what to do in doubt, as written and with the defaults filled in.

`defaults` and a step's own keys are merged key by key. The retry of `defaults` is that of actions up to the pivot:
compensations, and steps behind the pivot, must succeed at last, so they keep the patient policy but for what they say
themselves. The `start_to_close_timeout` of `defaults` is that of every call; its `schedule_to_close_timeout` is that of
actions only, because nothing cuts an undo short (rule E12).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from decimal import Decimal
from typing import Any, Final

from sagactl.core.saga import (
    ACTION_RETRY,
    ATTEMPTS_MAX,
    INTERVAL_MS_MAX,
    INTERVAL_MS_MIN,
    PATIENT_RETRY,
    START_TO_CLOSE_MS,
    Jitter,
    OnUnknown,
    Retry,
)
from sagactl.schemas.durations import format_duration
from sagactl.spec.draft import DraftPolicy
from sagactl.written.fields import Fields, Placed
from sagactl.written.findings import Findings
from sagactl.written.positions import Scalar

TIMEOUT_MS_MAX: Final = 366 * 86_400_000
COEFFICIENT_MAX: Final = 100

RETRY_KEYS: Final = (
    *("max_attempts", "initial_interval", "backoff_coefficient", "max_interval", "jitter"),
    "non_retryable_errors",
)
DEFAULTS_KEYS: Final = ("retry", "start_to_close_timeout", "schedule_to_close_timeout")
POLICY_KEYS: Final = (*DEFAULTS_KEYS, "on_unknown")


def read_policy(fields: Fields, *, is_undo: bool = False) -> DraftPolicy:
    """Read what a step, a compensation or `defaults` says of its calls."""
    without = {OnUnknown.COMPENSATE} if is_undo else set()
    return DraftPolicy(
        retry=_read_retry(fields),
        start_to_close_ms=fields.duration("start_to_close_timeout", 1, TIMEOUT_MS_MAX),
        schedule_to_close_ms=fields.duration("schedule_to_close_timeout", 1, TIMEOUT_MS_MAX),
        on_unknown=fields.choice("on_unknown", OnUnknown, without=without),
    )


def _read_retry(fields: Fields) -> Placed[Mapping[str, Any]] | None:
    retry = fields.fields("retry", RETRY_KEYS, "retry")
    entry = fields.entry("retry")
    if retry is None or entry is None:
        return None
    errors = retry.names("non_retryable_errors")
    found: dict[str, Placed[Any] | None] = {
        "max_attempts": retry.count("max_attempts", ATTEMPTS_MAX),
        "initial_interval_ms": retry.duration("initial_interval", INTERVAL_MS_MIN, INTERVAL_MS_MAX),
        "backoff_coefficient_percent": _read_coefficient(retry),
        "max_interval_ms": retry.duration("max_interval", INTERVAL_MS_MIN, INTERVAL_MS_MAX),
        "jitter": retry.choice("jitter", Jitter),
    }
    values: dict[str, Any] = {name: each.value for name, each in found.items() if each is not None}
    if errors is not None:
        values["non_retryable_errors"] = tuple(dict.fromkeys(error.value for error in errors))
    return Placed(values, entry.key_span)


def _read_coefficient(retry: Fields) -> Placed[int] | None:
    entry = retry.entry("backoff_coefficient")
    if entry is None:
        return None
    value = entry.node.value if isinstance(entry.node, Scalar) else None
    if isinstance(value, int | Decimal) and not isinstance(value, bool) and 1 <= value <= COEFFICIENT_MAX:
        percent = Decimal(value) * 100
        if percent == int(percent):
            return Placed(int(percent), entry.span)
    retry.refuse(entry, f"a number from 1 to {COEFFICIENT_MAX} with at most two decimals")
    return None


def action_retry(policy: DraftPolicy, defaults: DraftPolicy, *, is_patient: bool) -> Retry:
    """Return the retry policy of an action."""
    base = PATIENT_RETRY if is_patient else _merge(ACTION_RETRY, defaults.retry)
    return _merge(base, policy.retry)


def undo_retry(policy: DraftPolicy) -> Retry:
    """Return the retry policy of a compensation."""
    return _merge(PATIENT_RETRY, policy.retry)


def _merge(base: Retry, written: Placed[Mapping[str, Any]] | None) -> Retry:
    return base if written is None else replace(base, **written.value)


def start_to_close_ms(policy: DraftPolicy, defaults: DraftPolicy) -> int:
    """Return how long one call may take."""
    found = policy.start_to_close_ms or defaults.start_to_close_ms
    return START_TO_CLOSE_MS if found is None else found.value


def check_fit(policy: DraftPolicy, defaults: DraftPolicy, retry: Retry, *, owner: str, findings: Findings) -> None:
    """Note where one call, or the waits between all attempts, can't fit in the time for all of them (F5)."""
    whole = policy.schedule_to_close_ms or defaults.schedule_to_close_ms
    if whole is None:
        return
    limit = format_duration(whole.value)
    one_ms, waits_ms = start_to_close_ms(policy, defaults), longest_wait_ms(retry)
    if one_ms > whole.value:
        message = f"{owner}: one call may take {format_duration(one_ms)}, longer than all its attempts ({limit})"
        findings.error("timeout-order", message, whole.span, hint=f"set start_to_close_timeout to at most {limit}")
    if waits_ms >= whole.value:
        wait = format_duration(waits_ms)
        message = f"{owner}: {retry.max_attempts} attempts can wait {wait} in all, which doesn't fit in {limit}"
        hint = "lower max_attempts or max_interval, or give schedule_to_close_timeout more"
        if policy.retry is None and defaults.retry is not None and retry.max_attempts == PATIENT_RETRY.max_attempts:
            hint = f"{hint}; behind the pivot give the step its own retry: that of defaults is for actions before it"
        findings.error("retry-too-long", message, whole.span, hint=hint)


def check_run_fit(run_timeout: Placed[int], label: str, one_ms: int, retry: Retry, findings: Findings) -> None:
    """Note a step before the pivot that alone can outlast `run_timeout`."""
    limit = format_duration(run_timeout.value)
    if one_ms > run_timeout.value:
        message = f"one call of {label} may take {format_duration(one_ms)}, longer than the whole run ({limit})"
        findings.error("timeout-order", message, run_timeout.span)
    elif (waits_ms := longest_wait_ms(retry)) >= run_timeout.value:
        message = f"{label} can wait {format_duration(waits_ms)} between its attempts; the run may take {limit}"
        findings.error("retry-too-long", message, run_timeout.span)


def longest_wait_ms(retry: Retry) -> int:
    """Return the longest that all waits between the attempts can take together."""
    total, delay = 0.0, float(retry.initial_interval_ms)
    for _ in range(retry.max_attempts - 1):
        total += min(delay, retry.max_interval_ms)
        delay = min(delay * retry.backoff_coefficient_percent / 100, float(INTERVAL_MS_MAX))
    return int(total)
