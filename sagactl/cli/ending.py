"""How a command ends that has made folders and processes for the time of its work."""

from __future__ import annotations

import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import NoReturn

from sagactl.errors import ExitCode


@contextmanager
def ending_cleanly() -> Iterator[None]:
    """Let SIGTERM end processes and folders as Ctrl-C does."""

    def leave(*_: object) -> NoReturn:
        sys.exit(ExitCode.TERMINATED_BY_SIGNAL)

    before = signal.signal(signal.SIGTERM, leave)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)
