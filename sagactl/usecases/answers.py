"""What a run answers to a request: what it would say now, and what the driver that has it has said (rule E22)."""

from __future__ import annotations

import time
from typing import Final

from sagactl.app import Project
from sagactl.core.operators import answer_request
from sagactl.core.records import Disposition, Operator, Request
from sagactl.engine.clock import SystemClock
from sagactl.errors import BusyError
from sagactl.log.base import Log, RunRow
from sagactl.usecases.following import is_driven

POLL_SECONDS: Final = 0.2


def would_refuse(project: Project, run_id: str, request: Request) -> bool:
    """Tell whether a run, as it stands, refuses *request*."""
    known = project.read(run_id)
    answer = answer_request(known.saga, known.state, request, SystemClock().now_ms())
    return answer.disposition is Disposition.REFUSED


def find_answer(log: Log, row: RunRow, request: Request) -> Operator | None:
    """Return what became of *request*, if that was written since *row* was read."""
    for stored in log.read(row.run_id, after_seq=row.seq):
        record = stored.record
        if isinstance(record, Operator) and record.request.id == request.id:
            return record
    return None


def wait_for_answer(log: Log, row: RunRow, request: Request, busy: BusyError, *, until: float) -> Operator | None:
    """Return what the driver of a run has answered; None where it has let go of the run before it did.

    Asking has raised *busy*, as another process has the run; the like is raised at *until*, a moment of the monotonic
    clock. The request stays written down.
    """
    while (answer := find_answer(log, row, request)) is None:
        if time.monotonic() > until:
            raise BusyError(f"{busy.message}; the request is written down", hint=f"sagactl show {row.run_id}")
        time.sleep(POLL_SECONDS)
        if not is_driven(log.row(row.run_id)):
            return find_answer(log, row, request)
    return answer
