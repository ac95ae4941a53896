"""What a check comes to."""

from __future__ import annotations

from enum import StrEnum

from sagactl.dataclass import dataclass


class Level(StrEnum):
    """How bad it is: a warning doesn't keep runs from going on, a failure does."""

    OK = "ok"
    WARN = "warn"
    FAIL = "fail"


@dataclass(frozen=True, slots=True)
class Check:
    """One line of the report; `hint` is a command, or a sentence where no command helps."""

    name: str
    level: Level
    text: str
    hint: str | None = None
    blocks_log: bool = False
    """The log can't be read at all."""


def ok(name: str, text: str, hint: str | None = None) -> Check:
    """Return a check that found nothing wrong."""
    return Check(name, Level.OK, text, hint)


def warn(name: str, text: str, hint: str | None = None) -> Check:
    """Return a check that found something to look after."""
    return Check(name, Level.WARN, text, hint)


def fail(name: str, text: str, hint: str | None = None, *, blocks_log: bool = False) -> Check:
    """Return a check that found what keeps runs from going on."""
    return Check(name, Level.FAIL, text, hint, blocks_log)


def count(number: int, noun: str) -> str:
    """Return `1 run`, `3 runs`."""
    return f"{number:,} {noun if number == 1 else noun + 's'}"
