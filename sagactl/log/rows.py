"""The row of a run, made from what is appended: the same for every implementation."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import TYPE_CHECKING, Final

from sagactl.core.canonical import digest
from sagactl.core.records import Direction, DriverClaimed, Holder, RunCreated, RunStatus
from sagactl.errors import BusyError, InvalidError, NotFoundError, RefusedError
from sagactl.log.base import CAPTURED_BYTES_MAX, NewRun, RunRow
from sagactl.log.codec import decode_failure, encode_failure

if TYPE_CHECKING:
    from sagactl.core.summary import Summary

FOUND_MAX: Final = 10
"""How many runs a prefix finds at most."""


def shorten_id(run_id: str, others: Iterable[str], length_min: int) -> str:
    """Return the shortest prefix of *run_id* that none of *others* begins with; its neighbours in order suffice."""
    shared = max((_count_shared(run_id, other) for other in others), default=0)
    return run_id[: max(length_min, shared + 1)]


def _count_shared(one: str, other: str) -> int:
    pairs = enumerate(zip(one, other, strict=False))
    return next((place for place, (left, right) in pairs if left != right), min(len(one), len(other)))


def created_record(new: NewRun, at_ms: int) -> RunCreated:
    """Return the first record of a run."""
    return RunCreated(
        at_ms=at_ms,
        run_id=new.run_id,
        saga=new.saga,
        definition=new.definition.digest,
        input=new.input,
        requested_by=new.requested_by,
        run_key=new.key,
        deadline_ms=new.deadline_ms,
        forked_from=new.origin.forked_from,
        plan=new.origin.plan,
        traceparent=new.origin.traceparent,
        project=new.project,
    )


def claimed_record(at_ms: int, fence: int, holder: Holder, *, calls_ended: bool) -> DriverClaimed:
    """Return the record of a driver that takes a run over."""
    return DriverClaimed(at_ms=at_ms, fence=fence, holder=holder, calls_ended=calls_ended)


def first_row(new: NewRun, at_ms: int, seq: int, head: str) -> RunRow:
    """Return the row of a run that was just created."""
    return RunRow(
        run_id=new.run_id,
        saga=new.saga,
        definition=new.definition.digest,
        status=RunStatus.RUNNING,
        direction=Direction.ACTION,
        cause=None,
        failure=None,
        failed_step=None,
        waiting_for=None,
        waiting_until_ms=None,
        key=new.key,
        input_digest=digest(new.input),
        created_at_ms=at_ms,
        updated_at_ms=at_ms,
        ended_at_ms=None,
        steps_total=new.definition.steps_total,
        steps_done=0,
        dead_letters=0,
        seq=seq,
        head=head,
    )


def next_row(row: RunRow, summary: Summary, at_ms: int, seq: int, head: str) -> RunRow:
    """Return the row after records that end in *summary*."""
    waiting = summary.waiting_for
    return replace(
        row,
        status=summary.status,
        direction=summary.direction,
        cause=summary.cause,
        failure=decode_failure(encode_failure(summary.failure)),
        failed_step=summary.failed_step,
        waiting_for=None if waiting is None else waiting.what,
        waiting_until_ms=None if waiting is None else waiting.until_ms,
        updated_at_ms=at_ms,
        ended_at_ms=summary.ended_at_ms,
        steps_total=summary.steps_total,
        steps_done=summary.steps_done,
        dead_letters=summary.dead_letters,
        seq=seq,
        head=head,
    )


def cut_captured(text: str, bytes_kept: int) -> tuple[str, int]:
    """Return as much of *text* as the run may still keep, as storable text, and its bytes."""
    encoded = text.encode("utf-8", "replace")
    room = max(0, CAPTURED_BYTES_MAX - bytes_kept)
    kept = encoded if len(encoded) <= room else encoded[:room].decode("utf-8", "ignore").encode("utf-8")
    return kept.decode("utf-8"), len(kept)


def check_new(new: NewRun) -> None:
    """Raise InvalidError for a run that no log could find again."""
    for name, text in (("run id", new.run_id), ("saga", new.saga), ("key", new.key)):
        if text is not None and (not text or not is_unicode(text)):
            raise InvalidError(f"{text!r} is no {name}", code="invalid-input", hint=f"give a {name} that is plain text")


def is_unicode(text: str) -> bool:
    """Tell whether *text* can be stored; the text of broken arguments can't, so nothing has it."""
    return text.isascii() or text.encode("utf-8", "replace") == text.encode("utf-8", "surrogatepass")


def no_run(run_id: str) -> NotFoundError:
    """Return the error for a run that isn't there."""
    return NotFoundError(f"no run {run_id}", code="no-such-run", hint="sagactl list")


def key_taken(new: NewRun, run_id: str) -> RefusedError:
    """Return the error for a key that another input has."""
    return RefusedError(
        f"the key {new.key!r} of saga {new.saga} belongs to run {run_id}, which has another input",
        code="key-taken",
        hint=f"sagactl show {run_id}",
    )


def run_exists(run_id: str) -> RefusedError:
    """Return the error for an id that is taken."""
    return RefusedError(f"there is a run {run_id} already", code="run-exists", hint=f"sagactl show {run_id}")


def busy(run_id: str, holder: Holder) -> BusyError:
    """Return the error for a run that another process drives."""
    return BusyError(f"run {run_id} is driven by process {holder.pid} on {holder.host}", hint=f"sagactl show {run_id}")
