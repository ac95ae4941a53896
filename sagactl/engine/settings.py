"""How a driver is set up, and what it tells those who listen."""

from __future__ import annotations

from dataclasses import dataclass as standard_dataclass

from sagactl.core.limits import CALLS_MAX
from sagactl.core.records import Record
from sagactl.core.saga import GRACE_MS, Saga
from sagactl.core.state import RunState
from sagactl.core.summary import StepRow, Summary, step_rows, summarize
from sagactl.dataclass import dataclass
from sagactl.log.base import HEARTBEAT_MS, LEASE_MS


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
    """How a driver behaves; the defaults are those of the contract."""

    calls_max: int = CALLS_MAX
    grace_ms: int = GRACE_MS
    lease_ms: int = LEASE_MS
    heartbeat_ms: int = HEARTBEAT_MS
    waits_for_timers: bool = True
