"""Logs of earlier schemas, brought up to date (F13)."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from sagactl.core.alerting import Reason
from sagactl.errors import StorageError
from sagactl.log.base import PruneFilter, RunFilter
from sagactl.log.migrate import APPLICATION_ID, SCHEMA_VERSION, read_scripts, split_script
from sagactl.log.open import open_log
from sagactl.log.pruning import prune_all
from sagactl.log.sqlite import SqliteLog

_ROWS = Path(__file__).with_name("stored") / "schema_1.sql"
_IN_DOUBT = "zfvvc2pcxnc6g"
_RESOLVED = "7h2prf6hjvhm9"


@pytest.fixture
def old(path: Path) -> Path:
    """Return a log as schema 1 kept it: a run that succeeded, one in doubt, and one whose doubt a person resolved."""
    path.parent.mkdir()
    make_old_log(path)
    return path


def make_old_log(path: Path) -> None:
    """Make a log of the first schema."""
    with closing(sqlite3.connect(path, isolation_level=None)) as connection:
        script = next(text for number, text in read_scripts(0) if number == 1)
        for statement in (
            *split_script(script),
            f"PRAGMA application_id = {APPLICATION_ID}",
            "PRAGMA user_version = 1",
        ):
            connection.execute(statement)
        for statement in split_script(_ROWS.read_text(encoding="utf-8")):
            connection.execute(statement)


def test_an_older_log_is_brought_up_to_date_by_whoever_writes(old: Path) -> None:
    """F13: nothing of it is lost, every record keeps its hash, and the new tables say what the records say."""
    with closing(sqlite3.connect(old)) as connection:
        hashes = connection.execute("SELECT run_id, seq, hash FROM records ORDER BY run_id, seq").fetchall()
    with closing(SqliteLog(old)) as log:
        assert log.verify().findings == ()
        rows, total = log.rows(RunFilter())
        assert (len(rows), total) == (3, 3)
        read = sorted((row.run_id, each.seq, each.hash) for row in rows for each in log.read(row.run_id))
        assert read == hashes
    with closing(sqlite3.connect(old)) as connection:
        assert connection.execute("PRAGMA user_version").fetchone() == (SCHEMA_VERSION,)


def test_a_log_of_the_second_schema_keeps_what_was_claimed(path: Path) -> None:
    """F13: claims from before there were claimants stay, and lapse by themselves."""
    with closing(SqliteLog(path)):
        pass
    with closing(sqlite3.connect(path)) as connection, connection:
        for table in ("deliveries", "cursors"):
            connection.execute(f"DROP INDEX {table}_claimed")
            connection.execute(f"ALTER TABLE {table} DROP COLUMN claimant")
        connection.execute("PRAGMA foreign_keys = OFF")
        connection.execute("INSERT INTO cursors VALUES ('run1', 'file:x', 3, 1, 99, NULL)")
        connection.execute("PRAGMA user_version = 2")
    with closing(SqliteLog(path)):
        pass
    with closing(sqlite3.connect(path)) as connection:
        found = connection.execute("SELECT seq, due_ms, claimant FROM cursors").fetchall()
        assert connection.execute("PRAGMA user_version").fetchone() == (SCHEMA_VERSION,)
    assert found == [(3, 99, None)]


def test_what_still_waits_for_a_person_is_told_after_the_migration(old: Path) -> None:
    """E20: an alert is pending for what is open, and nothing for what was settled before there were alerts."""
    with closing(SqliteLog(old)):
        pass
    with closing(sqlite3.connect(old)) as connection:
        found = connection.execute("SELECT run_id, reason, is_open, finished_at_ms IS NULL FROM outbox").fetchall()
    pending = {(run_id, reason) for run_id, reason, is_open, is_pending in found if is_open and is_pending}
    assert pending == {(_IN_DOUBT, Reason.DEAD_LETTER.value), (_IN_DOUBT, Reason.STUCK.value)}
    assert all(not is_pending for run_id, _, _, is_pending in found if run_id == _RESOLVED)


def test_who_only_reads_an_older_log_is_told_how_to_bring_it_up_to_date(old: Path) -> None:
    """F13: a reader changes nothing and says which command does."""
    with pytest.raises(StorageError) as caught:
        open_log(old, read_only=True)
    assert (caught.value.code, "sagactl resume --all" in str(caught.value.hint)) == ("old-log", True)


def test_runs_of_an_older_log_can_be_pruned(old: Path) -> None:
    """A log that was begun without the setting that gives space back keeps its size, and that is all."""
    with closing(SqliteLog(old)) as log:
        pruned = prune_all(log, PruneFilter(), pruned_by="ada")
        assert (pruned.runs, pruned.bytes_given_back) == (2, 0)
        assert [row.run_id for row in log.rows(RunFilter())[0]] == [_IN_DOUBT]
        assert log.verify().findings == ()
