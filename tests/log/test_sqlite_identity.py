"""What stands at the path of a log: a log, an older one, another one, something else, nothing."""

from __future__ import annotations

import os
import socket
import sqlite3
import subprocess
import sys
from contextlib import closing
from pathlib import Path

import pytest

from sagactl.errors import DamagedLogError, NotFoundError, StorageError
from sagactl.log import migrate
from sagactl.log.base import RunFilter
from sagactl.log.migrate import SCHEMA_VERSION, SCRIPTS, read_scripts, split_script
from sagactl.log.open import open_log
from sagactl.log.restored import accept_log
from sagactl.log.sqlite import SqliteLog
from tests.log.process import ROOT, end, launch, listen, tell
from tests.log.samples import add, intent, start


def test_a_newer_schema_is_refused(path: Path) -> None:
    """F13: a log of a newer release is left alone, and the error says so."""
    with closing(SqliteLog(path)):
        pass
    with closing(sqlite3.connect(path)) as connection:
        connection.execute(f"PRAGMA user_version = {SCHEMA_VERSION + 1}")
    for read_only in (True, False):
        with pytest.raises(StorageError, match=str(SCHEMA_VERSION + 1)) as caught:
            open_log(path, read_only=read_only)
        assert caught.value.code == "newer-log"


@pytest.mark.parametrize("content", [b"x", b"not a database, but a text file of some length\n" * 100, b"\0" * 5000])
def test_a_file_that_is_no_database_is_refused(tmp_path: Path, content: bytes) -> None:
    """H59: a file that isn't a database is damage, never an empty log, and stays as it is."""
    path = tmp_path / "log.db"
    path.write_bytes(content)
    for read_only in (True, False):
        with pytest.raises(DamagedLogError):
            open_log(path, read_only=read_only)
    assert path.read_bytes() == content


@pytest.mark.parametrize("journal", ["wal", "delete"])
def test_a_database_of_another_program_is_refused(tmp_path: Path, journal: str) -> None:
    """A database that isn't a log is refused and not changed, not even its journal mode."""
    path = tmp_path / "log.db"
    with closing(sqlite3.connect(path)) as connection:
        connection.execute(f"PRAGMA journal_mode = {journal}").fetchall()
        connection.execute("CREATE TABLE runs (x)")
        connection.commit()
    content = path.read_bytes()
    for read_only in (True, False):
        with pytest.raises(DamagedLogError, match="no log of sagactl"):
            open_log(path, read_only=read_only)
    assert path.read_bytes() == content


def use(path: Path, *, read_only: bool) -> None:
    """Open a log, read a run, and take any finding for damage."""
    with closing(open_log(path, read_only=read_only)) as log:
        list(log.read("run1"))
        for finding in log.verify().findings:
            raise DamagedLogError(finding.problem)


@pytest.mark.parametrize("loss", ["gone", "empty", "truncated"])
@pytest.mark.parametrize("read_only", [True, False])
def test_a_lost_log_is_never_begun_anew(path: Path, loss: str, read_only: bool) -> None:
    """H59: where a log was kept, a missing or emptied file is damage; nothing starts over by itself."""
    with closing(SqliteLog(path)) as log:
        start(log)
    if loss == "gone":
        path.unlink()
    else:
        os.truncate(path, 0 if loss == "empty" else 8192)
    with pytest.raises(DamagedLogError) as caught:
        use(path, read_only=read_only)
    assert caught.value.hint
    assert path.exists() is (loss != "gone")


@pytest.mark.parametrize("read_only", [True, False])
def test_a_deleted_wal_is_noticed(path: Path, read_only: bool) -> None:
    """H59: what was durable in a WAL that is gone is missed at the next opening."""
    process = launch(
        path,
        """
log = SqliteLog(path, checkpointer=Checkpointer(path, look_commits=1))
lease = start(log)
log._writer._checkpointer.due_bytes = 0
add(log, lease, intent())
log._writer._checkpointer.due_bytes = 10**9
add(log, lease, outcome())
say("up")
time.sleep(60)
""",
    )
    assert listen(process) == "up"
    process.kill()
    end(process)
    path.with_name("log.db-wal").unlink()
    with pytest.raises(DamagedLogError, match="run1") as caught:
        open_log(path, read_only=read_only)
    assert "sagactl doctor --after-restore" in str(caught.value.hint)
    accept_log(path)
    with closing(open_log(path)) as log:
        assert log.row("run1").seq == 3


def test_a_foreign_wal_is_noticed(path: Path, tmp_path: Path) -> None:
    """H59: the WAL of another log beside ours is refused at the opening or found by verify."""
    other = tmp_path / "other.db"
    process = launch(other, "log = SqliteLog(path); start(log, 'run9'); say('up'); time.sleep(60)")
    assert listen(process) == "up"
    process.kill()
    end(process)
    with closing(SqliteLog(path)) as log:
        start(log)
    path.with_name("log.db-wal").write_bytes(other.with_name("other.db-wal").read_bytes())
    with pytest.raises(DamagedLogError):
        use(path, read_only=False)


def test_an_older_copy_is_noticed(path: Path) -> None:
    """L7: a log put back to yesterday would let today's effects happen again; its gate knows better."""
    with closing(SqliteLog(path)) as log:
        lease = start(log)
    copy = path.read_bytes()
    with closing(SqliteLog(path)) as log:
        add(log, lease, intent())
    path.write_bytes(copy)
    with pytest.raises(DamagedLogError, match="older copy"):
        SqliteLog(path)


def test_another_log_in_its_place_is_noticed(path: Path, tmp_path: Path) -> None:
    """H59: the file of another log at this path is told by its id."""
    with closing(SqliteLog(path)), closing(SqliteLog(tmp_path / "other.db")):
        pass
    path.write_bytes((tmp_path / "other.db").read_bytes())
    with pytest.raises(DamagedLogError, match="another log"):
        SqliteLog(path)


# Migrations


def test_the_schema_number_is_that_of_the_last_script() -> None:
    """Scripts are numbered from 1 without gaps, and the last one is the schema of this release."""
    numbers = [int(path.name[:4]) for path in sorted(SCRIPTS.glob("*.sql"))]
    assert numbers == list(range(1, SCHEMA_VERSION + 1))
    assert [number for number, _ in read_scripts(0)] == numbers
    assert list(read_scripts(SCHEMA_VERSION)) == []


def test_a_script_is_split_into_statements() -> None:
    """A semicolon in a text or a comment ends no statement."""
    script = "CREATE TABLE a (b DEFAULT ';');\n-- a; comment\nINSERT INTO a\n  VALUES (1);\n"
    assert [statement[:6] for statement in split_script(script)] == ["CREATE", "-- a; "]


def test_a_migration_that_fails_leaves_nothing(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A migration is one transaction: after a failing one the database is as before, and the next try succeeds."""
    monkeypatch.setattr(migrate, "read_scripts", lambda _: [(1, "CREATE TABLE a (b);\nCREATE TABLE a (b);\n")])
    with pytest.raises(StorageError):
        SqliteLog(path)
    monkeypatch.undo()
    with closing(SqliteLog(path)) as log:
        start(log)
        assert log.verify().findings == ()


def test_an_open_log_costs_no_heavy_import(path: Path) -> None:
    """Opening, reading and writing a log that is up to date imports no sqlite-utils (it costs more than all of it)."""
    with closing(SqliteLog(path)):
        pass
    program = (
        "import sys; from pathlib import Path; from sagactl.log.open import open_log\n"
        "from sagactl.log.base import Lease, RunFilter; from tests.log.samples import start\n"
        "log = open_log(sys.argv[1]); start(log); log.rows(RunFilter()); list(log.read('run1')); log.close()\n"
        "heavy = {'sqlite_utils', 'click', 'rich', 'importlib.metadata', 'asyncio'} & set(sys.modules)\n"
        "print(heavy)"
    )
    done = subprocess.run(
        [sys.executable, "-c", program, str(path)], cwd=ROOT, capture_output=True, text=True, check=True
    )
    assert done.stdout.strip() == "set()"


def test_processes_that_make_a_log_at_once_make_one(path: Path) -> None:
    """Of several first commands at the same instant one makes the log and all use it."""
    program = """
import os
import socket
say("ready"); sys.stdin.readline()
log = SqliteLog(path); start(log, f"run{os.getpid()}"); log.close()
say("done")
"""
    processes = [launch(path, program) for _ in range(4)]
    assert [listen(process) for process in processes] == ["ready"] * 4
    for process in processes:
        tell(process)
    assert [end(process) for process in processes] == ["done"] * 4
    with closing(SqliteLog(path)) as log:
        assert log.rows(RunFilter())[1] == 4
        assert log.verify().findings == ()


def _make(path: Path, kind: str) -> None:
    match kind:
        case "text":
            path.write_text("root:x:0:0:root:/root:/bin/sh\n" * 20)
        case "database":
            with closing(sqlite3.connect(path)) as connection:
                connection.execute("CREATE TABLE runs (x)")
        case "folder":
            path.mkdir()
        case "pipe":
            os.mkfifo(path)
        case "socket":
            with closing(socket.socket(socket.AF_UNIX)) as bound:
                bound.bind(str(path))


@pytest.mark.parametrize("kind", ["text", "database", "folder", "pipe", "socket"])
@pytest.mark.parametrize("read_only", [True, False])
def test_what_never_was_a_log_is_left_alone_and_another_path_is_asked_for(
    tmp_path: Path, kind: str, read_only: bool
) -> None:
    """H59: a wrong path isn't a damaged log: the hint is to name the right one, and nothing is made beside it."""
    path = tmp_path / "log.db"
    _make(path, kind)
    before = sorted(tmp_path.iterdir())
    with pytest.raises(StorageError) as caught:
        open_log(path, read_only=read_only)
    assert caught.value.code in {"not-a-log", "unsafe-path"}
    assert "--log or SAGACTL_LOG" in str(caught.value.hint)
    assert sorted(tmp_path.iterdir()) == before


def test_a_log_that_was_overwritten_is_damaged_and_wants_its_copy_back(path: Path) -> None:
    """H59: where a log was kept, the hint is to put a copy of it back."""
    with closing(SqliteLog(path)) as log:
        start(log)
    path.write_text("something else\n" * 100)
    for read_only in (True, False):
        with pytest.raises(DamagedLogError) as caught:
            open_log(path, read_only=read_only)
        assert (caught.value.code, caught.value.hint) == ("damaged-log", "put a copy of the log in its place")


def test_an_empty_file_becomes_a_log(tmp_path: Path) -> None:
    """An empty file where no log was kept is as good as none: there is nothing to read, and a run begins one."""
    path = tmp_path / "log.db"
    path.touch()
    with pytest.raises(NotFoundError, match="no log"):
        open_log(path, read_only=True)
    with closing(SqliteLog(path)) as log:
        start(log)
    with closing(open_log(path, read_only=True)) as log:
        assert log.verify().findings == ()
