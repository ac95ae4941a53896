"""The console script and `python -m sagactl`; answers `--version` and shells before anything heavy is imported."""

from __future__ import annotations

import gc
import os
import sys
from typing import Final

COLLECT_AFTER: Final = 50_000
"""How many new containers make the interpreter look for garbage. With its own 700 it looks through all modules again
and again while they are imported, which is a tenth of a start; what a command makes stays within a few MiB of this."""


def open_missing_streams() -> None:
    """Put something under descriptors 0 to 2 where the caller closed them.

    Otherwise the next file that is opened takes the number, and whatever is written to stderr lands in the log.
    """
    for number, (name, mode) in enumerate((("stdin", "r"), ("stdout", "w"), ("stderr", "w"))):
        try:
            os.fstat(number)
        except OSError:
            os.open(os.devnull, os.O_RDWR)  # takes the lowest free number: this one
        if getattr(sys, name) is None:
            setattr(sys, name, os.fdopen(number, mode, encoding="utf-8", errors="backslashreplace", closefd=False))


def main() -> None:
    """Run the command line and end the process with its exit code."""
    gc.set_threshold(COLLECT_AFTER)
    open_missing_streams()
    if shell := os.environ.get("_SAGACTL_COMPLETE"):
        from sagactl.cli.complete import complete

        complete(shell, sys.argv[1:])
        return
    if sys.argv[1:] == ["--version"]:
        from sagactl import __version__

        print(f"sagactl {__version__}")  # noqa: T201 - the answer
        return
    try:
        from sagactl.cli.main import run_command_line

        code = run_command_line(sys.argv[1:])
        gc.disable()  # at its end the interpreter would look through all it has for garbage, a tenth of a short command
        sys.exit(code)
    except KeyboardInterrupt:
        sys.exit(130)  # before a command had begun: nothing was done, so nothing is to be said


if __name__ == "__main__":
    main()
