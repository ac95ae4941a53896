"""Runs of other projects in the same log: their tools are not the ones here, even where they are called the same."""

from __future__ import annotations

import shlex
from pathlib import Path

from sagactl.cli.session import Session
from sagactl.cli.views.spelling import spell
from sagactl.other_projects import find_other_project


def warn_of_other_project(session: Session, run_id: str) -> None:
    """Say it where somebody names a run of another project: its tools are the ones of the same names here."""
    project = find_other_project(session.app.log(), session.app.config.project, run_id)
    if project is not None:
        session.say(f"warning: run {run_id} is of the project {spell(project)}; the tools here are called")


def type_resume_there(session: Session, run_id: str, project: str) -> str:
    """Return the command that carries on with the run where its tools are."""
    log = session.app.config.log
    log = log if "://" in log else str(Path(log).expanduser().absolute())
    return shlex.join(["sagactl", "-C", project, "--log", log, "resume", run_id])
