"""Runs of other projects in the same log: their tools are not the ones here, even where they are called the same."""

from __future__ import annotations

import shlex
from pathlib import Path

from sagactl.cli.session import Session
from sagactl.cli.views.spelling import spell
from sagactl.core.records import RunCreated


def find_other_project(session: Session, run_id: str) -> str | None:
    """Return the folder of another project that the run was begun in, if it is still there; raises DamagedLogError.

    A project that was moved, or is mounted elsewhere, is not there any more under its old name: its runs go on here.
    """
    first = next(iter(session.app.log().read(run_id)), None)
    name = first.record.project if first is not None and isinstance(first.record, RunCreated) else None
    if name is None or not Path(name).is_dir():
        return None
    return None if Path(name).resolve() == session.app.config.project.resolve() else name


def warn_of_other_project(session: Session, run_id: str) -> None:
    """Say it where somebody names a run of another project: its tools are the ones of the same names here."""
    project = find_other_project(session, run_id)
    if project is not None:
        session.say(f"warning: run {run_id} is of the project {spell(project)}; the tools here are called")


def type_resume_there(session: Session, run_id: str, project: str) -> str:
    """Return the command that carries on with the run where its tools are."""
    log = session.app.config.log
    log = log if "://" in log else str(Path(log).expanduser().absolute())
    return shlex.join(["sagactl", "-C", project, "--log", log, "resume", run_id])
