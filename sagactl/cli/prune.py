"""`sagactl prune`: delete old runs that have ended."""

from __future__ import annotations

import shlex
import sys
from typing import Annotated, Final

import typer

from sagactl.cli.ages import read_age_ms
from sagactl.cli.answer import write_document
from sagactl.cli.options import Output, make_app
from sagactl.cli.session import Session, now_ms, open_session
from sagactl.cli.streams import answer_stream, write_line
from sagactl.cli.views.prune import render_prunable, render_pruned, write_prunable, write_pruned
from sagactl.cli.views.style import Style
from sagactl.cli.views.text import plural
from sagactl.errors import ExitCode, NotFoundError, UsageError
from sagactl.log.base import PruneFilter, RunRow
from sagactl.usecases.select import short_ids

LISTED_MAX: Final = 1_000
"""Runs that a dry run names as JSON; the total counts all."""

SHOWN_MAX: Final = 20

app = make_app()


@app.command()
def prune(
    context: typer.Context,
    older_than: Annotated[
        str | None, typer.Option("--older-than", metavar="AGE", help="Only runs that ended so long ago: 30d, 12h.")
    ] = None,
    keep: Annotated[int | None, typer.Option("--keep", min=0, help="Keep the newest ended ones, so many.")] = None,
    saga: Annotated[str | None, typer.Option("--saga", help="Only runs of this saga; --keep counts those.")] = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only show what would be deleted.")] = False,
    yes: Annotated[bool, typer.Option("--yes", help="Don't ask.")] = False,
) -> int:
    """Delete old runs that have ended, with all their records, and give the space back.

    Unfinished and stuck runs are never deleted, nor those that somebody is undoing. Ids and keys of deleted runs stay
    taken: a second `run` with such a key is still the same run, and is told what became of it. Without --older-than
    the setting `retention` is taken, where there is one; with --keep both must hold.

    Examples:
      sagactl prune --older-than 30d --dry-run

      sagactl prune --older-than 30d --keep 100 --yes

      sagactl prune --saga onboarding --keep 1000 --yes -o json
    """
    with open_session(context) as session:
        older_than = session.app.config.retention if older_than is None else older_than
        if older_than is None and keep is None:
            message = "prune takes --older-than or --keep, and no `retention` is set"
            raise UsageError(message, hint="sagactl prune --older-than 30d --dry-run")
        which = PruneFilter(saga=saga, ended_until_ms=_read_until(older_than), keep=keep or 0, limit=LISTED_MAX)
        command = _spell_command(older_than, keep, saga)
        rows, total = _list_prunable(session, which)
        if dry_run:
            _show(session, rows, total, command)
            return ExitCode.OK
        if total and not yes:
            _confirm(session, rows, total, command)
        _prune(session, which, total)
        return ExitCode.OK


def _read_until(age: str | None) -> int | None:
    if age is None:
        return None
    age_ms = read_age_ms(age)
    if age_ms is None:
        raise UsageError(f"{age!r} is no age", code="bad-time", hint="sagactl prune --older-than 30d --dry-run")
    return now_ms() - age_ms


def _spell_command(older_than: str | None, keep: int | None, saga: str | None) -> str:
    """Return the command as it was given, to be typed with another option behind it."""
    given = (("--older-than", older_than), ("--keep", keep), ("--saga", saga))
    return shlex.join(
        ["sagactl", "prune", *(word for name, value in given if value is not None for word in (name, str(value)))]
    )


def _list_prunable(session: Session, which: PruneFilter) -> tuple[list[RunRow], int]:
    try:
        return session.app.log(read_only=True).prunable(which)
    except NotFoundError:
        if session.app.config.origins.get("log") != "default":
            raise
        return [], 0  # no log yet: nothing to delete


def _show(session: Session, rows: list[RunRow], total: int, command: str) -> None:
    if session.output is Output.TEXT:
        hints = [f"{command} --yes"] if total else []
        write_line(answer_stream(), _render(session, rows, total, session.style, hints))
    else:
        write_document(write_prunable(rows, total))


def _render(session: Session, rows: list[RunRow], total: int, style: Style, hints: list[str]) -> str:
    shown = rows[:SHOWN_MAX]
    short = short_ids(session.app.log(read_only=True), [row.run_id for row in shown]) if shown else {}
    return render_prunable(shown, total, short_ids=short, now_ms=now_ms(), style=style, hints=hints)


def _confirm(session: Session, rows: list[RunRow], total: int, command: str) -> None:
    """Ask before runs are deleted, with a list of them."""
    if session.settings.no_input or not (sys.stdin.isatty() and sys.stderr.isatty()):
        message = f"{plural(total, 'run')} would be deleted for good, and nobody can be asked; --dry-run shows them"
        raise UsageError(message, code="confirmation-needed", hint=f"{command} --yes")
    write_line(sys.stderr, _render(session, rows, total, session.progress_style, []))
    sys.stderr.write(f"delete {plural(total, 'run')} for good? [y/N] ")
    sys.stderr.flush()
    if sys.stdin.readline().strip().lower() not in {"y", "yes"}:
        raise UsageError("not confirmed: nothing was deleted", code="confirmation-needed", hint=f"{command} --yes")


def _prune(session: Session, which: PruneFilter, total: int) -> None:
    """Delete; where there is nothing to be deleted, no log is made for it."""
    pruned = session.app.prune(which) if total else None
    runs, records, given_back = (0, 0, 0) if pruned is None else (pruned.runs, pruned.records, pruned.bytes_given_back)
    if session.output is Output.TEXT:
        write_line(answer_stream(), render_pruned(runs, records, given_back, total, style=session.style))
    else:
        write_document(write_pruned(runs, records, given_back, total))
