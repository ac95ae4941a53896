"""A log that the process dies before or behind: at the commit of an intent, an outcome, or the end of a run."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, cast

from sagactl.chaos.experiment import FaultKind
from sagactl.chaos.trail import Plan
from sagactl.core.records import Ended, Holder, Intent, Operation, Outcome, Record
from sagactl.log.base import Batch, Creation, Lease, Log, NewRun


class _WatchedLog:
    """Stands before a log; all but the two commits below is the log's own."""

    def __init__(self, log: Log, plan: Plan) -> None:
        self._log = log
        self._plan = plan

    def __getattr__(self, name: str) -> Any:
        return getattr(self._log, name)

    def create(self, new: NewRun, *, holder: Holder | None) -> Creation:
        creation = self._log.create(new, holder=holder)
        self._plan.take(None, {FaultKind.KILLED_AFTER_START})
        return creation

    def append(self, batches: Sequence[Batch]) -> list[Lease]:
        records = [record for batch in batches for record in batch.records]
        intents = _operations(records, Intent)
        for operation in intents:
            self._plan.take(operation, {FaultKind.KILLED_BEFORE_INTENT})
        if any(isinstance(record, Ended) for record in records):
            self._plan.take(None, {FaultKind.KILLED_BEFORE_END})
        refused = self._log.append(batches)
        for operation in _operations(records, Outcome):
            self._plan.take(operation, {FaultKind.KILLED_AFTER_OUTCOME})
        for operation in intents:
            self._plan.take(operation, {FaultKind.KILLED_AFTER_INTENT})
        return refused


def _operations(records: Sequence[Record], kind: type[Intent | Outcome]) -> list[Operation]:
    return [record.operation for record in records if isinstance(record, Intent | Outcome) and isinstance(record, kind)]


def watch(log: Log, plan: Plan) -> Log:
    """Return *log*, behind what kills the process at the commits of *plan*."""
    return cast("Log", _WatchedLog(log, plan))
