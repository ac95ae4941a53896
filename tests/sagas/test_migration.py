"""The migration saga on a real database and a real site: all tables, rows, links and files are as they were, or new."""

from __future__ import annotations

import json
import shutil
import sqlite3
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from tests.cli.project import ROOT, Project
from tests.sagas.served import Server

EXPAND = """
ALTER TABLE customers ADD COLUMN email TEXT;
CREATE INDEX customers_by_email ON customers (email);
CREATE TABLE letters (id INTEGER PRIMARY KEY, body TEXT DEFAULT 'a; b');
CREATE TRIGGER on_customer AFTER INSERT ON customers BEGIN
  INSERT INTO letters (body) VALUES ('welcome; ' || new.name);
END;
UPDATE customers SET email = lower(name) || '@example.com'
"""
REVERT = """
DROP TRIGGER on_customer; DROP TABLE letters; DROP INDEX customers_by_email;
ALTER TABLE customers DROP COLUMN email;
"""
INPUT = {
    "version": "7",
    "database": "app.db",
    "site": "site",
    "source": "build",
    "expand": EXPAND,
    "revert": REVERT,
    "question": "SELECT count(*) FROM customers WHERE email IS NULL",
    "answer": [[0]],
}
WHEN = ("before", "after")
FORWARD = ("database.migrate", "deploy.install", "deploy.point")
UNDOS = ("deploy.point_back", "deploy.remove", "database.revert")


@dataclass
class World:
    """A program that is in use, with its database."""

    project: Project

    @classmethod
    def make(cls, path: Path, *, contract: bool = False) -> World:
        """Make a project with release 6 in use, or without any release."""
        for name in ("plugins", "sagas"):
            shutil.copytree(ROOT / name, path / name, ignore=shutil.ignore_patterns("__pycache__"))
        connection = sqlite3.connect(path / "app.db")
        connection.executescript("""
            CREATE TABLE customers (id INTEGER PRIMARY KEY, name TEXT NOT NULL, fax TEXT);
            INSERT INTO customers (name, fax) VALUES ('Ada', '1'), ('Grace', NULL);
        """)
        connection.close()
        (path / "site" / "releases" / "6").mkdir(parents=True)
        (path / "site" / "releases" / "6" / "app.txt").write_text("six")
        (path / "site" / "current").symlink_to("releases/6")
        (path / "build").mkdir()
        (path / "build" / "app.txt").write_text("seven")
        (path / "build" / "latest").symlink_to("app.txt")
        return cls(Project(path))

    @property
    def path(self) -> Path:
        return self.project.path

    def arguments(self, **inputs: Any) -> list[str]:
        """Return the command line."""
        (self.path / "input.json").write_text(json.dumps({**INPUT, **inputs}))
        return ["run", "migration", "-q", "--inputs", "input.json"]

    def execute(self, statements: str) -> None:
        """Do something to the database as its program does."""
        connection = sqlite3.connect(self.path / "app.db")
        connection.executescript(statements)
        connection.close()

    def dump(self) -> list[str]:
        """Return the whole schema and content but for the plugin's own notes."""
        connection = sqlite3.connect(self.path / "app.db")
        lines = [line for line in connection.iterdump() if "saga_changes" not in line]
        connection.close()
        return lines

    def notes(self) -> list[tuple[str, str]]:
        """Return the plugin's notes: which operation, and what became of it."""
        connection = sqlite3.connect(self.path / "app.db")
        rows = connection.execute("SELECT key, state FROM saga_changes ORDER BY key").fetchall()
        connection.close()
        return [(key.split("/", 1)[1], state) for key, state in rows]

    def snapshot(self) -> dict[str, Any]:
        """Return all that the saga may change."""
        return {"database": self.dump(), "site": _read_site(self.path / "site")}

    def check_switched(self) -> None:
        """Compare the world with what it must be once everything is done."""
        site = _read_site(self.path / "site")
        assert site["current"] == "-> releases/7"
        assert site["releases/7/app.txt"] == "seven"
        assert site["releases/7/latest"] == "-> app.txt"
        assert [path for path in site if "part" in path] == []
        dump = "\n".join(self.dump())
        assert dump.count("@example.com") == 2
        assert ("expand/action", "applied") in self.notes()


def _read_site(folder: Path) -> dict[str, str]:
    found = {}
    for path in sorted(folder.rglob("*")):
        what = f"-> {path.readlink()}" if path.is_symlink() else path.read_text() if path.is_file() else "folder"
        found[str(path.relative_to(folder))] = what
    return found


def _latest(server: Server, world: World) -> dict[str, Any]:
    run: dict[str, Any] = server.run(world.project, "show", "-o", "json").json["run"]
    return run


@pytest.fixture
def world(tmp_path: Path) -> World:
    """Give a program in use."""
    return World.make(tmp_path / "world")


def test_the_database_is_changed_and_the_release_switched(server: Server, world: World) -> None:
    """The whole of it, with what the former release alone needed taken away at the end."""
    contract = ["ALTER TABLE customers DROP COLUMN fax", "DROP TRIGGER on_customer"]
    done = server.run(world.project, *world.arguments(contract=contract))
    assert done.code == 0, done.err
    world.check_switched()
    assert "fax" not in "\n".join(world.dump())
    assert world.notes() == [(f"contract/{n}/action", "applied") for n in (0, 1)] + [("expand/action", "applied")]


def test_the_first_release_of_a_site_can_be_undone(server: Server, world: World) -> None:
    """Where there was no link there is none again."""
    shutil.rmtree(world.path / "site")
    (world.path / "site").mkdir()
    before = world.snapshot()
    assert server.run(world.project, *world.arguments(answer=[[5]])).code == 10
    assert world.snapshot() == before


def _hold_current(world: World) -> None:
    """Let somebody else switch while the smoke test runs: as good as at any time before the pivot."""
    (world.path / "site" / "current").unlink()
    (world.path / "site" / "current").symlink_to("releases/5")


FAILURES: dict[str, tuple[Callable[[World], Any], dict[str, Any], str]] = {
    "expand": (lambda _: None, {"expand": "CREATE TABLE a (b); SELEKT 1"}, "bad_change"),
    "expand, commits": (lambda _: None, {"expand": "CREATE TABLE a (b); COMMIT; DROP TABLE customers"}, "bad_change"),
    "install": (lambda world: shutil.rmtree(world.path / "build"), {}, "no_source"),
    "install, twice": (lambda _: None, {"version": "6"}, "release_exists"),
    "smoke": (lambda _: None, {"answer": [[1]]}, "check_failed"),
    "smoke, writes": (lambda _: None, {"question": "DELETE FROM customers RETURNING id"}, "bad_question"),
}


@pytest.mark.parametrize("step", FAILURES)
def test_a_step_that_fails_leaves_everything_as_it_was(step: str, server: Server, world: World) -> None:
    """E7, E10, E11: schema, rows, links and folders are what they were, whichever step fails."""
    prepare, inputs, code = FAILURES[step]
    prepare(world)
    before = world.snapshot()
    failed = server.run(world.project, *world.arguments(**inputs), "-o", "json")
    assert failed.code == 10, failed.err
    assert (failed.json["run"]["error"]["type"], failed.json["run"]["not_undone"]) == (code, [])
    assert world.snapshot() == before


def test_a_switch_that_somebody_else_made_in_between_stays(server: Server, world: World) -> None:
    """The pivot compares before it sets: it is rejected, and all before it is undone."""
    killed = server.run(world.project, *world.arguments(), kill={"tool": "database.check", "when": "before"})
    assert killed.code == -9
    _hold_current(world)
    assert server.run(world.project, "resume", "--all", "-q").code == 10
    site = _read_site(world.path / "site")
    assert (site["current"], sorted(site)) == (
        "-> releases/5",
        ["current", "releases", "releases/6", "releases/6/app.txt"],
    )


def _commits(server: Server, world: World, **inputs: Any) -> int:
    return int(server.run(world.project, *world.arguments(**inputs)).err.rsplit("commits ", 1)[1])


@pytest.mark.parametrize("scene", ["switched", "undone"])
def test_a_run_killed_at_any_commit_ends_in_the_same_place(scene: str, server: Server, tmp_path: Path) -> None:
    """E1, E2, E17: SIGKILL around each durable transaction, there and back."""
    inputs = {} if scene == "switched" else {"answer": [[1]]}
    count = _commits(server, World.make(tmp_path / "whole"), **inputs)
    assert count > 5
    for number in range(2, count + 1):
        world = World.make(tmp_path / str(number))
        before = world.snapshot()
        when = WHEN[number % 2]
        assert server.run(world.project, *world.arguments(**inputs), kill={"commit": number, "when": when}).code == -9
        server.run(world.project, "resume", "--all", "-q")
        assert _latest(server, world)["status"] == ("succeeded" if scene == "switched" else "rolled_back")
        if scene == "switched":
            world.check_switched()
        else:
            assert world.snapshot() == before


@pytest.mark.parametrize("when", WHEN)
@pytest.mark.parametrize("tool", FORWARD)
def test_a_run_killed_in_any_tool_is_completed_or_undone(tool: str, when: str, server: Server, tmp_path: Path) -> None:
    """E6, E7, E22: SIGKILL before and after each effect, then `resume`, and once more, then `rollback`."""
    for command in ("resume", "rollback"):
        world = World.make(tmp_path / command)
        before = world.snapshot()
        assert server.run(world.project, *world.arguments(), kill={"tool": tool, "when": when}).code == -9
        done = server.run(world.project, command, _latest(server, world)["id"], "-q")
        assert done.code == 0, done.err
        if command == "resume":
            world.check_switched()
        else:
            assert world.snapshot() == before
            assert _latest(server, world)["not_undone"] == []


@pytest.mark.parametrize("when", WHEN)
@pytest.mark.parametrize("tool", UNDOS)
def test_a_rollback_killed_in_any_undo_is_completed(tool: str, when: str, server: Server, world: World) -> None:
    """E12: SIGKILL before and after each undo; each is made once, and all is as it was."""
    before = world.snapshot()
    failed = server.run(world.project, *world.arguments(answer=[[1]]), kill={"tool": tool, "when": when})
    assert failed.code == -9
    assert server.run(world.project, "resume", "--all", "-q").code == 10
    assert world.snapshot() == before
    assert world.notes() == [("expand/action", "reverted")]


def test_a_reversal_that_does_not_lead_back_is_left_to_a_person(server: Server, world: World) -> None:
    """An undo that would leave another schema than there was is not made: dead letter, and the change is whole."""
    done = server.run(world.project, *world.arguments(revert="DROP TABLE letters", answer=[[1]]))
    assert done.code == 11, done.err
    letters = server.run(world.project, "dlq", "list", "-o", "json").json["items"]
    assert [letter["step"] for letter in letters] == ["expand"]
    assert "letters" in "\n".join(world.dump())


def test_rows_that_the_program_wrote_in_between_survive_the_undo(server: Server, world: World) -> None:
    """The undo takes away what the change added, and nothing that came since."""
    killed = server.run(world.project, *world.arguments(), kill={"tool": "database.check", "when": "before"})
    assert killed.code == -9
    world.execute("INSERT INTO customers (name) VALUES ('Katherine')")
    run_id = _latest(server, world)["id"]
    assert server.run(world.project, "rollback", run_id, "-q").code == 0
    dump = "\n".join(world.dump())
    assert "Katherine" in dump
    assert "email" not in dump
