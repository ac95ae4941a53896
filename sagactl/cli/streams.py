"""Where output goes: the answer alone to stdout, everything else to stderr.

A tool may write to file descriptor 1 behind Python's back: from C, from a child process, from a thread that it left
running. So before any tool is imported, `guard_stdout` keeps the real stdout under another number and points number 1
at stderr. The answer then goes to the kept one, and nothing else can.
"""

from __future__ import annotations

import io
import os
import sys
from typing import IO, TextIO

_kept: list[TextIO] = []


def guard_stdout() -> None:
    """Point descriptor 1 at stderr for the rest of the process; `answer_stream` still leads to the real stdout."""
    if _kept:
        return
    try:
        sys.stdout.flush()
        real = os.dup(sys.stdout.fileno())
        os.dup2(2, 1)
    except (OSError, ValueError, io.UnsupportedOperation):
        return  # stdout is closed or no file (a test's buffer): nothing to guard
    os.set_inheritable(real, False)
    _kept.append(os.fdopen(real, "w", encoding="utf-8", errors="backslashreplace", buffering=1))


def answer_stream() -> IO[str]:
    """Return where the answer is written."""
    return _kept[0] if _kept else sys.stdout


def write_line(stream: IO[str], text: str) -> None:
    """Write *text* and a line end; characters that the stream can't hold are escaped, never an error."""
    encoding = getattr(stream, "encoding", None) or "utf-8"
    stream.write(text.encode(encoding, "backslashreplace").decode(encoding) + "\n")
    stream.flush()


def supports_unicode(stream: IO[str]) -> bool:
    """Tell whether the symbols of our views can be written to *stream*."""
    try:
        "\u2713\u21ba\u2026".encode(getattr(stream, "encoding", None) or "ascii")
    except (UnicodeEncodeError, LookupError):
        return False
    return True
