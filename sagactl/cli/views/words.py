"""The words for operations, failures, causes and statuses, the same in every view."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from sagactl.cli.views.style import Mark
from sagactl.cli.views.times import show_duration
from sagactl.core.records import Cause, Direction, Failure, Holder, Operation, Request, Resolution, RunStatus

if TYPE_CHECKING:
    from sagactl.core.saga import Saga
    from sagactl.core.state import RunState

STATUS_MARKS: Final = {
    RunStatus.RUNNING: Mark.RUNNING,
    RunStatus.WAITING: Mark.WAITING,
    RunStatus.ROLLING_BACK: Mark.UNDONE,
    RunStatus.SUCCEEDED: Mark.DONE,
    RunStatus.ROLLED_BACK: Mark.FAILED,
    RunStatus.STUCK: Mark.STUCK,
    RunStatus.TERMINATED: Mark.FAILED,
}

WAITS: Final = frozenset({"time.sleep", "time.until"})
"""Tools that only wait: what is said of a call that isn't done yet would be odd of them."""

_CAUSES: Final = {
    Cause.CANCELLED: "cancelled",
    Cause.REQUESTED: "as asked",
    Cause.TIMEOUT: "out of time",
    Cause.DENIED: "denied",
    Cause.COMPENSATION_FAILED: "while rolling back",
    Cause.FORWARD_STUCK: "behind its pivot",
    Cause.IN_DOUBT: "in doubt",
    Cause.CANNOT_END: "a call can't be ended",
    Cause.MISSING_TOOL: "a tool is missing",
    Cause.MISSING_SECRET: "a secret is missing",
    Cause.TERMINATED: "terminated",
}


_SETTLED: Final = {
    Resolution.DONE: "done",
    Resolution.NOT_DONE: "not done",
    Resolution.SKIP: "skipped",
    Resolution.ABANDON: "abandoned",
}


def plain(word: str) -> str:
    """Return a word of the program as people write it: `rolled_back` becomes `rolled back`."""
    return word.replace("_", " ")


def name_place(step: str, item: int | None) -> str:
    """Return `servers[2]`, or only the step."""
    return step if item is None else f"{step}[{item}]"


def name_operation(operation: Operation) -> str:
    """Return `deposit`, or `undo of deposit`."""
    return operation.place if operation.direction is Direction.ACTION else f"undo of {operation.place}"


def name_again(text: str) -> str:
    """Return the text of an operation (`compensation of deposit`) in the words of `name_operation`."""
    return text.replace("compensation of ", "undo of ", 1) if text.startswith("compensation of ") else text


def name_failure(failure: Failure | None) -> str:
    """Return `card_declined: the card was declined`, unsafe as yet, or nothing."""
    return "" if failure is None else str(failure)


def name_cause(cause: Cause | None, failed_step: str | None) -> str:
    """Return why a run left the plain way forward, in a few words: `at deposit`, `cancelled`."""
    if cause is Cause.STEP_FAILED and failed_step is not None:
        return f"at {failed_step}"
    return "" if cause is None else _CAUSES.get(cause, plain(cause.value))


def name_holder(holder: Holder) -> str:
    """Return `pid 4711 on worker-2`, unsafe as yet."""
    return f"pid {holder.pid} on {holder.host}"


def name_reason(failure: Failure | None, word: str) -> str:
    """Return the failure without its type, where *word* has said it already."""
    return failure.message if failure is not None and failure.type == word else name_failure(failure)


def say_settled(request: Request) -> str:
    """Return how a person settled a dead letter: `settled by ana: done`, unsafe as yet."""
    how = "" if request.resolution is None else f": {_SETTLED[request.resolution]}"
    return f"settled by {request.who}{how}"


def failed_place(state: RunState) -> str | None:
    """Return where the run failed first, with the item if one of several failed, or None."""
    step = state.failed_step
    found = state.steps.get(step or "")
    if step is None or found is None or found.items is None:
        return step
    items = (Operation(step, index, Direction.ACTION) for index in range(len(found.items)))
    failed = (each for each in items if (op := state.operations.get(each)) and op.failure == state.failure)
    first = next(failed, None)
    return step if first is None else name_place(step, first.item)


def place_of(saga: Saga, step_id: str) -> str:
    """Return `sagas/onboarding.yaml:31`, as far as it is known, unsafe as yet."""
    line = saga.by_id[step_id].line if step_id in saga.by_id else None
    source = saga.source or ""
    return source if line is None or not source else f"{source}:{line}"


def is_wait(saga: Saga, operation: Operation) -> bool:
    """Tell whether the operation does nothing but wait."""
    from sagactl.core.state import call_of

    return call_of(saga, operation).tool in WAITS


def say_pending(saga: Saga, operation: Operation, after_ms: int | None) -> str:
    """Say what follows where a tool isn't done yet."""
    from sagactl.core.saga import POLL_MS_MIN

    soon = show_duration(max(after_ms or 0, POLL_MS_MIN))
    return f"waits for {soon}" if is_wait(saga, operation) else f"is not done yet; it is asked again in {soon}"
