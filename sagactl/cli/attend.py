"""Showing a run that another process drives, from its log alone."""

from __future__ import annotations

from sagactl.cli.display import make_display
from sagactl.cli.options import Output
from sagactl.cli.select import short_id
from sagactl.cli.session import Session
from sagactl.cli.streams import answer_stream, write_line
from sagactl.cli.tail import Look, follow_run
from sagactl.cli.views.commands import type_resume
from sagactl.cli.views.documents import write_record
from sagactl.cli.views.spelling import spell
from sagactl.core.evolve import evolve
from sagactl.core.records import AT_REST
from sagactl.core.state import RunState
from sagactl.core.summary import summarize
from sagactl.engine.settings import Committed
from sagactl.log.base import RunRow


def attend(session: Session, row: RunRow, *, patience_seconds: float, writes_records: bool = False) -> Committed:
    """Show the run until it is over for whoever watches, and return its state; of one at rest nothing is shown.

    With *writes_records* and `-o jsonl` each record goes to stdout as it is read.
    """
    log = session.app.log(read_only=True)
    saga, state = session.app.saga_of(row), RunState()
    hint = type_resume(short_id(log, row.run_id))
    settings = session.settings if row.status not in AT_REST else session.settings.without_progress()
    with make_display(settings, is_watching=True) as display:
        for look in follow_run(log, row.run_id, patience_seconds=patience_seconds):
            first_seq = state.seq + 1
            records = tuple(stored.record for stored in look.records)
            for record in records:
                evolve(saga, state, record)
            if records:
                display.show(Committed(row.run_id, saga, state, first_seq, records))
            if writes_records and session.output is Output.JSONL and not _write_records(look):
                break  # whoever read the records has gone
            is_left = not look.is_driven and not summarize(saga, state).is_at_rest
            display.note(f"nobody drives this run: {hint}" if is_left else "")
    return Committed(row.run_id, saga, state, state.seq + 1, ())


def _write_records(look: Look) -> bool:
    return all(write_line(answer_stream(), spell(write_record(stored))) for stored in look.records)
