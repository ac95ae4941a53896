"""`sagactl watch --all`: a table of all runs that are not at rest, for as long as there are any."""

from __future__ import annotations

import os
import sys
import time
from typing import Final, Self

from sagactl.cli.answer import write_document
from sagactl.cli.display import ROWS_KEPT_FREE
from sagactl.cli.modes import Mode, choose_mode
from sagactl.cli.options import Output
from sagactl.cli.session import Session, local_zone, now_ms
from sagactl.cli.streams import answer_stream, write_line
from sagactl.cli.views.live import STOPS_WATCHING, View
from sagactl.cli.views.live_runs import render_live_rows
from sagactl.cli.views.progress import render_change
from sagactl.cli.views.style import Style
from sagactl.core.records import RunStatus
from sagactl.errors import ExitCode, NotFoundError
from sagactl.log.base import Log, RunFilter, RunRow
from sagactl.usecases.documents import write_row, write_runs
from sagactl.usecases.following import is_driven
from sagactl.usecases.select import short_id

LOOK_SECONDS: Final = 0.5
ROWS_MAX: Final = 200
"""Runs that are looked at; of more the newest are, and the count tells of all."""

_UNFINISHED: Final = (RunStatus.RUNNING, RunStatus.WAITING, RunStatus.ROLLING_BACK)


class Table:
    """The rows as they were seen last, drawn on a terminal where progress is live."""

    def __init__(self, session: Session, log: Log) -> None:
        self._session = session
        self._log = log
        self.rows: list[RunRow] = []
        self.total = 0
        self._idle: frozenset[str] = frozenset()
        self._short_ids: dict[str, str] = {}
        self._style = session.progress_style
        self._screen = None
        mode = choose_mode(session.settings, os.environ, is_terminal=sys.stderr.isatty())
        self._is_silent = mode is Mode.NONE
        if mode is Mode.LIVE and not (session.output is Output.JSONL and answer_stream().isatty()):
            from sagactl.cli.screen import Screen

            self._screen = Screen(sys.stderr, self._draw, color=self._style.color, gap=False)

    def __enter__(self) -> Self:
        if self._screen is not None:
            self._screen.__enter__()
        return self

    def __exit__(self, *error: object) -> None:
        if self._screen is not None:
            self._screen.__exit__(*error)

    @property
    def is_anything_driven(self) -> bool:
        """Tell whether somebody drives one of the runs."""
        return len(self._idle) < len(self.rows)

    def look(self) -> list[RunRow]:
        """Read the rows anew and return those that have changed for somebody who reads lines: begun or at rest."""
        before = {row.run_id: row for row in self.rows}
        rows, self.total = self._log.rows(RunFilter(statuses=_UNFINISHED, limit=ROWS_MAX))
        for row in rows:
            if row.run_id not in self._short_ids:
                self._short_ids[row.run_id] = short_id(self._log, row.run_id)
        self._idle = frozenset(row.run_id for row in rows if not is_driven(row))
        self.rows = rows[::-1]
        now = {row.run_id for row in rows}
        gone = [self._log.row(run_id) for run_id in before if run_id not in now]
        return [row for row in self.rows if row.run_id not in before] + [
            row for row in gone if row.status not in _UNFINISHED
        ]

    def tell(self, row: RunRow) -> None:
        """Write a line about a run that began or came to rest; above the table, where there is one."""
        is_news = self._screen is None or row.status not in _UNFINISHED
        if is_news and not self._is_silent:
            shown = self._short_ids.get(row.run_id, row.run_id)
            write_line(sys.stderr, render_change(row, shown, now_ms(), local_zone(), self._style))
        if self._session.output is Output.JSONL:
            write_document(write_row(row))

    def _draw(self, size: os.terminal_size, is_last: bool) -> list[str]:
        style = Style(self._style.color, self._style.unicode, size.columns)
        view = View(now_ms(), style, size.lines - ROWS_KEPT_FREE, STOPS_WATCHING, is_last=is_last)
        if not self.rows and is_last:
            return []
        return render_live_rows(self.rows, self.total, view, short_ids=self._short_ids, idle=self._idle)


def watch_all(session: Session, *, patience_seconds: float) -> int:
    """Show the unfinished runs until none is left, or nobody has driven any of them for *patience_seconds*."""
    try:
        log = session.app.log(read_only=True)
    except NotFoundError:
        if session.app.config.origins["log"] != "default":
            raise
        return _end(session, [], 0)
    ended: list[RunRow] = []
    driven_at = time.monotonic()
    with Table(session, log) as table:
        while True:
            for row in table.look():
                table.tell(row)
                ended += [row] if row.status not in _UNFINISHED else []
            driven_at = time.monotonic() if table.is_anything_driven else driven_at
            if not table.rows or time.monotonic() - driven_at >= patience_seconds:
                break
            time.sleep(LOOK_SECONDS)
    return _end(session, ended, table.total)


def _end(session: Session, ended: list[RunRow], left: int) -> int:
    if session.output is Output.JSON:
        write_document(write_runs(ended, len(ended)))
    elif session.output is Output.TEXT and session.settings.quiet < 2:
        left_over = f"{left:,} not at rest, and nobody drives them: sagactl resume --all"
        write_line(answer_stream(), session.style.complete(left_over) if left else "no run goes on")
    return ExitCode.WAITING if left else ExitCode.OK
