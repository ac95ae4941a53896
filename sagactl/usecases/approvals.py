"""Which approval of a run is meant, and the answer to it, bound to what the step would do (rule E22)."""

from __future__ import annotations

from typing import NamedTuple

from sagactl.core.records import Direction, Operation, Request, Verb
from sagactl.core.state import Awaited
from sagactl.engine.settings import Committed
from sagactl.errors import NotFoundError
from sagactl.requests import make_request


class Approval(NamedTuple):
    """A step that somebody answers for."""

    step: str | None
    """None where none is named and none waits: it is asked all the same, as the refusal belongs into the log (E22)."""

    awaited: Awaited | None
    """What is waited for; None where the step waits for no approval."""


def find_approval(known: Committed, step: str | None) -> Approval:
    """Return the approval that is meant by *step*, or the only one that waits; raises NotFoundError."""
    name = _choose(known, step)
    return Approval(name, None if name is None else known.state.awaiting.get(name))


def _choose(known: Committed, step: str | None) -> str | None:
    awaiting = list(known.state.awaiting)
    if step is not None:
        if step not in known.saga.by_id:
            hint = f"sagactl show {known.run_id}"
            raise NotFoundError(f"run {known.run_id} has no step {step}", code="no-such-step", hint=hint)
        return step
    if not awaiting:
        return None
    if len(awaiting) > 1:
        listed = ", ".join(awaiting)
        raise NotFoundError(f"several steps wait for an approval: {listed}", code="ambiguous-step", hint="name one")
    return awaiting[0]


def answer_approval(verb: Verb, approval: Approval, *, reason: str | None) -> Request:
    """Return the request that gives or denies *approval*: bound to exactly the arguments that were read."""
    operation = None if approval.step is None else Operation(approval.step, None, Direction.ACTION)
    digest = None if approval.awaited is None else approval.awaited.digest
    return make_request(verb, reason=reason, operation=operation, digest=digest)
