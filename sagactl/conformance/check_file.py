"""`plugins/NAME.check.yaml`: with which arguments the tools of a plugin are checked, and in which world.

The file is read as strictly as a saga file (rule F2), and its templates are those of sagas (rule F3). They see
`run.id`, another one in each case, `input`, and the outputs of what set the world up, as `steps.ID.output`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import field
from pathlib import Path
from typing import Final, TypeVar

from sagactl.conformance.rules import Rule
from sagactl.core.canonical import Json
from sagactl.core.keys import STEP_ID
from sagactl.core.secrets import secrets_named
from sagactl.core.template import Literal, Template, TemplateSyntaxError, parse_template
from sagactl.dataclass import dataclass
from sagactl.errors import InvalidError

REJECTS_MAX: Final = 50
"""How many calls that must be rejected a tool may have."""

STEPS_MAX: Final = 50
"""How many calls may set a world up, tear it down or observe it."""

SUFFIX: Final = ".check.yaml"
NOTHING: Final[Template] = Literal({})
_KEYS: Final = frozenset(
    {"input", "world", "files", "ignore", "safe_tools", "set_up", "tear_down", "observe", "tools", "description"}
)
_TOOL_KEYS: Final = frozenset({"with", "set_up", "tear_down", "observe", "compensate", "rejects", "excused"})
Item = TypeVar("Item")


@dataclass(frozen=True, slots=True)
class Preparation:
    """A call that sets a world up or tears it down."""

    id: str
    tool: str
    arguments: Template = NOTHING


@dataclass(frozen=True, slots=True)
class Observation:
    """A read-only tool that shows the world; `show` is what of its output counts, all of it where it is None."""

    tool: str
    arguments: Template = NOTHING
    show: Template | None = None


@dataclass(frozen=True, slots=True)
class Undo:
    """How a tool is undone, where it isn't by its pair: another compensation, or other arguments."""

    tool: str | None = None
    arguments: Template | None = None


@dataclass(frozen=True, slots=True)
class ToolEntry:
    """How one tool is checked; `rejects` are what differs from `arguments` in calls that must be rejected."""

    arguments: Template | None = None
    set_up: tuple[Preparation, ...] = ()
    tear_down: tuple[Preparation, ...] = ()
    observe: tuple[Observation, ...] = ()
    undo: Undo = Undo()
    rejects: tuple[Template, ...] = ()
    excused: Mapping[Rule, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class CheckFile:
    """What a plugin's check file says."""

    input: Mapping[str, Json] = field(default_factory=dict)
    world: Path | None = None
    files: Mapping[str, str] = field(default_factory=dict)
    ignore: tuple[str, ...] = ()
    safe_tools: tuple[str, ...] = ()
    set_up: tuple[Preparation, ...] = ()
    tear_down: tuple[Preparation, ...] = ()
    observe: tuple[Observation, ...] = ()
    tools: Mapping[str, ToolEntry] = field(default_factory=dict)


def read_check_file(value: Json, *, file: str, folder: Path) -> CheckFile:
    """Return what the file holds; raises InvalidError that names the place. *folder* is what `world` is relative to."""
    reader = _Reader(file)
    top = reader.read_map(value, "", _KEYS)
    world = top.get("world")
    files = reader.read_map(top.get("files"), "files", None)
    return CheckFile(
        input=reader.read_map(top.get("input"), "input", None),
        world=None if world is None else folder / reader.read_text(world, "world"),
        files={reader.read_path(name): reader.read_content(text, f"files.{name}") for name, text in files.items()},
        ignore=reader.read_texts(top.get("ignore"), "ignore"),
        safe_tools=reader.read_texts(top.get("safe_tools"), "safe_tools"),
        set_up=reader.read_list(top.get("set_up"), "set_up", reader.read_preparation),
        tear_down=reader.read_list(top.get("tear_down"), "tear_down", reader.read_preparation),
        observe=reader.read_list(top.get("observe"), "observe", reader.read_observation),
        tools={
            name: reader.read_entry(entry, f"tools.{name}")
            for name, entry in reader.read_map(top.get("tools"), "tools", None).items()
        },
    )


class _Reader:
    """Takes values apart, and says where one isn't what it must be."""

    def __init__(self, file: str) -> None:
        self._file = file

    def refuse(self, place: str, what: str) -> InvalidError:
        where = f"{self._file}: {place}" if place else self._file
        return InvalidError(f"{where} {what}", code="invalid-check-file", hint="sagactl help tools-check")

    def read_map(self, value: Json, place: str, known: frozenset[str] | None) -> dict[str, Json]:
        if value is None:
            return {}
        if not isinstance(value, dict):
            raise self.refuse(place, "must be a map")
        unknown = sorted(value.keys() - known) if known is not None else []
        if unknown:
            at = f"{place}.{unknown[0]}" if place else unknown[0]
            raise self.refuse(at, f"is no key; known here are {', '.join(sorted(known or ()))}")
        return value

    def read_list(
        self, value: Json, place: str, read: Callable[[Json, str], Item], items_max: int = STEPS_MAX
    ) -> tuple[Item, ...]:
        if value is None:
            return ()
        if not isinstance(value, list) or len(value) > items_max:
            raise self.refuse(place, f"must be a list of at most {items_max}")
        return tuple(read(each, f"{place}[{number}]") for number, each in enumerate(value))

    def read_text(self, value: Json, place: str) -> str:
        if not isinstance(value, str) or not value:
            raise self.refuse(place, "must be a text")
        return value

    def read_content(self, value: Json, place: str) -> str:
        return self.read_text(value, place) if value else ""

    def read_texts(self, value: Json, place: str) -> tuple[str, ...]:
        return self.read_list(value, place, self.read_text)

    def read_path(self, name: str) -> str:
        if Path(name).is_absolute() or ".." in Path(name).parts:
            raise self.refuse(f"files.{name}", "must lie in the world's own folder")
        return name

    def read_template(self, value: Json, place: str) -> Template:
        try:
            return parse_template({} if value is None else value)
        except TemplateSyntaxError as error:
            raise self.refuse(place, f"has a bad expression: {error}") from None

    def read_arguments(self, value: Json, place: str) -> Template:
        return self.read_template(self.read_map(value, place, None), place)

    def read_preparation(self, value: Json, place: str) -> Preparation:
        given = self.read_map(value, place, frozenset({"id", "tool", "with"}))
        tool = self.read_text(given.get("tool"), f"{place}.tool")
        identity = self.read_text(given.get("id", tool.rpartition(".")[2].replace("-", "_")), f"{place}.id")
        if not STEP_ID.fullmatch(identity):
            raise self.refuse(f"{place}.id", "must be a name such as a step's")
        return Preparation(identity, tool, self.read_arguments(given.get("with"), f"{place}.with"))

    def read_observation(self, value: Json, place: str) -> Observation:
        named: Json = {"tool": value} if isinstance(value, str) else value
        given = self.read_map(named, place, frozenset({"tool", "with", "show"}))
        show = self.read_template(given["show"], f"{place}.show") if "show" in given else None
        tool = self.read_text(given.get("tool"), f"{place}.tool")
        return Observation(tool, self.read_arguments(given.get("with"), f"{place}.with"), show)

    def read_entry(self, value: Json, place: str) -> ToolEntry:
        given = self.read_map(value, place, _TOOL_KEYS)
        return ToolEntry(
            arguments=self.read_arguments(given.get("with"), f"{place}.with") if "with" in given else None,
            set_up=self.read_list(given.get("set_up"), f"{place}.set_up", self.read_preparation),
            tear_down=self.read_list(given.get("tear_down"), f"{place}.tear_down", self.read_preparation),
            observe=self.read_list(given.get("observe"), f"{place}.observe", self.read_observation),
            undo=self.read_undo(given.get("compensate"), f"{place}.compensate"),
            rejects=self.read_list(given.get("rejects"), f"{place}.rejects", self.read_arguments, REJECTS_MAX),
            excused=self.read_excuses(given.get("excused"), f"{place}.excused"),
        )

    def read_undo(self, value: Json, place: str) -> Undo:
        given = self.read_map(value, place, frozenset({"tool", "with"}))
        tool = given.get("tool")
        arguments = self.read_arguments(given["with"], f"{place}.with") if "with" in given else None
        return Undo(None if tool is None else self.read_text(tool, f"{place}.tool"), arguments)

    def read_excuses(self, value: Json, place: str) -> Mapping[Rule, str]:
        given = self.read_map(value, place, frozenset(Rule))
        return {Rule(name): self.read_text(reason, f"{place}.{name}") for name, reason in given.items()}


def list_tools_named(file: CheckFile, entry: ToolEntry) -> Sequence[str]:
    """Return the tools that a check calls beside the one that is checked."""
    return list(dict.fromkeys(each.tool for each in _list_calls(file, entry)))


def list_secrets_named(file: CheckFile, entry: ToolEntry) -> Sequence[str]:
    """Return the secrets that are arguments of these."""
    return [name for each in _list_calls(file, entry) for name in secrets_named(each.arguments, None)]


def _list_calls(file: CheckFile, entry: ToolEntry) -> Sequence[Preparation | Observation]:
    calls: list[Preparation | Observation] = [*file.set_up, *file.tear_down, *file.observe]
    return [*calls, *entry.set_up, *entry.tear_down, *entry.observe]
