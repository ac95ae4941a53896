"""The outbox of runs that are older than it: what their records say, written when the log is brought up to date."""

from __future__ import annotations

import sqlite3
from typing import Final

from sagactl.log.audit import Folding
from sagactl.log.codec import Encoded, decode

_RECORDS: Final = f"SELECT seq, hash, {', '.join(Encoded._fields)} FROM records WHERE run_id = ? ORDER BY seq"
_INSERT: Final = (
    "INSERT INTO outbox (run_id, seq, reason, step, opened_seq, created_at_ms, is_open, finished_at_ms)"
    " VALUES (?, ?, ?, ?, ?, ?, ?, ?)"
)


def write_past_alerts(connection: sqlite3.Connection) -> None:
    """Write the alerts of every run; what is still open is sent, what is over is of no more interest to anybody.

    Raises DamagedLogError where a record can't be read: the migration is given up, and the log stays as it was.
    """
    for (run_id,) in connection.execute("SELECT run_id FROM runs ORDER BY number").fetchall():
        folding = Folding()
        for seq, head, *encoded in connection.execute(_RECORDS, (run_id,)):
            folding.take(seq, head, decode(Encoded(*encoded)))
        for row in folding.alerts.rows:
            finished_at_ms = None if row.is_open else row.created_at_ms
            values = (row.seq, row.reason.value, row.step, row.opened_seq, row.created_at_ms, row.is_open)
            connection.execute(_INSERT, (run_id, *values, finished_at_ms))
