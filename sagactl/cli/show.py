"""`sagactl show RUN`: one run, and what it leaves behind."""

from __future__ import annotations

from typing import Annotated

import typer

from sagactl.cli.answer import write_document
from sagactl.cli.follow import make_scene
from sagactl.cli.options import Output, make_app
from sagactl.cli.session import open_session
from sagactl.cli.streams import answer_stream, write_line
from sagactl.cli.views.show import render_run
from sagactl.errors import ExitCode
from sagactl.usecases.documents import write_run
from sagactl.usecases.following import is_driven
from sagactl.usecases.select import select_run

app = make_app()


@app.command()
def show(
    context: typer.Context,
    run: Annotated[str, typer.Argument(metavar="RUN", help="A run: id, prefix, @latest, @latest:SAGA.")] = "@latest",
    printed: Annotated[bool, typer.Option("--printed", help="Also what its tools printed.")] = False,
) -> int:
    """Show one run: what is left behind, the first error, every step.

    Examples:
      sagactl show

      sagactl show 7kq2m9 -o json
    """
    with open_session(context) as session:
        log = session.app.log(read_only=True)
        row = select_run(log, run)
        known = session.app.read(row.run_id)
        saga, state = known.saga, known.state
        if session.output is not Output.TEXT:
            driver = row.holder if is_driven(row) else None
            write_document(write_run(saga, state, captured=log.captured(row.run_id), driver=driver))
            return ExitCode.OK
        captured = log.captured(row.run_id) if printed else None
        write_line(answer_stream(), render_run(make_scene(session, saga, state), captured=captured))
        return ExitCode.OK
