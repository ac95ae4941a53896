"""In what two definitions differ: aspect by aspect, in the order in which people ask.

What a difference would do to a run that is under way is no matter of this module; see `rebinding`. Line numbers and the
name of the file make no difference.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from enum import StrEnum
from typing import Any, Final, cast

from sagactl.core.canonical import Json
from sagactl.core.definition import write_definition
from sagactl.core.saga import Saga, StepClass
from sagactl.dataclass import dataclass


class Aspect(StrEnum):
    """What about a saga, a step or a tool can differ."""

    NAME = "name"
    STEP_GONE = "step_gone"
    STEP_ADDED = "step_added"
    PIVOT = "pivot"
    ORDER = "order"
    NEEDS = "needs"
    CLASS = "class"
    TOOL = "tool"
    ARGUMENTS = "with"
    WHEN = "when"
    FOREACH = "foreach"
    APPROVAL = "approval"
    GUARD = "guard"
    UNDO = "compensate"
    COMPENSATE_FAILED = "compensate_failed"
    CONCURRENCY = "concurrency"
    RETRY = "retry"
    TIMEOUTS = "timeouts"
    ON_UNKNOWN = "on_unknown"
    UNDO_RETRY = "compensate_retry"
    UNDO_TIMEOUTS = "compensate_timeouts"
    UNDO_ON_UNKNOWN = "compensate_on_unknown"
    DESCRIPTION = "description"
    TOOL_FACTS = "tool_facts"
    VERSION = "version"
    INPUT = "input"
    RUN_KEY = "run_key"
    RUN_TIMEOUT = "run_timeout"
    SETTLE_TIMEOUT = "settle_timeout"
    COMPENSATION_CONCURRENCY = "compensation_concurrency"
    OUTPUT = "output"
    SECRETS = "secrets"


@dataclass(frozen=True, slots=True)
class Difference:
    """One aspect in which two definitions differ; of a step, of a tool, or of the saga."""

    aspect: Aspect
    before: Json = None
    after: Json = None
    step: str | None = None
    tool: str | None = None


_Part = Mapping[str, Any]
_A: Final = Aspect


def _within(name: str, *fields: str) -> Callable[[_Part], Json]:
    """Return what reads *fields* of one of a step's two calls; None where the step has no such call."""

    def read(step: _Part) -> Json:
        call = step[name]
        if call is None:
            return None
        return cast("Json", call[fields[0]] if len(fields) == 1 else {field: call[field] for field in fields})

    return read


def _read_undo(step: _Part) -> Json:
    if step["compensation"] is None:
        return {"none": step["not_undoable_reason"]}
    return _within("compensation", "tool", "with")(step)


def _plain(*fields: str) -> Callable[[_Part], Json]:
    def read(part: _Part) -> Json:
        return cast("Json", part[fields[0]] if len(fields) == 1 else {field: part[field] for field in fields})

    return read


_TIMES: Final = ("start_to_close_ms", "schedule_to_close_ms")
_OF_STEP: Final[tuple[tuple[Aspect, Callable[[_Part], Json]], ...]] = (
    (_A.NEEDS, _plain("needs")),
    (_A.CLASS, _plain("class")),
    (_A.TOOL, _within("action", "tool")),
    (_A.ARGUMENTS, _within("action", "with")),
    (_A.WHEN, _plain("when")),
    (_A.FOREACH, _plain("foreach")),
    (_A.APPROVAL, _plain("approval")),
    (_A.GUARD, _plain("guard")),
    (_A.UNDO, _read_undo),
    (_A.COMPENSATE_FAILED, _plain("compensate_failed")),
    (_A.CONCURRENCY, _plain("concurrency")),
    (_A.RETRY, _within("action", "retry")),
    (_A.TIMEOUTS, _within("action", *_TIMES)),
    (_A.ON_UNKNOWN, _within("action", "on_unknown")),
    (_A.UNDO_RETRY, _within("compensation", "retry")),
    (_A.UNDO_TIMEOUTS, _within("compensation", *_TIMES)),
    (_A.UNDO_ON_UNKNOWN, _within("compensation", "on_unknown")),
    (_A.DESCRIPTION, _plain("description", "agent")),
)
_ONLY_OF_UNDO: Final = frozenset({_A.UNDO_RETRY, _A.UNDO_TIMEOUTS, _A.UNDO_ON_UNKNOWN})
_OF_SAGA: Final[tuple[tuple[Aspect, Callable[[_Part], Json]], ...]] = (
    (_A.VERSION, _plain("version")),
    (_A.DESCRIPTION, _plain("description")),
    (_A.INPUT, _plain("input")),
    (_A.RUN_KEY, _plain("run_key")),
    (_A.RUN_TIMEOUT, _plain("run_timeout_ms")),
    (_A.SETTLE_TIMEOUT, _plain("settle_timeout_ms")),
    (_A.COMPENSATION_CONCURRENCY, _plain("compensation_concurrency")),
    (_A.OUTPUT, _plain("output")),
    (_A.SECRETS, _plain("secrets")),
)


def compare(old: Saga, new: Saga) -> list[Difference]:
    """Return in what *new* differs from *old*; nothing where they mean the same."""
    before, after = write_definition(old), write_definition(new)
    return [
        *_compare_parts(_A.NAME, old.name, new.name),
        *_compare_steps(old, new),
        *_compare_shapes(old, new),
        *_compare_common(before, after),
        *_compare_tools(cast("_Part", before["tools"]), cast("_Part", after["tools"])),
        *_compare_fields(_OF_SAGA, before, after),
    ]


def first_pivot(saga: Saga) -> str | None:
    """Return the step that is the point of no return."""
    return next((step.id for step in saga.steps if step.klass is StepClass.PIVOT), None)


def _compare_parts(aspect: Aspect, before: Json, after: Json) -> list[Difference]:
    return [] if before == after else [Difference(aspect, before, after)]


def _compare_steps(old: Saga, new: Saga) -> Iterator[Difference]:
    for step in old.steps:
        if step.id not in new.by_id:
            yield Difference(_A.STEP_GONE, step.action.tool, None, step.id)
    for step in new.steps:
        if step.id not in old.by_id:
            yield Difference(_A.STEP_ADDED, None, step.action.tool, step.id)


def _compare_shapes(old: Saga, new: Saga) -> list[Difference]:
    common: list[list[Json]] = [
        [step.id for step in one.steps if step.id in other.by_id] for one, other in ((old, new), (new, old))
    ]
    return [
        *_compare_parts(_A.PIVOT, first_pivot(old), first_pivot(new)),
        *_compare_parts(_A.ORDER, common[0], common[1]),
    ]


def _compare_common(before: _Part, after: _Part) -> Iterator[Difference]:
    steps = {step["id"]: step for step in after["steps"]}
    for step in before["steps"]:
        other = steps.get(step["id"])
        if other is not None:
            yield from _compare_fields(_OF_STEP, step, other, step["id"])


def _compare_fields(
    aspects: Sequence[tuple[Aspect, Callable[[_Part], Json]]], before: _Part, after: _Part, step: str | None = None
) -> Iterator[Difference]:
    for aspect, read in aspects:
        was, is_now = read(before), read(after)
        is_told_by_undo = aspect in _ONLY_OF_UNDO and None in (was, is_now)
        if was != is_now and not is_told_by_undo:
            yield Difference(aspect, was, is_now, step)


def _compare_tools(before: _Part, after: _Part) -> Iterator[Difference]:
    """Yield what changed about tools that both definitions call; which ones they call is told by their steps."""
    for name in before:
        was, is_now = before[name], after.get(name)
        if is_now is None or was == is_now:
            continue
        fields = [field for field in {**was, **is_now} if was.get(field) != is_now.get(field)]
        yield Difference(
            _A.TOOL_FACTS,
            {field: was.get(field) for field in fields},
            {field: is_now.get(field) for field in fields},
            tool=name,
        )
