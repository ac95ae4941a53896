"""What carrying on with a run, or undoing it, would come to here and now: nothing is written and nothing called."""

from __future__ import annotations

from sagactl.app import Project
from sagactl.core.foresight import Foresight, Situation, foresee_resume, foresee_rollback
from sagactl.core.records import Request
from sagactl.engine.clock import SystemClock
from sagactl.errors import BusyError
from sagactl.log.base import RunRow
from sagactl.usecases.following import is_driven


def foresee(project: Project, row: RunRow, request: Request | None) -> Foresight:
    """Return what asking *request* of a run, or resuming it, would lead to; raises BusyError where that would (E15)."""
    saga = project.saga_of(row)
    if is_driven(row) and request is None:
        assert row.holder is not None, "somebody drives it"
        message = f"run {row.run_id} is driven by process {row.holder.pid} on {row.holder.host}"
        raise BusyError(message, hint=f"sagactl show {row.run_id}")
    situation = survey(project, row)
    state, evaluator = project.read(row.run_id).state, project.evaluator(saga)  # a foresight consumes its state
    if request is None:
        return foresee_resume(saga, state, evaluator, situation)
    return foresee_rollback(saga, state, request, evaluator, situation)


def survey(project: Project, row: RunRow) -> Situation:
    """Return what a driver of the run would find here and now besides its log."""
    from sagactl.engine.missing import find_missing_tools

    saga = project.saga_of(row)
    return Situation(
        now_ms=SystemClock().now_ms(),
        slots=project.config.calls_max,
        missing_tools=frozenset(find_missing_tools(saga, project.toolbox)),
        missing_secrets=frozenset(project.toolbox.missing_secrets(saga.secrets_needed)),
        is_driven=is_driven(row),
    )
