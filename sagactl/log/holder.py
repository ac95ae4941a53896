"""Who this process is, and whether another one of this host is certainly dead (rule E15).

A process is told from all others by its host, its pid, and the moment it started; a pid alone is used again. The boot
id says whether the host was started anew since. Where the kernel doesn't tell (no `/proc`), the fields are empty and
less is certain. Containers that share a kernel share its boot id but not its pids, so the id of a pid namespace other
than the first stands behind the boot id: a pid of another namespace is never looked up in ours.

`is_dead` errs on one side only. Taking a living driver for a dead one would let two drive one run; taking a dead one
for living costs the wait until its lease has run out.
"""

from __future__ import annotations

import os
from functools import cache
from pathlib import Path
from typing import Final

from sagactl.core.records import Holder

_BOOT_ID: Final = Path("/proc/sys/kernel/random/boot_id")
_FIRST_NAMESPACE: Final = "pid:[4026531836]"
_START_FIELD: Final = 22
_ENDED_STATES: Final = frozenset({"Z", "X", "x"})


def this_process() -> Holder:
    """Return this process as the holder of leases."""
    return _describe(os.getpid())


@cache
def _describe(pid: int) -> Holder:
    stat = _read_stat(pid)
    return Holder(os.uname().nodename, pid, "" if stat is None else stat[1], read_boot_id())


def is_dead(holder: Holder) -> bool:
    """Tell whether *holder* is certainly dead; False where that can't be known."""
    if holder.host != os.uname().nodename:
        return False
    boot, own_boot = (each.partition("/")[0] for each in (holder.boot_id, read_boot_id()))
    if boot and own_boot and boot != own_boot:
        return True
    return is_of_this_host(holder) and not _is_alive(holder.pid, holder.started)


def is_of_this_host(holder: Holder) -> bool:
    """Tell whether the pid of *holder* means that process here too: same host, boot and pid namespace."""
    return holder.host == os.uname().nodename and holder.boot_id == read_boot_id()


def _is_alive(pid: int, started: str) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except (PermissionError, OverflowError):
        pass
    stat = _read_stat(pid)
    if stat is None or not started:
        return True
    state, started_now = stat
    if started_now != started:
        return False
    return state not in _ENDED_STATES or _count_threads(pid) > 1


def _read_stat(pid: int) -> tuple[str, str] | None:
    """Return state and start time of a process, in the kernel's words."""
    try:
        text = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return None
    # The second field is the program's name in parentheses and may hold anything, also blanks and parentheses.
    words = text.rpartition(")")[2].split()
    return words[0], words[_START_FIELD - 3]


def _count_threads(pid: int) -> int:
    try:
        return len(list(Path(f"/proc/{pid}/task").iterdir()))
    except OSError:
        return 0


@cache
def read_boot_id() -> str:
    """Return what tells this boot of the host, and a pid namespace other than the first, from others."""
    try:
        boot = _BOOT_ID.read_text(encoding="ascii").strip()
        namespace = str(Path("/proc/self/ns/pid").readlink())
    except OSError:
        return ""
    return boot if namespace == _FIRST_NAMESPACE else f"{boot}/{namespace}"
