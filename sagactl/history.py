"""What a project's log says of its runs: opened once, when it is first asked for; read, and pruned.

A door that only looks needs no more than this: no saga file is read, no plugin imported, nothing driven.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from sagactl.config import Config
from sagactl.errors import MisuseError, NotFoundError, check_argument, check_run_id

if TYPE_CHECKING:
    from sagactl.core.counts import Counts
    from sagactl.core.saga import Saga
    from sagactl.engine.settings import Committed
    from sagactl.log.base import Log, PruneFilter, RunFilter, RunRow, Runs, StoredRecord
    from sagactl.log.glance import Glance
    from sagactl.log.pruning import Pruned


@dataclass
class History:
    """The runs of one project, as its log has them. Every method may be called from any thread."""

    config: Config
    passes_witnesses: bool = field(default=False, kw_only=True)
    """The log is a copy that was put back, and isn't accepted yet (see `sagactl.doctor.restored`)."""
    _logs: dict[bool, Log] = field(default_factory=dict, init=False, repr=False)
    _lock: threading.RLock = field(default_factory=threading.RLock, init=False, repr=False)
    _is_closed: bool = field(default=False, init=False, repr=False)

    def _check_open(self) -> None:
        if self._is_closed:
            raise MisuseError("the project is closed", code="closed", hint="open it again: `open_project(…)`")

    def _close_logs(self) -> None:
        with self._lock:
            for log in self._logs.values():
                log.close()
            self._logs.clear()

    def log(self, *, read_only: bool = False) -> Log:
        """Return the log, opened once; raises StorageError, or NotFoundError where there is none to read."""
        self._check_open()
        with self._lock:
            read_only = read_only and not self.passes_witnesses
            if False in self._logs:
                return self._logs[False]
            if read_only not in self._logs:
                from sagactl.log.open import open_log

                self._logs[read_only] = open_log(
                    self.config.log, read_only=read_only, passes_witnesses=self.passes_witnesses
                )
            return self._logs[read_only]

    def tell_lost_log(self) -> str | None:
        """Return when a log was kept where none lies now: one that is made there would know no run of it."""
        from sagactl.log.open import tell_lost

        return tell_lost(self.config.log)

    def runs(self, which: RunFilter | None = None) -> Runs:
        """Return the runs that fit, newest first, by default the last 20; their `total` is without the limit."""
        from sagactl.log.base import RunFilter, Runs

        check_argument(which, (RunFilter, type(None)), "RunFilter(…)", hint="from sagactl import RunFilter")
        log = self._find_log()
        rows, total = ([], 0) if log is None else log.rows(which or RunFilter())
        return Runs(tuple(rows), total)

    def unfinished(self) -> list[str]:
        """Return the ids of all runs that are not at rest, oldest first: those that a driver may `resume`.

        Runs of other projects in the same log aren't among them, as long as their projects are there (E16).
        """
        from sagactl.other_projects import leave_out_others

        log = self._find_log()
        return [] if log is None else leave_out_others(log, self.config.project, log.unfinished())

    def _find_log(self) -> Log | None:
        """Return the log to read; None where there is none yet, which is no error unless somebody named it."""
        try:
            return self.log(read_only=True)
        except NotFoundError:
            if self.config.origins.get("log") != "default":
                raise
            return None

    def prune(self, which: PruneFilter, *, pruned_by: str | None = None) -> Pruned:
        """Delete ended runs for good and give their space back; their ids and keys stay taken (E8)."""
        from sagactl.identity import who_am_i
        from sagactl.log.pruning import prune_all

        return prune_all(self.log(), which, pruned_by=pruned_by or who_am_i())

    def count(self, now_ms: int) -> Counts:
        """Return how much of everything there is in the log."""
        from sagactl.core.counts import Counts

        log = self._find_log()
        return Counts() if log is None else log.count(now_ms)

    def row(self, run_id: str) -> RunRow:
        """Return where a run stands, in one row; raises NotFoundError."""
        check_run_id(run_id)
        return self.log(read_only=True).row(run_id)

    def records(self, run_id: str, *, after_seq: int = 0) -> Iterator[StoredRecord]:
        """Yield what the log holds of a run, in order; raises DamagedLogError, NotFoundError."""
        check_run_id(run_id)
        return self.log(read_only=True).read(run_id, after_seq=after_seq)

    def read(self, run_id: str) -> Committed:
        """Return a run as its whole log makes it: saga, state, summary and steps; raises as `records`."""
        from sagactl.core.evolve import replay
        from sagactl.engine.settings import Committed

        records = tuple(stored.record for stored in self.records(run_id))
        saga = self.saga_of(self.row(run_id))  # after the records: a later definition fits them, an earlier may not
        return Committed(run_id, saga, replay(saga, records), 1, records)

    def saga_of(self, row: RunRow) -> Saga:
        """Return the saga that a run is bound to."""
        from sagactl.core.definition import read_definition

        return read_definition(self.log(read_only=True).definition(row.definition))

    # Quick looks for completion: without opening the log, and nothing where it can't be read at once

    def glance_runs(self, prefix: str, *, statuses: Sequence[str] = (), limit: int) -> list[Glance]:
        """Return runs whose id begins with *prefix*, newest first."""
        from sagactl.log.glance import glance_runs

        return glance_runs(self.config.log, prefix, statuses=statuses, limit=limit)

    def glance_steps(self, prefix: str) -> list[str]:
        """Return the steps of the run whose id begins with *prefix*."""
        from sagactl.log.glance import glance_steps

        return glance_steps(self.config.log, prefix)

    def glance_sagas(self) -> list[str]:
        """Return the names of the sagas that have runs."""
        from sagactl.log.glance import glance_sagas

        return glance_sagas(self.config.log)
