"""Reading a log without changing anything in it or beside it."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path

import pytest

from sagactl.core.records import Verb
from sagactl.errors import NotFoundError, StorageError
from sagactl.log.open import open_log
from sagactl.log.sqlite import SqliteLog
from tests.log.process import end, launch, listen
from tests.log.samples import add, batch, dead, intent, new_run, request, start


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
