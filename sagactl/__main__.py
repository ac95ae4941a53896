"""The console script and `python -m sagactl`; answers `--version` before anything heavy is imported."""

from __future__ import annotations

import sys


def main() -> None:
    """Run the command line and end the process with its exit code."""
    if sys.argv[1:] == ["--version"]:
        from sagactl import __version__

        print(f"sagactl {__version__}")  # noqa: T201 - the answer
        return
    from sagactl.cli.main import run_command_line

    sys.exit(run_command_line(sys.argv[1:]))


if __name__ == "__main__":
    main()
