"""The database plugin called directly: repeated, late and lost calls, as an engine may make them."""

from __future__ import annotations

import sqlite3
from pathlib import Path

import pytest

from sagactl.core.records import ProbeAnswer
from tests.plugins.project import TOOLBOX, Project

CHANGE = {"database": "app.db", "statements": "CREATE TABLE a (b)", "revert": "DROP TABLE a"}
REVERSAL = {"database": "app.db", "statements": "DROP TABLE a"}


@pytest.fixture
def project(tmp_path: Path) -> Project:
    """Give a project with an empty database."""
    sqlite3.connect(tmp_path / "app.db").execute("PRAGMA user_version = 1").connection.close()
    return Project(tmp_path)


def _tables(project: Project) -> list[str]:
    connection = sqlite3.connect(project.path / "app.db")
    found = connection.execute("SELECT name FROM sqlite_master WHERE name NOT LIKE '%saga_changes%'").fetchall()
    connection.close()
    return [name for (name,) in found]


def _find(project: Project) -> ProbeAnswer:
    asked = project.invoke("database.find_change", {"database": "app.db"}, key="f", forward_key="f")
    return TOOLBOX.probe(asked).answer


def test_a_repeated_change_and_a_repeated_reversal_are_recognised(project: Project) -> None:
    """The same key a second time has no second effect, in either direction."""
    first = project.done("database.migrate", CHANGE, key="f")
    assert _find(project) is ProbeAnswer.DONE
    assert project.done("database.migrate", CHANGE, key="f") == first
    assert project.done("database.revert", REVERSAL, key="c", forward_key="f") == {"status": "reverted"}
    assert project.done("database.revert", REVERSAL, key="c", forward_key="f") == {"status": "already_reverted"}
    assert _tables(project) == []


def test_a_change_that_comes_after_its_reversal_is_refused(project: Project) -> None:
    """E9: the reversal of what never happened leaves a note, and the late change finds it."""
    assert _find(project) is ProbeAnswer.NOT_DONE
    assert project.done("database.revert", REVERSAL, key="c", forward_key="f") == {"status": "never_applied"}
    assert project.word("database.migrate", CHANGE, key="f") == ("rejected", "too_late")
    assert _tables(project) == []


def test_a_busy_database_is_tried_again(project: Project) -> None:
    """Another writer: nothing happened, so the outcome is `unavailable`."""
    other = sqlite3.connect(project.path / "app.db", isolation_level=None)
    other.execute("BEGIN IMMEDIATE")
    assert project.word("database.migrate", CHANGE, key="f", seconds_left=4.0) == ("unavailable", "busy")
    other.execute("ROLLBACK")
    other.close()
    project.done("database.migrate", CHANGE, key="f")


def test_a_schema_that_somebody_changed_since_is_not_reverted(project: Project) -> None:
    """A reversal that can't lead back isn't begun."""
    project.done("database.migrate", CHANGE, key="f")
    sqlite3.connect(project.path / "app.db").execute("CREATE TABLE theirs (x)").connection.close()
    assert project.word("database.revert", REVERSAL, key="c", forward_key="f") == ("rejected", "schema_moved_on")
    assert _tables(project) == ["a", "theirs"]


@pytest.mark.parametrize(
    "statements",
    [
        "COMMIT",
        "CREATE TABLE x (y); SAVEPOINT s",
        "ATTACH 'other.db' AS other",
        "PRAGMA journal_mode = DELETE",
        "VACUUM",
        "CREATE TABLE x (y); SELEKT",
    ],
)
def test_statements_that_would_leave_the_transaction_are_refused(statements: str, project: Project) -> None:
    """A change is one transaction: what would end it, or reach beyond it, is rejected as a whole."""
    assert project.word("database.migrate", {**CHANGE, "statements": statements}) == ("rejected", "bad_change")
    assert _tables(project) == []


def test_a_database_that_is_not_there_is_not_made(project: Project) -> None:
    """A mistyped path is no new database."""
    assert project.word("database.migrate", {**CHANGE, "database": "ap.db"}) == ("rejected", "no_database")
    assert [path.name for path in project.path.iterdir()] == ["app.db"]
