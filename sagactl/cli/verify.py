"""`sagactl verify`: recompute the hash chain of the log."""

from __future__ import annotations

from typing import Annotated

import typer

from sagactl.cli.answer import write_document
from sagactl.cli.options import Output, make_app
from sagactl.cli.select import select_run, short_ids
from sagactl.cli.session import open_session
from sagactl.cli.streams import answer_stream, write_line
from sagactl.cli.views.documents import write_verification
from sagactl.cli.views.verify import render_verification
from sagactl.errors import ExitCode

app = make_app()


@app.command()
def verify(
    context: typer.Context,
    run: Annotated[str | None, typer.Argument(metavar="RUN", help="One run; all by default.")] = None,
) -> int:
    """Recompute every hash and compare rows with records; exit 1 where anything is wrong.

    Examples:
      sagactl verify

      sagactl verify 7kq2m9 -o json
    """
    with open_session(context) as session:
        log = session.app.log(read_only=True)
        run_id = None if run is None else select_run(log, run).run_id
        found = log.verify(run_id)
        if session.output is Output.TEXT:
            shown = short_ids(log, [each.run_id for each in found.findings])
            text = render_verification(found, short_ids=shown, style=session.style)
            write_line(answer_stream(), text)
        else:
            write_document(write_verification(found))
        return ExitCode.ERROR if found.findings else ExitCode.OK
