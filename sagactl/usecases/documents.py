"""The JSON documents that commands print: a contract that only ever grows.

Names are those of the log, ids are whole, times are RFC 3339 in UTC with milliseconds, durations are milliseconds with
the unit in the name. `spelling.spell` writes them.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from enum import Enum
from typing import TYPE_CHECKING, Final, cast

from sagactl.core.canonical import Json
from sagactl.core.keys import idempotency_key
from sagactl.core.left import find_left
from sagactl.core.records import Cause, Direction, Failure, Holder, Operation, Request, ToolChange
from sagactl.documents import operation_in, write_operation, write_record_at, write_time

if TYPE_CHECKING:
    from sagactl.core.saga import Saga
    from sagactl.core.state import RunState
    from sagactl.core.summary import StepRow, Waiting
    from sagactl.log.base import Captured, DeadLetter, Finding, RunRow, StoredRecord, Verification

RUN_SCHEMA: Final = "sagactl.run/1"
RUNS_SCHEMA: Final = "sagactl.runs/1"
RECORDS_SCHEMA: Final = "sagactl.records/1"
DEAD_LETTER_SCHEMA: Final = "sagactl.dead-letter/1"
DEAD_LETTERS_SCHEMA: Final = "sagactl.dead-letters/1"
VERIFICATION_SCHEMA: Final = "sagactl.verification/1"
HEADS_SCHEMA: Final = "sagactl.heads/1"

Document = dict[str, Json]


def write_run(
    saga: Saga, state: RunState, *, captured: Sequence[Captured] = (), driver: Holder | None = None
) -> Document:
    """Return the document of one run as its records say; *driver* is the process that drives it, if any does."""
    body = _write_run_body(saga, state, driver)
    if captured:
        body["captured"] = [_write_captured(each) for each in captured]
    return {"schema": RUN_SCHEMA, "run": body, "error": None}


def _write_run_body(saga: Saga, state: RunState, driver: Holder | None) -> Document:
    from sagactl.core.summary import StepStatus, step_rows, summarize, tally_steps

    assert state.created is not None, "a run begins with its first record"
    summary, created = summarize(saga, state), state.created
    rows = step_rows(saga, state)
    return {
        "id": created.run_id,
        "saga": created.saga,
        "version": saga.version,
        "status": summary.status.value,
        "direction": write_way(summary.direction),
        "cause": _word(summary.cause),
        "error": _write_error_at(summary.failure, summary.failed_step),
        "input": created.input,
        "output": summary.output,
        "output_error": None if state.ended is None else _write_failure(state.ended.output_failure),
        "steps": [_write_step(row) for row in rows],
        "not_undone": _write_left(saga, state),
        "waiting_for": _write_waiting(summary.waiting_for),
        "approvals": [_write_awaited(state, step_id) for step_id in state.awaiting],
        "dead_letters": [_write_dead(state, operation) for operation in state.dead],
        "steps_total": summary.steps_total,
        "steps_done": summary.steps_done,
        "steps_undone": tally_steps(rows).get(StepStatus.COMPENSATED, 0),
        "driver": None if driver is None else {**_write_holder(driver), "since": write_time(state.claimed_at_ms)},
        "started_at": write_time(created.at_ms),
        "ended_at": write_time(summary.ended_at_ms),
        "requested_by": created.requested_by,
        "key": created.run_key,
        "forked_from": created.forked_from,
        "plan": created.plan,
        "project": created.project,
        "definition": state.definition,
        "seq": state.seq,
    }


def _write_holder(holder: Holder) -> Document:
    return {"host": holder.host, "pid": holder.pid}


def _word(value: Enum | None) -> str | None:
    return None if value is None else str(value.value)


def _write_failure(failure: Failure | None) -> Json:
    return None if failure is None else {"type": failure.type, "message": failure.message}


def _write_error_at(failure: Failure | None, step: str | None) -> Json:
    return None if failure is None else {"type": failure.type, "message": failure.message, "step": step}


def _write_step(row: StepRow) -> Json:
    return {
        "id": row.id,
        "item": row.item,
        "status": row.status.value,
        "attempts": row.attempts,
        "output": row.output,
        "error": _write_failure(row.failure),
        "settled": _write_settled(row.settled),
        "compensation_attempts": row.undo_attempts,
        "compensation_error": _write_failure(row.undo_failure),
        "compensation_settled": _write_settled(row.undo_settled),
    }


def _write_settled(request: Request | None) -> Json:
    """Return how a person settled a dead letter: then the error beside it is what was (S11)."""
    if request is None or request.resolution is None:
        return None
    return {"as": request.resolution.value, "by": request.who, "reason": request.reason}


def _write_left(saga: Saga, state: RunState) -> Json:
    return [{"step": each.step, "item": each.item, "reason": each.reason} for each in find_left(saga, state)]


def _write_awaited(state: RunState, step_id: str) -> Json:
    """Describe what is to be approved; `until` is null while the time to answer stands still."""
    from sagactl.core.people import held_since_ms

    awaited = state.awaiting[step_id]
    return {
        "step": step_id,
        "digest": awaited.digest,
        "until": write_time(awaited.until_ms if held_since_ms(state) is None else None),
        "arguments": list(state.steps[step_id].arguments),
    }


def _write_waiting(waiting: Waiting | None) -> Json:
    if waiting is None:
        return None
    found: Document = {"what": waiting.what, "detail": waiting.detail, "until": write_time(waiting.until_ms)}
    if waiting.changes:
        found["changes"] = [write_change(change) for change in waiting.changes]
    return found


def write_change(change: ToolChange) -> Document:
    """Return what is another about a tool."""
    return {
        "fact": change.fact,
        "path": change.path or None,
        "before": change.before,
        "after": change.after,
        "breaks": change.breaks,
    }


def _write_dead(state: RunState, operation: Operation) -> Json:
    op = state.operations[operation]
    return {**write_operation(operation), "reason": _word(op.cause), "error": _write_failure(op.failure)}


def _write_captured(captured: Captured) -> Json:
    return {**write_operation(captured.operation), "attempt": captured.attempt, "text": captured.text}


def write_way(direction: Direction) -> str:
    """Return which way a run goes: its calls are actions on the way forward, compensations on the way back."""
    return "forward" if direction is Direction.ACTION else "backward"


def write_list(schema: str, items: Iterable[Document], total: int | None = None) -> Document:
    """Return a list of documents; *total* counts those that the limit left out as well."""
    found = list(items)
    return {"schema": schema, "items": cast("list[Json]", found), "total": len(found) if total is None else total}


def write_runs(rows: Sequence[RunRow], total: int) -> Document:
    """Return the document of a list of runs."""
    return write_list(RUNS_SCHEMA, [write_row(row) for row in rows], total)


def write_row(row: RunRow) -> Document:
    """Return the row of a run."""
    from sagactl.core.summary import Waiting

    waiting = None if row.waiting_for is None else Waiting(row.waiting_for, None, row.waiting_until_ms)
    return {
        "id": row.run_id,
        "saga": row.saga,
        "status": row.status.value,
        "direction": write_way(row.direction),
        "cause": _word(row.cause),
        "error": _write_error_at(row.failure, row.failed_step),
        "waiting_for": _write_waiting(waiting),
        "steps_total": row.steps_total,
        "steps_done": row.steps_done,
        "dead_letters": row.dead_letters,
        "started_at": write_time(row.created_at_ms),
        "updated_at": write_time(row.updated_at_ms),
        "ended_at": write_time(row.ended_at_ms),
        "key": row.key,
        "definition": row.definition,
        "seq": row.seq,
        "driver": None if row.holder is None else _write_holder(row.holder),
    }


def write_record(stored: StoredRecord) -> Document:
    """Return a record with everything in it, as `-o jsonl` prints it."""
    return write_record_at(stored.run_id, stored.seq, stored.record, stored.hash)


def write_records(stored: Sequence[StoredRecord], total: int | None = None) -> Document:
    """Return the document of a log."""
    return write_list(RECORDS_SCHEMA, [write_record(each) for each in stored], total)


def write_letters(letters: Sequence[DeadLetter], total: int | None = None) -> Document:
    """Return the document of a list of dead letters."""
    return write_list(DEAD_LETTERS_SCHEMA, [write_letter_row(each) for each in letters], total)


def write_letter_row(letter: DeadLetter) -> Document:
    """Return the row of a dead letter."""
    return {
        "run_id": letter.run_id,
        "saga": letter.saga,
        "seq": letter.seq,
        **write_operation(letter.operation),
        "reason": letter.reason,
        "error": _write_failure(letter.failure),
        "opened_at": write_time(letter.opened_at_ms),
        "closed_at": write_time(letter.closed_at_ms),
    }


def write_letter(saga: Saga, state: RunState, letter: DeadLetter, stored: Sequence[StoredRecord]) -> Document:
    """Return all that is known of a dead letter: what was sent, what came back, and each record of its step."""
    from sagactl.core.state import OperationState, tool_of

    op = state.operations.get(letter.operation) or OperationState(letter.operation)
    action = state.operations.get(letter.operation.other, op)
    history = [each for each in stored if operation_in(each.record) in {letter.operation, letter.operation.other}]
    row: Document = {
        **write_letter_row(letter),
        "tool": tool_of(saga, letter.operation),
        "attempts": op.attempts,
        "in_doubt": op.doubt or letter.reason == Cause.IN_DOUBT,
        "idempotency_key": idempotency_key(letter.run_id, letter.operation),
        "other_key": idempotency_key(letter.run_id, letter.operation.other),
        "compensation_tool": tool_of(saga, Operation(letter.operation.step, None, Direction.COMPENSATION)),
        "arguments": op.arguments,
        "output": op.output if op is action else action.output,
        "raw": action.raw if op.raw is None else op.raw,
        "not_undone": _write_left(saga, state),
        "records": [write_record(each) for each in history],
    }
    return {"schema": DEAD_LETTER_SCHEMA, "dead_letter": row, "error": None}


def write_verification(verification: Verification, *, kept: int | None = None) -> Document:
    """Return the document of what `verify` found; *kept* heads were compared."""
    return {
        "schema": VERIFICATION_SCHEMA,
        "ok": not verification.findings,
        "runs": verification.runs,
        "records": verification.records,
        "heads": dict(sorted(verification.heads.items())),
        "tombstones": verification.tombstones,
        "tombstones_head": verification.tombstones_head or None,
        "compared_heads": kept,
        "findings": [_write_finding(each) for each in verification.findings],
        "error": None,
    }


def write_heads(store: str, heads: Sequence[str]) -> Document:
    """Return the document of heads to be kept elsewhere; `verify --head @FILE` takes it as it is."""
    return {"schema": HEADS_SCHEMA, "store": store, "heads": list(heads), "error": None}


def _write_finding(finding: Finding) -> Json:
    return {"run_id": finding.run_id, "seq": finding.seq, "problem": finding.problem}
