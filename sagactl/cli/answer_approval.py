"""Giving and denying approvals: what `approve` and `deny` share."""

from __future__ import annotations

from sagactl.cli.follow import make_scene
from sagactl.cli.operate import ask
from sagactl.cli.session import Session
from sagactl.cli.views.approvals import list_approval
from sagactl.cli.views.layout import list_facts
from sagactl.core.records import Verb
from sagactl.usecases import approvals
from sagactl.usecases.select import select_run


def answer_approval(
    session: Session, verb: Verb, run: str, step: str | None, *, reason: str | None, only_record: bool
) -> int:
    """Answer for one step of a run, after showing what it is; returns the exit code of the run that goes on."""
    row = select_run(session.app.log(), run, changes=True)
    known = session.app.read(row.run_id)
    approval = approvals.find_approval(known, step)
    if approval.step is not None and approval.awaited is not None:
        scene = make_scene(session, known.saga, known.state)
        for line in list_facts(list_approval(scene, approval.step), session.style):
            session.say(line)
        if known.state.paused and verb is Verb.APPROVE:
            session.say(f"the run is paused: {approval.step} starts once it goes on, see the hint")
    return ask(session, row, approvals.answer_approval(verb, approval, reason=reason), only_record=only_record)
