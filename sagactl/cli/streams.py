"""Where output goes: the answer alone to stdout, everything else to stderr."""

from __future__ import annotations

import contextlib
import errno
import os
import sys
from typing import IO

_lost: list[OSError] = []


def answer_stream() -> IO[str]:
    """Return where the answer is written."""
    return sys.stdout


def write_line(stream: IO[str], text: str, *, is_command: bool = False) -> bool:
    """Write *text* and a line end, and tell whether somebody may still read them.

    Where a runner of CI reads, nothing is a command to it but what *is_command*. Characters that the stream can't hold
    are escaped. A reader that has gone away, or a full disk behind the stream, is no failure of a run: what it would
    have been told goes nowhere from then on, and an answer that is lost so is told at the end (`lost_answer`).
    """
    encoding = getattr(stream, "encoding", None) or "utf-8"
    if not is_command and "GITHUB_ACTIONS" in os.environ:
        from sagactl import workflow

        text = workflow.tame(text) if workflow.is_read() else text
    try:
        stream.write(text.encode(encoding, "backslashreplace").decode(encoding) + "\n")
        stream.flush()
    except OSError as error:
        note_lost(stream, error)
        silence(stream)
        return False
    return True


def note_lost(stream: IO[str], error: OSError) -> None:
    """Note that what was written to *stream* is lost, if it was the answer and somebody might still have read it."""
    if stream is answer_stream() and error.errno != errno.EPIPE:
        _lost.append(error)


def lost_answer() -> OSError | None:
    """Return why the answer could not be written; None where it was, or where its reader had gone away."""
    return _lost[0] if _lost else None


def silence(stream: IO[str]) -> None:
    """Let what is written to *stream* from now on, and what it still holds, go nowhere."""
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, stream.fileno())
    os.close(nowhere)


def supports_unicode(stream: IO[str]) -> bool:
    """Tell whether the symbols of our views can be written to *stream*."""
    try:
        "\u2713\u21ba\u2026".encode(getattr(stream, "encoding", None) or "ascii")
    except (UnicodeEncodeError, LookupError):
        return False
    return True


def find_descriptor(stream: IO[str]) -> int:
    """Return the descriptor behind *stream*, which isn't 2 where 2 is kept from tools; 2 where there is none."""
    try:
        return stream.fileno()
    except (OSError, ValueError, AttributeError):
        return 2


def write_raw(descriptor: int, text: str) -> None:
    """Write *text* past all streams: safe in a signal handler, where a stream may be in the middle of a write."""
    # A stderr that has gone away is no reason to break off what the signal interrupted.
    with contextlib.suppress(OSError):
        os.write(descriptor, text.encode("utf-8", "replace"))
