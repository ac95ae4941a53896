"""Which files the plugins for SQL reach: those of the project, and never what sagactl itself lives by."""

from __future__ import annotations

import contextlib
import itertools
import sqlite3
from pathlib import Path

import pytest

from sagactl.core.canonical import Json
from sagactl.log.migrate import APPLICATION_ID
from tests.plugins.project import Project

WAYS = {
    "sqlite:.sagactl/log.db": "reserved",
    "sqlite:.sagactl/sandbox.db": "reserved",
    "sqlite:./x/../.sagactl/log.db": "reserved",
    "sqlite:link.db": "reserved",
    "sqlite:twin.db": "reserved",
    "sqlite:log-elsewhere.db": "reserved",
    "sqlite:../outside.db": "outside",
    "sqlite:{}/outside.db": "outside",
    "sqlite:out/outside.db": "outside",
}

CASES = [
    *itertools.product(("sql.execute", "sql.query", "sql.undo"), WAYS),
    # the database of a migration may lie anywhere, and is no log either
    *itertools.product(("database.migrate", "database.check"), (way for way in WAYS if WAYS[way] == "reserved")),
]


@pytest.mark.parametrize(("tool", "address"), CASES)
def test_no_statement_reaches_the_log_or_leaves_the_project(tool: str, address: str, tmp_path: Path) -> None:
    """Who writes into the log decides what has happened: by no name, link or second name is it reached, nor read."""
    project = Project(tmp_path / "project")
    (project.path / ".sagactl").mkdir(parents=True)
    (project.path / "x").mkdir()
    places = [project.path / ".sagactl" / "log.db", project.path / "log-elsewhere.db", tmp_path / "outside.db"]
    for place in (*places, project.path / ".sagactl" / "sandbox.db"):
        with contextlib.closing(sqlite3.connect(place)) as made:
            made.execute(f"PRAGMA application_id = {0 if place.stem in {'outside', 'sandbox'} else APPLICATION_ID}")
    (project.path / "link.db").symlink_to(".sagactl/log.db")
    (project.path / "twin.db").hardlink_to(places[0])
    (project.path / "out").symlink_to("..")
    before = [place.read_bytes() for place in places]
    given: dict[str, Json] = {"database": address.format(tmp_path)}
    if tool.startswith("database."):
        given["database"] = address.removeprefix("sqlite:")
    more: dict[str, dict[str, Json]] = {
        "sql.execute": {"statements": [{"run": "CREATE TABLE t (x)"}]},
        "sql.query": {"run": "SELECT 1"},
        "sql.undo": {"statements": [{"run": "CREATE TABLE t (x)"}]},
        "database.migrate": {"statements": "CREATE TABLE t (x)", "revert": "DROP TABLE t"},
        "database.check": {"question": "SELECT 1", "rows": [[1]]},
    }
    assert project.word(tool, {**given, **more.get(tool, {})}) == ("rejected", WAYS[address])
    assert [place.read_bytes() for place in places] == before


def test_a_file_of_the_environment_lies_anywhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The operator, unlike a saga, may name what is outside of the project; a log isn't reached that way either."""
    project = Project(tmp_path / "project")
    project.path.mkdir()
    for name, number in (("shop.db", 0), ("log.db", APPLICATION_ID)):
        with contextlib.closing(sqlite3.connect(tmp_path / name)) as made:
            made.execute(f"PRAGMA application_id = {number}")
        monkeypatch.setenv(f"SAGACTL_SQL_{name[:-3].upper()}", f"sqlite:{tmp_path / name}")
    question: dict[str, Json] = {"run": "SELECT 1 AS one"}
    assert project.done("sql.query", {**question, "database": "shop"}) == {"rows": [{"one": 1}]}
    assert project.word("sql.query", {**question, "database": "log"}) == ("rejected", "reserved")
