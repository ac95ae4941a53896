"""What can be decided about an open dead letter: all that the run would accept, the safest first (rule E23)."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final, NamedTuple

from sagactl.core.needed import find_needs
from sagactl.core.operators import answer_request, may_act_twice
from sagactl.core.records import Direction, Disposition, Operation, Request, Resolution, Verb
from sagactl.core.saga import Saga
from sagactl.core.state import RunState, call_of

_GIVEN: Final = "..."
"""Stands for the reason that who decides will give."""

_OF_UNDO: Final = (Resolution.NOT_DONE, Resolution.DONE, Resolution.ABANDON)
_OF_DOUBT: Final = (Resolution.DONE, Resolution.NOT_DONE, Resolution.SKIP)
_OF_ACTION: Final = (Resolution.DONE, Resolution.SKIP)
"""Without doubt: it is known not to have happened."""


class Option(NamedTuple):
    """Something that can be decided."""

    request: Request
    """What it asks of the run; a reason in it is still to be given."""

    takes_output: bool = False
    """Who says that it happened must say what it returned."""

    acts_twice: bool = False
    """Another try may have a second effect (E6)."""


def list_options(saga: Saga, state: RunState, operation: Operation, now_ms: int) -> list[Option]:
    """Return all ways to settle an open dead letter that the run would accept."""
    options = [each for each in _resolve(saga, state, operation) if _is_accepted(saga, state, each.request)]
    acts_twice = may_act_twice(saga, state.operations[operation], now_ms)
    again = Request("", Verb.RETRY, "", reason=_GIVEN if acts_twice else None, operation=operation)
    if _is_accepted(saga, state, again):
        is_safe = not acts_twice and _is_safe_to_retry(saga, state, operation)
        options.insert(0 if is_safe else len(options), Option(again, acts_twice=acts_twice))
    return options


def _resolve(saga: Saga, state: RunState, operation: Operation) -> Iterator[Option]:
    is_undo = operation.direction is Direction.COMPENSATION
    of_action = _OF_DOUBT if state.operations[operation].doubt else _OF_ACTION
    for resolution in _OF_UNDO if is_undo else of_action:
        request = Request("", Verb.RESOLVE, "", reason=_GIVEN, operation=operation, resolution=resolution)
        says_output = resolution is Resolution.DONE and not is_undo
        yield Option(request, takes_output=says_output and _has_output(saga, operation))


def _is_accepted(saga: Saga, state: RunState, request: Request) -> bool:
    return answer_request(saga, state, request, 0).disposition is Disposition.ACCEPTED


def _is_safe_to_retry(saga: Saga, state: RunState, operation: Operation) -> bool:
    return saga.tools[call_of(saga, operation).tool].idempotent or not state.operations[operation].doubt


def _has_output(saga: Saga, operation: Operation) -> bool:
    schema = saga.tools[call_of(saga, operation).tool].output_schema
    is_said = bool(schema.get("properties")) or schema.get("type") not in {None, "null"}
    return is_said or any(find_needs(saga, operation))
