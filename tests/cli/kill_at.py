"""Run `sagactl` in this process and kill it at a commit: `python kill_at.py before|after N ARGUMENTS…`.

The log is the real one; only its `append` and `create` are stood before, counted together, so that number N means the
same durable transaction in every run.
"""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Callable
from typing import Any

from sagactl.cli.main import run_command_line
from sagactl.log.sqlite import SqliteLog


def main() -> int:
    """Patch the log, then behave as the command line."""
    when, number = sys.argv[1], int(sys.argv[2])
    count = 0

    def stand_before(real: Callable[..., Any]) -> Callable[..., Any]:
        def write(*arguments: Any, **options: Any) -> Any:
            nonlocal count
            count += 1
            if when == "before" and count == number:
                os.kill(os.getpid(), signal.SIGKILL)
            result = real(*arguments, **options)
            if when == "after" and count == number:
                os.kill(os.getpid(), signal.SIGKILL)
            return result

        return write

    for name in ("create", "claim", "append", "release"):
        setattr(SqliteLog, name, stand_before(getattr(SqliteLog, name)))
    code = run_command_line(sys.argv[3:])
    sys.stderr.write(f"commits {count}\n")
    return code


if __name__ == "__main__":
    sys.exit(main())
