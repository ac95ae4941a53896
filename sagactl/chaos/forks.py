"""Runs pieces of work in forked processes, a few at a time, and waits for each as long as it may take.

A fork of a process that has loaded everything begins its work in a few milliseconds. It is made before anything here
has a thread, writes nothing to the terminal, and leaves nothing but the file with its result.
"""

from __future__ import annotations

import os
import signal
import sys
import time
import traceback
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack, suppress
from dataclasses import replace
from enum import StrEnum
from functools import partial
from pathlib import Path
from typing import Final, NoReturn

from sagactl.chaos.forking import ENDING, FAILED_EXIT_CODE, fork_masked
from sagactl.chaos.strays import end_strays, taking_in_strays
from sagactl.core.canonical import Json, canonical, parse
from sagactl.dataclass import dataclass
from sagactl.errors import BusyError, SagactlError
from sagactl.secrets.masking import KNOWN
from sagactl.tools.shell.spawner import set_subreaper

POLL_SECONDS: Final = 0.002
RESULT: Final = "result.json"


class How(StrEnum):
    """How a process came to its end."""

    RETURNED = "returned"
    FAILED = "failed"
    BUSY = "busy"
    DIED = "died"
    TIMED_OUT = "timed_out"


@dataclass(frozen=True, slots=True)
class Finished:
    """What came of one process: its result, or why there is none; and how long it took."""

    how: How
    result: Json = None
    detail: str = ""
    took_ms: int = 0


@dataclass(frozen=True, slots=True)
class Work:
    """A piece of work; its result is JSON, and *folder* is where it is left."""

    number: int
    folder: Path
    do: Callable[[], Json]


@dataclass(slots=True)
class _Process:
    work: Work
    pid: int
    began: float
    deadline: float
    is_late: bool = False


class Crew:
    """The processes that are under way; whoever has it closes it, and then none is left."""

    def __init__(self) -> None:
        self._running: list[_Process] = []
        self._stack = ExitStack()
        self._known = self._stack.enter_context(taking_in_strays())

    def close(self) -> None:
        """End all processes and what they have left running, and wait until they are gone."""
        while self._running:
            process = self._running.pop()
            _kill(process)
            with suppress(ChildProcessError):
                os.waitpid(process.pid, 0)
        end_strays(self._known)
        self._stack.close()

    def carry_out(
        self,
        works: Iterable[Work],
        *,
        jobs: int,
        timeout_seconds: float,
        again: Callable[[Work, Finished], Work | None] = lambda *_: None,
    ) -> Iterator[tuple[Work, Finished]]:
        """Yield what came of each piece of work, as it comes; *again* may give more to do in its place."""
        waiting = iter(works)
        more = True
        while more or self._running:
            while more and len(self._running) < jobs:
                work = next(waiting, None)
                more = work is not None
                if work is not None:
                    self._start(work, timeout_seconds)
            for process in list(self._running):
                finished = _look(process)
                if finished is None:
                    continue
                self._running.remove(process)
                end_strays({*self._known, *(each.pid for each in self._running)})
                following = again(process.work, finished)
                if following is None:
                    yield process.work, finished
                else:
                    self._start(following, timeout_seconds)
            time.sleep(POLL_SECONDS)

    def _start(self, work: Work, timeout_seconds: float) -> None:
        (work.folder / RESULT).unlink(missing_ok=True)
        pid = fork_masked(partial(_be_child, work, timeout_seconds))
        now = time.monotonic()
        self._running.append(_Process(work, pid, now, now + timeout_seconds))


def _be_child(work: Work, timeout_seconds: float, mask: Iterable[int]) -> NoReturn:
    """Do the work and leave, past everything that the parent has set up."""
    code = FAILED_EXIT_CODE
    try:
        os.setpgid(0, 0)
        for number in ENDING:
            signal.signal(number, signal.SIG_DFL)
        signal.pthread_sigmask(signal.SIG_SETMASK, mask)
        # A parent that is gone can't end a child that hangs.
        signal.signal(signal.SIGALRM, signal.SIG_DFL)
        signal.setitimer(signal.ITIMER_REAL, 2 * timeout_seconds)
        _fall_silent()
        set_subreaper()  # what a tool starts and lets go of doesn't get away from its experiment
        try:
            _leave(work.folder, canonical({"result": work.do()}))
            code = 0
        except BusyError as error:  # a call of the life before can't be ended
            _leave(work.folder, canonical({"busy": error.message}))
        except SagactlError as error:
            _leave(work.folder, canonical({"failed": error.message}))
        except Exception:
            trace = KNOWN.shorten_start(traceback.format_exc(limit=-3).strip(), 1_000)
            _leave(work.folder, canonical({"failed": trace}))
    finally:
        os._exit(code)


def _fall_silent() -> None:
    nowhere = os.open(os.devnull, os.O_RDWR)
    for descriptor in (0, 1, 2):
        os.dup2(nowhere, descriptor)
    sys.stdout = open(1, "w", encoding="utf-8", closefd=False)  # noqa: SIM115 - streams for the rest of its life
    sys.stderr = open(2, "w", encoding="utf-8", closefd=False)  # noqa: SIM115


def _leave(folder: Path, text: str) -> None:
    draft = folder / f"{RESULT}.draft"
    draft.write_text(text, encoding="utf-8")
    draft.replace(folder / RESULT)


def _look(process: _Process) -> Finished | None:
    pid, status = os.waitpid(process.pid, os.WNOHANG)
    if pid == 0:
        if time.monotonic() >= process.deadline and not process.is_late:
            process.is_late = True
            _kill(process)
        return None
    _sweep(process)
    return replace(_finish(process, status), took_ms=round(1_000 * (time.monotonic() - process.began)))


def _finish(process: _Process, status: int) -> Finished:
    kept = process.work.folder / RESULT
    found = parse(kept.read_text(encoding="utf-8")) if kept.exists() else None
    if isinstance(found, dict) and "result" in found:
        return Finished(How.RETURNED, found["result"])
    if isinstance(found, dict):
        how = How.BUSY if "busy" in found else How.FAILED
        return Finished(how, detail=str(found[how.value]))
    if process.is_late:
        return Finished(How.TIMED_OUT)
    code = os.waitstatus_to_exitcode(status)
    return Finished(How.DIED, detail=f"signal {-code}" if code < 0 else f"exit code {code}")


def _kill(process: _Process) -> None:
    """End a process that hasn't been waited for, and its group."""
    _sweep(process)
    with suppress(ProcessLookupError):
        os.kill(process.pid, signal.SIGKILL)


def _sweep(process: _Process) -> None:
    """End what a process has left behind in its group."""
    with suppress(ProcessLookupError, PermissionError):
        os.killpg(process.pid, signal.SIGKILL)
