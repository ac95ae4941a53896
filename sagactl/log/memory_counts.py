"""What there is in a log without a disk, counted one by one."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import islice, takewhile

from sagactl.core.counts import RECENT_MS, RECENT_RECORDS_MAX, Counts, Group, Trace, count_recent
from sagactl.core.outbox import Message
from sagactl.core.records import Intent, Outcome, Record
from sagactl.log.base import DeadLetter, RunRow

Times = Iterable[tuple[tuple[str, ...], int]]
"""Things with their labels and the time since when there is each."""


def count_all(
    *,
    rows: Sequence[RunRow],
    letters: Sequence[DeadLetter],
    messages: Sequence[Message],
    requests: int,
    records: Sequence[tuple[str, Record]],
    now_ms: int,
) -> Counts:
    """Return what there is; *records* are all, oldest first, each with its run."""
    newest_first = (_look(run_id, record) for run_id, record in reversed(records))
    found = takewhile(lambda each: each.at_ms >= now_ms - RECENT_MS, newest_first)
    pending = [message.created_at_ms for message in messages if message.finished_at_ms is None]
    return Counts(
        runs=_group(((row.saga, row.status), row.created_at_ms) for row in rows),
        letters=_group(
            ((each.saga, each.operation.direction, each.reason), each.opened_at_ms)
            for each in letters
            if each.closed_at_ms is None
        ),
        alerts=_group(((each.reason,), each.created_at_ms) for each in messages if each.is_open),
        pending=Group((), len(pending), min(pending, default=None)),
        requests=Group((), requests),
        recent=count_recent(islice(found, RECENT_RECORDS_MAX)),
    )


def _group(things: Times) -> tuple[Group, ...]:
    since: dict[tuple[str, ...], list[int]] = {}
    for labels, at_ms in things:
        since.setdefault(tuple(map(str, labels)), []).append(at_ms)
    return tuple(Group(labels, len(times), min(times)) for labels, times in sorted(since.items()))


def _look(run_id: str, record: Record) -> Trace:
    match record:
        case Intent():
            word: str | None = record.tool
        case Outcome():
            word = str(record.kind)
        case _:
            return Trace(record.at_ms, "", run_id, None, None, None, None, None)
    kind = "intent" if isinstance(record, Intent) else "outcome"
    step, item, direction = record.operation
    return Trace(record.at_ms, kind, run_id, step, item, str(direction), record.attempt, word)
