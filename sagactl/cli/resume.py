"""`sagactl resume RUN|--all`: carry on with what was interrupted."""

from __future__ import annotations

from dataclasses import replace
from typing import Annotated

import typer

from sagactl.app import guard_stdout
from sagactl.cli.answer import write_document
from sagactl.cli.follow import (
    code_of_ending,
    drive,
    tell_runner,
    worst_of,
    write_ending,
    write_logged_run,
)
from sagactl.cli.junit import Junit, JunitOption, junit_report
from sagactl.cli.options import Output, make_app
from sagactl.cli.select import select_run
from sagactl.cli.session import Session, open_session
from sagactl.cli.streams import answer_stream, write_line
from sagactl.cli.views.documents import RUNS_SCHEMA, write_list, write_run
from sagactl.cli.views.error import render_error
from sagactl.driving import Driver
from sagactl.engine.ending import Ending
from sagactl.errors import ExitCode, SagactlError, StorageError, UsageError
from sagactl.log.base import RunRow

app = make_app()


@app.command()
def resume(
    context: typer.Context,
    run: Annotated[str | None, typer.Argument(metavar="RUN", help="A run's id or a prefix of it.")] = None,
    everything: Annotated[bool, typer.Option("--all", help="Every run that is not at rest.")] = False,
    no_wait: Annotated[bool, typer.Option("--no-wait", help="Don't stay for timers; end with 12.")] = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only show what would be called next.")] = False,
    junit: JunitOption = None,
) -> int:
    """Carry on with a run that was interrupted, from its log.

    A run that is at rest is only reported: nothing is called.

    Examples:
      sagactl resume 7kq2m9

      sagactl resume 7kq2m9 --dry-run

      sagactl resume --all
    """
    guard_stdout()
    if everything == (run is not None):
        raise UsageError("resume takes a run or --all", hint="sagactl list")
    if dry_run and run is None:
        raise UsageError("--dry-run takes one run", hint="sagactl list")
    with open_session(context) as session:
        if dry_run and run is not None:
            from sagactl.cli.dry_run import show_foresight

            return show_foresight(session, select_run(session.app.log(read_only=True), run), None)
        with junit_report(session, junit) as report:
            if run is None:
                return _resume_all(session, report, waits=not no_wait)
            return _resume_one(session, select_run(session.app.log(), run, changes=True), report, waits=not no_wait)


def _resume_one(session: Session, row: RunRow, report: Junit, *, waits: bool) -> int:
    report.run_ids[row.run_id] = None
    driver = session.app.driver(replace(session.app.settings, waits_for_timers=waits))
    endings, follower, code = drive(session, driver, lambda: driver.resume(row.run_id))
    if row.run_id in follower.latest:
        write_ending(session, endings[row.run_id], follower.latest[row.run_id])
    else:
        write_logged_run(session, row)
    return code_of_ending(endings[row.run_id], code)


def _resume_all(session: Session, report: Junit, *, waits: bool) -> int:
    """Drive all that is unfinished; one bad run never keeps the others from going on (V6)."""
    driver = session.app.driver(replace(session.app.settings, waits_for_timers=waits))
    failed: list[ExitCode] = []

    def take_over() -> None:
        for run_id in session.app.log().unfinished():
            report.run_ids[run_id] = None
            _resume(session, driver, run_id, failed)

    endings, follower, code = drive(session, driver, take_over)
    if session.output is Output.TEXT:
        for run_id, ending in endings.items():
            if ending.error is not None:
                session.say(f"run {run_id} is left out")
                session.say(render_error(ending.error, session.progress_style))
                continue
            write_ending(session, ending, follower.latest[run_id])
        if not endings and not failed:
            write_line(answer_stream(), "nothing to resume")
    else:
        seen = [follower.latest[run_id] for run_id in endings]
        for each in seen:
            tell_runner(session, endings[each.run_id], each)
        write_document(write_list(RUNS_SCHEMA, [write_run(each.saga, each.state) for each in seen]))
    return worst_of([*failed, *_codes(endings, code)])


def _resume(session: Session, driver: Driver, run_id: str, failed: list[ExitCode]) -> None:
    try:
        driver.resume(run_id)
    except SagactlError as error:
        session.say(f"run {run_id} is left out")
        session.say(render_error(error, session.progress_style))
        if not isinstance(error, StorageError) or error.code == "damaged-log":
            failed.append(error.exit_code)
            return
        raise


def _codes(endings: dict[str, Ending], code: ExitCode | None) -> list[ExitCode]:
    return [code_of_ending(ending, code) for ending in endings.values()]
