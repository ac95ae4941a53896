"""What a record does to the alerts of its run, written in the transaction of the record."""

from __future__ import annotations

import sqlite3
from typing import Final, assert_never

from sagactl.core.alerting import NOTICES, Raise, Reason, Resolve, alert_effects
from sagactl.core.records import Record

_INSERT_MESSAGE: Final = (
    "INSERT OR IGNORE INTO outbox (run_id, seq, reason, step, opened_seq, created_at_ms, is_open)"
    " VALUES (?, ?, ?, ?, ?, ?, ?)"
)


def write_alerts(connection: sqlite3.Connection, run_id: str, record: Record, seq: int) -> None:
    """Write what *record* does to the alerts of its run, after what it did to the dead letters."""
    for effect in alert_effects(record):
        match effect:
            case Raise(reason, step):
                connection.execute(_INSERT_MESSAGE, (run_id, seq, reason.value, step, seq, record.at_ms, 1))
            case Resolve():
                _resolve(connection, run_id, effect, seq, record.at_ms)
            case _:
                assert_never(effect)


def _resolve(connection: sqlite3.Connection, run_id: str, effect: Resolve, seq: int, at_ms: int) -> None:
    found = connection.execute(
        "SELECT number, reason, step, seq FROM outbox WHERE run_id = ? AND is_open = 1 ORDER BY number", (run_id,)
    ).fetchall()
    if not found or (effect.needs_no_letters and _has_letters(connection, run_id)):
        return
    for number, reason, step, opened_seq in found:
        if effect.ends(Reason(reason), step):
            connection.execute("UPDATE outbox SET is_open = 0 WHERE number = ?", (number,))
            if reason not in NOTICES:
                connection.execute(_INSERT_MESSAGE, (run_id, seq, reason, step, opened_seq, at_ms, 0))


def _has_letters(connection: sqlite3.Connection, run_id: str) -> bool:
    query = "SELECT 1 FROM dead_letters WHERE run_id = ? AND closed_at_ms IS NULL LIMIT 1"
    return connection.execute(query, (run_id,)).fetchone() is not None
