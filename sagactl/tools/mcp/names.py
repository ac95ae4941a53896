"""From the name that a server gives a tool to the one that sagas use.

`SERVER.TOOL`, in the grammar of the names of tools: capitals become small, with `_` before one that follows a small
letter or a digit (`createIssue` is `create_issue`); every other character that can't stand there becomes `_`; a part
that doesn't begin with a letter gets `t` in front. A dot stays where letters follow it.
"""

from __future__ import annotations

import re
from typing import Final

from sagactl.core.keys import TOOL_NAME

NOTE_NAME: Final = "mcp"
"""Under which the processes of servers are noted; no run has such an id."""

_HUMP: Final = re.compile(r"(?<=[a-z0-9])(?=[A-Z])")
_FOREIGN: Final = re.compile(r"[^a-z0-9_-]+", re.ASCII)


def name_tool(server: str, tool: str) -> str:
    """Return the name under which sagas call *tool* of *server*."""
    parts = [part for part in tool.split(".") if part] or [""]
    return ".".join([server, *map(_write_part, parts)])


def _write_part(part: str) -> str:
    plain = _FOREIGN.sub("_", _HUMP.sub("_", part).lower())
    return plain if plain[:1].isalpha() and plain[:1].isascii() else f"t{plain}"


def is_tool_name(name: str) -> bool:
    """Tell whether a saga can write it."""
    return TOOL_NAME.fullmatch(name) is not None
