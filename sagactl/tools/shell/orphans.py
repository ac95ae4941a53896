"""Finding and ending what a call left running when its driver was killed (rules E14, E17).

While a command runs, a file says who watches over it: `calls/RUN.TOKEN` beside the log, written by the supervisor
before the command starts and taken away by it when nothing of the command is left. So to know that a run has no orphans
costs one look at a folder that is mostly empty.

Nothing innocent is ever killed. A pid counts only with its start time and the id of the boot (and pid namespace); what
a command forked is known by the token in its environment, which is random and made for that one call. A process that
cleared its environment, and whose supervisor and spawner were killed as well, isn't found.
"""

from __future__ import annotations

import contextlib
import json
import os
import secrets
import signal
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any, Final, NamedTuple

from sagactl.errors import BusyError
from sagactl.regular_file import read_regular
from sagactl.tools.shell.launcher import TERM_GRACE_SECONDS
from sagactl.tools.shell.notes import list_notes
from sagactl.tools.shell.spawner import read_parents, read_stat

TOKEN_VARIABLE: Final = "SAGACTL_CALL"  # noqa: S105 - a name, no secret
TOKEN_BYTES: Final = 16
NOTE_BYTES_MAX: Final = 1_048_576

SUPERVISOR_SECONDS: Final = TERM_GRACE_SECONDS + 3.0
"""How long a supervisor whose driver is gone may take to end its command, before it is killed itself."""

KILL_SECONDS: Final = 5.0
"""How long what was killed may take to be gone; then the run is refused."""

_LOOK_SECONDS: Final = 0.02
_ENDED_STATES: Final = ("Z", "X")


class CallFile(NamedTuple):
    """Where a call under way is noted, and the token that its processes bear."""

    path: Path
    token: str
    boot: str


def make_folder(folder: Path) -> None:
    """Make a private folder and what is missing above it."""
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)


class CallFiles:
    """The folder of the calls under way; `boot_id` tells this boot and pid namespace from others.

    `make` is how the folder is made where it is missing; it may raise OSError.
    """

    def __init__(self, folder: Path, boot_id: Callable[[], str], make: Callable[[Path], None] = make_folder) -> None:
        self._folder = folder
        self._boot_id = boot_id
        self._make_folder = make

    def make(self, run_id: str) -> CallFile:
        """Return a place for the note about a new call; raises OSError."""
        token = secrets.token_hex(TOKEN_BYTES)
        self._make_folder(self._folder)
        return CallFile(self._folder / f"{run_id}.{token}", token, self._boot_id())

    def end_orphans(self, run_id: str) -> None:
        """End all that calls of the run left behind; raises BusyError where that can't be done."""
        for file in list_notes(self._folder, run_id):
            survivor = self.end_call(file)
            if survivor is not None:
                message = f"a command of run {run_id} still runs and can't be ended: process {survivor}"
                raise BusyError(message, code="cannot-end", hint=f"sagactl resume {run_id}")

    def end_abandoned(self, name: str) -> None:
        """End what is noted under *name*, for no run, by drivers that are gone; raises BusyError as above.

        Such a note says who the `driver` is; until all of it is written, its supervisor has started nothing.
        """
        for file in list_notes(self._folder, name):
            driver = _read_note(file).get("driver")
            if driver is None or _is_alive(driver):
                continue
            survivor = self.end_call(file)
            if survivor is not None:
                message = f"a process that an earlier driver began still runs and can't be ended: process {survivor}"
                raise BusyError(message, code="cannot-end", hint=f"kill -9 {survivor}")

    def end_call(self, file: Path) -> int | None:
        """End what is left of one call; return a process that can't be ended, None where all is gone."""
        note = _read_note(file)
        boot = note.get("boot", self._boot_id())
        if boot != self._boot_id():
            if boot.partition("/")[0] != self._boot_id().partition("/")[0]:
                file.unlink(missing_ok=True)  # another boot: nothing of then runs now
            return None  # another pid namespace: its processes can't be seen from here
        survivor = _end_supervisor(note) or _end_marked(file.suffix.removeprefix("."))
        if survivor is None:
            file.unlink(missing_ok=True)
        return survivor


def _read_note(file: Path) -> dict[str, Any]:
    """Return what was noted, line by line; nothing where the note is gone, and not the line that was not finished."""
    note: dict[str, Any] = {}
    with contextlib.suppress(OSError):
        for line in read_regular(file, NOTE_BYTES_MAX).splitlines():
            with contextlib.suppress(ValueError):
                note |= json.loads(line)
    return note


def _end_supervisor(note: dict[str, Any]) -> int | None:
    """Let the supervisor end its command, and wait for it; kill it and its command where it doesn't."""
    if _is_alive(note.get("supervisor")):
        _send(note["supervisor"], signal.SIGTERM)
        if not _wait(lambda: not _is_alive(note["supervisor"]), SUPERVISOR_SECONDS):
            _send(note["supervisor"], signal.SIGKILL)
    if _is_alive(note.get("command")):
        _send(note["command"], signal.SIGKILL)
    noted = [process for process in (note.get("supervisor"), note.get("command")) if process is not None]
    _wait(lambda: not any(map(_is_alive, noted)), KILL_SECONDS)
    return next((int(process[0]) for process in noted if _is_alive(process)), None)


def _is_alive(process: Any) -> bool:
    """Tell whether the very process that was noted, as pid and start time, still runs."""
    if process is None:
        return False
    words = read_stat(int(process[0]))
    return bool(words) and words[0] not in _ENDED_STATES and words[19] == process[1]


def _send(process: Any, number: int) -> None:
    _send_if(int(process[0]), number, lambda: _is_alive(process))


def _send_if(pid: int, number: int, holds: Callable[[], bool]) -> None:
    """Signal a process through a descriptor, if it is the one that is meant: a pid used anew in between is never hit.

    Where the kernel has no such descriptors, only the look right before the signal protects.
    """
    with contextlib.suppress(ProcessLookupError, PermissionError):
        try:
            descriptor = os.pidfd_open(pid)
        except ProcessLookupError:
            return
        except (AttributeError, OSError):
            if holds():
                os.kill(pid, number)
            return
        try:
            if holds():
                signal.pidfd_send_signal(descriptor, number)
        finally:
            os.close(descriptor)


def _end_marked(token: str) -> int | None:
    """Kill every process that bears the token until there is none; return one that stays."""
    deadline = time.monotonic() + KILL_SECONDS
    while found := list(_find_marked(token)):
        if time.monotonic() > deadline:
            return found[0]
        for pid in found:
            _send_if(pid, signal.SIGKILL, partial(_is_marked, pid, token))
        time.sleep(_LOOK_SECONDS)
    return None


def _find_marked(token: str) -> Iterator[int]:
    for pid in read_parents():
        if _is_marked(pid, token):
            yield pid


def _is_marked(pid: int, token: str) -> bool:
    try:
        environment = Path(f"/proc/{pid}/environ").read_bytes()
    except OSError:
        return False
    return f"{TOKEN_VARIABLE}={token}".encode() in environment.split(b"\0")


def _wait(holds: Callable[[], bool], seconds: float) -> bool:
    deadline = time.monotonic() + seconds
    while not holds():
        if time.monotonic() > deadline:
            return False
        time.sleep(_LOOK_SECONDS)
    return True
