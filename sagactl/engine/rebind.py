"""Binding a run to another definition under its lease, in one durable transaction (rule E16).

Nobody drives the run meanwhile: its lease is taken, its log is judged as it is then, the record is written together
with the definition that it names, and the lease is given back. Whoever drives the run next reads it under the new
definition. A process that dies in between leaves the run bound to one of the two, and resumable.
"""

from __future__ import annotations

from sagactl.core.definition import Snapshot, read_definition
from sagactl.core.evolve import replay
from sagactl.core.rebinding import Rebinding, plan_rebinding, rebinding_record
from sagactl.core.records import Holder, Operator, Record, Request
from sagactl.core.saga import Saga
from sagactl.core.state import RunState
from sagactl.core.summary import summarize
from sagactl.engine.clock import Clock
from sagactl.errors import LeaseLostError, RefusedError
from sagactl.log.base import Batch, Log

REASONS_LISTED_MAX = 20
"""How many reasons a refusal names; `--dry-run` shows all."""


def rebind(
    log: Log, run_id: str, saga: Saga, snapshot: Snapshot, request: Request, *, holder: Holder, clock: Clock
) -> None:
    """Bind a run to *saga*, whose snapshot it is, as *request* says.

    Raises RefusedError where the run has come too far for it, or is bound to another definition than the one that the
    request replaces; BusyError while another driver has the run; NotFoundError.
    """
    lease = log.claim(run_id, holder=holder)
    try:
        record, state = _decide(log, run_id, saga, request, clock)
        summary = summarize(saga, state)
        batch = Batch(lease, state.seq - 1, (record,), summary, releases=True, definition=snapshot)
        refused = log.append([batch])
    except BaseException:
        log.release([lease])
        raise
    if refused:
        raise LeaseLostError(f"run {run_id}: another driver took it over", hint=f"sagactl show {run_id}")


def _decide(log: Log, run_id: str, saga: Saga, request: Request, clock: Clock) -> tuple[Operator, RunState]:
    """Return the record, and the state of the run after it under its new definition."""
    bound_to = log.row(run_id).definition
    if bound_to != request.replaces:
        message = f"run {run_id} was bound to another definition meanwhile: {bound_to[:12]}"
        raise RefusedError(message, code="rebound", hint=f"sagactl show {run_id}")
    records: list[Record] = [stored.record for stored in log.read(run_id)]
    refuse_objections(run_id, plan_rebinding(read_definition(log.definition(bound_to)), saga, records))
    record = rebinding_record(request, max(clock.now_ms(), records[-1].at_ms))
    return record, replay(saga, [*records, record])


def refuse_objections(run_id: str, rebinding: Rebinding) -> None:
    """Raise RefusedError with all that forbids it, if anything does."""
    found = rebinding.objections
    if not found:
        return
    listed = "; ".join(found[:REASONS_LISTED_MAX])
    more = f"; and {len(found) - REASONS_LISTED_MAX:,} more" if len(found) > REASONS_LISTED_MAX else ""
    message = f"run {run_id} can't go on with this definition: {listed}{more}"
    raise RefusedError(message, code="incompatible-definition", hint=f"sagactl show {run_id}")
