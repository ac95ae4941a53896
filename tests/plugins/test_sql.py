"""The plugin sql on a SQLite file and on a real PostgreSQL: repeated, null, late and lost calls leave one effect."""

from __future__ import annotations

import contextlib
import itertools
import os
import signal
import sqlite3
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from sagactl.core.canonical import Json
from sagactl.core.records import OutcomeKind, ProbeAnswer
from tests.plugins.databases import (
    GIVE_BACK,
    RESERVE,
    Shop,
    laid_line,
    make_file_shop,
    make_server_shop,
)
from tests.plugins.project import TOOLBOX, Project
from tests.plugins.vendors import wait_until
from tests.servers.postgres import PASSWORD, running_postgres

_schemas = itertools.count(1)
SLOW = {
    "sqlite": "INSERT INTO orders (sku) SELECT 'slow' FROM (WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1"
    " FROM n WHERE i < 300000000) SELECT count(*) FROM n)",
    "postgresql": "INSERT INTO orders (sku) SELECT 'slow' FROM pg_sleep(60)",
}


@pytest.fixture(scope="module")
def server() -> Iterator[str]:
    """Give the address of a PostgreSQL server, started once."""
    with running_postgres() as address:
        yield address


@pytest.fixture
def on_server(server: str, project: Project) -> Shop:
    """Give a shop in PostgreSQL."""
    return make_server_shop(server, f"shop{next(_schemas)}", project)


@pytest.fixture(params=["sqlite", "postgresql"])
def shop(request: pytest.FixtureRequest, project: Project) -> Shop:
    """Give a shop in each kind of database."""
    if request.param == "sqlite":
        return make_file_shop(project)
    return make_server_shop(request.getfixturevalue("server"), f"shop{next(_schemas)}", project)


def test_the_same_key_has_one_effect_and_one_answer(shop: Shop) -> None:
    """E8: a repeated call finds the note and answers as the first did; another key acts again."""
    assert shop.find().answer is ProbeAnswer.NOT_DONE
    first = shop.execute()
    assert first == {
        "applied": True,
        "results": [{"rows": 1, "returned": []}, {"rows": 1, "returned": [{"id": 1}]}],
    }
    assert shop.execute(attempt=2) == first
    assert shop.state() == (3, 1)
    found = shop.find()
    assert (found.answer, found.output) == (ProbeAnswer.DONE, first)
    assert shop.find("b").answer is ProbeAnswer.NOT_DONE
    shop.execute(key="b")
    assert shop.state() == (1, 2)


def test_rows_that_are_read_count_as_well(shop: Shop) -> None:
    """A statement that only reads may be a condition: as many rows as it says, or nothing is done."""
    condition: Json = {"run": "SELECT free FROM stock WHERE sku = $1 AND free > 3", "values": ["a"], "rows": 1}
    done = shop.execute([condition, *RESERVE])
    assert isinstance(done["results"], list)
    assert done["results"][0] == {"rows": 1, "returned": [{"free": 5}]}
    assert shop.refuse([condition, *RESERVE], key="b") == ("rejected", "wrong_rows")
    assert shop.state() == (3, 1)


def test_an_undo_takes_back_what_the_call_did_once(shop: Shop) -> None:
    """E12: by what the action returned, also where its answer was lost; a second time is no second undo."""
    shop.execute(key="b")
    shop.execute()
    done = shop.undo()
    assert done["status"] == "undone"
    assert shop.undo(applied=True) == done
    assert shop.state() == (3, 1)
    assert shop.find().answer is ProbeAnswer.NOT_DONE
    assert shop.find("b").answer is ProbeAnswer.DONE


def test_an_undo_of_nothing_keeps_the_action_from_coming_late(shop: Shop) -> None:
    """E7, E9: nothing to undo is a success, leaves a mark, and only for that key."""
    assert shop.undo() == {"status": "never_applied", "results": []}
    assert shop.undo() == {"status": "never_applied", "results": []}
    assert shop.refuse() == ("rejected", "too_late")
    assert shop.find().answer is ProbeAnswer.NOT_DONE
    assert shop.state() == (5, 0)
    shop.execute(key="b")
    assert shop.notes() == [("a", "action", "undo"), ("a", "undo", "undo"), ("b", "action", "action")]


def test_an_action_after_its_undo_is_refused(shop: Shop) -> None:
    """E9: a call that was undone doesn't happen again."""
    shop.execute()
    shop.undo()
    assert shop.refuse() == ("rejected", "too_late")
    assert shop.state() == (5, 0)


@pytest.mark.parametrize(
    ("statement", "codes"),
    [
        ({"run": "UPDATE stock SET free = 0 WHERE sku = 'c'", "rows": 1}, {"wrong_rows"}),
        ({"run": "UPDATE stock SET free = -1"}, {"sqlite_constraint_check", "sqlstate_23514"}),
        ({"run": "INSERT INTO stock VALUES ('a', 1)"}, {"sqlite_constraint_primarykey", "sqlstate_23505"}),
        ({"run": "SELEKT 1"}, {"sqlite_error", "sqlstate_42601"}),
        ({"run": "SELECT 1 AS x, 2 AS x"}, {"bad_statement"}),
        ({"run": "SELECT $1", "values": []}, {"sqlite_error", "bad_statement", "sqlstate_08P01", "sqlstate_42P18"}),
    ],
)
def test_what_a_database_refuses_is_rejected_and_nothing_stays(statement: Json, codes: set[str], shop: Shop) -> None:
    """E3: all statements of a call or none, and no note, so that the same key may be tried again."""
    kind, code = shop.refuse([*RESERVE, statement])
    assert (kind, code in codes) == ("rejected", True), code
    assert shop.state() == (5, 0)
    assert shop.notes() == [] if shop.kind == "postgresql" else True
    assert shop.find().answer is ProbeAnswer.NOT_DONE
    shop.execute()


@pytest.mark.parametrize(
    "statement",
    [
        *("COMMIT", "commit;", " \n-- so\n/* a /* nested */ comment */ ROLLBACK", ";END", "SAVEPOINT s"),
        *("INSERT INTO stock VALUES ('c', 1); COMMIT", "SELECT 1; SELECT 2", "BEGIN", "(ABORT)"),
    ],
)
def test_statements_that_would_leave_the_transaction_are_refused(statement: str, shop: Shop) -> None:
    """A call is one transaction with its note: what would end it is rejected as a whole."""
    kind, _ = shop.refuse([*RESERVE, {"run": statement}])
    assert kind == "rejected"
    assert shop.state() == (5, 0)
    assert shop.read("SELECT sku FROM stock ORDER BY sku") == [("a",), ("b",)]
    assert shop.find().answer is ProbeAnswer.NOT_DONE


@pytest.mark.parametrize("statement", ["PREPARE TRANSACTION 'x'", "SET search_path = public", "COPY stock TO STDOUT"])
def test_what_would_change_the_session_is_refused(statement: str, on_server: Shop) -> None:
    """The note is looked for where it was made, and nothing outlives the call."""
    assert on_server.refuse([{"run": statement}]) == ("rejected", "bad_statement")


def test_values_are_never_a_part_of_the_statement(shop: Shop) -> None:
    """Whatever a text says, it is what is stored; numbers, null and booleans come as themselves."""
    text = "'; DROP TABLE stock; -- $1 %s :x \N{SNOWMAN}"
    shop.execute([{"run": "INSERT INTO orders (sku, note) VALUES ($1, $2)", "values": [text, None]}])
    question = {"database": shop.address, "run": "SELECT sku, note, 7 AS n FROM orders WHERE sku = $1"}
    found = shop.project.done("sql.query", {**question, "values": [text]})
    assert found == {"rows": [{"sku": text, "note": None, "n": 7}]}
    if shop.kind == "postgresql":
        numbers: dict[str, Json] = {"database": shop.address, "run": "SELECT 2.50::numeric AS n, '\\x00ff'::bytea AS b"}
        assert shop.project.done("sql.query", numbers) == {"rows": [{"n": "2.50", "b": "00ff"}]}


def test_a_question_writes_nothing(shop: Shop) -> None:
    """A read-only tool is read-only in the database too, and makes no table."""
    asked: dict[str, Json] = {"database": shop.address, "run": "UPDATE stock SET free = 9 RETURNING free"}
    kind, code = shop.project.word("sql.query", asked)
    assert (kind, code) in {("rejected", "sqlite_readonly"), ("rejected", "sqlstate_25006")}
    assert shop.state() == (5, 0)
    assert shop.project.word("sql.query", {**asked, "run": "COMMIT"})[0] == "rejected"
    with pytest.raises(Exception, match="saga_barrier"):
        shop.notes()


def test_answers_are_bounded(shop: Shop) -> None:
    """Too many rows, or too much in them: rejected, and nothing was done."""
    many = "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < {}) SELECT i FROM n"
    ask: dict[str, Json] = {"database": shop.address, "run": many.format(1_001)}
    assert shop.project.word("sql.query", ask) == ("rejected", "too_many_rows")
    assert shop.refuse([*RESERVE, {"run": many.format(1_001)}]) == ("rejected", "too_many_rows")
    shop.project.done("sql.query", {**ask, "run": many.format(1_000)})
    big: Json = {"run": "UPDATE orders SET note = $1 RETURNING note", "values": ["x" * 300_000]}
    assert shop.refuse([*RESERVE, big]) == ("rejected", "too_much")
    assert shop.state() == (5, 0)


def _at_once(*calls: Callable[[], Any]) -> list[Any]:
    gate, found = threading.Barrier(len(calls)), [None] * len(calls)

    def make(n: int, call: Callable[[], Any]) -> None:
        gate.wait()
        found[n] = call()

    threads = [threading.Thread(target=make, args=pair) for pair in enumerate(calls)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return found


def test_two_calls_at_once_with_one_key(shop: Shop) -> None:
    """E15: the second waits for the first and gives its answer."""
    for n in range(5):
        key = f"k{n}"
        one, two = _at_once(*[lambda key=key: shop.execute([RESERVE[1]], key=key)] * 2)
        assert one == two
        assert shop.state() == (5, n + 1)


def test_an_undo_that_races_with_its_action_leaves_nothing(shop: Shop) -> None:
    """E9: whichever comes first, in the end there is nothing of it, and both know."""
    for n in range(10):
        arguments, key = shop.arguments(), f"k{n}"
        acted, undone = _at_once(
            lambda key=key, arguments=arguments: shop.project.call("sql.execute", arguments, key=key),  # type: ignore[misc]
            lambda key=key: shop.undo(key),  # type: ignore[misc]
        )
        came_first = acted.kind is OutcomeKind.SUCCEEDED
        assert undone["status"] == ("undone" if came_first else "never_applied")
        assert shop.state() == (5, 0)


def _is_written_to(shop: Shop) -> bool:
    """Tell whether somebody is in the middle of a transaction."""
    if shop.kind == "postgresql":
        return bool(shop.read("SELECT 1 FROM pg_stat_activity WHERE query LIKE 'INSERT%slow%' AND state = 'active'"))
    with contextlib.closing(sqlite3.connect(shop.project.path / "shop.db", isolation_level=None, timeout=0)) as other:
        try:
            other.execute("BEGIN IMMEDIATE")
        except sqlite3.OperationalError:
            return True
    return False


def test_a_process_that_is_killed_before_it_commits_leaves_nothing(shop: Shop) -> None:
    """E17: SIGKILL between a statement and the commit; the probe says so, and the same key works."""
    child = shop.project.start(("sql.execute", "a", "a", shop.arguments([*RESERVE, {"run": SLOW[shop.kind]}])))
    wait_until(lambda: _is_written_to(shop))
    child.send_signal(signal.SIGKILL)
    out, _ = child.communicate(timeout=120)
    assert (child.returncode, out) == (-9, "")
    if shop.kind == "postgresql":  # the server notices when the statement ends
        shop.read(
            "SELECT pg_terminate_backend(pid) FROM pg_stat_activity"
            " WHERE query LIKE '%slow%' AND state = 'active' AND pid <> pg_backend_pid()"
        )
    assert shop.find().answer is ProbeAnswer.NOT_DONE
    assert shop.state() == (5, 0)
    shop.execute()


def test_a_call_ends_with_its_time(shop: Shop) -> None:
    """E14: the database ends the statement, so it is certain that nothing happened."""
    started = time.monotonic()
    kind, _ = shop.refuse([*RESERVE, {"run": SLOW[shop.kind]}], seconds_left=1.0)
    assert kind in {"unavailable", "unknown"}
    assert time.monotonic() - started < 40
    assert shop.find().answer is ProbeAnswer.NOT_DONE
    assert shop.state() == (5, 0)


def test_a_note_that_is_gone_is_no_undo_of_nothing(shop: Shop) -> None:
    """An undo that is sure of its action, or comes after notes may have been forgotten, asks a person."""
    shop.execute()
    shop.read("DELETE FROM saga_barrier")
    arguments = shop.undo_arguments()
    known = shop.project.word("sql.undo", {**arguments, "applied": True}, key="u", forward_key="a")
    assert known == ("rejected", "note_gone")
    begun_ms = int((datetime.now(UTC) - timedelta(days=31)).timestamp() * 1000)
    old = shop.project.word("sql.undo", arguments, key="u", forward_key="a", begun_ms=begun_ms)
    assert old == ("rejected", "note_gone")
    assert shop.notes() == []
    assert shop.undo("never")["status"] == "never_applied"


def test_old_notes_are_forgotten_and_young_ones_are_not(shop: Shop) -> None:
    """The table is kept small by whoever wants it, and never under what `key_retention` promises."""
    shop.execute()
    shop.execute([RESERVE[1]], key="b")
    old = (datetime.now(UTC) - timedelta(days=40)).strftime("%Y-%m-%dT%H:%M:%SZ")
    shop.read(f"UPDATE saga_barrier SET made_at = '{old}' WHERE key = 'a'")
    arguments: dict[str, Json] = {"database": shop.address, "older_than_days": 29}
    assert TOOLBOX.check_arguments(TOOLBOX.facts("sql.forget"), arguments) is not None
    assert shop.project.done("sql.forget", {**arguments, "older_than_days": 30}, key="f") == {"forgotten": 1}
    assert shop.project.done("sql.forget", {**arguments, "older_than_days": 30}, key="f") == {"forgotten": 1}
    assert [key for key, *_ in shop.notes()] == ["b", "f"]


def test_an_undo_that_finds_something_else_is_rejected(shop: Shop) -> None:
    """E12: somebody has deleted the order since; nothing is undone, and a person decides."""
    shop.execute()
    shop.read("DELETE FROM orders")
    word = shop.project.word("sql.undo", shop.undo_arguments(), key="u", forward_key="a")
    assert word == ("rejected", "wrong_rows")
    assert shop.state() == (3, 0)
    nothing: list[Json] = [{"run": "SELECT $1", "values": [{"result": 7, "column": "id"}]}]
    arguments: dict[str, Json] = {"database": shop.address, "statements": nothing}
    assert shop.project.word("sql.undo", arguments, key="u", forward_key="a") == ("rejected", "not_returned")


def test_a_commit_whose_answer_is_lost_is_found(on_server: Shop) -> None:
    """E3, E6: nobody knows, the probe looks for the note, and the same key gives the answer."""
    on_server.execute([RESERVE[1]], key="first")
    with laid_line(on_server.address, b"COMMIT") as line:
        lost = on_server.project.call("sql.execute", {**on_server.arguments(), "database": line.address})
        assert line.broken == 1
    assert lost.kind is OutcomeKind.UNKNOWN
    found = on_server.find()
    assert found.answer is ProbeAnswer.DONE
    assert on_server.execute() == found.output
    assert on_server.state() == (3, 2)


@pytest.mark.parametrize(
    ("breaks_at", "kind", "known"),
    [(b"COMMIT", "unknown", ProbeAnswer.NOT_DONE), (b"INSERT INTO orders", "unavailable", ProbeAnswer.NOT_DONE)],
)
def test_a_line_that_breaks_earlier_leaves_nothing(
    breaks_at: bytes, kind: str, known: ProbeAnswer, on_server: Shop
) -> None:
    """E3: before the commit is sent it is certain; a commit that may have arrived is in doubt."""
    on_server.execute(key="first")
    with laid_line(on_server.address, breaks_at, before_it_arrives=True) as line:
        lost = on_server.project.call("sql.execute", {**on_server.arguments(), "database": line.address})
        assert line.broken == 1
    assert (lost.kind.value, on_server.find().answer) == (kind, known)
    assert on_server.state() == (3, 1)


def test_a_server_that_never_answers_holds_up_nobody(on_server: Shop) -> None:
    """E14: a line that hangs is broken off when the call is over."""
    on_server.execute(key="first")
    started = time.monotonic()
    with laid_line(on_server.address, b"INSERT INTO orders", hangs=True) as line:
        arguments = {**on_server.arguments(), "database": line.address}
        on_server.project.call("sql.execute", arguments, seconds_left=5.0)
        assert line.broken == 1
    assert time.monotonic() - started < 60
    assert on_server.find().answer is ProbeAnswer.NOT_DONE


MEET = """DO 'BEGIN
  FOR turn IN 1..1200 LOOP
    EXIT WHEN (SELECT count(*) FROM pg_locks WHERE locktype = ''advisory'' AND objid = 77 AND granted) > 1;
    PERFORM pg_sleep(0.05);
  END LOOP;
  PERFORM pg_sleep(1);
END'"""
"""Waits until two are there, and until the other one has seen that too."""


def test_a_deadlock_and_a_serialization_failure_are_tried_again(on_server: Shop) -> None:
    """E3: the database rolled one of them back; nothing happened, so it is unavailable."""
    meet: list[Json] = [{"run": "SELECT pg_advisory_xact_lock_shared(77)"}, {"run": MEET}]
    ways: list[list[Json]] = [
        [{"run": "UPDATE stock SET free = 1 WHERE sku = $1", "values": [one]},
         *meet,
         {"run": "UPDATE stock SET free = 1 WHERE sku = $1", "values": [other]}]
        for one, other in (("a", "b"), ("b", "a"))
    ]  # fmt: skip
    both = _at_once(
        lambda: on_server.project.call("sql.execute", on_server.arguments(ways[0]), key="x"),
        lambda: on_server.project.call("sql.execute", on_server.arguments(ways[1]), key="y"),
    )
    assert sorted(each.kind.value for each in both) == ["succeeded", "unavailable"]
    strict = f"{on_server.address}%20-c%20default_transaction_isolation%3Dserializable"
    write_skew: list[Json] = [
        {"run": "SELECT sum(free) FROM stock"},
        *meet,
        {"run": "INSERT INTO stock VALUES (gen_random_uuid()::text, 1)"},
    ]
    arguments = {**on_server.arguments(write_skew), "database": strict}
    both = _at_once(*[lambda k=k: on_server.project.call("sql.execute", arguments, key=k) for k in "pq"])
    assert sorted(each.kind.value for each in both) == ["succeeded", "unavailable"]
    failed = next(each.failure for each in both if each.failure)
    assert failed.type == "sqlstate_40001"


def test_the_table_of_notes_is_made_once_by_many(on_server: Shop) -> None:
    """First calls that come together make one table, and none of them fails."""
    found = _at_once(*[lambda k=k: on_server.execute([RESERVE[1]], key=f"k{k}") for k in range(6)])
    assert all(each["applied"] for each in found)
    assert len(on_server.notes()) == 6


def test_a_role_that_may_make_no_table_is_told_so(server: str, on_server: Shop) -> None:
    """Rejected, with the reason; once somebody has made the table it works."""
    schema = on_server.read("SELECT current_schema()")[0][0]
    role = f"small_{schema}"
    on_server.read(f"CREATE ROLE {role} LOGIN PASSWORD '{PASSWORD}'")
    on_server.read(f"GRANT USAGE ON SCHEMA {schema} TO {role}")
    on_server.read(f"GRANT ALL ON ALL TABLES IN SCHEMA {schema} TO {role}")
    arguments = {**on_server.arguments(), "database": on_server.address.replace("saga:", f"{role}:")}
    assert on_server.project.word("sql.execute", arguments) == ("rejected", "no_barrier")
    on_server.execute(key="first")
    on_server.read(f"GRANT ALL ON ALL TABLES IN SCHEMA {schema} TO {role}")
    on_server.project.done("sql.execute", arguments)


@pytest.mark.parametrize(
    ("wrong", "word"),
    [
        (lambda address: address.replace(PASSWORD, "s3cret"), ("rejected", "no_permission")),
        (lambda address: address.replace("/postgres?", "/nowhere?"), ("rejected", "no_database")),
        (lambda _: "postgresql://saga:s3cret@127.0.0.1:1/x", ("unavailable", "no_connection")),
        (lambda _: "postgresql://saga:s3cret@127.0.0.1:1/x?wrong=s3cret", ("rejected", "bad_address")),
        (lambda _: "mysql://saga:s3cret@127.0.0.1/x", ("rejected", "bad_address")),
        (lambda _: "sqlite:nowhere.db", ("rejected", "no_database")),
        (lambda _: "nowhere", ("rejected", "no_connection_named")),
    ],
)
def test_an_address_that_leads_nowhere(wrong: Callable[[str], str], word: tuple[str, str], on_server: Shop) -> None:
    """E3: nothing happened; what is worth another try is told from what isn't, and no password is told."""
    answer = on_server.project.call("sql.execute", {**on_server.arguments(), "database": wrong(on_server.address)})
    assert answer.failure is not None
    assert (answer.kind.value, answer.failure.type) == word
    assert "s3cret" not in str(answer)


def test_an_undo_waits_for_whoever_mends_its_way(shop: Shop) -> None:
    """E12: a rejected undo is a dead letter at once, so what can be mended is unavailable."""
    shop.execute()
    arguments = {**shop.undo_arguments(), "database": "nowhere"}
    word = shop.project.word("sql.undo", arguments, key="u", forward_key="a")
    assert word == ("unavailable", "no_connection_named")
    assert shop.undo()["status"] == "undone"


def test_a_connection_has_a_name_in_the_environment(shop: Shop, monkeypatch: pytest.MonkeyPatch) -> None:
    """A saga names the database, the operator says where it is."""
    monkeypatch.setenv("SAGACTL_SQL_MY_SHOP", shop.address)
    shop.project.done("sql.execute", {**shop.arguments(), "database": "my_shop"})
    assert shop.state() == (3, 1)


def test_without_the_library_the_plugin_says_what_to_install(project: Project) -> None:
    """The plugin loads all the same, and a file needs no library."""
    script = (
        "import sys; sys.modules['psycopg'] = None\n"
        "from pathlib import Path; from tests.plugins.project import Project\n"
        "print(Project(Path(sys.argv[1])).word('sql.query', {'database': 'postgresql://x', 'run': 'SELECT 1'}))"
    )
    command = [sys.executable, "-c", script, str(project.path)]
    done = subprocess.run(command, capture_output=True, text=True, check=True, env=dict(os.environ))
    assert done.stdout == "('unavailable', 'missing_library')\n"
    make_file_shop(project).execute()


def test_a_busy_file_is_tried_again(project: Project) -> None:
    """Another writer: nothing happened."""
    shop = make_file_shop(project)
    with contextlib.closing(sqlite3.connect(project.path / "shop.db", isolation_level=None)) as other:
        other.execute("BEGIN IMMEDIATE")
        assert shop.refuse(seconds_left=4.0) == ("unavailable", "busy")
    shop.execute()
    assert GIVE_BACK


def test_the_probe_waits_for_a_call_that_is_under_way(on_server: Shop) -> None:
    """E6, E9: "not done" is said only when the transaction that may still commit has ended."""
    slow: list[Json] = [*RESERVE, {"run": "SELECT pg_sleep(2)"}]
    asleep = "SELECT pid FROM pg_stat_activity WHERE query LIKE '%pg_sleep(2)%' AND state = 'active'"
    found: list[ProbeAnswer] = []
    on_server.execute([RESERVE[1]], key="first")

    def ask() -> None:
        wait_until(lambda: bool(on_server.read(f"{asleep} AND pid <> pg_backend_pid()")))
        asked = on_server.project.invoke("sql.find", {"database": on_server.address}, key="a", forward_key="a")
        found.append(TOOLBOX.probe(asked).answer)

    _at_once(lambda: on_server.execute(slow), ask)
    assert found == [ProbeAnswer.DONE]
