"""`sagactl log RUN`: the saga log, record by record."""

from __future__ import annotations

from typing import Annotated

import typer

from sagactl.cli.follow import write_document
from sagactl.cli.options import Output, make_app
from sagactl.cli.select import select_run, short_id
from sagactl.cli.session import local_zone, open_session
from sagactl.cli.streams import answer_stream, write_line
from sagactl.cli.views.documents import write_record, write_records
from sagactl.cli.views.log import LogFilter, render_log
from sagactl.errors import ExitCode, NotFoundError

app = make_app()


@app.command()
def log(
    context: typer.Context,
    run: Annotated[str, typer.Argument(metavar="RUN", help="A run: id, prefix, @latest, @latest:SAGA.")] = "@latest",
    step: Annotated[str | None, typer.Option("--step", help="Only records of this step.")] = None,
    failed: Annotated[bool, typer.Option("--failed", help="Only what went wrong.")] = False,
    detail: Annotated[bool, typer.Option("--detail", help="Each record in full.")] = False,
) -> int:
    """Show the saga log of a run.

    Examples:
      sagactl log

      sagactl log 7kq2m9 --step deposit --detail

      sagactl log @latest:onboarding -o jsonl
    """
    with open_session(context) as session:
        saga_log = session.app.log(read_only=True)
        row = select_run(saga_log, run)
        if step is not None and step.partition("[")[0] not in session.app.saga_of(row).by_id:
            raise NotFoundError(f"saga {row.saga} has no step {step}", code="no-such-step")
        records = list(saga_log.read(row.run_id))
        match session.output:
            case Output.TEXT:
                shown = short_id(saga_log, row.run_id)
                chosen = LogFilter(step, failed)
                text = render_log(
                    row, records, short_id=shown, tz=local_zone(), style=session.style, chosen=chosen, detail=detail
                )
                write_line(answer_stream(), text)
            case Output.JSONL:
                for stored in records:
                    write_document(write_record(stored))
            case Output.JSON:
                write_document(write_records(records))
        return ExitCode.OK
