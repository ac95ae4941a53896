"""Giving and denying approvals: what `approve` and `deny` share."""

from __future__ import annotations

from collections.abc import Mapping

from sagactl.cli.follow import make_scene
from sagactl.cli.operate import ask
from sagactl.cli.select import select_run
from sagactl.cli.session import Session
from sagactl.cli.views.approvals import list_approval
from sagactl.cli.views.layout import list_facts
from sagactl.core.records import Direction, Operation, Verb
from sagactl.driving import make_request
from sagactl.errors import NotFoundError
from sagactl.log.base import RunRow


def answer_approval(
    session: Session, verb: Verb, run: str, step: str | None, *, reason: str | None, only_record: bool
) -> int:
    """Answer for one step of a run, after showing what it is; returns the exit code of the run that goes on."""
    row = select_run(session.app.log(), run, changes=True)
    known = session.app.read(row.run_id)
    step_id = _choose(row, list(known.state.awaiting), step, known.saga.by_id)
    awaited = None if step_id is None else known.state.awaiting.get(step_id)
    if awaited is not None and step_id is not None:
        for line in list_facts(list_approval(make_scene(session, known.saga, known.state), step_id), session.style):
            session.say(line)
        if known.state.paused and verb is Verb.APPROVE:
            session.say(f"the run is paused: {step_id} starts once it goes on, see the hint")
    operation = None if step_id is None else Operation(step_id, None, Direction.ACTION)
    digest = None if awaited is None else awaited.digest
    request = make_request(verb, reason=reason, operation=operation, digest=digest)
    return ask(session, row, request, only_record=only_record)


def _choose(row: RunRow, awaiting: list[str], step: str | None, known: Mapping[str, object]) -> str | None:
    """Return the step that is meant, None where none is named and none waits; raises NotFoundError.

    Where nothing waits it is asked all the same: the refusal belongs into the log (E22).
    """
    hint = f"sagactl show {row.run_id}"
    if step is not None:
        if step not in known:
            raise NotFoundError(f"run {row.run_id} has no step {step}", code="no-such-step", hint=hint)
        return step
    if not awaiting:
        return None
    if len(awaiting) > 1:
        listed = ", ".join(awaiting)
        raise NotFoundError(f"several steps wait for an approval: {listed}", code="ambiguous-step", hint="name one")
    return awaiting[0]
