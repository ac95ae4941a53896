"""`sagactl resume RUN|--all`: carry on with what was interrupted."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Annotated

import typer

from sagactl.app import guard_stdout
from sagactl.cli.answer import write_document
from sagactl.cli.changed_file import tell_of_changed_file
from sagactl.cli.elsewhere import type_resume_there, warn_of_other_project
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
from sagactl.cli.session import Session, find_file, open_session
from sagactl.cli.streams import answer_stream, write_line
from sagactl.cli.views.error import render_error
from sagactl.cli.views.spelling import spell
from sagactl.core.records import AT_REST
from sagactl.driving.driver import Driver
from sagactl.engine.ending import Ending
from sagactl.errors import ExitCode, SagactlError, StorageError, UsageError
from sagactl.log.base import RunRow
from sagactl.other_projects import find_other_project
from sagactl.usecases.documents import RUNS_SCHEMA, write_list, write_run
from sagactl.usecases.select import select_run

app = make_app()


@app.command()
def resume(
    context: typer.Context,
    run: Annotated[str | None, typer.Argument(metavar="RUN", help="A run's id or a prefix of it.")] = None,
    everything: Annotated[bool, typer.Option("--all", help="Every run that is not at rest.")] = False,
    no_wait: Annotated[
        bool, typer.Option("--no-wait", help="Stay neither for timers nor for calls that hang; end with 12.")
    ] = False,
    definition: Annotated[
        str | None, typer.Option("--definition", metavar="FILE", help="Go on under this definition from now on.")
    ] = None,
    reason: Annotated[str | None, typer.Option("--reason", help="Why; recorded with --definition.")] = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only show what would change, or be called next.")] = False,
    junit: JunitOption = None,
) -> int:
    """Carry on with a run that was interrupted, from its log.

    A run that is at rest is only reported: nothing is called. A run keeps its definition; --definition binds one that
    isn't at its end to another, once all changes were shown. What has happened must fit: it is refused (6) where a step
    that was called would lose, or change, its tool, arguments, undo, class or place. `sagactl help semantics`, E16.

    Examples:
      sagactl resume 7kq2m9

      sagactl resume 7kq2m9 --dry-run

      sagactl resume --all

      sagactl resume 7kq2m9 --definition sagas/onboarding.yaml --dry-run
    """
    guard_stdout()
    _check_options(run, everything=everything, dry_run=dry_run, definition=definition, reason=reason)
    path = find_file(definition)
    with open_session(context, path) as session:
        if dry_run and run is not None:
            return _foresee(session, select_run(session.app.log(read_only=True), run), definition)
        with junit_report(session, junit) as report:
            if run is None:
                return _resume_all(session, report, waits=not no_wait)
            row = select_run(session.app.log(), run, changes=True)
            if definition is not None:
                from sagactl.cli.rebind import bind_run

                bind_run(session, row, definition, reason)
            elif row.status not in AT_REST:
                tell_of_changed_file(session, row)
            return _resume_one(session, row, report, waits=not no_wait)


def _check_options(
    run: str | None, *, everything: bool, dry_run: bool, definition: str | None, reason: str | None
) -> None:
    if everything == (run is not None):
        raise UsageError("resume takes a run or --all", hint="sagactl list")
    for name, is_given in (("--dry-run", dry_run), ("--definition", definition is not None)):
        if is_given and run is None:
            raise UsageError(f"{name} takes one run", hint="sagactl list")
    if reason is not None and definition is None:
        raise UsageError("--reason is for --definition", hint="sagactl resume --help")


def _foresee(session: Session, row: RunRow, definition: str | None) -> int:
    """Show what a resume would call, or what another definition would change; nothing is written."""
    if definition is not None:
        from sagactl.cli.rebind import show_binding

        return show_binding(session, row, definition)
    from sagactl.cli.dry_run import show_foresight

    return show_foresight(session, row, None)


def _resume_one(session: Session, row: RunRow, report: Junit, *, waits: bool) -> int:
    report.run_ids[row.run_id] = None
    warn_of_other_project(session, row.run_id)
    driver = session.app.driver(replace(session.app.settings, waits_for_timers=waits))
    endings, follower, code = drive(session, driver, lambda: driver.resume(row.run_id), waits=waits)
    if row.run_id in follower.latest:
        write_ending(session, endings[row.run_id], follower.latest[row.run_id])
    else:
        write_logged_run(session, row)
    return code_of_ending(endings[row.run_id], code)


def _resume_all(session: Session, report: Junit, *, waits: bool) -> int:
    """Drive all that is unfinished; one bad run never keeps the others from going on (V6)."""
    _check_there(session)
    driver = session.app.driver(replace(session.app.settings, waits_for_timers=waits))
    failed: list[ExitCode] = []

    def take_over() -> None:
        for run_id in session.app.log().unfinished():
            report.run_ids[run_id] = None
            _resume(session, driver, run_id, failed)

    endings, follower, code = drive(session, driver, take_over, waits=waits)
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


def _check_there(session: Session) -> None:
    """Raise NotFoundError where there is no log, though one was named or kept: its runs would be left lying."""
    config = session.app.config
    is_named = config.origins.get("log") != "default" and "://" not in config.log
    if session.app.tell_lost_log() is not None or (is_named and not Path(config.log).expanduser().exists()):
        session.app.log(read_only=True)


def _resume(session: Session, driver: Driver, run_id: str, failed: list[ExitCode]) -> None:
    try:
        project = find_other_project(session.app.log(), session.app.config.project, run_id)
        if project is not None:
            session.say(f"run {run_id} is left out: it is of the project {spell(project)}")
            session.say(f"hint: {type_resume_there(session, run_id, project)}")
            return
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
