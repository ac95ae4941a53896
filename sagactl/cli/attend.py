"""Showing a run that another process drives, from its log alone."""

from __future__ import annotations

from sagactl.cli.display import Display, make_display
from sagactl.cli.options import Output
from sagactl.cli.session import Session
from sagactl.cli.streams import answer_stream, write_line
from sagactl.cli.views.commands import type_resume
from sagactl.cli.views.spelling import spell
from sagactl.core.evolve import evolve
from sagactl.core.records import AT_REST, definition_in
from sagactl.core.state import RunState
from sagactl.core.summary import summarize
from sagactl.engine.settings import Committed
from sagactl.log.base import RunRow
from sagactl.usecases.documents import write_record
from sagactl.usecases.following import Look, follow_run
from sagactl.usecases.select import short_id


def attend(session: Session, row: RunRow, *, patience_seconds: float, writes_records: bool = False) -> Committed:
    """Show the run until it is over for whoever watches, and return its state; of one at rest nothing is shown.

    With *writes_records* and `-o jsonl` each record goes to stdout as it is read.
    """
    settings = session.settings if row.status not in AT_REST else session.settings.without_progress()
    written_seq = 0 if writes_records and session.output is Output.JSONL else None
    while True:
        with make_display(settings, is_watching=True) as display:
            seen, is_over = _look_on(session, display, row, patience_seconds, written_seq)
        if is_over:
            return seen
        session.say(f"run {row.run_id} goes on under another definition")
        row = session.app.log(read_only=True).row(row.run_id)
        written_seq = None if written_seq is None else seen.state.seq


def _look_on(
    session: Session, display: Display, row: RunRow, patience_seconds: float, written_seq: int | None
) -> tuple[Committed, bool]:
    """Show a run as long as it stays with the definition of *row*; return its state, and whether it is over.

    Records after *written_seq* are written, unless that is None.
    """
    log = session.app.log(read_only=True)
    saga, state = session.app.saga_of(row), RunState()
    hint = type_resume(short_id(log, row.run_id))
    for look in follow_run(log, row.run_id, patience_seconds=patience_seconds):
        first_seq = state.seq + 1
        if _is_rebound(look, row):
            return Committed(row.run_id, saga, state, first_seq, ()), False
        records = tuple(stored.record for stored in look.records)
        for record in records:
            evolve(saga, state, record)
        if records:
            display.show(Committed(row.run_id, saga, state, first_seq, records))
        if written_seq is not None and not _write_records(look, written_seq):
            break  # whoever read the records has gone
        is_left = not look.is_driven and not summarize(saga, state).is_at_rest
        display.note(f"nobody drives this run: {hint}" if is_left else "")
    return Committed(row.run_id, saga, state, state.seq + 1, ()), True


def _is_rebound(look: Look, row: RunRow) -> bool:
    """Tell whether the run is bound to another definition by now (E16): its log is read anew then, under that one."""
    found = [definition_in(stored.record) for stored in look.records]
    return next((each for each in reversed(found) if each is not None), row.definition) != row.definition


def _write_records(look: Look, written_seq: int) -> bool:
    new = (stored for stored in look.records if stored.seq > written_seq)
    return all(write_line(answer_stream(), spell(write_record(stored))) for stored in new)
