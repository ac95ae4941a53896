"""The commands that views tell people to type, each whole, and only those that the run would accept."""

from __future__ import annotations

import shlex
from typing import TYPE_CHECKING, Final, NamedTuple

from sagactl.core.records import Cause, Direction, Operation, Request, Resolution, Verb

if TYPE_CHECKING:
    from sagactl.core.saga import Saga
    from sagactl.core.state import RunState
    from sagactl.usecases.options import Option

_REASON: Final = '--reason "..."'


def type_log(run: str, step: str | None = None) -> str:
    """Return the command that shows a run's log, or one step's part of it."""
    return f"sagactl log {run}" + (f" --step {step}" if step else "")


def type_show(run: str) -> str:
    """Return the command that shows a run."""
    return f"sagactl show {run}"


def type_resume(run: str) -> str:
    """Return the command that carries a run on."""
    return f"sagactl resume {run}"


def type_watch(run: str) -> str:
    """Return the command that follows a run which another process drives."""
    return f"sagactl watch {run}"


def type_rebind(run: str, path: str) -> str:
    """Return the command that shows what carrying a run on with a saga file and the tools as they are now changes."""
    return f"sagactl resume {run} --definition {shlex.quote(path)} --dry-run"


def type_kill(pid: int) -> str:
    """Return the command that asks a process to end: once it has heard it, it waits for its calls only briefly."""
    return f"kill {pid}"


def type_answers(run: str, step: str) -> list[str]:
    """Return the commands that answer for a step that waits for a person."""
    return [f"sagactl approve {run} {step}", f"sagactl deny {run} {step} {_REASON}"]


def type_unpause(run: str) -> str:
    """Return the command that lets a paused run go on."""
    return f"sagactl unpause {run}"


def type_letter(verb: str, run: str, operation: Operation, options: str = "") -> str:
    """Return a command about a dead letter; brackets are quoted, as shells take them for patterns."""
    place = operation.place
    place = f"'{place}'" if operation.item is not None else place
    return f"sagactl dlq {verb} {run} {place} {options}".rstrip()


def type_rollback(state: RunState, run: str) -> list[str]:
    """Return the command that turns the run back, if it would accept it now without further options."""
    from sagactl.core.stands import EFFECTS, Effect, stand_of

    effect, _ = EFFECTS[Verb.ROLLBACK][stand_of(state)]
    return [f"sagactl rollback {run}"] if effect is Effect.TURN_BACK else []


class Choice(NamedTuple):
    """A way to settle a dead letter: in words, the command for it, and what that asks of the run."""

    words: str
    command: str
    request: Request


def list_decisions(saga: Saga, state: RunState, run: str, operation: Operation, now_ms: int) -> list[tuple[str, str]]:
    """Return what a person can decide about an open dead letter: in words, and the command for it (E23)."""
    return [(each.words, each.command) for each in list_decidable(saga, state, run, operation, now_ms)]


def list_decidable(saga: Saga, state: RunState, run: str, operation: Operation, now_ms: int) -> list[Choice]:
    """Return all that the run would accept about an open dead letter, the safest first (E23)."""
    from sagactl.usecases.options import list_options

    return [_choose(state, run, operation, each) for each in list_options(saga, state, operation, now_ms)]


def _choose(state: RunState, run: str, operation: Operation, option: Option) -> Choice:
    if option.request.resolution is None:
        words = "undo it again" if operation.direction is Direction.COMPENSATION else "call it again"
        words = "again, maybe twice" if option.acts_twice else words  # short: commands beside it fit 80 columns
        return Choice(words, type_letter("retry", run, operation, _REASON if option.acts_twice else ""), option.request)
    output = " --output JSON" if option.takes_output else ""
    command = type_letter("resolve", run, operation, f"{_FLAGS[option.request.resolution]}{output} {_REASON}")
    return Choice(_say(state, operation, option.request.resolution), command, option.request)


def _say(state: RunState, operation: Operation, resolution: Resolution) -> str:
    if resolution is not Resolution.DONE:
        return _WORDS[resolution]
    op = state.operations[operation]
    if operation.direction is Direction.COMPENSATION:
        return "it happened, and I undid it" if op.cause is Cause.IN_DOUBT else "I undid it by hand"
    return "it happened" if op.doubt else "I did it by hand"


_FLAGS: Final = {
    Resolution.DONE: "--done",
    Resolution.NOT_DONE: "--not-done",
    Resolution.SKIP: "--skip",
    Resolution.ABANDON: "--abandon",
}
_WORDS: Final = {
    Resolution.NOT_DONE: "it did not happen",
    Resolution.SKIP: "go on without it",
    Resolution.ABANDON: "leave it as it is",
}
