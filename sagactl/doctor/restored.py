"""After a log was put back from a copy: accept it, and hold up every run that might do things a second time.

The copy knows nothing of what was done after it was made. Its unfinished runs would go on from there, and call again
what was called already: under the same keys, so a target that honours keys notices, and another one doesn't. So each of
them is paused, and a person who has looked at the targets lets it go on.
"""

from __future__ import annotations

from pathlib import Path
from typing import Final

from sagactl.app import Project
from sagactl.errors import DamagedLogError, InvalidError

REASON: Final = "the log is a copy that was put back"
PAUSED: Final = "paused"


def accept_restored(project: Project) -> list[str]:
    """Accept the log of *project* as it lies there, pause its unfinished runs, and return their ids.

    Raises DamagedLogError where the copy isn't sound in itself, BusyError where a process still drives a run.
    """
    from sagactl.core.records import Verb
    from sagactl.driving import make_request
    from sagactl.log.restored import accept_log

    if "://" in project.config.log:
        raise InvalidError("this release keeps logs in files", code="not-supported", hint="sagactl config")
    accept_log(Path(project.config.log).expanduser())
    log = project.log()
    if findings := log.verify().findings:
        message = f"the log that was put back isn't sound: {findings[0].problem}"
        raise DamagedLogError(message, hint="sagactl verify")
    held_up = [run_id for run_id in log.unfinished() if log.row(run_id).waiting_for != PAUSED]
    if held_up:
        with project.driver() as driver:
            for run_id in held_up:
                driver.ask(run_id, make_request(Verb.PAUSE, reason=REASON))
            driver.drive(only_record=True)
    return held_up
