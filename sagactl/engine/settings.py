"""How a driver is set up, and what it tells those who listen."""

from __future__ import annotations

from dataclasses import dataclass as standard_dataclass
from typing import Final

from sagactl.core.limits import CALLS_MAX, CALLS_MAX_LIMIT
from sagactl.core.records import Record
from sagactl.core.saga import GRACE_MS, Saga
from sagactl.core.state import RunState
from sagactl.core.summary import StepRow, Summary, step_rows, summarize
from sagactl.dataclass import dataclass
from sagactl.errors import InvalidError
from sagactl.log.base import HEARTBEAT_MS, LEASE_MS

GRACE_MS_MAX: Final = 3_600_000

LEASE_MS_MIN: Final = 2_001
"""A lease is relied on until 2 seconds before its end."""


@dataclass(frozen=True, slots=True)
class Committed:
    """Records of a run that are durable now, the first of them `first_seq`; `state` is the one after them."""

    run_id: str
    saga: Saga
    state: RunState
    first_seq: int
    records: tuple[Record, ...]

    @property
    def summary(self) -> Summary:
        """Return where the run stands after these records."""
        return summarize(self.saga, self.state)

    @property
    def steps(self) -> list[StepRow]:
        """Return a row for each step, and for each touched item of a step with `foreach`."""
        return step_rows(self.saga, self.state)


@standard_dataclass(frozen=True, slots=True)
class Settings:
    """How a driver behaves; the defaults are those of the contract. Raises InvalidError for what can't be."""

    calls_max: int = CALLS_MAX
    grace_ms: int = GRACE_MS
    lease_ms: int = LEASE_MS
    heartbeat_ms: int = HEARTBEAT_MS
    waits_for_timers: bool = True

    def __post_init__(self) -> None:
        _check_number("calls_max", self.calls_max, 1, CALLS_MAX_LIMIT)
        _check_number("grace_ms", self.grace_ms, 0, GRACE_MS_MAX)
        _check_number("lease_ms", self.lease_ms, LEASE_MS_MIN, LEASE_MS)
        _check_number("heartbeat_ms", self.heartbeat_ms, 1, self.lease_ms)
        if not isinstance(self.waits_for_timers, bool):
            raise _invalid("waits_for_timers", self.waits_for_timers, "True or False")


def _check_number(name: str, value: object, least: int, most: int) -> None:
    if not isinstance(value, int) or isinstance(value, bool) or not least <= value <= most:
        raise _invalid(name, value, f"a whole number from {least} to {most}")


def _invalid(name: str, value: object, wanted: str) -> InvalidError:
    return InvalidError(
        f"{name} must be {wanted}, not {value!r:.100}", code="invalid-settings", hint="sagactl help embedding"
    )
