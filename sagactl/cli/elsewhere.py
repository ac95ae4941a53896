"""Runs of other projects in the same log: their tools are not the ones here, even where they are called the same."""

from __future__ import annotations

import shlex
from dataclasses import replace
from pathlib import Path

from sagactl.cli.session import Session
from sagactl.cli.views.spelling import spell
from sagactl.core.saga import Saga
from sagactl.errors import SagactlError
from sagactl.log.base import RunRow
from sagactl.other_projects import find_other_project


def warn_of_other_project(session: Session, run_id: str) -> None:
    """Say it where somebody names a run of another project: its tools are the ones of the same names here."""
    project = find_other_project(session.app.log(), session.app.config.project, run_id)
    if project is not None:
        session.say(f"warning: run {run_id} is of the project {spell(project)}; the tools here are called")


def is_same(one: Saga, other: Saga) -> bool:
    """Tell whether two definitions mean the same; a plugin's version alone changes nothing about a saga."""
    first, second = (
        replace(each, tools={name: replace(facts, version="") for name, facts in each.tools.items()})
        for each in (one, other)
    )
    return first == second


def tell_of_changed_file(session: Session, row: RunRow) -> None:
    """Say it where the saga's file isn't what the run was begun with: what was mended there isn't in the run (E16)."""
    try:
        path = session.app.find_saga(row.saga)
        now = session.app.load_to_run(path).saga
    except SagactlError:  # gone, or broken: this run needs no file
        return
    if not is_same(session.app.saga_of(row), now):
        whole, project = path.resolve(), session.app.config.project
        file = str(whole.relative_to(project)) if whole.is_relative_to(project) else str(path)
        session.say(f"note: {file} is another than run {row.run_id} was begun with, which keeps its definition")
        session.say(f"hint: sagactl resume {row.run_id} --definition {row.saga} --dry-run")


def type_resume_there(session: Session, run_id: str, project: str) -> str:
    """Return the command that carries on with the run where its tools are."""
    log = session.app.config.log
    log = log if "://" in log else str(Path(log).expanduser().absolute())
    return shlex.join(["sagactl", "-C", project, "--log", log, "resume", run_id])
