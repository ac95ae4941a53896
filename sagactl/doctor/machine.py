"""Checks of the machine: Python, SQLite, optional packages, the shell's completion."""

from __future__ import annotations

import os
import platform
import sqlite3
import sys
import time
from importlib.util import find_spec
from pathlib import Path
from typing import Final

from sagactl.doctor.check import Check, fail, ok, warn

PYTHON_MIN: Final = (3, 11)
SQLITE_SOUND: Final = ((3, 51, 3), (3, 50, 7), (3, 44, 6))
"""The releases that mended the race of a writer and a checkpoint, each for its own branch."""

EXTRAS: Final = {
    "cel": "cel_expr_python",
    "keyring": "keyring",
    "alerts": "apprise",
    "otel": "opentelemetry",
    "http": "httpx",
    "mcp": "mcp",
    "plugins": "stripe",
}
"""Optional packages, by the extra that installs them, and the module that each brings."""

YEAR_2025_SECONDS: Final = 1_735_689_600


def check_machine() -> list[Check]:
    """Look at what doesn't depend on a project."""
    return [_check_python(), _check_sqlite(sqlite3.sqlite_version_info), *_check_extras(), _check_shell(os.environ)]


def list_versions() -> dict[str, str]:
    """Return the versions that a report of a fault needs."""
    from sagactl import __version__

    return {
        "sagactl": __version__,
        "python": platform.python_version(),
        "sqlite": sqlite3.sqlite_version,
        "system": f"{platform.system()} {platform.release()} {platform.machine()}",
    }


def _check_python() -> Check:
    version = platform.python_version()
    if sys.version_info < PYTHON_MIN:
        return fail("python", f"{version}; sagactl needs 3.11 or newer", "install a newer Python")
    return ok("python", version)


def _check_sqlite(version: tuple[int, int, int]) -> Check:
    text = ".".join(map(str, version))
    is_sound = version >= SQLITE_SOUND[0] or any(version[:2] == each[:2] and version >= each for each in SQLITE_SOUND)
    if is_sound:
        return ok("sqlite", text)
    return ok("sqlite", f"{text}; its race of writers and checkpoints is kept out by the log's gate")


def _check_extras() -> list[Check]:
    missing = [extra for extra, module in EXTRAS.items() if find_spec(module) is None]
    there = [extra for extra in EXTRAS if extra not in missing]
    text = f"installed: {', '.join(there) or 'none'}" + (f"; not installed: {', '.join(missing)}" if missing else "")
    return [ok("extras", text, f"pip install 'sagactl[{','.join(missing)}]'" if missing else None)]


_COMPLETIONS: Final = {
    "bash": (".local/share/bash-completion/completions/sagactl", ".bashrc"),
    "zsh": (".zfunc/_sagactl", ".zshrc"),
    "fish": (".config/fish/completions/sagactl.fish",),
}


def _check_shell(environ: os._Environ[str]) -> Check:
    shell = Path(environ.get("SHELL", "")).name
    if shell not in _COMPLETIONS:
        return ok("completion", f"no completion for the shell {shell}" if shell else "no shell is set")
    home = Path(environ.get("HOME", "/"))
    if any(_mentions(home / place) for place in _COMPLETIONS[shell]):
        return ok("completion", f"installed for {shell}")
    return ok("completion", f"not found for {shell}", "sagactl help completion")


def _mentions(file: Path) -> bool:
    try:
        return b"sagactl" in file.read_bytes()
    except OSError:
        return False


def check_clock(newest_record_ms: int | None, *, now_ms: int | None = None) -> Check:
    """Compare the clock with the log: a record can't lie in the future."""
    now_ms = time.time_ns() // 1_000_000 if now_ms is None else now_ms
    if now_ms < YEAR_2025_SECONDS * 1000:
        return fail("clock", "the clock is years behind: deadlines would be far in the past", "set the clock")
    ahead_ms = 0 if newest_record_ms is None else newest_record_ms - now_ms
    if ahead_ms > 60_000:
        minutes = ahead_ms // 60_000
        text = f"the newest record lies {minutes:,} min in the future: the clock was turned back, timers wait longer"
        return warn("clock", text, "set the clock")
    return ok("clock", "agrees with the log" if newest_record_ms is not None else "plausible")
