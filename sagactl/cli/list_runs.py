"""`sagactl list`: runs, newest first."""

from __future__ import annotations

from dataclasses import replace
from typing import Annotated, Final

import typer

from sagactl.cli.ages import read_moment_ms
from sagactl.cli.answer import write_document
from sagactl.cli.options import Output, make_app
from sagactl.cli.session import Session, now_ms, open_session
from sagactl.cli.streams import answer_stream, write_line
from sagactl.cli.views.runs import render_runs
from sagactl.cli.views.spelling import spell
from sagactl.core.records import RunStatus
from sagactl.errors import ExitCode, UsageError
from sagactl.log.base import RunFilter, RunRow
from sagactl.log.holder import is_dead
from sagactl.usecases.select import short_ids

RUN_IDS_SCHEMA: Final = "sagactl.run-ids/1"

app = make_app()


@app.command("list")
def list_runs(
    context: typer.Context,
    saga: Annotated[str | None, typer.Option("--saga", help="Only runs of this saga.")] = None,
    status: Annotated[str | None, typer.Option("--status", help="Only these, separated by commas.")] = None,
    since: Annotated[str | None, typer.Option("--since", help="Started since: 2h, 3d, or a date.")] = None,
    until: Annotated[str | None, typer.Option("--until", help="Started before: 2h, 3d, or a date.")] = None,
    limit: Annotated[int, typer.Option("--limit", min=0, help="At most so many; 0 for all.")] = 20,
    ids: Annotated[bool, typer.Option("--ids", help="Only ids, one a line.")] = False,
) -> int:
    """List runs, newest first.

    Examples:
      sagactl list --status stuck,waiting

      sagactl list --saga onboarding --since 2h -o json
    """
    which = RunFilter(saga, _statuses(status), _read_moment(since), _read_moment(until), limit)
    with open_session(context) as session:
        runs = session.app.runs(which)
        _write(session, [_without_dead(row) for row in runs], runs.total, ids=ids)
        return ExitCode.OK


def _write(session: Session, rows: list[RunRow], total: int, *, ids: bool) -> None:
    if ids and session.output is Output.JSON:
        from sagactl.usecases.documents import write_list

        write_document(write_list(RUN_IDS_SCHEMA, [{"id": row.run_id} for row in rows], total))
    elif ids:
        for row in rows:
            write_line(answer_stream(), row.run_id if session.output is Output.TEXT else spell({"id": row.run_id}))
    elif session.output is Output.TEXT:
        shown = short_ids(session.app.log(read_only=True), [row.run_id for row in rows]) if rows else {}
        left = [row.run_id for row in rows if row.ended_at_ms is None and row.holder is None]
        text = render_runs(rows, total, short_ids=shown, now_ms=now_ms(), style=session.style, undriven=left)
        write_line(answer_stream(), text)
    elif session.output is Output.JSON:
        from sagactl.usecases.documents import write_runs

        write_document(write_runs(rows, total))
    else:
        from sagactl.usecases.documents import write_row

        for row in rows:
            write_document(write_row(row))


def _without_dead(row: RunRow) -> RunRow:
    """Return *row* without a driver where that process is known to be gone."""
    return replace(row, holder=None) if row.holder is not None and is_dead(row.holder) else row


def _statuses(text: str | None) -> tuple[RunStatus, ...]:
    names = [] if text is None else [name.strip() for name in text.split(",") if name.strip()]
    known = {status.value for status in RunStatus}
    for name in names:
        if name not in known:
            raise UsageError(f"no status {name!r}", code="bad-status", hint=f"known: {', '.join(sorted(known))}")
    return tuple(RunStatus(name) for name in names)


def _read_moment(text: str | None) -> int | None:
    return None if text is None else read_moment_ms(text)
