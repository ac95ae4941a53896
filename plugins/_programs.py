"""Running programs, for the plugins beside this file: no shell, bounded output, and none outlives its call."""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import os
import signal
import subprocess
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Final

from sagactl import CallContext, Rejected, Unavailable

OUTPUT_BYTES_MAX: Final = 262_144
"""How much of what a program prints is read."""

POLL_SECONDS: Final = 0.02


@dataclass(frozen=True)
class Ended:
    """A program that ended by itself."""

    code: int
    out: str
    err: str


def run_program(
    context: CallContext,
    arguments: Sequence[str],
    *,
    folder: Path,
    environment: Mapping[str, str],
    text: str = "",
    inherits: Sequence[int] = (),
) -> Ended:
    """Run a program to its end; raises TimeoutError, with all its processes killed, where the call ends first."""
    with tempfile.TemporaryFile() as given, tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as err:
        given.write(text.encode())
        given.seek(0)
        process = subprocess.Popen(  # noqa: S603 - arguments are a list, and there is no shell
            arguments,
            cwd=folder,
            env=dict(environment),
            stdin=given,
            stdout=out,
            stderr=err,
            start_new_session=True,  # a group of its own, so that its children are killed with it
            pass_fds=inherits,
        )
        try:
            _wait(context, process, arguments[0])
        except BaseException:
            _kill_group(process)
            raise
        return Ended(process.returncode, _read(out), _read(err))


def _wait(context: CallContext, process: subprocess.Popen[bytes], name: str) -> None:
    while True:
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(POLL_SECONDS)
            return
        if context.cancelled.is_set() or context.seconds_left() <= 0:
            raise TimeoutError(f"{name} was ended: the call was over before it was")


def _kill_group(process: subprocess.Popen[bytes]) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()


def _read(file: IO[bytes]) -> str:
    file.seek(0)
    return file.read(OUTPUT_BYTES_MAX).decode(errors="replace")


@contextlib.contextmanager
def alone(context: CallContext, folder: Path) -> Iterator[int]:
    """Hold the lock of this operation, and give its descriptor, for programs to inherit.

    Where sagactl is killed its programs live on for a moment, and they keep the lock. So a probe, another try or an
    undo begins only when they have ended: nothing lands behind its back.
    """
    name = hashlib.sha256(context.forward_key.encode()).hexdigest()[:16]
    file = folder / f"sagactl-{name}.lock"
    lock = _lock(context, file)
    try:
        yield lock
        file.unlink(missing_ok=True)
    except (Rejected, Unavailable):
        file.unlink(missing_ok=True)
        raise
    finally:  # where it isn't known how that ended, the file stays for who comes next
        os.close(lock)


def _lock(context: CallContext, file: Path) -> int:
    while True:
        lock = os.open(file, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            if _is_at(file, lock):
                return lock
        except BlockingIOError:
            time.sleep(POLL_SECONDS)
        except BaseException:
            os.close(lock)
            raise
        os.close(lock)
        if context.cancelled.is_set() or context.seconds_left() < 1:
            raise Unavailable("a program of an earlier try is still under way", code="under_way", retry_after=5)


def _is_at(file: Path, lock: int) -> bool:
    """Tell whether *lock* is still the file of that name: who held it before may have removed it."""
    with contextlib.suppress(FileNotFoundError):
        return os.path.samestat(file.stat(), os.fstat(lock))
    return False
