"""What a plugin is: where it is found, what it gives once it is imported, or what is said of one that is broken."""

from __future__ import annotations

from typing import Final

from sagactl.dataclass import dataclass

PROGRAM: Final = "program"
"""The origin of what an embedding program has itself."""


@dataclass(frozen=True, slots=True)
class Home:
    """Where any interpreter finds a plugin: `folder` (place: its path), `entry_point` (its value) or `module`."""

    kind: str
    place: str
    name: str


@dataclass(frozen=True, slots=True)
class Plugin:
    """Something that offers tools, with its docstring; `loaded` is False where it isn't allowed, and never imported."""

    name: str
    origin: str
    file: str
    version: str
    loaded: bool = True
    tools: tuple[str, ...] = ()
    description: str = ""
    printed: str = ""
    home: Home | None = None
    """None where no other interpreter finds it."""


@dataclass(frozen=True, slots=True)
class BrokenPlugin:
    """A plugin, or a part of one, that can't be used; `tools` are those that can't be called because of it.

    `excerpt` shows all problems in the text of a file of declarations, each with a caret; `remedy` is the command that
    mends it, where one does. Line 0 is no line: what is wrong is said of the file as a whole.
    """

    name: str
    file: str
    line: int
    message: str
    tools: tuple[str, ...] = ()
    excerpt: str = ""
    remedy: str | None = None

    def __str__(self) -> str:
        return f"plugin {self.name} ({self.file}{f':{self.line}' if self.line else ''}): {self.message}"


@dataclass(frozen=True, slots=True)
class Loaded:
    """An imported plugin and the functions in it that carry declarations, in order."""

    plugin: Plugin
    functions: tuple[object, ...]
