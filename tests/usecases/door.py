"""A door of another kind than the command line: each request is a value, and so is each answer."""

from __future__ import annotations

import time
from typing import Any

from sagactl import BusyError, Project
from sagactl.core.canonical import Json
from sagactl.core.records import Disposition, Request, Resolution, Verb
from sagactl.engine.clock import SystemClock
from sagactl.requests import make_request
from sagactl.usecases.answers import wait_for_answer
from sagactl.usecases.approvals import answer_approval, find_approval
from sagactl.usecases.foreseeing import foresee
from sagactl.usecases.letters import check_output, find_letter, find_matter
from sagactl.usecases.options import list_options
from sagactl.usecases.select import select_run

ANSWER_SECONDS = 20.0
Answer = dict[str, Any]


def run(project: Project, saga: str, inputs: Json = None) -> Answer:
    """Start a saga and drive it as far as it comes."""
    with project.driver() as driver:
        run_id = driver.start(project.load(saga), inputs)
        driver.drive()
    return show(project, run_id)


def resume(project: Project, run: str) -> Answer:
    """Carry on with a run."""
    row = select_run(project.log(), run, changes=True)
    with project.driver() as driver:
        driver.resume(row.run_id)
        driver.drive()
    return show(project, row.run_id)


def show(project: Project, run: str) -> Answer:
    """Tell where a run stands."""
    known = project.read(select_run(project.log(read_only=True), run).run_id)
    steps = {step.id: step.status.value for step in known.steps}
    return {"run": known.run_id, "status": known.summary.status.value, "output": known.summary.output, "steps": steps}


def approve(project: Project, run: str, step: str | None = None) -> Answer:
    """Agree to what a step would do."""
    row = select_run(project.log(), run, changes=True)
    approval = find_approval(project.read(row.run_id), step)
    return _ask(project, row.run_id, answer_approval(Verb.APPROVE, approval, reason=None))


def resolve(project: Project, run: str, output: Json, step: str | None = None) -> Answer:
    """Say of a step in doubt that it happened, and what it returned."""
    row = select_run(project.log(), run, changes=True)
    operation, letter = find_matter(project, row, step)
    if letter is not None:
        check_output(project, row, letter, output)
    request = make_request(
        Verb.RESOLVE, reason="looked", operation=operation, resolution=Resolution.DONE, output=output
    )
    return _ask(project, row.run_id, request)


def options(project: Project, run: str, step: str | None = None) -> Answer:
    """Tell what can be decided about a dead letter."""
    known = project.read(select_run(project.log(read_only=True), run).run_id)
    letter = find_letter(project.log(read_only=True), project.row(known.run_id), step)
    found = list_options(known.saga, known.state, letter.operation, SystemClock().now_ms())
    return {"options": [each.request.resolution or each.request.verb for each in found]}


def rollback(project: Project, run: str, dry_run: bool = False) -> Answer:
    """Undo a run, or tell which tools that would call."""
    row = select_run(project.log(read_only=dry_run), run, changes=not dry_run)
    request = make_request(Verb.ROLLBACK, reason="changed their mind")
    if dry_run:
        return {"calls": [call.tool for call in foresee(project, row, request).calls]}
    return _ask(project, row.run_id, request)


def _ask(project: Project, run_id: str, request: Request) -> Answer:
    """Have a request answered here, or by who drives the run."""
    row = project.row(run_id)
    with project.driver() as driver:
        try:
            driver.ask(run_id, request)
        except BusyError as busy:
            until = time.monotonic() + ANSWER_SECONDS
            answer = wait_for_answer(project.log(), row, request, busy, until=until)
            return {"refused": answer is not None and answer.disposition is Disposition.REFUSED}
        ending = driver.drive()[run_id]
    return show(project, run_id) if ending.error is None else {"refused": True, "why": ending.error.message}
