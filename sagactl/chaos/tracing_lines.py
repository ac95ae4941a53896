"""Which lines of a project's plugins a tool comes to, so that a process can die at each of them.

A line counts wherever it stands below the folder of the plugins, in a private module as in the tool's own file. What a
module does while it is imported doesn't: the import is over before an experiment begins.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from types import FrameType
from typing import Any, Final

from sagactl.dataclass import dataclass

_BODY: Final = "<module>"


@dataclass(frozen=True, slots=True)
class Sources:
    """The code whose lines count: the tool's own file, and all that is below the folder of the project's plugins."""

    file: str
    folder: str | None = None

    def name(self, file: str) -> str | None:
        """Return what a file is called in the name of an experiment, None where its lines don't count."""
        if self.folder is not None and file.startswith(f"{self.folder}/"):
            return file.removeprefix(f"{self.folder}/")
        return Path(file).name if file == self.file else None


@contextmanager
def watching_lines(sources: Sources | None, reached: Callable[[str], None]) -> Iterator[None]:
    """Tell *reached* of each line that counts, as `billing.py:58`, before this thread carries it out."""
    if sources is None:
        yield
        return
    name_file = cache(sources.name)
    importing = 0

    def trace_call(frame: FrameType, event: str, _: Any) -> Any:
        nonlocal importing
        if event != "call":
            return None
        if frame.f_code.co_name == _BODY:
            importing += 1
            frame.f_trace_lines = False
            return trace_import
        return trace_line if not importing and name_file(frame.f_code.co_filename) is not None else None

    def trace_import(_: FrameType, event: str, __: Any) -> Any:
        nonlocal importing
        if event == "return":
            importing -= 1
        return trace_import

    def trace_line(frame: FrameType, event: str, _: Any) -> Any:
        if event == "line":
            reached(f"{name_file(frame.f_code.co_filename)}:{frame.f_lineno}")
        return trace_line

    before = sys.gettrace()
    sys.settrace(trace_call)
    try:
        yield
    finally:
        sys.settrace(before)
