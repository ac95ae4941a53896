"""A log whose whole folder was put back is noticed by what was taken down far from it."""

from __future__ import annotations

import resource
import shutil
import time as real_time
from contextlib import closing
from pathlib import Path

import pytest

from sagactl.errors import DamagedLogError, NotFoundError
from sagactl.log.far_witness import WITNESSES_MAX, FarWitness
from sagactl.log.gate import Witness
from sagactl.log.open import open_log
from sagactl.log.restored import accept_log
from sagactl.log.sqlite import SqliteLog
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
