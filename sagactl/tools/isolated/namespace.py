"""A pid namespace for one call, where the kernel gives one to whoever asks: what is in it can't get out of it.

    supervisor ── outer ── first (pid 1 in there) ── the tool's interpreter ── whatever it forks

When its first process ends, the kernel kills everything in the namespace: also what left its session, cleared its
environment, or forks faster than anybody can kill. The first one ends with the outer one, and that with its supervisor,
by the parent-death signal; so no order of kills leaves anything behind. Where there is no namespace to be had, the
supervisor sweeps up what is below it, as it does for commands.

With the power to do so only the namespace of pids is new. An ordinary user gets it within a user namespace, in which
the same user and group are all there is: programs that would run as another user (`sudo`) don't. Root without that
power gets none: files of other users would be out of reach.

The interpreter has the pid inside that its outer process has outside, so names made of pids stay different. Only the
standard library, and nothing may have started a thread yet.
"""

from __future__ import annotations

import ctypes
import mmap
import os
import resource
import select
import signal
import time
from contextlib import suppress
from typing import NoReturn

TERM_GRACE_SECONDS = 2.0
"""How long what the tool left running may take to end after SIGTERM."""

_LOOK_SECONDS = 0.01
_STATUS_BYTES = 4
_NEW_USER = 0x1000_0000
_NEW_PID = 0x2000_0000
_PR_SET_PDEATHSIG = 1
_PR_SET_DUMPABLE = 4
_CAPABILITY_VERSION = 0x2008_0522
_LAST_PID = "/proc/sys/kernel/ns_last_pid"


def enter() -> bool:
    """Go on as a child in a new pid namespace and return True, or False where there is none: then nothing has changed.

    The process that called stays outside, waits, and ends the way its child has ended.
    """
    supervisor = os.getppid()
    flags = _choose_flags()
    if flags is None or not _unshare(flags):
        return False
    _die_with_parent()
    if os.getppid() != supervisor:
        os._exit(1)
    life, death = os.pipe()
    outer, told = os.getpid(), mmap.mmap(-1, _STATUS_BYTES)
    first = os.fork()
    if first:
        os.close(life)
        _end_as(first, told)
    os.close(death)
    _die_with_parent()
    if _is_cut_off(life):
        os._exit(1)
    _go_on(life, outer, told)
    if flags & _NEW_USER:
        _drop_powers()
    return True


def _choose_flags() -> int | None:
    """Return what can be had; each is tried in a child first, for half of it can't be taken back."""
    if not hasattr(os, "memfd_create"):
        return None
    for flags in (_NEW_PID,) if os.getuid() == 0 else (_NEW_PID, _NEW_PID | _NEW_USER):
        if _try(flags):
            return flags
    return None


def _try(flags: int) -> bool:
    trial = os.fork()
    if trial == 0:
        is_there = False
        try:
            is_there = _unshare(flags) and _try_numbers()
        finally:
            os._exit(0 if is_there else 1)
    return os.waitpid(trial, 0)[1] == 0


def _try_numbers() -> bool:
    """Tell whether the first process of the namespace may choose the number of the next one."""
    first = os.fork()
    if first == 0:
        is_there = False
        try:
            is_there = _set_next_pid(1_000)
        finally:
            os._exit(0 if is_there else 1)
    return os.waitpid(first, 0)[1] == 0


def _unshare(flags: int) -> bool:
    uid, gid = os.getuid(), os.getgid()
    if ctypes.CDLL(None, use_errno=True).unshare(flags) != 0:
        return False
    if flags & _NEW_USER:
        try:
            for name, text in (("setgroups", "deny"), ("uid_map", f"{uid} {uid} 1"), ("gid_map", f"{gid} {gid} 1")):
                _write(f"/proc/self/{name}", text)
        except OSError:
            return False
        ctypes.CDLL(None).prctl(_PR_SET_DUMPABLE, 1, 0, 0, 0)
    return True


def _die_with_parent() -> None:
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, int(signal.SIGKILL), 0, 0, 0)


def _is_cut_off(life: int) -> bool:
    """Tell whether the parent has ended, which holds the other end of the pipe."""
    poll = select.poll()
    poll.register(life, select.POLLIN)
    return bool(poll.poll(0))


def _write(file: str, text: str) -> None:
    descriptor = os.open(file, os.O_WRONLY)
    try:
        os.write(descriptor, text.encode())
    finally:
        os.close(descriptor)


def _set_next_pid(number: int) -> bool:
    try:
        _write(_LAST_PID, str(number - 1))
    except OSError:
        return False
    return True


def _go_on(life: int, number: int, told: mmap.mmap) -> None:
    """As the first process: fork the one that goes on, and watch over what is in here."""
    _set_next_pid(number)
    tool = os.fork()
    if tool:
        _watch(tool, told)
    os.close(life)
    told.close()
    os.setsid()


def _drop_powers() -> None:
    """Give up what a user namespace grants, so that the tool may do what it might outside, and no more."""
    header = (ctypes.c_uint32 * 2)(_CAPABILITY_VERSION, 0)
    ctypes.CDLL(None).capset(header, (ctypes.c_uint32 * 6)())


def _watch(tool: int, told: mmap.mmap) -> NoReturn:
    """Take in what ends; after the tool, end what it left, and then the namespace with this process."""
    ends_at: float | None = None
    while ends_at is None or time.monotonic() < ends_at:
        try:
            pid, status = os.waitpid(-1, 0 if ends_at is None else os.WNOHANG)
        except ChildProcessError:
            break
        if pid == tool:
            told[:] = status.to_bytes(_STATUS_BYTES, "big")
            ends_at = time.monotonic() + TERM_GRACE_SECONDS
            with suppress(OSError):
                os.kill(-1, signal.SIGTERM)
        elif pid == 0:
            time.sleep(_LOOK_SECONDS)
    os._exit(0)


def _end_as(first: int, told: mmap.mmap) -> NoReturn:
    """Wait for the whole namespace to be gone, and end as the tool has; as the first process where that was killed."""
    _, of_first = os.waitpid(first, 0)
    status = of_first or int.from_bytes(told[:], "big")
    if os.WIFSIGNALED(status):
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))  # the tool has left its own, if any
        with suppress(OSError):  # SIGKILL has no handler
            signal.signal(os.WTERMSIG(status), signal.SIG_DFL)
        os.kill(os.getpid(), os.WTERMSIG(status))
    os._exit(os.WEXITSTATUS(status))
