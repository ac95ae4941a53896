"""Driving runs before somebody's eyes: progress on stderr, the answer on stdout, the exit code."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable
from itertools import islice
from typing import Final

from sagactl.cli.answer import complete_hints, write_document
from sagactl.cli.display import Display, make_display
from sagactl.cli.options import Output
from sagactl.cli.session import Session, local_zone, now_ms
from sagactl.cli.signals import Signals
from sagactl.cli.streams import answer_stream, write_line
from sagactl.cli.views.commands import type_resume, type_rollback
from sagactl.cli.views.error import render_error
from sagactl.cli.views.report import render_recorded, render_report
from sagactl.cli.views.scene import Scene
from sagactl.cli.views.spelling import spell
from sagactl.core.records import Cause, Holder, Request, RunStatus
from sagactl.core.saga import Saga
from sagactl.core.state import RunState
from sagactl.core.summary import summarize
from sagactl.driving.driver import Driver
from sagactl.engine.ending import Ending, Why
from sagactl.engine.settings import Committed
from sagactl.errors import ExitCode, LeaseLostError
from sagactl.log.base import RunRow
from sagactl.log.holder import is_of_this_host
from sagactl.usecases.documents import write_record, write_run
from sagactl.usecases.errors import write_error
from sagactl.usecases.following import is_driven
from sagactl.usecases.select import short_id

_CODES: Final = {
    RunStatus.SUCCEEDED: ExitCode.OK,
    RunStatus.ROLLED_BACK: ExitCode.ROLLED_BACK,
    RunStatus.STUCK: ExitCode.STUCK,
    RunStatus.TERMINATED: ExitCode.TERMINATED,
}
_WORST_FIRST: Final = (
    ExitCode.STUCK,
    ExitCode.TERMINATED,
    ExitCode.ROLLED_BACK,
    ExitCode.WAITING,
    ExitCode.OK,
)


def code_of_status(status: RunStatus) -> ExitCode:
    """Return the exit code that tells where a run stands."""
    return _CODES.get(status, ExitCode.WAITING)


def worst_of(codes: Iterable[ExitCode]) -> ExitCode:
    """Return the worst of several runs' codes; other troubles outrank them all."""
    found = set(codes)
    others = sorted(found - set(_WORST_FIRST))
    return others[0] if others else next((code for code in _WORST_FIRST if code in found), ExitCode.OK)


class Follower:
    """Listens to a driver: hands on what is shown, and keeps the latest state of each run for the report.

    *leave* is called when nothing goes on but calls that can't be ended: only the end of the process ends them.
    """

    def __init__(self, session: Session, display: Display, *, leave: Callable[[], None] | None = None) -> None:
        self._session = session
        self._display = display
        self._leave = leave
        self.latest: dict[str, Committed] = {}

    def __call__(self, committed: Committed) -> None:
        """Take in what has become durable."""
        self.latest[committed.run_id] = committed
        if self._session.output is Output.JSONL:
            log = self._session.app.log()
            stored_records = log.read(committed.run_id, after_seq=committed.first_seq - 1)
            for stored in islice(
                stored_records, len(committed.records)
            ):  # more may be there by now: told in their turn
                write_line(answer_stream(), spell(write_record(stored)))
        self._display.show(committed)
        if self._leave is not None and _only_hang(self.latest.values()):
            self._leave()

    def list_hints(self) -> list[str]:
        """Return the commands that carry on with what is unfinished, or undo it."""
        latest = list(self.latest.values())  # at once: another thread may turn the loop meanwhile
        open_runs = [each for each in latest if each.state.ended is None and each.state.stuck is None]
        hints = ["sagactl resume --all"]
        if len(open_runs) == 1:
            run_id = open_runs[0].run_id
            hints = [type_resume(run_id), *type_rollback(open_runs[0].state, run_id)]
        return [self._session.progress_style.complete(hint) for hint in hints]


def drive(
    session: Session, driver: Driver, take_over: Callable[[], None], *, only_record: bool = False, waits: bool = True
) -> tuple[dict[str, Ending], Follower, ExitCode | None]:
    """Take runs over, drive them, and return how they ended, what was seen, and the signal's code if one came.

    Who doesn't wait for what only time, or nobody, can end leaves as after a signal when nothing else goes on.
    """
    grace_ms = session.app.settings.grace_ms
    # Who only records something doesn't carry the run on: there is no progress to be shown.
    settings = session.settings.without_progress() if only_record else session.settings
    display = make_display(settings, grace_ms=grace_ms)
    follower = Follower(session, display, leave=None if waits else driver.interrupt)
    driver.subscribe(follower)
    if not only_record:
        session.warn_of_room()
        session.warn_of_lost_log()
    with display, Signals(driver, display, hints=follower.list_hints, grace_ms=grace_ms) as signals:
        take_over()
        endings = driver.drive(only_record=only_record)
    broken = [ending.error for ending in endings.values() if ending.error is not None]
    if broken and len(endings) == 1:
        raise broken[0]
    return endings, follower, signals.exit_code


def _only_hang(latest: Iterable[Committed]) -> bool:
    """Tell whether a call can't be ended, and every run has ended or waits."""
    summaries = [summarize(each.saga, each.state) for each in latest]
    hang = any(each.cause is Cause.CANNOT_END for each in summaries)
    return hang and all(each.is_at_rest or each.waiting_for is not None for each in summaries)


def code_of_ending(ending: Ending, signal_code: ExitCode | None) -> ExitCode:
    """Return what `run` and `resume` end with."""
    match ending.why:
        case Why.INTERRUPTED if signal_code is not None:
            return signal_code
        case Why.LEASE_LOST:
            return ExitCode.BUSY
        case Why.BROKEN:
            return ExitCode.ERROR
        case _:
            return code_of_status(ending.summary.status)


def write_ending(session: Session, ending: Ending, last: Committed, *, driver: Holder | None = None) -> None:
    """Write the answer: the report, or the run as a document; and tell a runner of CI.

    *driver* is the other process that drives the run, where one does.
    """
    tell_runner(session, ending, last)
    if session.output is Output.TEXT:
        if session.settings.quiet < 2:
            write_line(answer_stream(), render_report(make_scene(session, last.saga, last.state), ending))
        return
    if ending.why is Why.LEASE_LOST:
        _write_loss(session, last)
        return
    write_document(write_run(last.saga, last.state, driver=driver))


def _write_loss(session: Session, last: Committed) -> None:
    """Tell people why it ends, and programs both: the run as it was let go of, and the error that ended it."""
    error = LeaseLostError(f"run {last.run_id}: another driver took it over", hint=f"sagactl show {last.run_id}")
    complete_hints(error, session.settings)
    session.say(render_error(error, session.progress_style))
    document = write_run(last.saga, last.state, driver=session.app.row(last.run_id).holder)
    write_document({**document, "error": write_error(error)["error"]})


def write_recorded(session: Session, ending: Ending, last: Committed, request: Request) -> None:
    """Write the answer where *request* was recorded, and the run not carried on."""
    tell_runner(session, ending, last)
    if session.output is not Output.TEXT:
        write_document(write_run(last.saga, last.state))
    elif session.settings.quiet < 2:
        scene = make_scene(session, last.saga, last.state)
        write_line(answer_stream(), render_recorded(scene, request))


def tell_runner(session: Session, ending: Ending, last: Committed) -> None:
    """Tell a runner of CI, where there is one, what became of a run."""
    if "GITHUB_ACTIONS" in os.environ:
        from sagactl.cli.ci_run import tell_run

        tell_run(session, ending, last)


def make_scene(session: Session, saga: Saga, state: RunState) -> Scene:
    """Return a run as the views take it."""
    log = session.app.log(read_only=True)
    shown, row = short_id(log, state.run_id), log.row(state.run_id)
    return Scene(
        saga,
        state,
        shown,
        now_ms(),
        local_zone(),
        session.style,
        holder=row.holder,
        is_driven=is_driven(row),
        is_here=row.holder is not None and is_of_this_host(row.holder),
    )


def write_logged_run(session: Session, row: RunRow) -> None:
    """Write the answer for a run that is not driven here: what its log says."""
    known, now = session.app.read(row.run_id), session.app.row(row.run_id)
    driver = now.holder if is_driven(now) else None
    write_ending(session, Ending(row.run_id, known.summary, Why.AT_REST), known, driver=driver)
