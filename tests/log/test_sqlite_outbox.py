"""What only a log on a disk can meet while its events go out."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from dataclasses import replace
from pathlib import Path

from sagactl.log.claimants import read_claimant, spell_claimant
from sagactl.log.holder import this_process
from sagactl.log.sqlite import SqliteLog
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


def test_what_a_dead_process_has_claimed_is_free_at_once(open_sqlite: Open, path: Path) -> None:
    """A claim of a process that is certainly dead is taken over; one of a process that may live lapses by itself."""
    log = open_sqlite()
    add(log, start(log), intent())
    assert len(log.outbox.claim_events("a", 1_000, records_max=99, run_ids=None)) == 1
    assert log.outbox.claim_events("a", 1_001, records_max=99, run_ids=None) == []
    (cursor,) = log.outbox.cursors("a")
    assert cursor.claimant == this_process()
    for holder, count in ((replace(this_process(), host="elsewhere"), 0), (replace(this_process(), started="1"), 1)):
        with closing(sqlite3.connect(path)) as connection, connection:
            connection.execute("UPDATE cursors SET claimant = ?", [spell_claimant(holder)])
        log.close()
        log = SqliteLog(path)
        assert len(log.outbox.claim_events("a", 1_002, records_max=99, run_ids=None)) == count, holder


def test_a_claimant_that_nobody_can_read_keeps_its_claim() -> None:
    """F13: what another release, or damage, left there frees nothing before its time."""
    for text in (None, "", "null", "7", "{", "[1, 2, 3, 4]", '["a", "b", "c", "d"]', '["a", 1]'):
        assert read_claimant(text) is None
    assert read_claimant(spell_claimant(this_process())) == this_process()
