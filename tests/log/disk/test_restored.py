"""A copy of a log that was put back is accepted as a whole or not at all: killed at each line, failing at each write.

Three unfinished runs are in the copy: one waits for a timer, one for an approval, one was killed inside a call.
Whatever breaks the acceptance off, either every command still refuses the log, or all three are paused; and the same
command does what is left.
"""

from __future__ import annotations

import errno
import os
import shutil
import signal
import sys
from collections.abc import Callable
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from types import FrameType
from typing import Any

import pytest

import sagactl
import sagactl.log.open
import sagactl.log.restored
from sagactl import CallContext, Project, Unavailable, open_project, tool
from sagactl.doctor.restored import REASON, accept_restored
from sagactl.engine.settings import Settings
from sagactl.errors import BusyError, DamagedLogError, StorageError
from sagactl.log.holder import this_process
from sagactl.log.open import open_log
from sagactl.log.restored import accept_log
from sagactl.log.sqlite import SqliteLog
from tests.log.disk.faults import FAULTS, Breaker, Fault
from tests.log.disk.vfs import WatchedFiles
from tests.log.test_migration import make_old_log
from tests.proof import Prove

KILLS = "kills while a restored log is accepted"
ERRORS = "errors of the disk while a restored log is accepted (VFS)"
HALF = "restored logs accepted with a run that goes on"
SOURCES = Path(sagactl.__file__).parent
LINES_OF = frozenset(
    str(SOURCES / name)
    for name in ("doctor/restored.py", "log/restored.py", "log/far_witness.py", "log/gate.py", "log/sqlite_store.py")
)
PARTS, EACH = 4, 2
"""So many tests share every second line."""

SAGA = """
saga: shop
input:
  type: object
  properties: {how: {type: string}}
steps:
  - {id: one, tool: shop.one, with: {how: "${{ input.how }}"}, retry: {initial_interval: 1h}}
  - {id: two, tool: shop.one, with: {how: "two"}, approval: {}}
"""
calls: list[str] = []


@tool("shop.one", compensation="shop.undo", compensation_with={})
def one(context: CallContext, how: str) -> None:
    """Do something, or leave a run behind that isn't at its end."""
    calls.append(context.idempotency_key)
    if how == "die":
        os._exit(0)
    if how == "later":
        raise Unavailable("later", code="later")


@tool("shop.undo", null_safe=True)
def undo(context: CallContext) -> None:
    """Undo it."""
    calls.append(context.idempotency_key)


@dataclass
class Scene:
    """A project whose whole folder was put back to a copy; `put_back` makes it so again."""

    project: Project
    copy: Path
    state: Path

    @property
    def path(self) -> Path:
        """Where the log lies."""
        return Path(self.project.config.log)

    def put_back(self, *, with_gate: bool) -> None:
        """Put the copy in the log's place; without its gate, as where only the database was copied."""
        shutil.rmtree(self.path.parent)
        shutil.copytree(self.copy / "old", self.path.parent)
        shutil.rmtree(self.state)
        shutil.copytree(self.copy / "state", self.state)
        if not with_gate:
            shutil.copy(self.copy / "log.db-gate", self.path.parent)

    def is_refused(self) -> bool:
        """Tell whether commands refuse the log; all that read or write open it so."""
        answers = set()
        for read_only in (True, False):
            try:
                open_log(self.path, read_only=read_only).close()
                answers.add(False)
            except DamagedLogError:
                answers.add(True)
        (answer,) = answers
        return answer

    def list_going(self) -> list[str]:
        """Return the unfinished runs of an accepted log that aren't paused."""
        with closing(open_log(self.path, read_only=True)) as log:
            return [run_id for run_id in log.unfinished() if log.row(run_id).waiting_for != "paused"]

    def check_accepted(self) -> None:
        """Expect the log to be used, sound, and each run in it to be paused for the reason."""
        assert not self.is_refused()
        assert self.list_going() == []
        with closing(open_log(self.path, read_only=True)) as log:
            assert log.verify().findings == ()
            runs = log.unfinished()
            assert len(runs) == 3
            for run_id in runs:
                assert REASON in [
                    getattr(getattr(each.record, "request", None), "reason", None) for each in log.read(run_id)
                ]


def begin(project: Project, how: str) -> None:
    """Begin a run, and leave it as it stands when it waits."""
    with project.driver(Settings(waits_for_timers=False)) as driver:
        driver.start(project.load("shop"), {"how": how})
        driver.drive()


def fork(action: Callable[[], object]) -> int:
    """Do something in a process of its own, and return how it ended."""
    pid = os.fork()
    if pid == 0:
        try:
            action()
        finally:
            os._exit(3)
    return os.waitpid(pid, 0)[1]


@pytest.fixture
def scene(quick: Path, monkeypatch: pytest.MonkeyPatch) -> Scene:
    """Return a project with three unfinished runs, copied, then gone on with, then put back."""
    state, folder = quick / "xdg", quick / "p"
    monkeypatch.setenv("XDG_STATE_HOME", str(state))
    monkeypatch.delenv("SAGACTL_LOG", raising=False)
    (folder / "sagas").mkdir(parents=True)
    (folder / "sagas" / "shop.yaml").write_text(SAGA)
    with open_project(folder, tools=(one, undo)) as project:
        for how in ("later", "now"):
            begin(project, how)
    project = open_project(folder, tools=(one, undo))
    assert fork(lambda: begin(project, "die")) == 0
    path = Path(project.config.log)
    SqliteLog(path).close()
    shutil.copytree(path.parent, quick / "copy" / "old")
    with open_project(folder, tools=(one, undo)) as later:
        begin(later, "later")
    shutil.copytree(state, quick / "copy" / "state")
    shutil.copy(path.with_name("log.db-gate"), quick / "copy")
    calls.clear()
    scene = Scene(project, quick / "copy", state)
    scene.put_back(with_gate=True)
    return scene


class Killer:
    """Kills this process when the n-th line of the acceptance is reached."""

    def __init__(self, number: int) -> None:
        self.left = number

    def __call__(self, frame: FrameType, event: str, argument: object) -> Any:
        """Look at each call, and in the modules that matter at each line."""
        if frame.f_code.co_filename not in LINES_OF:
            return None
        if event == "line":
            self.left -= 1
            if self.left == 0:
                os.kill(os.getpid(), signal.SIGKILL)
        return self

    def run(self, scene: Scene) -> None:
        """Accept the log, and be killed on the way; 0 where it came to its end."""
        sys.settrace(self)
        accept_restored(scene.project)
        sys.settrace(None)
        os._exit(0)


@pytest.mark.parametrize("part", range(PARTS))
def test_killed_at_each_line_it_is_accepted_as_a_whole_or_not_at_all(part: int, scene: Scene, prove: Prove) -> None:
    """N9, L1: a kill at the n-th line leaves a log that is refused, or one whose runs are all paused; again does it."""
    kills = half = accepted = 0
    for number in range(1 + part, 100_000, PARTS * EACH):
        scene.put_back(with_gate=bool(number // (PARTS * EACH) % 2))
        ended = fork(lambda number=number: Killer(number).run(scene))  # type: ignore[misc]
        if ended == 0:
            break
        assert ended == signal.SIGKILL, f"line {number}: {ended}"
        kills += 1
        if not scene.is_refused():
            accepted += 1
            half += bool(scene.list_going())
            assert scene.list_going() == [], f"line {number}"
        assert len(accept_restored(scene.project)) == 3, f"line {number}"
        scene.check_accepted()
    assert calls == []
    assert accepted < kills // 4, "the witnesses are told last"
    prove(KILLS, kills, goal=300)
    prove(HALF, half, goal=0)


def test_a_log_that_is_accepted_first_is_found_out(scene: Scene) -> None:
    """V0: with the witnesses told before the runs are paused, a kill leaves an accepted log whose runs go on."""
    accept_log(scene.path)
    assert not scene.is_refused()
    assert len(scene.list_going()) == 3


UNTOUCHED, DONE, REFUSED = range(3)
"""What a process says that met a bad disk, or didn't."""


def meet(scene: Scene, breaker: Breaker) -> None:
    """Accept the log on a bad disk, and end this process with what came of it."""
    files = WatchedFiles(breaker)

    def open_there(path: str, **_: object) -> SqliteLog:
        return SqliteLog(Path(path), connect=files.connect, passes_witnesses=True, busy_ms=1)

    setattr(sagactl.log.restored, "connect_plainly", files.connect)  # noqa: B010
    setattr(sagactl.log.open, "open_log", open_there)  # noqa: B010
    try:
        accept_restored(scene.project)
    except StorageError:
        os._exit(REFUSED)
    os._exit(DONE if breaker.fired else UNTOUCHED)


@pytest.mark.parametrize("fault", [each for each in FAULTS if each.name != "delete"], ids=lambda each: each.name)
def test_failing_at_each_operation_of_its_disk(fault: Fault, scene: Scene, prove: Prove) -> None:
    """N9, E18: whichever operation fails from then on, the log is refused, or all is done; a second time does it."""
    errors = half = 0
    for number in range(1, 10_000, 3):
        scene.put_back(with_gate=bool(number % 2))
        breaker = Breaker(fault, number, True, measure=lambda: len(calls))
        answer = os.waitstatus_to_exitcode(fork(lambda breaker=breaker: meet(scene, breaker)))  # type: ignore[misc]
        assert answer in {UNTOUCHED, DONE, REFUSED}, f"number {number}: {answer}"
        if answer == UNTOUCHED:
            break
        errors += 1
        half += bool(not scene.is_refused() and scene.list_going())
        assert (answer == REFUSED) is scene.is_refused(), f"number {number}: what was said isn't what holds"
        assert len(accept_restored(scene.project)) == 3, f"number {number}"
        scene.check_accepted()
    assert errors > 0
    assert calls == []
    prove(ERRORS, errors, goal=100)
    prove(HALF, half, goal=0)


def test_a_copy_that_is_not_sound_is_not_accepted(scene: Scene) -> None:
    """N9: one changed byte in one run, and the log stays refused; a sound copy in its place is accepted."""
    with closing(SqliteLog(scene.path, passes_witnesses=True)) as log:
        log._write(lambda connection: (connection.execute("UPDATE records SET body = '{}' WHERE seq = 2"), None))
    with pytest.raises(DamagedLogError, match="isn't sound, and isn't accepted") as caught:
        accept_restored(scene.project)
    assert "another copy" in str(caught.value.hint)
    assert scene.is_refused()
    scene.put_back(with_gate=True)
    assert len(accept_restored(scene.project)) == 3
    scene.check_accepted()


def test_a_copy_that_a_process_still_drives_is_not_accepted(scene: Scene) -> None:
    """N9, E20: while one run has a living driver nothing is accepted; when it has let go, all is done."""
    with closing(SqliteLog(scene.path, passes_witnesses=True)) as log:
        run_id = log.unfinished()[0]
        lease = log.claim(run_id, holder=this_process())
        with pytest.raises(BusyError):
            accept_restored(scene.project)
        assert scene.is_refused()
        log.release([lease])
    assert len(accept_restored(scene.project)) == 3
    scene.check_accepted()


def test_a_witness_that_can_not_be_told_is_an_error(scene: Scene, monkeypatch: pytest.MonkeyPatch) -> None:
    """N9: who says that a log is accepted has told both witnesses; one that can't be removed is an error."""

    def refuse(path: Path, missing_ok: bool = False) -> None:
        raise OSError(errno.EROFS, os.strerror(errno.EROFS))

    with monkeypatch.context() as patched:
        patched.setattr("sagactl.log.far_witness.Path.unlink", refuse)
        with pytest.raises(StorageError, match="can't remove"):
            accept_restored(scene.project)
    assert scene.is_refused()
    assert len(accept_restored(scene.project)) == 3
    scene.check_accepted()


def test_an_accepted_copy_is_guarded_from_its_last_record_on(scene: Scene) -> None:
    """N9, L7: what the acceptance wrote is witnessed: the same copy put back once more is refused once more."""
    accept_restored(scene.project)
    shutil.copy(scene.copy / "old" / "log.db", scene.path)
    assert scene.is_refused()


def test_a_copy_with_an_older_schema_is_brought_up_to_date_and_accepted(scene: Scene) -> None:
    """N9, F13: no other command may touch it before it is accepted, so this one migrates it."""
    scene.path.unlink()
    make_old_log(scene.path)
    with pytest.raises(DamagedLogError, match="another log"):
        open_log(scene.path)
    shutil.copytree(scene.copy / "old", scene.path.parent, dirs_exist_ok=True)
    scene.path.unlink()
    make_old_log(scene.path)
    accept_restored(scene.project)
    assert not scene.is_refused()
