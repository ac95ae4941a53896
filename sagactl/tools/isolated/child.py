"""The interpreter of one isolated call, from its start to its reply: run as a script of its own.

The process ends as soon as the reply is written: no thread, handler or daemon that the tool left behind holds the
answer up. Whoever supervises ends what is still running then.
"""

from __future__ import annotations

import faulthandler
import io
import json
import os
import signal
import sys
import threading
from contextlib import suppress
from pathlib import Path
from typing import Any, NoReturn

LEVELS = 3
"""How many folders lie between this file and the one that the package is imported from."""

CANCELLED = threading.Event()
"""Set when the call shall end: what `context.cancelled` is."""


def main() -> NoReturn:
    """Answer the request that stands in the memory behind standard input, and end, whatever the tool has done."""
    code = 1
    try:
        _answer()
        code = 0
    except BaseException:
        sys.__excepthook__(*sys.exc_info())
    finally:
        _flush()
        os._exit(code)


def _answer() -> None:
    signal.signal(signal.SIGTERM, lambda *_: CANCELLED.set())
    from sagactl.tools.isolated.area import take_area

    area = take_area(0)
    request: dict[str, Any] = json.loads(area.request)
    if request["pid_namespace"]:
        from sagactl.tools.isolated.namespace import enter

        enter()
    _join_streams()
    _limit_memory(request["memory_bytes_max"])
    sys.path[:] = request["sys_path"]
    from sagactl.tools.isolated.answering import answer

    area.write_reply(answer(request, CANCELLED, area.note_entry))


def _flush() -> None:
    for stream in (sys.stdout, sys.stderr):
        with suppress(Exception):  # the tool may have put anything in their place
            stream.flush()


def _join_streams() -> None:
    """Let stdout and stderr be one, unbuffered, so that what is written is kept in the order it was written in."""
    os.dup2(1, 2)
    faulthandler.enable()
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(encoding="utf-8", errors="backslashreplace")


def _limit_memory(bytes_max: int | None) -> None:
    if bytes_max is not None:
        import resource

        resource.setrlimit(resource.RLIMIT_AS, (bytes_max, bytes_max))


if __name__ == "__main__":
    sys.path.insert(0, str(Path(__file__).absolute().parents[LEVELS]))
    main()
