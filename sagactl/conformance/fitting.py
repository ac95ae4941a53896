"""Whether a check file fits the tools: a name misspelt in it would go unseen, and what it stands for untried."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from difflib import get_close_matches
from typing import NamedTuple

from sagactl.conformance.check_file import SUFFIX, CheckFile, Observation, Preparation, ToolEntry
from sagactl.core.canonical import Json
from sagactl.core.saga import ToolFacts
from sagactl.core.template import Literal, MapOf, Template
from sagactl.errors import InvalidError


class _Given(NamedTuple):
    """Arguments that stand in a check file: where, for which tool."""

    place: str
    tool: str
    arguments: Template


def refuse_unfit(
    plugin: str, file: CheckFile, facts: Mapping[str, ToolFacts], known: Collection[str], undo_of: Callable[[str], str]
) -> None:
    """Raise InvalidError where a check file names a tool that its plugin hasn't, or an argument that a tool hasn't.

    Args:
        plugin: Whose check file it is.
        file: What stands in it.
        facts: All tools.
        known: Those of the plugin, also such as can't be used.
        undo_of: Returns what undoes a tool, empty where nothing does.
    """
    for name in file.tools:
        if name not in known:
            raise _refuse(plugin, f"tools.{name} is no tool of this plugin", name, known)
    for given in _list_given(file, undo_of):
        if given.tool not in facts:
            continue  # said elsewhere, with what is wrong with it
        allowed = list_allowed(facts[given.tool].arguments_schema)
        for name in list_names(given.arguments):
            if allowed is not None and name not in allowed:
                raise _refuse(plugin, f"{given.place}.{name} is no argument of {given.tool}", name, allowed)


def refuse_strays(files: Iterable[str], plugins: Collection[str]) -> None:
    """Raise InvalidError where a check file lies beside no plugin: nobody would read it."""
    for name in sorted(files):
        if name not in plugins:
            raise _refuse(name, "is beside no plugin of that name", name, plugins)


def _refuse(plugin: str, what: str, name: str, known: Iterable[str]) -> InvalidError:
    close = get_close_matches(name, list(known), n=1)
    hint = f"did you mean {close[0]}?" if close else "sagactl help tools-check"
    separator = " " if what.startswith("is ") else ": "
    return InvalidError(f"plugins/{plugin}{SUFFIX}{separator}{what}", code="invalid-check-file", hint=hint)


def _list_given(file: CheckFile, undo_of: Callable[[str], str]) -> Iterator[_Given]:
    yield from _list_calls("", file)
    for name, entry in file.tools.items():
        place = f"tools.{name}."
        yield from _list_calls(place, entry)
        if entry.arguments is not None:
            yield _Given(f"{place}with", name, entry.arguments)
        for number, arguments in enumerate(entry.rejects):
            yield _Given(f"{place}rejects[{number}]", name, arguments)
        if entry.undo.arguments is not None:
            yield _Given(f"{place}compensate.with", entry.undo.tool or undo_of(name), entry.undo.arguments)


def _list_calls(place: str, said: CheckFile | ToolEntry) -> Iterator[_Given]:
    lists: dict[str, tuple[Preparation | Observation, ...]] = {
        "set_up": said.set_up,
        "tear_down": said.tear_down,
        "observe": said.observe,
    }
    for key, calls in lists.items():
        for number, each in enumerate(calls):
            yield _Given(f"{place}{key}[{number}].with", each.tool, each.arguments)


def list_allowed(schema: Mapping[str, Json]) -> list[str] | None:
    """Return the arguments that a schema takes, None where it takes any."""
    members = schema.get("properties")
    is_closed = schema.get("additionalProperties") is False and "patternProperties" not in schema
    return list(members if isinstance(members, dict) else ()) if is_closed else None


def list_names(template: Template) -> list[str]:
    """Return the names of the arguments that a template gives."""
    if isinstance(template, MapOf):
        return [name for name, _ in template.entries]
    value = template.value if isinstance(template, Literal) else None
    return list(value) if isinstance(value, dict) else []
