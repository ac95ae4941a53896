"""`sagactl graph FILE`: the steps of a saga as a picture; nothing is called."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from sagactl.app import guard_stdout
from sagactl.cli.answer import write_document
from sagactl.cli.options import Output, make_app
from sagactl.cli.session import open_session
from sagactl.cli.streams import answer_stream, write_line
from sagactl.cli.views.graph import Format, draw, render_dot, render_graph, render_mermaid, write_graph
from sagactl.errors import ExitCode, UsageError

app = make_app()


@app.command()
def graph(
    context: typer.Context,
    file: Annotated[str, typer.Argument(metavar="FILE", help="A saga file, or the name of a saga in sagas/.")],
    form: Annotated[Format | None, typer.Option("--format", help="How the graph is written.")] = None,
) -> int:
    """Show the steps of a saga as a picture: which needs which, what undoes each, where the pivot is.

    Examples:
      sagactl graph onboarding

      sagactl graph onboarding --format mermaid

      sagactl graph onboarding --format dot > onboarding.dot
    """
    guard_stdout()
    path = Path(file) if Path(file).is_file() else None
    with open_session(context, path) as session:
        if form is not None and session.output is not Output.TEXT:
            raise UsageError(f"--format {form} is text: leave out -o {session.output}", hint=f"sagactl graph {file}")
        loaded = session.app.load_saga(session.app.find_saga(file))
        picture = draw(loaded.saga)
        if session.output is not Output.TEXT:
            write_document(write_graph(picture))
        elif form is Format.MERMAID:
            write_line(answer_stream(), render_mermaid(picture))
        elif form is Format.DOT:
            write_line(answer_stream(), render_dot(picture))
        else:
            write_line(answer_stream(), render_graph(picture, session.style))
        return ExitCode.OK
