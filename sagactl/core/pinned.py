"""What became of the tools that a run has pinned: gone, changed, and in what (rule E16).

A run keeps the facts of its tools as they were when it began. It goes on with a tool that is another by now as long as
that one takes the same arguments, gives the same output, and keeps every promise; what only explains doesn't count.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import fields
from typing import Any, Final

from sagactl.core.canonical import Json, canonical
from sagactl.core.records import Failure, ToolChange
from sagactl.core.saga import ToolFacts
from sagactl.dataclass import dataclass

CHANGES_MAX: Final = 20
"""Changes of one tool that are kept; those that hold up the run come first."""

VALUE_LENGTH_MAX: Final = 200
"""Characters of a value, as JSON, from which on it is kept as the beginning of its text."""

PATH_LENGTH_MAX: Final = 200

NOT_CALLABLE: Final = "can't be called here"

NOT_AS_PINNED: Final = "isn't what was pinned"
"""The reason where a tool's server says of it what the project's pins don't: pinning it anew is what helps."""

EXPLAINING: Final = frozenset({"title", "description", "$comment", "examples", "deprecated"})
"""Keywords of JSON Schema that say nothing about what fits."""

_NAMES_BELOW: Final = frozenset({"properties", "patternProperties", "$defs", "definitions", "dependentSchemas"})
"""Keywords whose value maps names to schemas: a property may be called `description`."""

_SCHEMAS: Final = {"arguments_schema": "arguments", "output_schema": "output"}
_PROMISES: Final = frozenset({"idempotent", "null_safe", "late_safe"})
_FIXED: Final = frozenset({"probe", "read_only"})


@dataclass(frozen=True, slots=True)
class Misfit:
    """Why a run can't call a tool that it has pinned; `changes` say what is another about one that is there.

    The reason goes on after the tool's name: `is not what the run was begun with`.
    """

    reason: str
    changes: tuple[ToolChange, ...] = ()


Guard = Callable[[ToolFacts], Misfit | None]
"""Tells, just before an intent, whether the tool with these pinned facts is still what is there; may take its time."""


def compare_facts(pinned: ToolFacts, present: ToolFacts) -> tuple[ToolChange, ...]:
    """Return in what *present* differs, the breaking first; a schema place by place. An empty tuple where in nothing.

    At most CHANGES_MAX are returned, with values that are cut where they are long.
    """
    found = [change for each in fields(ToolFacts) for change in _compare_fact(each.name, pinned, present)]
    found.sort(key=lambda change: not change.breaks)
    return tuple(found[:CHANGES_MAX])


def find_misfit(pinned: ToolFacts, present: ToolFacts) -> Misfit | None:
    """Return why a run that pinned the one can't go on with the other, or None where it can."""
    changes = compare_facts(pinned, present)
    if not any(change.breaks for change in changes):
        return None
    return Misfit("is not what the run was begun with", changes)


def compare_schemas(fact: str, before: Json, after: Json) -> tuple[ToolChange, ...]:
    """Return in what two JSON Schemas differ, place by place; words that only explain break nothing."""
    return tuple(_compare_schema(fact, "", before, after))


def describe_misfit(tool: str, misfit: Misfit) -> Failure:
    """Return what a run says that waits for *tool*: the reason, and the first change."""
    changes = misfit.changes
    more = f" and {len(changes) - 1} more" if len(changes) > 1 else ""
    detail = f": {describe_change(changes[0])}{more}" if changes else ""
    return Failure("missing_tool", f"the tool {tool} {misfit.reason}{detail}")


def is_of_machine(message: str) -> bool:
    """Tell whether a run that says *message* waits for a tool that is as it was, and can't be called on this host."""
    name, _, reason = message.removeprefix("the tool ").partition(" ")
    return bool(name) and reason.startswith(NOT_CALLABLE)


def is_of_pins(message: str) -> bool:
    """Tell whether a run that says *message* waits for a pin to be renewed; what a server says comes after that."""
    name, _, reason = message.removeprefix("the tool ").partition(" ")
    return bool(name) and reason.startswith(NOT_AS_PINNED)


def describe_change(change: ToolChange) -> str:
    """Return a change in words: `arguments.properties.amount.type was "integer", is "string"`."""
    place = f"{change.fact}.{change.path}" if change.path else change.fact
    if change.before is None and change.after is not None:
        return f"{place} is new: {_spell(change.after)}"
    if change.after is None and change.before is not None:
        return f"{place} is gone, was {_spell(change.before)}"
    return f"{place} was {_spell(change.before)}, is {_spell(change.after)}"


def _spell(value: Json) -> str:
    return "nothing" if value is None else canonical(value)


def _compare_fact(name: str, pinned: ToolFacts, present: ToolFacts) -> Iterator[ToolChange]:
    before, after = getattr(pinned, name), getattr(present, name)
    if name in _SCHEMAS:
        yield from _compare_schema(_SCHEMAS[name], "", before, after)
    elif before != after:
        was, is_now = (list(each) if isinstance(each, tuple) else each for each in (before, after))
        yield ToolChange(name, "", _bound(was), _bound(is_now), _breaks(name, before, after))


def _breaks(name: str, before: Any, after: Any) -> bool:
    """Tell whether a run that relies on *before* would be wrong about the tool."""
    if name in _PROMISES:
        return bool(before)
    if name == "key_retention_ms":  # kept for a shorter time than the run relies on; None is for ever
        return after is not None and (before is None or after < before)
    return name in _FIXED


def _compare_schema(fact: str, path: str, before: Json, after: Json) -> Iterator[ToolChange]:
    if before == after:
        return
    if not isinstance(before, Mapping) or not isinstance(after, Mapping):
        yield _change(fact, path, before, after)
        return
    for keyword in {**before, **after}:
        was, is_now, place = before.get(keyword), after.get(keyword), _join(path, keyword)
        if keyword in EXPLAINING:
            if was != is_now:
                yield _change(fact, place, was, is_now, breaks=False)
        elif keyword in _NAMES_BELOW and isinstance(was, Mapping) and isinstance(is_now, Mapping):
            for name in {**was, **is_now}:
                yield from _compare_schema(fact, _join(place, name), was.get(name), is_now.get(name))
        else:
            yield from _compare_keyword(fact, place, was, is_now)


def _compare_keyword(fact: str, place: str, was: Json, is_now: Json) -> Iterator[ToolChange]:
    """Compare what a keyword says: a schema, a list of schemas, or plain data."""
    if place.rpartition(".")[2] in {"const", "default", "enum"}:
        if was != is_now:
            yield _change(fact, place, was, is_now)
    elif isinstance(was, list) and isinstance(is_now, list) and len(was) == len(is_now):
        for index, (one, other) in enumerate(zip(was, is_now, strict=True)):
            yield from _compare_schema(fact, f"{place}[{index}]", one, other)
    else:
        yield from _compare_schema(fact, place, was, is_now)


def _join(path: str, name: str) -> str:
    return f"{path}.{name}" if path else name


def _change(fact: str, path: str, before: Json, after: Json, *, breaks: bool = True) -> ToolChange:
    return ToolChange(fact, path[:PATH_LENGTH_MAX], _bound(before), _bound(after), breaks)


def _bound(value: Json) -> Json:
    text = canonical(value)
    return value if len(text) <= VALUE_LENGTH_MAX else f"{text[: VALUE_LENGTH_MAX - 3]}..."
