"""What a process has taken of memory at most: of its own, and not of the process that it was forked from."""

from __future__ import annotations

from pathlib import Path


def read_peak_mib() -> int:
    """Return the peak of this process's resident memory since its program began.

    `ru_maxrss` isn't this: it is handed on through `exec`, so a child of a large test process is large from the start.
    """
    status = Path("/proc/self/status").read_text(encoding="ascii")
    return int(status.partition("VmHWM:")[2].split()[0]) // 1024
