"""Ending what tools have left running: processes that have outlived the process that they were started in.

A life takes in what its tools' own processes leave behind, and this process takes in what a life leaves behind (both
are subreapers, which Linux has). So whatever is a child of this process, and isn't a life, is such a stray.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Collection, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Final

from sagactl.tools.shell.spawner import call_prctl, list_below, read_stat, set_subreaper

ROUNDS_MAX: Final = 100
"""How often what fell to this process is looked for: each round ends at least one generation."""

_PR_SET_CHILD_SUBREAPER: Final = 36


@contextmanager
def taking_in_strays() -> Iterator[Collection[int]]:
    """Let what outlives a life fall to this process, and give the children that it had before."""
    set_subreaper()
    try:
        yield frozenset(pid for pid, parent in _read_parents().items() if parent == os.getpid())
    finally:
        call_prctl(_PR_SET_CHILD_SUBREAPER, 0)


def end_strays(own: Collection[int]) -> None:
    """End all children of this process but its *own*, with all below them, and wait until they are gone."""
    me = os.getpid()
    for _ in range(ROUNDS_MAX):
        parents = _read_parents()
        strays = [pid for pid, parent in parents.items() if parent == me and pid not in own]
        if not strays:
            return
        for stray in strays:
            for pid in (stray, *list_below(stray, parents)):
                with suppress(ProcessLookupError, PermissionError):
                    os.kill(pid, signal.SIGKILL)
        for stray in strays:
            with suppress(ChildProcessError):
                os.waitpid(stray, 0)


def _read_parents() -> dict[int, int]:
    """Map each process to its parent, those too that have ended and that nobody has waited for."""
    try:
        names = [path.name for path in Path("/proc").iterdir() if path.name.isdigit()]
    except OSError:
        return {}
    found = {int(name): read_stat(name) for name in names}
    return {pid: int(words[1]) for pid, words in found.items() if words}
