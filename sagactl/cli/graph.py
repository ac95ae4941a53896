"""`sagactl graph FILE`: the steps of a saga, or of a run, as a picture; nothing is called."""

from __future__ import annotations

from typing import Annotated

import typer

from sagactl.app import guard_stdout
from sagactl.cli.answer import write_document
from sagactl.cli.options import Output, make_app
from sagactl.cli.session import Session, find_file, open_session
from sagactl.cli.streams import answer_stream, write_line
from sagactl.cli.views.graph import (
    Format,
    Picture,
    draw,
    draw_run,
    render_dot,
    render_graph,
    render_mermaid,
    write_graph,
)
from sagactl.errors import ExitCode, UsageError
from sagactl.usecases.select import select_run

app = make_app()


@app.command()
def graph(
    context: typer.Context,
    file: Annotated[
        str | None, typer.Argument(metavar="FILE", help="A saga file, or the name of a saga in sagas/.")
    ] = None,
    run: Annotated[
        str | None, typer.Option("--run", metavar="RUN", help="Instead: a run, with how each step stands.")
    ] = None,
    form: Annotated[Format | None, typer.Option("--format", help="How the graph is written.")] = None,
) -> int:
    """Show the steps of a saga as a picture: which needs which, what undoes each, where the pivot is.

    With --run it is the saga that the run is bound to, and each step has its status, in words and in colour.

    Examples:
      sagactl graph onboarding

      sagactl graph --run @latest

      sagactl graph onboarding --format mermaid

      sagactl graph onboarding --format dot > onboarding.dot
    """
    guard_stdout()
    if (file is None) == (run is None):
        raise UsageError("graph takes a saga file, or --run and a run", hint="sagactl graph --run @latest")
    path = find_file(file)
    with open_session(context, path) as session:
        if form is not None and session.output is not Output.TEXT:
            hint = f"sagactl graph {file or f'--run {run}'} -o json"
            raise UsageError(f"--format {form} is text: leave out -o {session.output}", hint=hint)
        picture = _draw(session, file, run)
        if session.output is not Output.TEXT:
            write_document(write_graph(picture))
        elif form is Format.MERMAID:
            write_line(answer_stream(), render_mermaid(picture))
        elif form is Format.DOT:
            write_line(answer_stream(), render_dot(picture))
        else:
            write_line(answer_stream(), render_graph(picture, session.style))
        return ExitCode.OK


def _draw(session: Session, file: str | None, run: str | None) -> Picture:
    if run is None:
        assert file is not None, "one of the two is given"
        return draw(session.app.load_saga(session.app.find_saga(file)).saga)
    found = session.app.read(select_run(session.app.log(read_only=True), run).run_id)
    return draw_run(found.saga, found.state)
