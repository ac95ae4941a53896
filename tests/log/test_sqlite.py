"""The log in SQLite: its settings, its files, and what it is called by."""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import pytest

from sagactl.core.records import RunStatus
from sagactl.errors import InvalidError, StorageError
from sagactl.log.base import LEASE_MS, RunFilter
from sagactl.log.file_system import find_mount, refuse_network
from sagactl.log.migrate import APPLICATION_ID, SCHEMA_VERSION
from sagactl.log.open import open_log
from sagactl.log.sqlite import SqliteLog
from tests.log.conftest import Open
from tests.log.samples import HOLDER, OTHER, Time, add, batch, ended, intent, outcome, start


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


def test_what_a_log_remembers_of_a_run_is_checked_by_each_append(open_sqlite: Open, time: Time) -> None:
    """C1: a log that has seen a run at some record notices that another driver has claimed it since."""
    one, other = open_sqlite(), open_sqlite()
    lease = start(one)
    add(one, lease, intent())
    time.pass_ms(LEASE_MS)
    taken = other.claim("run1", holder=OTHER)
    assert one.append([batch(lease, 3, outcome())]) == [lease]
    assert one.append([batch(lease, 4, outcome())]) == [lease]
    add(other, taken, outcome())
    other.release([taken])
    again = one.claim("run1", holder=HOLDER)
    add(one, again, ended(), status=RunStatus.SUCCEEDED)
    assert one.verify().findings == ()


def test_logs_of_one_process_share_a_file(open_sqlite: Open, time: Time) -> None:
    """Two logs of one process on one file behave as two processes."""
    one, other = open_sqlite(), open_sqlite()
    lease = start(one)
    add(other, lease, intent())
    assert one.append([batch(lease, 2, outcome())]) == [lease]
    one.close()
    add(other, lease, outcome())
    assert other.row("run1").seq == 4
