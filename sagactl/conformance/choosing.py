"""Which tools are checked, with which arguments, and which of them may be called at all."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from fnmatch import fnmatchcase
from typing import Final, NamedTuple

from sagactl.conformance.arguments import guess_arguments
from sagactl.conformance.check_file import CheckFile, ToolEntry, list_tools_named
from sagactl.conformance.fitting import refuse_unfit
from sagactl.conformance.stage import Subject
from sagactl.core.saga import ToolFacts
from sagactl.core.template import Literal, Template, parse_template
from sagactl.dataclass import dataclass
from sagactl.errors import InvalidError, NotFoundError, PluginError

BUILT_IN: Final = "built-in"
"""The plugin of the tools that every project has; a check names them, or leaves them alone."""


class Left(NamedTuple):
    """A tool that isn't tried, and why."""

    facts: ToolFacts
    why: str
    is_unsafe: bool = False


class Broken(NamedTuple):
    """A plugin, or some tools of it, that can't be used, and why."""

    plugin: str
    tools: tuple[str, ...]
    why: str


@dataclass(frozen=True, slots=True)
class Tools:
    """The tools of a project, and what is known of them beside their facts."""

    facts: Mapping[str, ToolFacts]
    file_of: Callable[[str], CheckFile]
    """The check file of a plugin, an empty one where there is none."""
    marked: Callable[[str], bool]
    """Whether a tool says of itself that it is safe to call."""
    broken: Sequence[Broken] = ()
    safe: Sequence[str] = ()
    """Patterns of tools that may be called."""


def select(tools: Tools, wanted: Sequence[str]) -> list[ToolFacts]:
    """Return the tools that *wanted* means: tools, plugins, all plugins where it is empty.

    What undoes or probes another tool is checked with it, and isn't among them. Raises NotFoundError, and PluginError
    where one of them can't be used: what isn't checked must not seem to pass.
    """
    everything = list(tools.facts.values())
    for each in tools.broken:
        if not wanted or each.plugin in wanted or set(each.tools) & set(wanted):
            raise PluginError(
                f"{', '.join(each.tools) or each.plugin} can't be checked: {each.why}", hint="sagactl tools"
            )
    if not wanted:
        chosen = [each for each in everything if each.plugin != BUILT_IN]
    else:
        chosen = [each for name in wanted for each in _find(everything, name)]
    partners = {name for each in everything for name in (each.compensation, each.probe) if name}
    partners |= {
        entry.undo.tool
        for plugin in {each.plugin for each in everything}
        for entry in tools.file_of(plugin).tools.values()
        if entry.undo.tool is not None
    }
    unique = {each.name: each for each in chosen}
    return [each for _, each in sorted(unique.items()) if each.name not in partners or each.name in wanted]


def _find(everything: Sequence[ToolFacts], name: str) -> list[ToolFacts]:
    found = [each for each in everything if name in {each.name, each.plugin}]
    if not found:
        from difflib import get_close_matches

        known = sorted({word for each in everything for word in (each.name, each.plugin)})
        close = get_close_matches(name, known, n=1)
        hint = f"did you mean {close[0]}?" if close else "sagactl tools"
        raise NotFoundError(f"no tool and no plugin named {name!r}", code="missing-tool", hint=hint)
    return found


def make_subjects(tools: Tools, chosen: Sequence[ToolFacts]) -> Iterator[Subject | Left]:
    """Yield what is to be tried of each tool, or why nothing is; raises InvalidError where a check file doesn't fit."""
    for plugin in sorted({facts.plugin for facts in chosen}):
        _refuse_unfit(tools, plugin)
    for facts in chosen:
        file = tools.file_of(facts.plugin)
        entry = file.tools.get(facts.name, ToolEntry())
        arguments = _find_arguments(facts, entry)
        if isinstance(arguments, str):
            yield Left(facts, arguments)
            continue
        subject = _make_subject(tools, facts, file, entry, arguments)
        unsafe = _find_unsafe(tools, subject)
        if unsafe is None:
            yield subject
        else:
            what = "it" if unsafe == facts.name else f"{unsafe}, which it needs,"
            yield Left(facts, f"nobody has said that {what} is safe to call", True)


def _refuse_unfit(tools: Tools, plugin: str) -> None:
    whole = [each.name for each in tools.facts.values() if each.plugin == plugin]
    broken = [name for each in tools.broken if each.plugin == plugin for name in each.tools]

    def undo_of(name: str) -> str:
        return (tools.facts[name].compensation or "") if name in tools.facts else ""

    refuse_unfit(plugin, tools.file_of(plugin), tools.facts, {*whole, *broken}, undo_of)


def _find_arguments(facts: ToolFacts, entry: ToolEntry) -> Template | str:
    if entry.arguments is not None:
        return entry.arguments
    found = guess_arguments(facts.arguments_schema)
    return f"{found}: give it in plugins/{facts.plugin}.check.yaml" if isinstance(found, str) else Literal(found)


def _make_subject(tools: Tools, facts: ToolFacts, file: CheckFile, entry: ToolEntry, arguments: Template) -> Subject:
    undo_name = None if facts.read_only else entry.undo.tool or facts.compensation
    undo_with = entry.undo.arguments or parse_template(dict(facts.compensation_with or {}))
    _check_observers(tools, file, entry)
    return Subject(
        facts=facts,
        arguments=arguments,
        file=file,
        entry=entry,
        undo=None if undo_name is None else _facts_of(tools, undo_name),
        undo_with=undo_with,
        probe=None if facts.probe is None else _facts_of(tools, facts.probe),
    )


def _facts_of(tools: Tools, name: str) -> ToolFacts:
    if name not in tools.facts:
        raise PluginError(f"no tool named {name!r}", hint="sagactl tools")
    return tools.facts[name]


def _check_observers(tools: Tools, file: CheckFile, entry: ToolEntry) -> None:
    for name in list_tools_named(file, entry):
        _facts_of(tools, name)
    for each in (*file.observe, *entry.observe):
        if not tools.facts[each.tool].read_only:
            message = f"{each.tool} isn't read_only, so it can't observe"
            raise InvalidError(message, code="invalid-check-file", hint=f"sagactl tools {each.tool}")


def _find_unsafe(tools: Tools, subject: Subject) -> str | None:
    """Return a tool that the check would call and that nobody has marked as safe."""
    own = [subject.facts, subject.undo, subject.probe]
    names = [each.name for each in own if each is not None] + list(list_tools_named(subject.file, subject.entry))
    patterns = (*tools.safe, *subject.file.safe_tools)
    unsafe = (name for name in names if not any(fnmatchcase(name, each) for each in patterns))
    return next((name for name in unsafe if not tools.marked(name)), None)
