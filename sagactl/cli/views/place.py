"""Commands that are printed name the project and the log that were meant, so that they work where they were typed.

Whoever types `-C` or `--log`, or names a saga file of another project, is told `sagactl -C demo show 7kq2m9`. What
neither a project nor a log makes a difference to is told as it is.
"""

from __future__ import annotations

import re
from functools import cache
from typing import Final

from sagactl.cli.commands import COMMANDS

_ANYWHERE: Final = frozenset({"init", "completion", "help"})


def complete(text: str, place: str) -> str:
    """Return *text* with *place*, options as a shell reads them, in each command of ours that hasn't got them."""
    return _find_commands().sub(lambda found: f"{found[0]}{place} ", text) if place and "sagactl" in text else text


@cache
def _find_commands() -> re.Pattern[str]:
    names = "|".join(name for name in COMMANDS if name not in _ANYWHERE)
    return re.compile(rf"(?<![\w./-])sagactl (?=(?:{names})\b)(?!\S+(?: \S+)? --help\b)")
