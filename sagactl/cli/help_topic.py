"""`sagactl help TOPIC`: the long documentation, from the package itself."""

from __future__ import annotations

from importlib.resources import files
from typing import Annotated

import typer

from sagactl.cli.options import make_app
from sagactl.cli.streams import answer_stream, write_line
from sagactl.errors import NotFoundError

app = make_app()


@app.command()
def help_topic(
    topic: Annotated[str | None, typer.Argument(help="The topic; without one, the list.", show_default=False)] = None,
) -> None:
    """Read a topic of the documentation.

    Examples:
      sagactl help

      sagactl help semantics
    """
    known = topics()
    if topic is None:
        write_line(answer_stream(), "\n".join(f"  sagactl help {name}" for name in known))
        return
    if topic not in known:
        raise NotFoundError(f"no topic {topic}", code="no-such-topic", hint=f"topics: {', '.join(known)}")
    text = (files("sagactl") / "help" / f"{topic}.md").read_text(encoding="utf-8")
    write_line(answer_stream(), text.rstrip())


def topics() -> list[str]:
    """Return the names of all topics."""
    folder = files("sagactl") / "help"
    return sorted(entry.name.removesuffix(".md") for entry in folder.iterdir() if entry.name.endswith(".md"))
