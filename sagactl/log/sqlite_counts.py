"""The queries behind `sagactl metrics`: each is answered by an index, or looks at so many rows at most."""

from __future__ import annotations

import sqlite3
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from sagactl.core.counts import RECENT_MS, RECENT_RECORDS_MAX, Counts, Group, Trace, count_recent

RECENT_SECONDS_MAX: Final = 0.2
"""How long records are looked at: large ones take longer than usual ones."""

_PAGE_RECORDS: Final = 500

_RUNS: Final = "SELECT saga, status, count(*), min(created_at_ms) FROM runs GROUP BY status, saga"
_LETTERS: Final = (
    "SELECT runs.saga, letters.direction, letters.reason, count(*), min(opened_at_ms) FROM dead_letters AS letters"
    " JOIN runs ON runs.run_id = letters.run_id WHERE closed_at_ms IS NULL GROUP BY 1, 2, 3"
)
_ALERTS: Final = "SELECT reason, count(*), min(created_at_ms) FROM outbox WHERE is_open = 1 GROUP BY reason"
_PENDING: Final = "SELECT count(*), min(created_at_ms) FROM outbox WHERE finished_at_ms IS NULL"
_REQUESTS: Final = "SELECT count(*), NULL FROM requests WHERE is_answered = 0"
_RECENT: Final = (
    "SELECT rowid, at_ms, type, run_id, step, item, attempt,"
    " CASE WHEN type IN ('intent', 'outcome') AND json_valid(body) THEN json_extract(body, '$.direction') END,"
    " CASE WHEN type = 'intent' AND json_valid(body) THEN json_extract(body, '$.tool')"
    " WHEN type = 'outcome' AND json_valid(body) THEN json_extract(body, '$.kind') END"
    " FROM records WHERE rowid < ? ORDER BY rowid DESC LIMIT ?"
)


def count_all(connection: sqlite3.Connection, path: Path, now_ms: int) -> Counts:
    """Return what there is in the log at *path*."""
    return Counts(
        runs=_read_groups(connection, _RUNS),
        letters=_read_groups(connection, _LETTERS),
        alerts=_read_groups(connection, _ALERTS),
        pending=_read_groups(connection, _PENDING)[0],
        requests=_read_groups(connection, _REQUESTS)[0],
        recent=count_recent(_read_recent(connection, now_ms)),
        file_bytes=_measure(path),
    )


def _read_groups(connection: sqlite3.Connection, query: str) -> tuple[Group, ...]:
    """Return rows of labels, a number and a time as groups, in the order of their labels."""
    found = [(tuple(map(str, row[:-2])), row[-2], row[-1]) for row in connection.execute(query).fetchall()]
    return tuple(sorted(Group(*each) for each in found))


def _read_recent(connection: sqlite3.Connection, now_ms: int) -> Iterator[Trace]:
    """Yield the latest records, newest first."""
    ends_at = time.monotonic() + RECENT_SECONDS_MAX
    below, left = 2**63 - 1, RECENT_RECORDS_MAX
    while left > 0 and time.monotonic() < ends_at:
        page = connection.execute(_RECENT, (below, min(left, _PAGE_RECORDS))).fetchall()
        for _, at_ms, kind, run_id, step, item, attempt, direction, word in page:
            if at_ms < now_ms - RECENT_MS:
                return
            yield Trace(at_ms, kind, run_id, step, item, direction, attempt, word)
        if not page:
            return
        below, left = page[-1][0], left - len(page)


def _measure(path: Path) -> dict[str, int]:
    """Return the bytes of the files of the log."""
    sizes = {}
    for name, suffix in (("db", ""), ("wal", "-wal")):
        try:
            sizes[name] = path.with_name(path.name + suffix).stat().st_size
        except OSError:
            sizes[name] = 0
    return sizes
