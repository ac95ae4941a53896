"""The commands that views tell people to type, each whole, and only those that the run would accept."""

from __future__ import annotations

import shlex
from typing import TYPE_CHECKING, Final, NamedTuple

from sagactl.core.records import Cause, Direction, Disposition, Operation, Request, Resolution, Verb

if TYPE_CHECKING:
    from sagactl.core.saga import Saga
    from sagactl.core.state import RunState

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


def _is_accepted(saga: Saga, state: RunState, request: Request) -> bool:
    from sagactl.core.operators import answer_request

    return answer_request(saga, state, request, 0).disposition is Disposition.ACCEPTED


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
    is_undo = operation.direction is Direction.COMPENSATION
    choices = []
    for resolution, options, words in _resolutions(saga, state, operation):
        request = Request("", Verb.RESOLVE, "", reason="...", operation=operation, resolution=resolution)
        if _is_accepted(saga, state, request):
            command = type_letter("resolve", run, operation, f"{options} {_REASON}")
            choices.append(Choice(words, command, request))
    acts_twice = _may_act_twice(saga, state, operation, now_ms)
    again = Request("", Verb.RETRY, "", reason="..." if acts_twice else None, operation=operation)
    if _is_accepted(saga, state, again):
        words = ("undo it again" if is_undo else "call it again") + (", a second time perhaps" if acts_twice else "")
        choice = Choice(words, type_letter("retry", run, operation, _REASON if acts_twice else ""), again)
        is_safe = not acts_twice and _is_safe_to_retry(saga, state, operation)
        choices.insert(0 if is_safe else len(choices), choice)
    return choices


def _is_safe_to_retry(saga: Saga, state: RunState, operation: Operation) -> bool:
    from sagactl.core.state import call_of

    return saga.tools[call_of(saga, operation).tool].idempotent or not state.operations[operation].doubt


def _may_act_twice(saga: Saga, state: RunState, operation: Operation, now_ms: int) -> bool:
    from sagactl.core.operators import may_act_twice

    return may_act_twice(saga, state.operations[operation], now_ms)


def _resolutions(saga: Saga, state: RunState, operation: Operation) -> list[tuple[Resolution, str, str]]:
    if operation.direction is Direction.COMPENSATION:
        is_doubt = state.operations[operation].cause is Cause.IN_DOUBT
        return [
            (Resolution.NOT_DONE, "--not-done", "it did not happen"),
            (Resolution.DONE, "--done", "it happened, and I undid it" if is_doubt else "I undid it by hand"),
            (Resolution.ABANDON, "--abandon", "leave it as it is"),
        ]
    done = "--done --output JSON" if _has_output(saga, operation) else "--done"
    if not state.operations[operation].doubt:  # it is known not to have happened
        return [
            (Resolution.DONE, done, "I did it by hand"),
            (Resolution.SKIP, "--skip", "go on without it"),
        ]
    return [
        (Resolution.DONE, done, "it happened"),
        (Resolution.NOT_DONE, "--not-done", "it did not happen"),
        (Resolution.SKIP, "--skip", "go on without it"),
    ]


def _has_output(saga: Saga, operation: Operation) -> bool:
    from sagactl.core.needed import find_needs
    from sagactl.core.state import call_of

    schema = saga.tools[call_of(saga, operation).tool].output_schema
    is_said = bool(schema.get("properties")) or schema.get("type") not in {None, "null"}
    return is_said or any(find_needs(saga, operation))
