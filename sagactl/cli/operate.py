"""Asking something of a run: write the request down, then have it answered (rule E22).

Where nobody drives the run, the command takes the lease and answers by the core's rules itself; where somebody does,
it waits for that driver's answer. Either way the request and what became of it are in the log, refusals included.
"""

from __future__ import annotations

import time
from contextlib import suppress
from typing import Final

from sagactl.cli.attend import attend
from sagactl.cli.elsewhere import warn_of_other_project
from sagactl.cli.follow import code_of_ending, code_of_status, drive, write_ending, write_logged_run, write_recorded
from sagactl.cli.session import Session
from sagactl.core.records import (
    Disposition,
    Request,
    RunStatus,
    Verb,
)
from sagactl.engine.ending import Why, make_refusal
from sagactl.errors import BusyError, ExitCode, RefusedError
from sagactl.log.base import RunRow
from sagactl.usecases.answers import wait_for_answer, would_refuse

ANSWER_SECONDS_MAX: Final = 10.0


def ask(session: Session, row: RunRow, request: Request, *, only_record: bool = False) -> int:
    """Ask *request* of a run and follow it to its end; returns the exit code, raises RefusedError.

    A request that is refused is recorded, and is no reason to carry on a run that nobody drives.
    """
    try:
        return _ask_here(session, row, request, only_record=only_record)
    except BusyError as busy:
        return _wait_for_driver(session, row, request, busy, only_record=only_record)


def _ask_here(session: Session, row: RunRow, request: Request, *, only_record: bool) -> int:
    """Take the run and answer by the core's rules; raises BusyError while another process has it."""
    only_record = only_record or would_refuse(session.app, row.run_id, request)
    if not only_record:
        warn_of_other_project(session, row.run_id)
    driver = session.app.driver()
    endings, follower, code = drive(session, driver, lambda: driver.ask(row.run_id, request), only_record=only_record)
    ending = endings[row.run_id]
    if only_record and code is None and ending.why is not Why.LEASE_LOST:
        write_recorded(session, ending, follower.latest[row.run_id], request)
        return ExitCode.OK
    _raise_if_too_late(row.run_id, request, code_of_ending(ending, code))
    write_ending(session, ending, follower.latest[row.run_id])
    return _code_for(request, code_of_ending(ending, code))


def _raise_if_too_late(run_id: str, request: Request, code: ExitCode) -> None:
    """A request that waited for the pivot's outcome is answered by it (E13): a run that succeeded was not undone."""
    if code is ExitCode.OK and request.verb in {Verb.ROLLBACK, Verb.CANCEL, Verb.TERMINATE}:
        message = f"run {run_id} succeeded before this could be done: its pivot was in doubt, and is passed"
        raise RefusedError(message, hint=f"sagactl show {run_id}")


def _code_for(request: Request, code: ExitCode) -> ExitCode:
    """A rollback, cancel or terminate that did what was asked is a success, whatever the run's own code is."""
    if request.verb is Verb.PAUSE and code in {ExitCode.WAITING, ExitCode.BUSY}:
        return ExitCode.OK
    wanted = {
        Verb.ROLLBACK: ExitCode.ROLLED_BACK,
        Verb.CANCEL: ExitCode.ROLLED_BACK,
        Verb.TERMINATE: ExitCode.TERMINATED,
    }
    return ExitCode.OK if wanted.get(request.verb) is code else code


def _wait_for_driver(session: Session, row: RunRow, request: Request, busy: BusyError, *, only_record: bool) -> int:
    """Wait for the answer of who drives the run; a driver that lets go of it before it answers is noticed."""
    log = session.app.log()
    session.say(f"run {row.run_id} is driven by another process: it is asked")
    until = time.monotonic() + ANSWER_SECONDS_MAX
    while (answer := wait_for_answer(log, row, request, busy, until=until)) is None:
        with suppress(BusyError):
            return _ask_here(session, row, request, only_record=only_record)
    if answer.disposition is Disposition.REFUSED:
        raise make_refusal(row.run_id, answer.detail)
    session.say(f"{request.verb} {answer.disposition}" + (f": {answer.detail}" if answer.detail else ""))
    if answer.disposition is Disposition.DEFERRED or request.verb is Verb.PAUSE:
        write_logged_run(session, log.row(row.run_id))  # it goes on: this is where it stands by now
        return ExitCode.WAITING if answer.disposition is Disposition.DEFERRED else ExitCode.OK
    return _wait_for_rest(session, row.run_id, request)


def wait_while_driven(session: Session, run_id: str) -> RunRow:
    """Show a run until it rests, or nobody drives it any more, and return its row."""
    attend(session, session.app.log().row(run_id), patience_seconds=0)
    return session.app.log().row(run_id)


def _wait_for_rest(session: Session, run_id: str, request: Request) -> int:
    row = wait_while_driven(session, run_id)
    code = code_of_status(RunStatus(row.status))
    _raise_if_too_late(run_id, request, code)
    write_logged_run(session, row)
    return _code_for(request, code)
