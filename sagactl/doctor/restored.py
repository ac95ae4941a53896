"""After a log was put back from a copy: accept it, and hold up every run that might do things a second time.

The copy knows nothing of what was done after it was made. Its unfinished runs would go on from there, and call again
what was called already: under the same keys, so a target that honours keys notices, and another one doesn't. So each of
them is paused, and a person who has looked at the targets lets it go on.

All or nothing: the copy is looked at and its runs are paused past the witnesses, which go on refusing it to every other
command; they are told to forget when all of that is durable, and last. Whatever breaks it off, a full disk or a kill,
leaves a log that is refused, and the same command does what is left.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Final

from sagactl.app import Project
from sagactl.core.records import RunStatus
from sagactl.errors import DamagedLogError, InvalidError, RefusedError, StorageError

if TYPE_CHECKING:
    from sagactl.log.base import Log

STUCK_MAX: Final = 1_000
"""Stuck runs that are named."""

REASON: Final = "the log is a copy that was put back"
PAUSED: Final = "paused"


def accept_restored(project: Project) -> list[str]:
    """Accept the log of *project* as it lies there, with its unfinished runs paused, and return their ids.

    Those that a call before this one has paused already are among them. Raises DamagedLogError where the copy isn't
    sound in itself, BusyError where a process still drives a run, StorageError; then it isn't accepted.
    """
    from sagactl.log.restored import accept_log

    if "://" in project.config.log:
        raise InvalidError("this release keeps logs in files", code="not-supported", hint="sagactl config")
    with replace(project, passes_witnesses=True) as restored:
        _check_sound(restored)
        paused = _pause_all(restored)
    accept_log(Path(project.config.log).expanduser())
    return paused


def foresee_pauses(project: Project) -> int:
    """Return how many runs `accept_restored` would pause although nothing speaks against the log; 0 where some does."""
    from sagactl.log.open import open_log

    try:
        log = open_log(project.config.log, read_only=True)
    except DamagedLogError:
        return 0  # a copy that is refused: what is to happen to its runs is what was asked for
    except StorageError as error:
        if error.code == "old-log":
            return 0  # nobody can look into it yet, and no other command may bring it up to date if it is refused
        raise
    try:
        return len(_list_going(log))
    finally:
        log.close()


def list_stuck(project: Project) -> list[str]:
    """Return the stuck runs, which can't be paused: nothing goes on in them until a person decides."""
    from sagactl.log.base import RunFilter

    rows, _ = project.log(read_only=True).rows(RunFilter(statuses=(RunStatus.STUCK,), limit=STUCK_MAX))
    return [row.run_id for row in rows]


def _list_going(log: Log) -> list[str]:
    return [run_id for run_id in log.unfinished() if log.row(run_id).waiting_for != PAUSED]


def _check_sound(project: Project) -> None:
    """Raise DamagedLogError where the log contradicts itself."""
    findings = project.log().verify().findings
    if findings:
        others = f" (and {len(findings) - 1:,} more)" if len(findings) > 1 else ""
        message = f"the log that was put back isn't sound, and isn't accepted: {findings[0].problem}{others}"
        raise DamagedLogError(message, hint="put another copy in its place, then: sagactl doctor --after-restore")


def _pause_all(project: Project) -> list[str]:
    """Pause each unfinished run, unless it is; return the ids of all that are paused then."""
    from sagactl.core.records import Verb
    from sagactl.requests import make_request

    log = project.log()
    if going := _list_going(log):
        with project.driver() as driver:
            for run_id in going:
                driver.ask(run_id, make_request(Verb.PAUSE, reason=REASON))
            driver.drive(only_record=True)
    left = _list_going(log)
    for run_id in left:
        _check_ending(project, run_id)
    return [run_id for run_id in log.unfinished() if run_id not in left]


def _check_ending(project: Project, run_id: str) -> None:
    """Raise RefusedError for a run that isn't paused and goes on; one that is being terminated begins nothing."""
    if not project.read(run_id).state.terminating:
        message = f"run {run_id} could not be paused, so the log isn't accepted"
        raise RefusedError(message, code="not-paused", hint=f"look at what the copy has of it: sagactl log {run_id}")
