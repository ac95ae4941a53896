"""What resume finds and ends of an earlier driver's commands, and what it leaves alone (E14, E17)."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from sagactl.errors import BusyError
from sagactl.log.holder import read_boot_id
from sagactl.tools.shell import orphans
from sagactl.tools.shell.orphans import TOKEN_VARIABLE, CallFiles
from sagactl.tools.shell.spawner import read_started
from tests.tools.shell.commands import BEATS, has_fallen_silent, is_alive, read_beats, wait_until
from tests.tools.shell.test_ending import DRIVER, ROOT, read_note, read_parent

RUN = "run2345678abc"
TOKEN = "0123456789abcdef" * 2


@pytest.fixture
def innocent() -> Iterator[subprocess.Popen[bytes]]:
    """Return a process that has nothing to do with any run."""
    with subprocess.Popen(["sleep", "60"]) as process:
        yield process
        process.kill()


def _write_note(folder: Path, *, token: str = TOKEN, **fields: object) -> Path:
    file = folder / f"{RUN}.{token}"
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(json.dumps({"boot": read_boot_id(), "supervisor": None, "command": None, **fields}))
    return file


def _note_of(process: subprocess.Popen[bytes]) -> list[object]:
    return [process.pid, read_started(process.pid)]


def _files(folder: Path) -> CallFiles:
    return CallFiles(folder, read_boot_id)


def test_a_run_without_notes_has_no_orphans(tmp_path: Path) -> None:
    """E17: nothing is looked for where no command was under way."""
    _files(tmp_path / "calls").end_orphans(RUN)
    assert not (tmp_path / "calls").exists()


def test_an_orphan_whose_watchers_were_all_killed_is_ended(tmp_path: Path) -> None:
    """E17: with driver, spawner and supervisor killed at once, resume finds the grandchild by its token."""
    program, beats = tmp_path / "beating.py", tmp_path / "beats"
    program.write_text(BEATS.format(before="pass", after="time.sleep(60)"))
    argv = [sys.executable, str(program), str(beats)]
    driver = subprocess.Popen([sys.executable, "-c", DRIVER, str(tmp_path), *argv], cwd=ROOT)
    wait_until(lambda: read_beats(beats))
    folder = tmp_path / "state" / "calls"
    (file,) = folder.glob("*")
    supervisor = read_note(file)["supervisor"][0]
    for pid in (read_parent(supervisor), supervisor, driver.pid):
        os.kill(pid, signal.SIGKILL)
    driver.wait()
    survivor = read_beats(beats)[-1]
    assert is_alive(survivor)
    _files(folder).end_orphans(RUN)
    assert not is_alive(survivor)
    assert has_fallen_silent(beats)
    assert not list(folder.iterdir())


def test_a_supervisor_that_still_lives_is_told_to_end_and_waited_for(tmp_path: Path) -> None:
    """E15, E17: a driver that was stopped and lost its lease doesn't keep its command running behind the next one."""
    argv = ["env", "-i", sys.executable, "-c", "import time; open('begun', 'w').close(); time.sleep(60)"]
    driver = subprocess.Popen(
        [sys.executable, "-c", DRIVER, str(tmp_path), *argv], cwd=ROOT, stdout=subprocess.PIPE, text=True
    )
    wait_until((tmp_path / "begun").exists)
    folder = tmp_path / "state" / "calls"
    (file,) = folder.glob("*")
    command = read_note(file)["command"][0]
    driver.send_signal(signal.SIGSTOP)
    _files(folder).end_orphans(RUN)
    assert not is_alive(command)
    driver.send_signal(signal.SIGCONT)
    assert driver.communicate(timeout=60)[0] == "unknown\n"


def test_a_pid_that_is_used_anew_is_left_alone(tmp_path: Path, innocent: subprocess.Popen[bytes]) -> None:
    """E17: a process counts only with the very start time that was noted."""
    started = str(int(read_started(innocent.pid)) - 1)
    _write_note(tmp_path, supervisor=[innocent.pid, started], command=[innocent.pid, started])
    _files(tmp_path).end_orphans(RUN)
    assert is_alive(innocent.pid)
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(("boot", "is_forgotten"), [("another", True), ("{same}/pid:[1]", False)])
def test_processes_of_another_boot_or_namespace_are_left_alone(
    tmp_path: Path, innocent: subprocess.Popen[bytes], boot: str, is_forgotten: bool
) -> None:
    """E17: after a reboot nothing is left, and pids of another container are never looked up in ours."""
    boot = boot.format(same=read_boot_id().partition("/")[0])
    file = _write_note(tmp_path, boot=boot, supervisor=_note_of(innocent), command=_note_of(innocent))
    _files(tmp_path).end_orphans(RUN)
    assert is_alive(innocent.pid)
    assert file.exists() is not is_forgotten


def test_a_note_that_was_not_finished_still_names_the_call(tmp_path: Path) -> None:
    """E17: the name of the file is the token, so a torn note loses nothing that is needed."""
    marked = subprocess.Popen(["sleep", "60"], env={**os.environ, TOKEN_VARIABLE: TOKEN})
    other = subprocess.Popen(["sleep", "60"], env={**os.environ, TOKEN_VARIABLE: TOKEN + "0"})
    try:
        _write_note(tmp_path).write_text('{"boot": "')
        _files(tmp_path).end_orphans(RUN)
        assert marked.wait(60) == -signal.SIGKILL
        assert is_alive(other.pid)
    finally:
        marked.kill()
        other.kill()
        marked.wait()
        other.wait()


def test_what_can_not_be_ended_keeps_the_run_from_going_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """E14: something that comes back each time it is killed can't be ended, and then nothing is decided."""
    monkeypatch.setattr(orphans, "KILL_SECONDS", 0.3)
    again = "import subprocess, sys\nwhile True: subprocess.run(['sleep', '60'], env={sys.argv[1]: sys.argv[2]})"
    with subprocess.Popen([sys.executable, "-c", again, TOKEN_VARIABLE, TOKEN]) as keeper:
        wait_until(lambda: list(orphans._find_marked(TOKEN)))
        with pytest.raises(BusyError, match=f"a command of run {RUN} still runs and can't be ended: process") as caught:
            _end_again_and_again(tmp_path)
        assert (caught.value.code, caught.value.hint) == ("cannot-end", f"sagactl resume {RUN}")
        (file,) = tmp_path.iterdir()
        keeper.kill()
        keeper.wait()
        _files(tmp_path).end_orphans(RUN)
    assert not file.exists()


def _end_again_and_again(folder: Path) -> None:
    """End what is noted in *folder* until it came back each time before it was looked for, as far as it can."""
    for _ in range(100):
        _write_note(folder)
        _files(folder).end_orphans(RUN)
