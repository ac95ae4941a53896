"""`sagactl help TOPIC`: the long documentation, from the package itself."""

from __future__ import annotations

from collections.abc import Sequence
from importlib.resources import files
from typing import Annotated, Final

import typer

from sagactl.cli.options import Globals, Output, make_app
from sagactl.cli.streams import answer_stream, write_line
from sagactl.cli.views.spelling import spell
from sagactl.core.canonical import Json
from sagactl.errors import NotFoundError

TOPICS_SCHEMA: Final = "sagactl.topics/1"
TOPIC_SCHEMA: Final = "sagactl.topic/1"

app = make_app()


@app.command()
def help_topic(
    context: typer.Context,
    words: Annotated[
        list[str] | None,
        typer.Argument(metavar="TOPIC", help="The topic; without one, the list.", show_default=False),
    ] = None,
) -> None:
    """Read a topic of the documentation.

    Examples:
      sagactl help

      sagactl help semantics
    """
    is_text = context.ensure_object(Globals).output is Output.TEXT
    known = topics()
    topic = _read_topic(words or (), known)
    if topic is None:
        listed: Json = {"schema": TOPICS_SCHEMA, "items": [{"name": name} for name in known], "total": len(known)}
        lines = "\n".join(f"  sagactl help {name}" for name in known)
        write_line(answer_stream(), lines if is_text else spell(listed))
        return
    if topic not in known:
        from sagactl.cli.commands import COMMANDS

        is_command = topic.partition(" ")[0] in COMMANDS
        hint = f"sagactl {topic} --help" if is_command else f"topics: {', '.join(known)}"
        raise NotFoundError(f"no topic {topic}", code="no-such-topic", hint=hint)
    text = (files("sagactl") / "help" / f"{topic}.md").read_text(encoding="utf-8")
    document: Json = {"schema": TOPIC_SCHEMA, "topic": {"name": topic, "text": text}, "error": None}
    write_line(answer_stream(), text.rstrip() if is_text else spell(document))


def _read_topic(words: Sequence[str], known: Sequence[str]) -> str | None:
    """Return the topic that is meant; that of a command in a group is written with its words too: `tools check`."""
    joined = "-".join(words)
    return joined if joined in known else " ".join(words) or None


def topics() -> list[str]:
    """Return the names of all topics."""
    folder = files("sagactl") / "help"
    return sorted(entry.name.removesuffix(".md") for entry in folder.iterdir() if entry.name.endswith(".md"))
