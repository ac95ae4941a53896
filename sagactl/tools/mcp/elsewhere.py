"""A server that is started in a copy of its project's folder: what it writes there leaves the project alone."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Final

from sagactl.tools.mcp.settings import Server

SCRIPTS: Final = frozenset({".cjs", ".jar", ".js", ".mjs", ".php", ".pl", ".py", ".pyz", ".rb", ".sh", ".ts"})
"""What a word of a command ends with that is a program, and no file that it works on."""


def move_server(server: Server, project: Path, copy: Path) -> Server:
    """Return *server* as it starts in *copy* in place of *project*; one whose folder is outside stays where it is.

    Its program is found where it was, unless the copy has it too. A folder that the copy lacks is made.
    """
    place = (project / Path(server.cwd).expanduser()).resolve()
    if not server.command or not place.is_relative_to(project.resolve()):
        return server
    moved = copy / place.relative_to(project.resolve())
    with suppress(OSError):  # then it can't be started there, which is said by its call
        moved.mkdir(parents=True, exist_ok=True)
    return replace(server, command=_find_program(server.command, place, moved), cwd=str(moved))


def _find_program(command: tuple[str, ...], place: Path, moved: Path) -> tuple[str, ...]:
    """Return a command whose program, and the script that it is given, are found from elsewhere."""
    first, *rest = command
    words = [_find_file(first, place, moved) if "/" in first else first, *rest]
    script = next((at for at, word in enumerate(rest, 1) if Path(word).suffix in SCRIPTS), None)
    if script is not None:
        words[script] = _find_file(command[script], place, moved)
    return tuple(words)


def _find_file(word: str, place: Path, moved: Path) -> str:
    is_left_behind = not (moved / word).exists() and (place / word).is_file()
    return str(place / word) if is_left_behind else word
