"""The log in SQLite: its settings, its files, and what it does in trouble."""

from __future__ import annotations

import os
import signal
import sqlite3
import subprocess
import sys
import threading
import time as real_time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import pytest

from sagactl.core.records import Verb
from sagactl.errors import DamagedLogError, InternalError, InvalidError, NotFoundError, StorageError
from sagactl.log import migrate
from sagactl.log.base import Lease, RunFilter
from sagactl.log.file_system import find_mount, refuse_network
from sagactl.log.migrate import APPLICATION_ID, SCHEMA_VERSION, SCRIPTS, read_scripts, split_script
from sagactl.log.open import open_log
from sagactl.log.sqlite import SqliteLog
from tests.log.conftest import Open
from tests.log.faults import Faults
from tests.log.process import ROOT, end, launch, listen, tell
from tests.log.samples import HOLDER, Time, add, batch, dead, intent, new_run, outcome, request, start


def modes(path: Path) -> dict[str, str]:
    """Return the modes of a log's folder and files."""
    return {each.name: oct(each.stat().st_mode & 0o777) for each in (path.parent, *path.parent.iterdir())}


@contextmanager
def umask(mask: int) -> Iterator[None]:
    """Set the umask for a while."""
    before = os.umask(mask)
    try:
        yield
    finally:
        os.umask(before)


# Settings


def test_settings_are_what_they_must_be(open_sqlite: Open) -> None:
    """B.7: WAL with synchronous FULL and no checkpoint but ours, on the very connection that writes."""
    log = open_sqlite(busy_ms=1234)
    assert log._writer is not None
    connection = log._writer._connected()
    wanted = {
        "journal_mode": "wal",
        "synchronous": 2,
        "foreign_keys": 1,
        "trusted_schema": 0,
        "cell_size_check": 1,
        "secure_delete": 1,
        "wal_autocheckpoint": 0,
        "busy_timeout": 1234,
        "application_id": APPLICATION_ID,
        "user_version": SCHEMA_VERSION,
    }
    assert {name: connection.execute(f"PRAGMA {name}").fetchone()[0] for name in wanted} == wanted


@pytest.mark.parametrize(
    ("setting", "value"),
    [("synchronous", "NORMAL"), ("journal_mode", "DELETE"), ("secure_delete", "OFF"), ("wal_autocheckpoint", "1000")],
)
def test_a_setting_that_does_not_hold_is_noticed(path: Path, setting: str, value: str) -> None:
    """A setting that SQLite declines without a word is read back, and such a log isn't written to."""

    class Declining(sqlite3.Connection):
        def execute(self, sql: str, *arguments: object) -> sqlite3.Cursor:
            if sql.startswith(f"PRAGMA {setting} ="):
                sql = f"PRAGMA {setting} = {value}"
            return super().execute(sql, *arguments)  # type: ignore[arg-type]

    def connect(uri: str, seconds: float) -> sqlite3.Connection:
        return sqlite3.connect(
            uri, uri=True, timeout=seconds, isolation_level=None, check_same_thread=False, factory=Declining
        )

    with pytest.raises(StorageError, match=setting) as caught:
        SqliteLog(path, connect=connect)
    assert caught.value.code == "unsafe-setting"


# Files


@pytest.mark.parametrize("mask", [0o022, 0o000, 0o077, 0o777])
def test_files_are_private_whatever_the_umask(path: Path, mask: int) -> None:
    """H39: the folder is 0700 and every file in it 0600 from the first moment on."""
    with umask(mask):
        log = SqliteLog(path)
        start(log)
    with closing(log):
        assert modes(path) == {
            "state": "0o700",
            "log.db": "0o600",
            "log.db-wal": "0o600",
            "log.db-shm": "0o600",
            "log.db-gate": "0o600",
        }


def test_a_folder_that_is_there_keeps_its_mode(tmp_path: Path) -> None:
    """A folder that somebody else made is not changed."""
    tmp_path.chmod(0o755)
    with closing(SqliteLog(tmp_path / "log.db")):
        assert oct(tmp_path.stat().st_mode & 0o777) == "0o755"


@pytest.mark.parametrize("read_only", [True, False])
def test_a_symlink_is_refused(tmp_path: Path, read_only: bool) -> None:
    """H39: a log is never written through a symbolic link, whether its target exists or not."""
    with closing(SqliteLog(tmp_path / "real.db")):
        pass
    for target in ("real.db", "missing.db"):
        link = tmp_path / f"to-{target}"
        link.symlink_to(tmp_path / target)
        with pytest.raises(StorageError) as caught:
            open_log(link, read_only=read_only)
        assert caught.value.code == "unsafe-path"
    assert not (tmp_path / "missing.db").exists()


def test_a_symlink_at_the_gate_is_refused(path: Path, tmp_path: Path) -> None:
    """H39: nor is the gate's file followed elsewhere."""
    path.parent.mkdir()
    path.with_name("log.db-gate").symlink_to(tmp_path / "elsewhere")
    with pytest.raises(StorageError, match="gate"):
        SqliteLog(path)
    assert not (tmp_path / "elsewhere").exists()


def test_a_folder_in_the_way_is_refused(tmp_path: Path) -> None:
    """A folder where the log should be is named."""
    with pytest.raises(StorageError) as caught:
        SqliteLog(tmp_path)
    assert caught.value.code == "unsafe-path"


def test_a_file_in_place_of_the_folder_is_refused(tmp_path: Path) -> None:
    """A path through a file can't be made, and the error says why."""
    (tmp_path / "file").write_text("x", encoding="ascii")
    with pytest.raises(StorageError, match=r"Not a directory|File exists"):
        SqliteLog(tmp_path / "file" / "log.db")


def test_odd_paths_are_paths(tmp_path: Path) -> None:
    """A path is taken literally, whatever it means to SQLite."""
    for name in ("a b?mode=memory&x=%41#c.db", "é.db", ":memory:", "file:x"):
        path = tmp_path / name
        with closing(SqliteLog(path)) as log:
            start(log)
        assert path.is_file()


NETWORK = "/dev/vda / ext4 rw 0 0\nhost:/x /mnt/a\\040b nfs4 rw 0 0\ntmpfs /mnt/a\\040b/local tmpfs rw 0 0\n"


@pytest.mark.parametrize(
    ("folder", "found"),
    [
        ("/home", ("/", "ext4")),
        ("/mnt/a b", ("/mnt/a b", "nfs4")),
        ("/mnt/a b/c/d", ("/mnt/a b", "nfs4")),
        ("/mnt/a bc", ("/", "ext4")),
        ("/mnt/a b/local/x", ("/mnt/a b/local", "tmpfs")),
    ],
)
def test_the_file_system_of_a_folder_is_found(tmp_path: Path, folder: str, found: tuple[str, str]) -> None:
    """The mount that a folder lies on is the longest one above it."""
    mounts = tmp_path / "mounts"
    mounts.write_text(NETWORK, encoding="ascii")
    assert find_mount(Path(folder), mounts) == found
    assert find_mount(Path(folder), tmp_path / "missing") is None


def test_network_file_systems_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """WAL needs one host: a log on a network file system is refused before anything is made."""
    monkeypatch.setattr("sagactl.log.file_system.find_mount", lambda _: ("/mnt", "nfs4"))
    with pytest.raises(StorageError, match="nfs4") as caught:
        SqliteLog(tmp_path / "new" / "log.db")
    assert caught.value.code == "network-file-system"
    assert not (tmp_path / "new").exists()
    monkeypatch.setattr("sagactl.log.file_system.find_mount", lambda _: None)
    refuse_network(tmp_path)


# What stands at the path


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
log = SqliteLog(path)
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
    assert "-gate" in str(caught.value.hint)
    path.with_name("log.db-gate").unlink()
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


# Reading only


def test_there_is_nothing_to_read(tmp_path: Path) -> None:
    """A command that only reads makes no log, and says that there is none."""
    path = tmp_path / "state" / "log.db"
    with pytest.raises(NotFoundError) as caught:
        open_log(path, read_only=True)
    assert caught.value.code == "no-log"
    assert not path.parent.exists()
    path.parent.mkdir()
    path.touch()
    with pytest.raises(NotFoundError):
        open_log(path, read_only=True)
    assert [each.name for each in path.parent.iterdir()] == ["log.db"]


def test_reading_changes_nothing(path: Path) -> None:
    """A command that only reads leaves every file as it was and makes none."""
    with closing(SqliteLog(path)) as log:
        add(log, start(log), intent(), dead())
    before = {each.name: (each.read_bytes(), each.stat().st_mtime_ns) for each in path.parent.iterdir()}
    with closing(open_log(path, read_only=True)) as log:
        assert log.row("run1").seq == 4
        assert len(list(log.read("run1"))) == 4
        assert len(log.dead_letters()) == 1
        assert log.verify().findings == ()
        assert log.definition(log.row("run1").definition)["saga"] == "onboarding"
    after = {each.name: (each.read_bytes(), each.stat().st_mtime_ns) for each in path.parent.iterdir()}
    assert after == before
    assert set(after) == {"log.db", "log.db-gate"}


def test_a_reader_cannot_write(path: Path) -> None:
    """A log that was opened to read refuses to be written."""
    with closing(SqliteLog(path)) as log:
        lease = start(log)
    with closing(open_log(path, read_only=True)) as log:
        for write in (
            lambda: log.create(new_run("run2"), holder=None),
            lambda: log.append([batch(lease, 2, intent())]),
            lambda: log.ask("run1", request("q", Verb.CANCEL)),
        ):
            with pytest.raises(StorageError) as caught:
                write()
            assert caught.value.code == "read-only"


def test_a_reader_sees_what_is_being_written(path: Path) -> None:
    """A reader follows a log that others write to, first while it rests, then while it is open."""
    with closing(SqliteLog(path)) as log:
        lease = start(log)
    with closing(open_log(path, read_only=True)) as reader:
        assert reader.row("run1").seq == 2
        with closing(SqliteLog(path)) as log:
            for seq in range(2, 6):
                log.append([batch(lease, seq, intent())])
                assert reader.row("run1").seq == seq + 1
        assert reader.row("run1").seq == 6
    with closing(open_log(path, read_only=True)) as reader:
        assert reader.row("run1").seq == 6


def test_a_copy_without_its_gate_can_be_read(path: Path, tmp_path: Path) -> None:
    """A backup of the file alone, in a folder that can't be written, is a log to read."""
    with closing(SqliteLog(path)) as log:
        start(log)
    folder = tmp_path / "backup"
    folder.mkdir()
    (folder / "log.db").write_bytes(path.read_bytes())
    folder.chmod(0o500)
    with closing(open_log(folder / "log.db", read_only=True)) as log:
        assert log.verify().findings == ()
    assert [each.name for each in folder.iterdir()] == ["log.db"]


def test_a_log_after_a_kill_can_be_read(path: Path) -> None:
    """L2: what a killed process had committed is there for a reader, though it lies in the WAL."""
    process = launch(path, "log = SqliteLog(path); start(log); say('up'); time.sleep(60)")
    assert listen(process) == "up"
    process.kill()
    end(process)
    with closing(open_log(path, read_only=True)) as log:
        assert log.row("run1").seq == 2
        assert log.verify().findings == ()


# Trouble


def hold_lock(path: Path, seconds: float) -> threading.Thread:
    """Keep the database locked from another connection for a while."""
    locked = threading.Event()

    def hold() -> None:
        with closing(sqlite3.connect(path, isolation_level=None)) as connection:
            connection.execute("BEGIN IMMEDIATE")
            locked.set()
            real_time.sleep(seconds)
            connection.execute("ROLLBACK")

    thread = threading.Thread(target=hold)
    thread.start()
    assert locked.wait(timeout=10)
    return thread


def test_a_writer_waits_for_another_one(open_sqlite: Open, path: Path) -> None:
    """B61: a log that is locked for a while is waited for."""
    log = open_sqlite()
    lease = start(log)
    thread = hold_lock(path, 2.0)
    started = real_time.monotonic()
    add(log, lease, intent())
    assert 1.0 < real_time.monotonic() - started < 9.0
    thread.join()
    assert log.row("run1").seq == 3


def test_a_log_that_stays_locked_is_an_error(open_sqlite: Open, path: Path) -> None:
    """B61, E18: a log that is locked for too long is a storage error with a hint, nothing is written, it goes on."""
    log = open_sqlite(busy_ms=200)
    lease = start(log)
    thread = hold_lock(path, 1.0)
    started = real_time.monotonic()
    with pytest.raises(StorageError, match="locked") as caught:
        add(log, lease, intent())
    assert real_time.monotonic() - started < 0.9
    assert (caught.value.code, caught.value.durable) == ("locked", False)
    assert caught.value.hint
    thread.join()
    assert log.row("run1").seq == 2
    add(log, lease, intent())


def test_a_process_that_was_stopped_inside_the_gate_is_no_hang(path: Path) -> None:
    """B61: who holds the gate and doesn't go on makes others fail with an error after their time."""
    program = """
import fcntl, os
descriptor = os.open(f"{path}-gate", os.O_RDWR)
fcntl.flock(descriptor, fcntl.LOCK_EX)
say("in"); time.sleep(60)
"""
    with closing(SqliteLog(path, busy_ms=200)) as log:
        lease = start(log)
        process = launch(path, program)
        assert listen(process) == "in"
        process.send_signal(signal.SIGSTOP)
        with pytest.raises(StorageError, match="locked"):
            add(log, lease, intent())
        assert log.row("run1").seq == 2
        process.kill()
        end(process)
        add(log, lease, intent())


def fill(log: SqliteLog, lease: Lease, after_seq: int) -> StorageError | None:
    """Append some kilobytes, and return the error if there is one."""
    try:
        log.append([batch(lease, after_seq, outcome(output="x" * 5_000), intent())])
    except StorageError as error:
        return error
    return None


def test_a_full_disk_is_an_error_and_nothing_is_lost(path: Path) -> None:
    """B63, E18: on a full disk a batch is refused as a whole; all that was acknowledged is there."""

    def connect(uri: str, seconds: float) -> sqlite3.Connection:
        connection = sqlite3.connect(uri, uri=True, timeout=seconds, isolation_level=None, check_same_thread=False)
        connection.execute("PRAGMA max_page_count = 60")
        return connection

    with closing(SqliteLog(path, connect=connect)) as log:
        lease = start(log)
        done = 2
        while (error := fill(log, lease, done)) is None:
            done += 2
        assert (error.code, error.durable) == ("disk-full", False)
        assert "free" in str(error.hint)
        assert log.row("run1").seq == done > 10
        assert log.verify().findings == ()
    with closing(SqliteLog(path)) as log:
        add(log, lease, outcome(output="x" * 5_000))


def test_a_write_that_fails_at_the_commit_is_an_error(path: Path) -> None:
    """E18: when the file can't grow at the commit, the error says that nothing was written, and the log goes on."""
    program = """
import resource
log = SqliteLog(path)
lease = start(log)
done, hard = 2, resource.getrlimit(resource.RLIMIT_FSIZE)[1]
resource.setrlimit(resource.RLIMIT_FSIZE, (200_000, hard))
try:
    for _ in range(1000):
        log.append([batch(lease, done, outcome(output="x" * 5000), intent())])
        done += 2
except SagactlError as error:
    say(f"{error.exit_code} {error.durable}")
resource.setrlimit(resource.RLIMIT_FSIZE, (hard, hard))
say(log.row("run1").seq == done)
add(log, lease, intent())
say(len(log.verify().findings))
log.close()
"""
    process = launch(path, program)
    assert end(process).splitlines() == ["1 False", "True", "0"]


@pytest.mark.parametrize("statement", ["BEGIN IMMEDIATE", "SELECT runs.seq", "INSERT INTO records", "UPDATE runs"])
@pytest.mark.parametrize(
    "number", [sqlite3.SQLITE_IOERR, sqlite3.SQLITE_FULL, sqlite3.SQLITE_BUSY, sqlite3.SQLITE_READONLY]
)
def test_trouble_before_the_commit_writes_nothing(open_sqlite: Open, statement: str, number: int) -> None:
    """E18: whatever fails before the commit, nothing is written, the error is one of storage, the log goes on."""
    faults = Faults()
    log = open_sqlite(connect=faults.connect)
    lease = start(log)
    for moment in (faults.before, faults.after):
        moment[statement] = number
        with pytest.raises(StorageError) as caught:
            log.append([batch(lease, log.row("run1").seq, intent())])
        assert caught.value.durable is False
        assert log.row("run1").seq == 2
    add(log, lease, intent())
    assert log.verify().findings == ()


@pytest.mark.parametrize("number", [sqlite3.SQLITE_IOERR, sqlite3.SQLITE_FULL, sqlite3.SQLITE_IOERR_FSYNC])
def test_a_commit_that_raised_may_be_durable(open_sqlite: Open, number: int) -> None:
    """E18, L3: after a commit that raised, a new connection tells whether the records are there."""
    faults = Faults()
    log = open_sqlite(connect=faults.connect)
    lease = start(log)
    before = faults.connections
    faults.after["COMMIT"] = number
    with pytest.raises(StorageError, match="there all the same") as caught:
        log.append([batch(lease, 2, intent())])
    assert caught.value.durable is True
    faults.before["COMMIT"] = number
    with pytest.raises(StorageError, match="nothing of it was written") as caught:
        log.append([batch(lease, 3, outcome())])
    assert caught.value.durable is False
    assert faults.connections == before + 2
    assert [stored.seq for stored in log.read("run1")] == [1, 2, 3]
    add(log, lease, outcome())


def test_a_commit_that_raised_and_no_way_to_look(open_sqlite: Open) -> None:
    """E18: where the log can't be read again nobody knows; once it can, it is used again."""
    faults = Faults()
    log = open_sqlite(connect=faults.connect)
    lease = start(log)
    faults.after["COMMIT"] = sqlite3.SQLITE_IOERR
    faults.refuse_connections = True
    with pytest.raises(StorageError, match="may be there or not") as caught:
        log.append([batch(lease, 2, intent())])
    assert caught.value.durable is None
    with pytest.raises(StorageError):
        log.row("run1")
    faults.refuse_connections = False
    assert log.row("run1").seq == 3


def test_a_run_whose_creation_raised_may_be_there(open_sqlite: Open) -> None:
    """E18: the same holds for creating and claiming; renewing has no record that would tell."""
    faults = Faults()
    log = open_sqlite(connect=faults.connect)
    faults.after["COMMIT"] = sqlite3.SQLITE_IOERR
    with pytest.raises(StorageError) as caught:
        log.create(new_run(), holder=HOLDER)
    assert caught.value.durable is True
    lease = log.row("run1").holder
    assert lease == HOLDER
    faults.after["COMMIT"] = sqlite3.SQLITE_IOERR
    with pytest.raises(StorageError) as caught:
        log.ask("run1", request("q"))
    assert caught.value.durable is None
    assert len(log.requests(["run1"])) == 1


def test_reading_in_trouble_is_a_storage_error(open_sqlite: Open) -> None:
    """E18: an error while reading is one of storage as well, and the next read has a new connection."""
    faults = Faults()
    log = open_sqlite(connect=faults.connect)
    start(log)
    faults.before["SELECT"] = sqlite3.SQLITE_IOERR
    with pytest.raises(StorageError):
        log.row("run1")
    assert log.row("run1").seq == 2


def test_a_closed_log_is_not_used(path: Path) -> None:
    """Using a log after it was closed is a mistake of ours, and closing it twice is none."""
    log = SqliteLog(path)
    log.close()
    log.close()
    with pytest.raises(InternalError):
        log.row("run1")


def test_killed_while_appending(path: Path) -> None:
    """L1, L2: after a SIGKILL at any moment the log is what was acknowledged, and one transaction more at most."""
    program = """
log = SqliteLog(path)
lease = start(log)
seq = 2
while True:
    log.append([batch(lease, seq, outcome(output="x" * 300), intent())])
    seq += 2
    say(seq)
"""
    acknowledged = 0
    for turn in range(4):
        place = path.with_name(f"log{turn}.db")
        process = launch(place, program)
        for _ in range(5 + 20 * turn):
            acknowledged = int(listen(process))
        process.kill()
        acknowledged = max([acknowledged, *[int(word) for word in end(process).split() if word.isdecimal()]])
        with closing(SqliteLog(place)) as log:
            found = [stored.seq for stored in log.read("run1")]
            assert found == list(range(1, len(found) + 1))
            assert acknowledged - 2 <= len(found) <= acknowledged + 2
            assert log.verify().findings == ()


# Opening by name


def test_what_open_log_takes(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The settings name a path; a server's address gets a clear refusal, other addresses too."""
    with closing(open_log(str(path))) as log:
        start(log)
    monkeypatch.setenv("HOME", str(path.parent))
    with closing(open_log("~/log.db", read_only=True)) as log:
        assert log.rows(RunFilter())[1] == 1
    for target, code in (
        ("postgresql://host/db", "not-supported"),
        ("postgres://host/db", "not-supported"),
        ("mysql://host/db", "invalid-config"),
        ("", "invalid-config"),
        ("a\0b", "invalid-config"),
    ):
        with pytest.raises(InvalidError) as caught:
            open_log(target)
        assert (caught.value.code, bool(caught.value.hint)) == (code, True)


def test_logs_of_one_process_share_a_file(open_sqlite: Open, time: Time) -> None:
    """Two logs of one process on one file behave as two processes."""
    one, other = open_sqlite(), open_sqlite()
    lease = start(one)
    add(other, lease, intent())
    assert one.append([batch(lease, 2, outcome())]) == [lease]
    one.close()
    add(other, lease, outcome())
    assert other.row("run1").seq == 4
