"""A log whose whole folder was put back is noticed by what was taken down far from it."""

from __future__ import annotations

import errno
import os
import resource
import shutil
import sqlite3
import time as real_time
from contextlib import closing
from pathlib import Path

import pytest

from sagactl.errors import DamagedLogError, NotFoundError, StorageError
from sagactl.log.far_witness import WITNESSES_MAX, FarWitness, find_kept
from sagactl.log.gate import Gate, Witness
from sagactl.log.open import open_log, tell_lost
from sagactl.log.restored import accept_log
from sagactl.log.sqlite import SqliteLog
from tests.log.faults import Faults
from tests.log.samples import add, intent, outcome, start

STORE = "a" * 32


@pytest.fixture
def state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Give the test a state folder of its own, and return where witnesses are kept in it."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "xdg"))
    return tmp_path / "xdg" / "sagactl" / "witnesses"


def grow(path: Path, *, run_id: str) -> None:
    """Add a run to a log."""
    with closing(SqliteLog(path)) as log:
        add(log, start(log, run_id), intent(), outcome())


@pytest.fixture
def put_back(path: Path, state: Path) -> Path:
    """Return a log whose folder, gate and all, was put back to what it was one run ago."""
    grow(path, run_id="run1")
    shutil.copytree(path.parent, path.parent.with_name("copy"))
    grow(path, run_id="run2")
    shutil.rmtree(path.parent)
    path.parent.with_name("copy").rename(path.parent)
    return path


@pytest.mark.parametrize("read_only", [True, False])
def test_a_folder_that_was_put_back_is_noticed(put_back: Path, read_only: bool) -> None:
    """N9, L7: the gate was put back too, but not the second witness; the error says how to go on."""
    with pytest.raises(DamagedLogError, match="run2, which was durable: it is an older copy") as caught:
        open_log(put_back, read_only=read_only)
    assert "sagactl doctor --after-restore" in str(caught.value.hint)


def test_a_copy_that_is_accepted_is_the_log_from_then_on(put_back: Path) -> None:
    """N9: accepted once, it is used, grows, and is guarded again."""
    accept_log(put_back)
    with closing(open_log(put_back, read_only=True)) as log:
        assert log.verify().findings == ()
    shutil.copytree(put_back.parent, put_back.parent.with_name("copy"))
    grow(put_back, run_id="run3")
    shutil.rmtree(put_back.parent)
    put_back.parent.with_name("copy").rename(put_back.parent)
    with pytest.raises(DamagedLogError, match="run3"):
        open_log(put_back)


def test_a_copy_at_another_place_is_a_log_of_its_own(path: Path, state: Path) -> None:
    """A copied project goes its own way, and neither hinders the other."""
    grow(path, run_id="run1")
    copy = path.parent.with_name("copy")
    shutil.copytree(path.parent, copy)
    for run_id in ("run2", "run3"):
        grow(path, run_id=run_id)
        grow(copy / path.name, run_id=f"{run_id}b")
    for each in (path, copy / path.name):
        with closing(open_log(each, read_only=True)) as log:
            assert log.verify().findings == ()
    assert len(list(state.iterdir())) == 2


def test_a_log_that_was_begun_anew_is_no_copy(path: Path, state: Path) -> None:
    """Who removes the whole folder begins anew at the same place: another id, another witness."""
    grow(path, run_id="run1")
    shutil.rmtree(path.parent)
    grow(path, run_id="run2")
    with closing(open_log(path)) as log:
        assert [row.run_id for row in log.find("")] == ["run2"]


@pytest.mark.parametrize("spoilt", ["missing", "garbage", "folder", "other store"])
def test_a_witness_that_can_not_be_read_hinders_nobody(put_back: Path, state: Path, spoilt: str) -> None:
    """The second witness is an extra: without it the log is used as before, and nothing is noticed."""
    (file,) = state.iterdir()
    file.unlink()
    if spoilt == "garbage":
        file.write_bytes(b"\xff" * 600)
    elif spoilt == "folder":
        file.mkdir()
    elif spoilt == "other store":
        file.write_text(f"sagactl-gate-1 {STORE} run9 1 {'b' * 64}")
    grow(put_back, run_id="run4")


def test_no_state_folder_is_no_trouble(path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where nothing can be written to the user's state, or there is no home, logs work."""
    (tmp_path / "file").touch()
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "file"))
    grow(path, run_id="run1")
    monkeypatch.delenv("XDG_STATE_HOME")

    def no_home() -> Path:
        raise RuntimeError("no home")

    monkeypatch.setattr("sagactl.log.far_witness.Path.home", no_home)
    grow(path, run_id="run2")
    accept_log(path)
    grow(path, run_id="run3")


def test_a_full_disk_there_hinders_nobody(path: Path, state: Path) -> None:
    """Only the log itself must be written (E18); the witness says what was, until it can be written again."""
    grow(path, run_id="run1")
    far = FarWitness(path, STORE)
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (0, hard))
    try:
        far.note(Witness(STORE, "run2", 1, "c" * 64))
        far.write()
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert far.read() is None
    far.note(Witness(STORE, "run3", 1, "c" * 64))
    far.write()
    assert far.read() == Witness(STORE, "run3", 1, "c" * 64)


def test_what_is_kept_is_private_and_bounded(path: Path, state: Path) -> None:
    """Limits: the folder is 0700, files 0600, and the oldest go when there are too many."""
    grow(path, run_id="run1")
    (mine,) = state.iterdir()
    assert (state.stat().st_mode & 0o777, mine.stat().st_mode & 0o777) == (0o700, 0o600)
    for number in range(WITNESSES_MAX + 20):
        (state / f"other{number}").touch()
    far = FarWitness(path.with_name("another.db"), STORE)
    far.note(Witness(STORE, "run1", 1, "c" * 64))
    far.write()
    assert len(list(state.iterdir())) == WITNESSES_MAX
    assert far.read() == Witness(STORE, "run1", 1, "c" * 64)


def test_it_is_written_now_and_then_and_at_the_end(path: Path, state: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A long-lived log takes it down at most once a second: nothing of it is felt by a commit."""
    now = [real_time.monotonic()]
    monkeypatch.setattr("sagactl.log.far_witness.time.monotonic", lambda: now[0])
    far = FarWitness(path, STORE)
    far.note(Witness(STORE, "run1", 1, "c" * 64))
    assert far.read() is None
    now[0] += 1.5
    far.note(Witness(STORE, "run1", 2, "d" * 64))
    assert far.read() == Witness(STORE, "run1", 2, "d" * 64)
    far.note(Witness(STORE, "run1", 3, "e" * 64))
    far.write()
    found = far.read()
    assert found is not None
    assert found.seq == 3


def test_nothing_is_taken_down_of_what_is_thrown_away(path: Path, state: Path) -> None:
    """The logs of experiments are many and short-lived: they must not drive out those that matter."""
    with closing(open_log(path, is_lasting=False)) as log:
        start(log)
    with closing(open_log(path, read_only=True, is_lasting=False)) as log:
        assert log.row("run1").seq == 2
    assert not state.exists()


def test_there_must_be_something_to_accept(path: Path, state: Path) -> None:
    """An empty place isn't accepted: nothing begins anew by itself."""
    path.parent.mkdir()
    with pytest.raises(NotFoundError):
        accept_log(path)


def test_a_place_tells_which_log_was_kept_there(path: Path, state: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """N9: where a folder is gone the state folder still tells, of that place alone; where nothing is known, nothing."""
    assert find_kept(path) is None
    grow(path, run_id="run1")
    with closing(SqliteLog(path)) as log:
        store_id = log.store_id
    shutil.rmtree(path.parent)
    kept = find_kept(path)
    assert kept is not None
    assert kept.store_id == store_id
    assert find_kept(path.with_name("other.db")) is None
    with pytest.raises(NotFoundError, match=rf"one was kept there until .* \(store {store_id[:8]}\)") as caught:
        open_log(path, read_only=True)
    assert "mount its disk" in str(caught.value.hint)
    monkeypatch.setenv("XDG_STATE_HOME", str(path.parent.parent / "elsewhere"))
    assert find_kept(path) is None


def test_what_hinders_the_witness_can_be_asked(path: Path, state: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """N9: whether anything can be taken down is told before it is missed, and looking leaves nothing behind."""
    assert FarWitness(path, STORE).find_hindrance() is None
    assert list(state.iterdir()) == []
    path.parent.mkdir()
    path.touch()
    monkeypatch.setenv("XDG_STATE_HOME", str(path))
    assert "can't be written to: Not a directory" in str(FarWitness(path, STORE).find_hindrance())
    assert FarWitness(path, STORE, is_lasting=False).find_hindrance() == "there is no home folder"


def read_gate(path: Path) -> Witness:
    """Return what the gate says of a log."""
    with closing(Gate(path, timeout_seconds=1, is_read_only=True)) as gate:
        found = gate.read_witness()
    assert found is not None
    return found


def refuse_to_remove(path: Path, missing_ok: bool = False) -> None:
    """Fail as on a file system that can't be written to."""
    raise OSError(errno.EROFS, os.strerror(errno.EROFS))


def test_a_witness_that_can_not_be_taken_back_is_an_error(
    put_back: Path, state: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """N9: a log isn't accepted as long as a witness speaks against it; one that can't be read speaks against none."""
    with monkeypatch.context() as patched:
        patched.setattr("sagactl.log.far_witness.Path.unlink", refuse_to_remove)
        with pytest.raises(StorageError, match="can't remove"):
            accept_log(put_back)
        with pytest.raises(DamagedLogError):
            open_log(put_back)
        (file,) = state.iterdir()
        file.write_text("nothing")
        accept_log(put_back)
    open_log(put_back).close()


def test_a_gate_that_can_not_be_written_accepts_nothing(put_back: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """N9: the gate's witness is replaced as a whole, or the error is told and nothing was forgotten."""
    with monkeypatch.context() as patched:
        patched.setattr("sagactl.log.gate.os.pwrite", lambda *_: 100)
        with pytest.raises(StorageError, match="No space left") as caught:
            accept_log(put_back)
    assert caught.value.code == "disk-full"
    with pytest.raises(DamagedLogError):
        open_log(put_back)


def test_a_log_that_can_not_be_read_is_not_accepted(put_back: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """N9, E18: what the log holds is read first; trouble with that is one of storage, and nothing is forgotten."""
    faults = Faults(before={"SELECT run_id, seq, head": sqlite3.SQLITE_IOERR})
    with monkeypatch.context() as patched:
        patched.setattr("sagactl.log.restored.connect_plainly", faults.connect)
        with pytest.raises(StorageError, match="can't read the log"):
            accept_log(put_back)
    with pytest.raises(DamagedLogError):
        open_log(put_back)


def test_a_copy_is_written_to_past_its_witnesses_and_stays_refused(put_back: Path, path: Path, state: Path) -> None:
    """N9: what is done to a copy before it is accepted changes no witness; once it is, they name a record of it."""
    with closing(open_log(put_back, passes_witnesses=True)) as log:
        add(log, start(log, "run9"), intent())
        assert log.verify().findings == ()
    for read_only in (True, False):
        with pytest.raises(DamagedLogError, match="run2"):
            open_log(put_back, read_only=read_only)
    accept_log(put_back)
    witness = read_gate(put_back)
    with closing(open_log(put_back)) as log:
        assert log.holds(witness.run_id, witness.seq, witness.hash)


def test_nothing_is_opened_past_witnesses_that_is_not_there(path: Path) -> None:
    """N9: an empty place is no copy, and none is made."""
    with pytest.raises(NotFoundError):
        open_log(path, passes_witnesses=True)
    assert not path.exists()


def test_a_log_without_runs_is_accepted_by_its_id(path: Path, state: Path) -> None:
    """N9: where there is no record yet, the witness says whose log it is."""
    SqliteLog(path).close()
    accept_log(path)
    assert read_gate(path).run_id == ""


def test_a_lost_log_is_told_by_its_place(path: Path, state: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """N9: nothing is told where a log lies, where none ever did, or where the state folder says nothing sound."""
    assert tell_lost("postgresql://there") is None
    assert tell_lost(str(path)) is None
    grow(path, run_id="run1")
    assert tell_lost(str(path)) is None
    shutil.rmtree(path.parent)
    assert f"there is no log at {path}, but one was kept there until" in str(tell_lost(str(path)))
    (file,) = state.iterdir()
    file.write_text("nothing")
    assert tell_lost(str(path)) is None
    file.unlink()
    file.mkdir()
    assert tell_lost(str(path)) is None
    monkeypatch.delenv("XDG_STATE_HOME")

    def no_home() -> Path:
        raise RuntimeError("no home")

    monkeypatch.setattr("sagactl.log.far_witness.Path.home", no_home)
    assert tell_lost(str(path)) is None
