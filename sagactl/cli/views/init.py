"""`sagactl init`: what was made and what to type next."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from typing import Final

from sagactl.cli.views.layout import join_blocks, list_facts
from sagactl.cli.views.style import Hue, Style
from sagactl.cli.views.text import plural
from sagactl.core.canonical import Json
from sagactl.dataclass import dataclass

INIT_SCHEMA: Final = "sagactl.init/1"
EXAMPLES_SCHEMA: Final = "sagactl.examples/1"


@dataclass(frozen=True, slots=True)
class Example:
    """A project that `init` can make; `commands` show what it does, each with what comes of it."""

    name: str
    about: str
    commands: tuple[tuple[str, str], ...]


def render_made(folder: str, made: Sequence[str], example: Example, kept: Sequence[str], *, style: Style) -> str:
    """Return what was made, and the commands to type next, each with what comes of it."""
    enter = [] if folder == "." else [(f"cd {shlex.quote(folder)}", "")]
    lines = []
    for command, words in [*enter, *example.commands]:
        lines.append(f"  {style.paint(style.show(command), Hue.COMMAND)}")
        lines += [f"      {style.paint(words, Hue.DIM)}"] if words else []
    return join_blocks(
        [f"made {plural(len(made), 'file')} in {style.show(folder)}: {example.about}"],
        list_facts([("made", [style.show(name) for name in made]), ("kept", _list_kept(kept))], style),
        ["next:", *lines],
    )


def _list_kept(kept: Sequence[str]) -> list[str]:
    return [f"{name}, see that it has a line .sagactl/" for name in kept]


def render_examples(examples: Sequence[Example]) -> str:
    """Return the examples, one a line."""
    return "\n".join(f"  {each.name:10}{each.about}" for each in examples)


def write_made(folder: str, made: Sequence[str], example: Example, kept: Sequence[str]) -> dict[str, Json]:
    """Return the document of a project that was made."""
    body: Json = {
        "folder": folder,
        "example": example.name,
        "files": list(made),
        "kept": list(kept),
        "next": [command for command, _ in example.commands],
    }
    return {"schema": INIT_SCHEMA, "init": body, "error": None}


def write_examples(examples: Sequence[Example]) -> dict[str, Json]:
    """Return the document of the examples."""
    items: list[Json] = [{"name": each.name, "about": each.about} for each in examples]
    return {"schema": EXAMPLES_SCHEMA, "items": items, "total": len(items)}
