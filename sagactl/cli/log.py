"""`sagactl log RUN`: the saga log, record by record."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Annotated

import typer

from sagactl.cli.answer import write_document
from sagactl.cli.options import Output, make_app
from sagactl.cli.session import Session, local_zone, open_session
from sagactl.cli.streams import answer_stream, write_line
from sagactl.cli.views.commands import type_resume
from sagactl.cli.views.log import (
    STEP_COLUMNS_MAX,
    LogFilter,
    follow_line,
    render_details,
    render_log,
    render_log_head,
)
from sagactl.cli.views.spelling import spell
from sagactl.cli.views.text import width_of
from sagactl.core.records import AT_REST
from sagactl.errors import ExitCode, NotFoundError, UsageError
from sagactl.log.base import RunRow, StoredRecord
from sagactl.usecases.documents import write_record, write_records
from sagactl.usecases.select import select_run, short_id

if TYPE_CHECKING:
    from sagactl.core.saga import Saga

ITEM_COLUMNS = 4
"""What `[12]` takes behind the name of a step with items."""

app = make_app()


@app.command()
def log(
    context: typer.Context,
    run: Annotated[str, typer.Argument(metavar="RUN", help="A run: id, prefix, @latest, @latest:SAGA.")] = "@latest",
    step: Annotated[str | None, typer.Option("--step", help="Only records of this step.")] = None,
    failed: Annotated[bool, typer.Option("--failed", help="Only what went wrong.")] = False,
    detail: Annotated[bool, typer.Option("--detail", help="Each record in full.")] = False,
    follow: Annotated[
        bool, typer.Option("-f", "--follow", help="Go on with each record as it becomes durable, to the run's end.")
    ] = False,
) -> int:
    """Show the saga log of a run.

    Examples:
      sagactl log

      sagactl log @latest --follow

      sagactl log 7kq2m9 --step deposit --detail

      sagactl log @latest:onboarding -o jsonl
    """
    with open_session(context) as session:
        row = select_run(session.app.log(read_only=True), run)
        if step is not None and step.partition("[")[0] not in session.app.saga_of(row).by_id:
            raise NotFoundError(f"saga {row.saga} has no step {step}", code="no-such-step")
        chosen = LogFilter(step, failed)
        if follow:
            return _follow(session, row, chosen, detail=detail)
        _show(session, row, chosen, detail=detail)
        return ExitCode.OK


def _show(session: Session, row: RunRow, chosen: LogFilter, *, detail: bool) -> None:
    """Write all records that there are now; the filter is for people, programs get them whole."""
    saga_log = session.app.log(read_only=True)
    records = list(saga_log.read(row.run_id))
    match session.output:
        case Output.TEXT:
            shown = short_id(saga_log, row.run_id)
            text = render_log(
                row, records, short_id=shown, tz=local_zone(), style=session.style, chosen=chosen, detail=detail
            )
            write_line(answer_stream(), text)
        case Output.JSONL:
            for stored in records:
                write_document(write_record(stored))
        case Output.JSON:
            write_document(write_records(records))


def _follow(session: Session, row: RunRow, chosen: LogFilter, *, detail: bool) -> int:
    """Write records as they become durable, until the run is over or nobody drives it."""
    from sagactl.usecases.following import follow_run

    if session.output is Output.JSON:
        raise UsageError("a log that is followed is no single JSON value", hint="sagactl log --follow -o jsonl")
    log, tz = session.app.log(read_only=True), local_zone()
    hint = type_resume(short_id(log, row.run_id))
    columns = _measure_steps(session.app.saga_of(row))
    if session.output is Output.TEXT:
        head = render_log_head(row, short_id=short_id(log, row.run_id), tz=tz, style=session.style)
        write_line(answer_stream(), f"{head}\n")
    write = _write_json if session.output is Output.JSONL else partial(_write_text, session, detail, columns)
    try:
        for look in follow_run(log, row.run_id):
            shown = look.records if session.output is Output.JSONL else chosen.choose(look.records)
            if not all(write(stored) for stored in shown):
                break  # whoever read the log has gone
            if not look.is_driven and look.row.status not in AT_REST:
                session.say(f"nobody drives this run: {hint}")
    except KeyboardInterrupt:
        return ExitCode.INTERRUPTED
    return ExitCode.OK


def _write_json(stored: StoredRecord) -> bool:
    return write_line(answer_stream(), spell(write_record(stored)))


def _write_text(session: Session, detail: bool, columns: int, stored: StoredRecord) -> bool:
    if detail:
        lines = render_details([stored], tz=local_zone(), style=session.style)
        return write_line(answer_stream(), "\n".join([*lines, ""]))
    return write_line(answer_stream(), follow_line(stored, tz=local_zone(), style=session.style, step_columns=columns))


def _measure_steps(saga: Saga) -> int:
    """Return how wide the column of steps is: lines that come one by one stand below each other."""
    widest = max(width_of(step.id) + (ITEM_COLUMNS if step.foreach is not None else 0) for step in saga.steps)
    return min(widest, STEP_COLUMNS_MAX)
