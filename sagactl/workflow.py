r"""The commands that a runner of GitHub Actions takes out of a step's output, and foreign text that must not be any.

The runner reads stdout and stderr alike, line by line. A line that begins with `::`, white space and what has no width
left aside, is a command; so is `##[` anywhere in it. Text that we didn't write ourselves is tamed: the first colon of
such a line becomes `\x3a`, the bracket `\u005b`, which is the same bracket where the text is JSON.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from typing import Final

OFF: Final = "off"
SWITCH: Final = "SAGACTL_CI"
"""The variable that, with the value `off`, leaves a runner without its commands and files."""

DATA_LENGTH_MAX: Final = 2_000
"""Characters of the message of one annotation."""

TITLE_LENGTH_MAX: Final = 200

_NO_WIDTH: Final = (
    r"[\s\x00-\x1f\x7f-\xa0\xad\u034f\u061c\u115f\u1160\u17b4\u17b5\u180b-\u180f\u200b-\u200f\u2028-\u202e"
    r"\u2060-\u206f\u3164\ufe00-\ufe0f\ufeff\uffa0\ufff0-\ufffb]"
)
# Compiled where they are used first: a start is to cost nothing of it.
_FIRST_COLON: Final = rf"(\A|[\r\n])({_NO_WIDTH}*):"
_BRACKET: Final = rf"(#{_NO_WIDTH}*#{_NO_WIDTH}*)\["
_BLANK_END: Final = rf"(?:\A|[\r\n]){_NO_WIDTH}*\Z"
_HASH_END: Final = rf"#{_NO_WIDTH}*(?:#{_NO_WIDTH}*)?\Z"
_TAIL_LENGTH_MAX: Final = 64


def is_listening(environ: Mapping[str, str] = os.environ) -> bool:
    """Tell whether a runner of GitHub Actions reads what is written here, and is to be spoken to."""
    return environ.get("GITHUB_ACTIONS") == "true" and environ.get(SWITCH, "").lower() != OFF


def is_read(environ: Mapping[str, str] = os.environ) -> bool:
    """Tell whether a runner would obey commands in what is written here, spoken to or not."""
    return environ.get("GITHUB_ACTIONS") == "true"


def make_command(name: str, data: str = "", **properties: str | int | None) -> str:
    """Return the line of a command, with its message and the properties that have a value."""
    given = ",".join(f"{key}={_escape_property(str(value))}" for key, value in properties.items() if value)
    return f"::{name}{' ' if given else ''}{given}::{_escape_data(_cut(data, DATA_LENGTH_MAX))}"


def _cut(text: str, length_max: int) -> str:
    return text if len(text) <= length_max else text[: length_max - 1] + "…"


def _escape_data(text: str) -> str:
    return text.replace("%", "%25").replace("\r", "%0D").replace("\n", "%0A")


def _escape_property(text: str) -> str:
    return _escape_data(_cut(text, TITLE_LENGTH_MAX)).replace(":", "%3A").replace(",", "%2C")


def tame(text: str) -> str:
    """Return *text*, which begins at the beginning of a line, with nothing in it that a runner would obey."""
    if ":" in text:
        text = re.sub(_FIRST_COLON, lambda found: f"{found[1]}{found[2]}\\x3a", text)
    return re.sub(_BRACKET, lambda found: f"{found[1]}\\u005b", text) if "[" in text else text


class Tamer:
    """Tames a text that comes in pieces; nothing is held back."""

    def __init__(self) -> None:
        self._tail = "\n"

    def feed(self, text: str) -> str:
        """Return the next piece, tamed for where it stands."""
        tail = self._tail
        self._tail = self._remember(tail + text)
        return tame(tail + text)[len(tail) :] if tail else _tame_within(text)

    @staticmethod
    def _remember(text: str) -> str:
        """Return what the next piece depends on: the beginning of a line, or hashes."""
        end = text[-_TAIL_LENGTH_MAX:]
        if re.search(_BLANK_END, end) or (not end.strip() and len(text) > len(end)):
            return "\n"
        found = re.search(_HASH_END, end)
        return f"x{found[0]}" if found else "x"


def _tame_within(text: str) -> str:
    return tame(f"x{text}")[1:]
