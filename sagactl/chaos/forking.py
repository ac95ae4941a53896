"""Forking a process that has loaded everything, so that no signal finds the child before it has handlers of its own."""

from __future__ import annotations

import os
import signal
import sys
import warnings
from collections.abc import Callable, Iterable
from typing import Final, NoReturn

ENDING: Final = (signal.SIGINT, signal.SIGTERM)
"""Signals that end a process, and that a child is safe from until it lets them in."""

FAILED_EXIT_CODE: Final = 70


def fork_masked(be_child: Callable[[Iterable[int]], NoReturn]) -> int:
    """Return the pid of a child, which does *be_child* and never returns; it is given the mask to put back."""
    sys.stdout.flush()
    sys.stderr.flush()
    # A signal between here and the child's own handlers would let it go on as if it were the parent.
    mask = signal.pthread_sigmask(signal.SIG_BLOCK, ENDING)
    try:
        with warnings.catch_warnings():  # of threads that a plugin may have begun when it was loaded
            warnings.simplefilter("ignore", DeprecationWarning)
            pid = os.fork()
        if pid == 0:
            be_child(mask)
        return pid
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, mask)
