"""Loading a saga file for a command that is to run it."""

from __future__ import annotations

import os

from sagactl.cli.session import Session
from sagactl.core.saga import Saga


def load_to_run(session: Session, file: str) -> Saga:
    """Return the saga that FILE means, checked; says how many warnings it has, and what is odd about its secrets."""
    path = session.app.find_saga(file)
    checked = session.app.load_to_run(path)
    if checked.warnings and session.shows_progress:
        noun = "warning" if checked.warnings == 1 else "warnings"
        session.say(f"{checked.warnings} {noun}: sagactl validate {checked.saga.source}")
    if checked.warnings and "GITHUB_ACTIONS" in os.environ:
        from sagactl import workflow

        if workflow.is_listening():  # what is kept of a saga that was checked before has only their number
            session.tell_problems(session.app.load_saga(path).warnings)
    session.warn_of_secrets(checked.saga)
    return checked.saga
