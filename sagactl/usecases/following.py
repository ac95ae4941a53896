"""Reading what a log says of a run while another process drives it: only what is new, a few times a second.

Nothing is written and nothing held open between two looks. A look that finds nothing new costs one query for one row.
The driver may die meanwhile and another one take over; who follows is told that nobody drives, and waits for a while.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from typing import Final, NamedTuple

from sagactl.core.records import AT_REST, RunStatus
from sagactl.log.base import Log, RunRow, StoredRecord
from sagactl.log.holder import is_dead

LOOK_SECONDS: Final = 0.2
PATIENCE_SECONDS: Final = 30.0
"""How long somebody who follows a run waits while nobody drives it."""

PATIENCE_SECONDS_MAX: Final = 31_536_000

_WAITS_FOR_DRIVER: Final = "timer"
"""What a run waits for without anybody having to act, as long as somebody drives it."""


class Look(NamedTuple):
    """What is new: how the run stands, its next records, and whether somebody drives it."""

    row: RunRow
    records: tuple[StoredRecord, ...]
    is_driven: bool


def is_driven(row: RunRow) -> bool:
    """Tell whether somebody drives the run, as far as this host can know."""
    return row.holder is not None and not is_dead(row.holder)


def follow_run(
    log: Log,
    run_id: str,
    *,
    patience_seconds: float = PATIENCE_SECONDS,
    sleep: Callable[[float], None] = time.sleep,
) -> Iterator[Look]:
    """Yield what is new of a run until it rests, waits for a person, or nobody has driven it for *patience_seconds*."""
    seq = 0
    was_driven: bool | None = None
    left_at = time.monotonic()
    while True:
        row = log.row(run_id)
        driven = is_driven(row)
        records = tuple(log.read(run_id, after_seq=seq)) if row.seq > seq else ()
        seq = records[-1].seq if records else seq
        if records or driven is not was_driven:
            yield Look(row, records, driven)
        left_at = time.monotonic() if driven or (records and was_driven is not None) else left_at
        was_driven = driven
        is_known = seq <= row.seq  # otherwise the row is older than the records
        if is_known and (row.status in AT_REST or (not driven and _is_out_of_patience(row, left_at, patience_seconds))):
            return
        sleep(LOOK_SECONDS)


def _is_out_of_patience(row: RunRow, left_at: float, patience_seconds: float) -> bool:
    """A run that a person or a tool must bring on isn't waited for at all."""
    if row.status is RunStatus.WAITING and row.waiting_for != _WAITS_FOR_DRIVER:
        return True
    return time.monotonic() - left_at >= patience_seconds
