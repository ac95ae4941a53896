"""What only a log on a disk can meet while its events go out."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path

from tests.log.conftest import Open
from tests.log.samples import add, intent, outcome, start


def test_a_damaged_run_keeps_no_other_from_going_out(open_sqlite: Open, path: Path) -> None:
    """Records that aren't what was written are not published; the events of other runs are."""
    log = open_sqlite()
    add(log, start(log), intent(), outcome())
    add(log, start(log, "run2"), intent())
    log.close()
    with closing(sqlite3.connect(path)) as connection, connection:
        connection.execute("UPDATE records SET body = replace(body, 'ada', 'eve') WHERE run_id = 'run1' AND seq = 1")
    log = open_sqlite()
    (page,) = log.outbox.claim_events("a", 1_000, records_max=99, run_ids=None)
    assert page.run_id == "run2"
    damaged, _ = log.outbox.cursors("a")
    assert (damaged.run_id, damaged.seq) == ("run1", 0)
    assert damaged.error is not None
    assert "record 1" in damaged.error
    assert log.outbox.claim_events("a", 1_001, records_max=99, run_ids=None) == []
