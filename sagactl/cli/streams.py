"""Where output goes: the answer alone to stdout, everything else to stderr."""

from __future__ import annotations

import sys
from typing import IO


def answer_stream() -> IO[str]:
    """Return where the answer is written."""
    return sys.stdout


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
