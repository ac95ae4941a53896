"""A sign of life while a plugin takes long to import: the one wait of a command in which nothing else is seen."""

from __future__ import annotations

import os
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

from sagactl import workflow
from sagactl.cli.modes import Mode, choose_mode
from sagactl.cli.options import Globals
from sagactl.cli.streams import find_descriptor, supports_unicode, write_raw
from sagactl.cli.views.text import safe

PATIENCE_SECONDS: Final = 2.0
"""How long an import may take before it is told."""

_ERASE: Final = "\r\x1b[K"


class SlowImports:
    """Tells on stderr which plugin is being imported; on a terminal the line goes away with the import."""

    def __init__(self, settings: Globals) -> None:
        mode = choose_mode(settings, os.environ, is_terminal=sys.stderr.isatty())
        self._is_transient = mode is Mode.LIVE
        self._is_silent = mode is Mode.NONE
        self._is_unicode = supports_unicode(sys.stderr)
        self._descriptor = find_descriptor(sys.stderr)  # while a plugin is imported, sys.stderr is another one

    @contextmanager
    def watch(self, name: str) -> Iterator[None]:
        """Tell of the plugin *name* if the block takes longer than `PATIENCE_SECONDS`."""
        if self._is_silent:
            yield
            return
        told = threading.Event()
        timer = threading.Timer(PATIENCE_SECONDS, self._tell, [name, told])
        timer.daemon = True
        timer.start()
        try:
            yield
        finally:
            timer.cancel()
            timer.join()  # whatever it writes comes before what follows
            if self._is_transient and told.is_set():
                write_raw(self._descriptor, _ERASE)

    def _tell(self, name: str, told: threading.Event) -> None:
        told.set()
        text = f"loading plugin {safe(name, is_ascii=not self._is_unicode)} {'…' if self._is_unicode else '...'}"
        text = workflow.tame(text) if workflow.is_read() else text
        write_raw(self._descriptor, f"{_ERASE}{text}" if self._is_transient else f"{text}\n")
