"""How progress is shown: live, in plain lines, or not at all. A flag beats the environment, that beats the terminal."""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from typing import Final

from sagactl.cli.options import Globals
from sagactl.errors import InvalidError

VARIABLE: Final = "SAGACTL_PROGRESS"


class Mode(StrEnum):
    """How progress is shown on stderr."""

    LIVE = "live"
    PLAIN = "plain"
    NONE = "none"


def choose_mode(settings: Globals, environ: Mapping[str, str], *, is_terminal: bool) -> Mode:
    """Return the mode; nothing is animated without a terminal, whoever asks, as colour never implies animation."""
    if settings.quiet:
        return Mode.NONE
    if settings.verbose:
        return Mode.PLAIN
    wanted = Mode(settings.progress) if settings.progress else _from_environment(environ)
    if wanted is None:
        wanted = Mode.PLAIN if environ.get("CI") else Mode.LIVE
    can_animate = is_terminal and environ.get("TERM", "") not in {"", "dumb"}
    return Mode.PLAIN if wanted is Mode.LIVE and not can_animate else wanted


def _from_environment(environ: Mapping[str, str]) -> Mode | None:
    value = environ.get(VARIABLE)
    if not value:
        return None
    try:
        return Mode(value)
    except ValueError:
        known = ", ".join(Mode)
        raise InvalidError(
            f"{VARIABLE} is {value!r}, not one of {known}", code="invalid-config", hint="sagactl help output"
        ) from None
