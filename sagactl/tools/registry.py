"""All tools of a project and of the installed plugins, and all that is wrong with them.

Collecting never fails. A plugin that can't be imported, a tool that can't be described, a name given twice: each is
noted, and only what depends on it can't be used.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Final

from sagactl.core.saga import ToolFacts
from sagactl.dataclass import dataclass
from sagactl.errors import NotFoundError, PluginError
from sagactl.tools.api import PLACE, Declaration, declarations_of
from sagactl.tools.describe import Place, Tool, describe_tool
from sagactl.tools.installed import installed_entry_points, load_entry_point, origin_of, version_of
from sagactl.tools.loading import Watch, load_folder, load_functions, watch_nothing
from sagactl.tools.plugin import BrokenPlugin, Loaded, Plugin

if TYPE_CHECKING:
    from importlib.metadata import EntryPoint

Placing = Callable[[Tool, str, Plugin], Tool]
"""Takes a tool, the isolation that its author declares, and its plugin; returns it as it is called here, or raises
ValueError where that can't be.
"""

_SEPARATORS: Final = re.compile(r"[-_.]+")


class _Tools(Mapping[str, Tool]):
    """Tools by name; those in *later*, which are sound, are described when they are asked for."""

    def __init__(self, described: dict[str, Tool], later: Mapping[str, Callable[[], Tool]]) -> None:
        self._described = described
        self._later = later

    def __getitem__(self, name: str) -> Tool:
        if name not in self._described:
            self._described[name] = self._later[name]()
        return self._described[name]

    def __contains__(self, name: object) -> bool:
        return name in self._described or name in self._later

    def __iter__(self) -> Iterator[str]:
        return iter({**self._described, **self._later})

    def __len__(self) -> int:
        return len(self._described.keys() | self._later.keys())


class _Facts(Mapping[str, ToolFacts]):
    """The facts of tools by name."""

    def __init__(self, tools: Mapping[str, Tool]) -> None:
        self._tools = tools

    def __getitem__(self, name: str) -> ToolFacts:
        return self._tools[name].facts

    def __iter__(self) -> Iterator[str]:
        return iter(self._tools)

    def __len__(self) -> int:
        return len(self._tools)


@dataclass(frozen=True, slots=True)
class Registry:
    """The tools that can be called, the plugins they come from, and what is broken."""

    tools: Mapping[str, Tool]
    plugins: tuple[Plugin, ...] = ()
    broken: tuple[BrokenPlugin, ...] = ()

    def names(self) -> list[str]:
        """Return the names of all tools that can be called, sorted."""
        return sorted(self.tools)

    def tool(self, name: str) -> Tool:
        """Return a tool; raises PluginError where its plugin is broken, NotFoundError where nobody has it."""
        if name in self.tools:
            return self.tools[name]
        broken = self.find_broken(name)
        if broken is not None:
            raise PluginError(f"tool {name!r} can't be used: {broken}", hint=broken.remedy or "sagactl tools")
        from difflib import get_close_matches

        close = get_close_matches(name, self.names(), n=1)
        hint = f"did you mean {close[0]}?" if close else "sagactl tools"
        raise NotFoundError(f"no tool named {name!r}", code="missing-tool", hint=hint)

    def find_broken(self, name: str) -> BrokenPlugin | None:
        """Return what keeps the tool *name* from being used: its plugin is broken, or two give it."""
        for each in self.broken:
            if name in each.tools or (not each.tools and each.name == name.partition(".")[0]):
                return each
        return None

    @property
    def facts(self) -> Mapping[str, ToolFacts]:
        """The facts of every tool that can be called."""
        return _Facts(self.tools)

    def facts_of(self, name: str) -> ToolFacts:
        """Return what the core must know of a tool; raises as `tool`."""
        return self.tool(name).facts

    def probed_by(self, probe: str) -> list[ToolFacts]:
        """Return the tools that name *probe* as their probe."""
        return [each.facts for each in self.tools.values() if each.facts.probe == probe]


def collect_tools(
    folder: Path | None,
    *,
    allowed: Collection[str] | None = None,
    entry_points: Iterable[EntryPoint] | None = None,
    given: Sequence[Callable[..., object]] = (),
    built_in: Iterable[Loaded] = (),
    declared: Iterable[Loaded | BrokenPlugin] = (),
    watch: Watch = watch_nothing,
    place: Placing = lambda tool, _declared, _plugin: tool,
) -> Registry:
    """Import plugins and describe their tools.

    Args:
        folder: The project's `plugins/`; may be missing.
        allowed: Distributions whose entry points may be imported; all where it is None.
        entry_points: What is installed; looked up by default.
        given: Functions with `@tool` that the program itself has; raises TypeError for any other.
        built_in: What is always there, and sound: a tool of these is described when it is asked for.
        declared: What is declared in files and settings, and not written in Python.
        watch: What is around each import.
        place: Says where a tool is called: in this process or one of its own.
    """
    collector = _Collector(place)
    for each in built_in:
        collector.add_later(each)
    for own in (*load_functions(given), *declared):
        collector.add(own)
    for point in installed_entry_points() if entry_points is None else entry_points:
        if is_allowed(origin_of(point), allowed):
            with watch(point.name):
                collector.add(load_entry_point(point))
        else:
            collector.plugins.append(Plugin(point.name, origin_of(point), point.value, version_of(point), loaded=False))
    if folder is not None and folder.is_dir():
        for loaded in load_folder(folder, watch):
            collector.add(loaded)
    return collector.finish()


def is_allowed(distribution: str, allowed: Collection[str] | None) -> bool:
    """Tell whether the operator's list has the distribution; case, `-`, `_` and `.` in names don't count."""
    return allowed is None or _plain(distribution) in {_plain(each) for each in allowed}


def _plain(name: str) -> str:
    return _SEPARATORS.sub("-", name).lower()


class _Collector:
    """Gathers plugins one by one; twins and dangling pairs are found at the end."""

    def __init__(self, place: Placing) -> None:
        self._place = place
        self.plugins: list[Plugin] = []
        self._broken: list[BrokenPlugin] = []
        self._found: dict[str, list[Tool]] = {}
        self._later: dict[str, Callable[[], Tool]] = {}
        self._seen: set[int] = set()

    def add_later(self, loaded: Loaded) -> None:
        plugin, names = loaded.plugin, []
        for function in loaded.functions:
            place = find_place(plugin, function)
            for one in declarations_of(function):
                self._later[one.name] = partial(describe_tool, one, function, place=place, version=plugin.version)
                names.append(one.name)
        self.plugins.append(replace(plugin, tools=tuple(names)))

    def add(self, loaded: Loaded | BrokenPlugin) -> None:
        if isinstance(loaded, BrokenPlugin):
            self._broken.append(loaded)
            return
        names = [
            declaration.name
            for function in loaded.functions
            for declaration in declarations_of(function)
            # A tool that another module imports from here is still one tool.
            if id(declaration) not in self._seen and self._add_tool(loaded, function, declaration)
        ]
        self.plugins.append(replace(loaded.plugin, tools=tuple(names)))

    def _add_tool(self, loaded: Loaded, function: object, declaration: Declaration) -> bool:
        self._seen.add(id(declaration))
        plugin = loaded.plugin
        place = find_place(plugin, function)
        try:
            tool = self._describe(declaration, function, place, plugin)
        except PluginError as error:
            reason = error.message.removeprefix(f"{place}: ")
            self._broken.append(BrokenPlugin(plugin.name, place.file, place.line, reason, (str(declaration.name),)))
            return False
        self._found.setdefault(tool.facts.name, []).append(tool)
        return True

    def _describe(self, declaration: Declaration, function: object, place: Place, plugin: Plugin) -> Tool:
        tool = describe_tool(declaration, function, place=place, version=plugin.version)
        try:
            return self._place(tool, declaration.isolation, plugin)
        except ValueError as error:
            raise PluginError(f"{place}: tool {declaration.name!r}: {error}") from error

    def finish(self) -> Registry:
        for name in self._later.keys() & self._found.keys():
            self._found[name].insert(0, self._later.pop(name)())
        tools = {name: twins[0] for name, twins in self._found.items() if len(twins) == 1}
        for name, twins in self._found.items():
            if len(twins) > 1:
                self._broken.append(_describe_twins(name, twins))
        for tool in tools.values():
            self._broken.extend(_find_bad_partners(tool, self._find))
        return Registry(_Tools(tools, self._later), tuple(self.plugins), tuple(self._broken))

    def _find(self, name: str) -> Sequence[Tool]:
        return [self._later[name]()] if name in self._later else self._found.get(name, ())


def find_place(plugin: Plugin, function: object) -> Place:
    """Return where the code of a plugin's function stands."""
    written: tuple[str, int] | None = getattr(function, PLACE, None)
    if written is not None:
        return Place(plugin.name, *written)
    while (inner := getattr(function, "__wrapped__", None) or getattr(function, "func", None)) is not None:
        function = inner
    code = getattr(function, "__code__", None)
    where = (plugin.file, 1) if code is None else (code.co_filename, code.co_firstlineno)
    return Place(plugin.name, *where)


def _describe_twins(name: str, twins: list[Tool]) -> BrokenPlugin:
    first, *others = (tool.place for tool in twins)
    message = f"tool {name!r} is also given by {', '.join(map(str, others))}; none of them can be used"
    return BrokenPlugin(first.plugin, first.file, first.line, message, (name,))


def _find_bad_partners(tool: Tool, find: Callable[[str], Sequence[Tool]]) -> list[BrokenPlugin]:
    """Return what is wrong with the tools that *tool* names; it can be called all the same, and not by its pair."""
    facts, place = tool.facts, tool.place
    partners = {"compensation": facts.compensation, "probe": facts.probe}
    return [
        BrokenPlugin(place.plugin, place.file, place.line, f"tool {facts.name!r} names the {what} {partner!r}, {wrong}")
        for what, partner in partners.items()
        if partner is not None and (wrong := _object_to(what, find(partner))) is not None
    ]


def _object_to(what: str, found: Sequence[Tool]) -> str | None:
    if not found:
        return "not found"
    facts = found[0].facts
    if what == "compensation" and facts.read_only:
        return "which only reads, so it undoes nothing"
    if what == "compensation" and not facts.idempotent and facts.probe is None:
        return "which is neither idempotent nor probed, so it can't be repeated"
    return None
