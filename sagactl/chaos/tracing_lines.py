"""Which lines of its own file a tool comes to, so that a process can die at each of them."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import Any


@contextmanager
def watching_lines(file: str | None, reached: Callable[[str], None]) -> Iterator[None]:
    """Tell *reached* of each line of *file*, as `billing.py:58`, before this thread carries it out."""
    if file is None:
        yield
        return
    name = Path(file).name

    def trace_call(frame: FrameType, event: str, _: Any) -> Any:
        return trace_line if event == "call" and frame.f_code.co_filename == file else None

    def trace_line(frame: FrameType, event: str, _: Any) -> Any:
        if event == "line":
            reached(f"{name}:{frame.f_lineno}")
        return trace_line

    before = sys.gettrace()
    sys.settrace(trace_call)
    try:
        yield
    finally:
        sys.settrace(before)
