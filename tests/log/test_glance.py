"""Completion looks into the log: quickly, changing nothing, and finding nothing rather than failing."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path

import pytest

from sagactl.core.records import RunStatus
from sagactl.log.glance import glance_runs, glance_sagas, glance_steps
from sagactl.log.sqlite import SqliteLog
from tests.log.conftest import Open
from tests.log.samples import LATER, Time, add, ended, start


@pytest.fixture
def known(path: Path, time: Time) -> Path:
    """Return a log with three runs of two sagas, closed."""
    with closing(SqliteLog(path, lease_clock=time.clock())) as log:
        add(log, start(log, "aa1"), ended(), status=RunStatus.SUCCEEDED)
        start(log, "aa2", definition=LATER)
        start(log, "b", saga="release")
    return path


def test_runs_are_found_by_the_beginning_of_their_id(known: Path) -> None:
    """UX: the newest first, by status where a command takes only some, and no more than are shown."""
    assert [each.run_id for each in glance_runs(str(known), "", limit=9)] == ["b", "aa2", "aa1"]
    assert [each.run_id for each in glance_runs(str(known), "aa", limit=9)] == ["aa2", "aa1"]
    assert [each.run_id for each in glance_runs(str(known), "aa", limit=1)] == ["aa2"]
    (found,) = glance_runs(str(known), "", statuses=["succeeded", "stuck"], limit=9)
    assert (found.run_id, found.saga, found.status) == ("aa1", "onboarding", "succeeded")


def test_sagas_and_steps_are_found(known: Path) -> None:
    """UX: the sagas that have runs, and the steps of one run in the order of its file."""
    assert glance_sagas(str(known)) == ["onboarding", "release"]
    assert glance_steps(str(known), "aa2") == ["charge", "vm", "mail"]
    assert glance_steps(str(known), "aa1") == ["charge", "vm"]
    assert glance_steps(str(known), "zz") == []


def test_a_log_that_is_written_to_is_seen_as_it_is(open_sqlite: Open, path: Path) -> None:
    """UX: what stands in the WAL counts, and nothing beside the log is made or changed."""
    log = open_sqlite()
    start(log, "aa1")
    before = {each.name for each in path.parent.iterdir()}
    assert [each.run_id for each in glance_runs(str(path), "a", limit=9)] == ["aa1"]
    assert {each.name for each in path.parent.iterdir()} == before


def test_a_glance_at_a_log_at_rest_makes_no_file(known: Path) -> None:
    """UX: completion never leaves a `-wal` or `-shm` behind."""
    before = sorted(known.parent.iterdir())
    assert glance_sagas(str(known)) != []
    assert sorted(known.parent.iterdir()) == before


def test_where_there_is_nothing_to_read_nothing_is_found(tmp_path: Path) -> None:
    """UX: no log, no database, a folder: a key press is answered with nothing, never with an error."""
    scrap = tmp_path / "scrap?#%.db"
    scrap.write_text("no database", encoding="utf-8")
    for path in (tmp_path / "none.db", scrap, tmp_path):
        assert glance_runs(str(path), "", limit=9) == []
        assert glance_sagas(str(path)) == glance_steps(str(path), "") == []


def test_a_definition_that_is_none_has_no_steps(known: Path) -> None:
    """UX: a damaged definition costs the words, and nothing else."""
    import sqlite3

    for body in ("{", "[]", '{"steps": [1]}', '{"steps": 1}'):
        with closing(sqlite3.connect(known)) as connection:
            connection.execute("UPDATE definitions SET body = ?", (body,))
            connection.commit()
        assert glance_steps(str(known), "b") == []
