"""Loading a saga file for a command that is to run it."""

from __future__ import annotations

from sagactl.cli.session import Session
from sagactl.core.saga import Saga


def load_to_run(session: Session, file: str) -> Saga:
    """Return the saga that FILE means, checked; says how many warnings it has, and what is odd about its secrets."""
    checked = session.app.load_to_run(session.app.find_saga(file))
    if checked.warnings and session.shows_progress:
        noun = "warning" if checked.warnings == 1 else "warnings"
        session.say(f"{checked.warnings} {noun}: sagactl validate {checked.saga.source}")
    session.warn_of_secrets(checked.saga)
    return checked.saga
