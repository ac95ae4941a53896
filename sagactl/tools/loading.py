"""Importing plugins so that a broken one breaks nothing but itself.

A project's `plugins/` folder becomes a package with a private name. So `plugins/stripe.py` doesn't hide the library
`stripe`, two projects in one process don't mix, and `from ._shared import x` works. What a module prints while it is
imported is captured, and an exception, `sys.exit` included, becomes a `BrokenPlugin`.

A plugin gives what became a tool while its own modules ran, bound to a name or not; what it imports from elsewhere
stays with its owner.
"""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from inspect import cleandoc
from pathlib import Path
from types import ModuleType, TracebackType
from typing import TYPE_CHECKING, Final

from sagactl.dataclass import dataclass
from sagactl.hashing import sha256
from sagactl.regular_file import read_regular
from sagactl.tools.api import declarations_of, declared_in
from sagactl.tools.capture import capturing
from sagactl.tools.convert import bound_line

if TYPE_CHECKING:
    from importlib.metadata import EntryPoint

ENTRY_POINT_GROUP: Final = "sagactl.plugins"
PROGRAM: Final = "program"
"""The origin of what an embedding program has itself."""

PACKAGE_PREFIX: Final = "_sagactl_plugins_"
DESCRIPTION_LENGTH_MAX: Final = 4_000
SOURCE_BYTES_MAX: Final = 1_048_576
"""How much of a broken plugin's source is searched for the names of its tools."""

PLUGIN_BYTES_MAX: Final = 67_108_864
"""What one file of a plugin may have."""

_MACHINERY: Final = re.compile(r"<frozen |[/\\]importlib[/\\]")
_MENTION: Final = re.compile(r"""\btool\(\s*["']([a-z0-9_.-]{1,128})["']""")


@dataclass(frozen=True, slots=True)
class Home:
    """Where any interpreter finds a plugin: `folder` (place: its path), `entry_point` (its value) or `module`."""

    kind: str
    place: str
    name: str


@dataclass(frozen=True, slots=True)
class Plugin:
    """Something that offers tools, with its docstring; `loaded` is False where it isn't allowed, and never imported."""

    name: str
    origin: str
    file: str
    version: str
    loaded: bool = True
    tools: tuple[str, ...] = ()
    description: str = ""
    printed: str = ""
    home: Home | None = None
    """None where no other interpreter finds it."""


@dataclass(frozen=True, slots=True)
class BrokenPlugin:
    """A plugin, or a part of one, that can't be used; `tools` are those that can't be called because of it.

    `excerpt` shows all problems in the text of a file of declarations, each with a caret; `remedy` is the command that
    mends it, where one does. Line 0 is no line: what is wrong is said of the file as a whole.
    """

    name: str
    file: str
    line: int
    message: str
    tools: tuple[str, ...] = ()
    excerpt: str = ""
    remedy: str | None = None

    def __str__(self) -> str:
        return f"plugin {self.name} ({self.file}{f':{self.line}' if self.line else ''}): {self.message}"


@dataclass(frozen=True, slots=True)
class Loaded:
    """An imported plugin and the functions in it that carry declarations, in order."""

    plugin: Plugin
    functions: tuple[object, ...]


Watch = Callable[[str], AbstractContextManager[None]]
"""What is around the import of each plugin, by its name."""


def watch_nothing(_: str) -> AbstractContextManager[None]:
    """Watch no import."""
    return nullcontext()


def load_folder(folder: Path, watch: Watch = watch_nothing) -> Iterator[Loaded | BrokenPlugin]:
    """Import each module and package of a `plugins/` folder whose name begins with neither `_` nor `.`."""
    try:
        entries = sorted(folder.iterdir())
    except OSError as error:
        yield BrokenPlugin(folder.name, str(folder), 0, f"can't be read: {error.strerror}")
        return
    package = _make_package(folder)
    shared = _list_shared(entries)
    for entry in entries:
        source = _source_of(entry)
        if source is not None and not entry.name.startswith(("_", ".")):
            name = entry.name.removesuffix(".py")
            with watch(name):
                loaded = _load_file(package, source, name=name, shared=shared)
            yield loaded


def load_one(home: Home) -> Loaded | BrokenPlugin:
    """Import the one plugin that *home* names, in an interpreter that needs no other."""
    if home.kind == "folder":
        folder = Path(home.place)
        shared = _list_shared(sorted(folder.iterdir()))
        return _load_file(_make_package(folder), _find_source(home), name=home.name, shared=shared)
    if home.kind == "entry_point":
        from importlib.metadata import entry_points

        found = entry_points(group=ENTRY_POINT_GROUP, name=home.name)
        point = next((each for each in found if each.value == home.place), None)
        missing = BrokenPlugin(home.name, home.place, 1, "it isn't installed any more")
        return missing if point is None else load_entry_point(point)
    return _load_module(home.place)


def digest_home(home: Home) -> str | None:
    """Return the version that the plugin would have if it were read now; None where that costs more than it tells."""
    if home.kind == "entry_point":
        return None
    if home.kind == "module":
        module = sys.modules.get(home.place)
        return _digest_sources(Path(str(getattr(module, "__file__", ""))), [])
    folder = Path(home.place)
    return _digest_sources(_find_source(home), _list_shared(sorted(folder.iterdir())))


def _find_source(home: Home) -> Path:
    folder = Path(home.place)
    return _source_of(folder / f"{home.name}.py") or folder / home.name / "__init__.py"


def _load_module(name: str) -> Loaded | BrokenPlugin:
    from importlib import import_module

    try:
        module = import_module(name)
    except (Exception, SystemExit) as error:
        return _break(name, Path(name), error)
    functions = [thing for thing in list(vars(module).values()) if callable(thing) and declarations_of(thing)]
    return next(load_functions(functions))


def _list_shared(entries: Iterable[Path]) -> list[Path]:
    return [entry for entry in entries if entry.suffix == ".py" and entry.name.startswith("_") and entry.is_file()]


def load_functions(given: Sequence[Callable[..., object]]) -> Iterator[Loaded]:
    """Take the tools that a program has itself, by the modules they stand in; raises TypeError for what is no tool."""
    by_module: dict[str, list[object]] = {}
    for function in given:
        if not declarations_of(function):
            raise TypeError(f"{function!r} is no tool: it has no @tool")
        by_module.setdefault(str(getattr(function, "__module__", "program")), []).append(function)
    for name, functions in by_module.items():
        module = sys.modules.get(name)
        source = Path(str(getattr(module, "__file__", None) or name))
        version = _digest_sources(source, []) if source.is_file() else "0"
        home = Home("module", name, name) if getattr(module, "__spec__", None) and name != "__main__" else None
        plugin = Plugin(name, PROGRAM, str(source), version, description=_describe_module(module), home=home)
        yield Loaded(plugin, tuple(functions))


def _source_of(entry: Path) -> Path | None:
    if entry.suffix == ".py" and entry.is_file():
        return entry
    package = entry / "__init__.py"
    return package if package.is_file() else None


def _make_package(folder: Path) -> str:
    """Register the private package, empty; what an earlier load left there is forgotten."""
    name = PACKAGE_PREFIX + sha256(str(folder.resolve()).encode()).hexdigest()[:16]
    for known in [each for each in sys.modules if each == name or each.startswith(name + ".")]:
        del sys.modules[known]
    package = ModuleType(name, "The plugins of one project.")
    package.__path__ = [str(folder.resolve())]
    sys.modules[name] = package
    return name


def _load_file(package: str, source: Path, *, name: str, shared: list[Path]) -> Loaded | BrokenPlugin:
    from importlib import import_module, invalidate_caches

    if "." in name:
        return BrokenPlugin(name, str(source), 1, "a dot in the name of a plugin's file can't be imported")
    invalidate_caches()
    try:
        version = _digest_sources(source, shared)  # first: what is too large is never imported
    except OSError as error:
        return BrokenPlugin(name, error.filename or str(source), 1, f"can't be read: {error.strerror}")
    with capturing() as captured:
        try:
            module = import_module(f"{package}.{name}")
            functions = _tools_below(module.__name__, f"{package}._")
        except (Exception, SystemExit) as error:  # foreign code; Ctrl-C still ends the command
            return _break(name, source, error)
    folder = source.parent.parent if source.name == "__init__.py" else source.parent
    plugin = Plugin(
        name,
        "project",
        str(source),
        version,
        description=_describe_module(module),
        printed=captured.text,
        home=Home("folder", str(folder.resolve()), name),
    )
    return Loaded(plugin, functions)


def _describe_module(module: object) -> str:
    text = getattr(module, "__doc__", None)
    return cleandoc(text)[:DESCRIPTION_LENGTH_MAX] if isinstance(text, str) else ""


def _tools_below(name: str, private: str | None = None) -> tuple[object, ...]:
    """Return what became a tool in the module *name*, below it, and in modules that begin with *private*.

    A private file belongs to no plugin, so its tools come with the first plugin that imports it.
    """
    homes = [
        getattr(module, "__dict__", {})  # any object may stand among the modules
        for known, module in list(sys.modules.items())
        if known == name or known.startswith(f"{name}.") or (private is not None and known.startswith(private))
    ]
    return _choose_bound(homes, [thing for home in homes for thing in declared_in(home)])


def _choose_bound(homes: Iterable[Mapping[str, object]], declared: Iterable[object]) -> tuple[object, ...]:
    """Return each declared thing as its module has it: another decorator may have wrapped it since."""
    bound: dict[int, object] = {}
    for home in homes:
        for thing in list(home.values()):
            for declaration in declarations_of(thing):
                bound.setdefault(id(declaration), thing)
    chosen = [bound.get(id(one), thing) for thing in declared for one in declarations_of(thing)]
    return tuple({id(thing): thing for thing in chosen}.values())


def _functions_in(things: Iterable[object]) -> tuple[object, ...]:
    return tuple(thing for thing in list(things) if callable(thing) and declarations_of(thing))


def _digest_sources(source: Path, shared: list[Path]) -> str:
    """Return a version made of the plugin's own files and the private ones beside it."""
    inside = source.parent.rglob("*.py") if source.name == "__init__.py" else [source]
    own = sorted(file for file in inside if file.is_file())
    summed = sha256(b"")
    for file in [*own, *shared]:
        summed.update(sha256(read_regular(file, PLUGIN_BYTES_MAX)).digest())
    return f"sha256:{summed.hexdigest()[:16]}"


def _break(name: str, source: Path, error: BaseException) -> BrokenPlugin:
    file, line = _place(error, source)
    text = error.msg if isinstance(error, SyntaxError) else _text_of(error)
    message = bound_line(f"{type(error).__name__}: {text}" if text else type(error).__name__)
    return BrokenPlugin(name, file, line, message, tools=_mentioned_tools(source))


def _text_of(error: BaseException) -> str:
    try:
        return str(error)
    except Exception:  # foreign code
        return ""


def _place(error: BaseException, source: Path) -> tuple[str, int]:
    if isinstance(error, SyntaxError) and error.filename:
        return error.filename, error.lineno or 1
    # Frames of the import machinery lead to the plugin; they aren't it.
    frames = [frame for frame in _frames(error.__traceback__) if not _MACHINERY.search(frame[0])]
    own = [frame for frame in frames if Path(frame[0]).is_relative_to(source.parent)]
    others = [frame for frame in frames if frame[0] != __file__]
    return (own or others or [(str(source), 1)])[-1]


def _frames(traceback: TracebackType | None) -> Iterator[tuple[str, int]]:
    while traceback is not None:
        yield traceback.tb_frame.f_code.co_filename, traceback.tb_lineno
        traceback = traceback.tb_next


def _mentioned_tools(source: Path) -> tuple[str, ...]:
    """Guess from the text which tools a plugin would have had, for better messages."""
    try:
        with source.open("rb") as file:
            text = file.read(SOURCE_BYTES_MAX).decode(errors="replace")
    except OSError:
        return ()
    return tuple(dict.fromkeys(_MENTION.findall(text)))


def installed_entry_points() -> list[EntryPoint]:
    """Return what installed distributions offer, without importing any of it."""
    if not _may_be_installed():
        return []
    from importlib.metadata import entry_points

    return sorted(entry_points(group=ENTRY_POINT_GROUP), key=lambda point: (point.name, point.value))


def _may_be_installed() -> bool:
    """Tell whether any distribution may offer plugins, from the names and texts of files alone.

    `importlib.metadata` costs a tenth of a short run. It is asked only where a folder of `sys.path` holds an
    `entry_points.txt` with our group, or where there is another way to be installed: an archive, a finder of others.
    """
    finders = [each for each in sys.meta_path if hasattr(each, "find_distributions")]
    others = [each for each in finders if getattr(each, "__name__", "") != "PathFinder"]
    return bool(others) or any(_may_hold_plugins(Path(entry)) for entry in sys.path)


def _may_hold_plugins(folder: Path) -> bool:
    try:
        names = os.listdir(folder)  # noqa: PTH208 - names are all that is wanted, of each folder at each start
    except OSError:
        return folder.is_file()
    if folder.suffix == ".egg" or any(name.endswith(".egg") for name in names):
        return True
    infos = [name for name in names if name.endswith((".dist-info", ".egg-info"))]
    return any(_names_group(folder / name / "entry_points.txt") for name in infos)


def _names_group(file: Path) -> bool:
    try:
        return ENTRY_POINT_GROUP.encode() in file.read_bytes()
    except OSError:
        return False


def load_entry_point(point: EntryPoint) -> Loaded | BrokenPlugin:
    """Import one entry point: a module, a function that gives tools, or a list of tools."""
    file = _guess_file(point)
    with capturing() as captured:
        try:
            functions = _functions_of(point.load())
        except (Exception, SystemExit) as error:
            return _break(point.name, Path(file), error)
    plugin = Plugin(
        point.name,
        origin_of(point),
        file,
        version_of(point),
        description=_describe_module(sys.modules.get(point.module)),
        printed=captured.text,
        home=Home("entry_point", point.value, point.name),
    )
    return Loaded(plugin, functions)


def _functions_of(thing: object) -> tuple[object, ...]:
    if isinstance(thing, ModuleType):
        return _tools_of_module(thing)
    if callable(thing) and not declarations_of(thing):
        thing = thing()
    given = list(thing) if isinstance(thing, Iterable) else [thing]
    functions = _functions_in(given)
    if len(functions) != len(given):
        raise TypeError("the entry point gives something that is no tool")
    return functions


def _tools_of_module(module: ModuleType) -> tuple[object, ...]:
    """Return the tools of an installed module, with those that it has from other modules of its own package."""
    top = module.__name__.partition(".")[0]
    of_package = {id(one) for thing in _tools_below(top) for one in declarations_of(thing)}
    bound = [
        thing for thing in list(vars(module).values()) if any(id(one) in of_package for one in declarations_of(thing))
    ]
    return tuple({id(thing): thing for thing in (*_tools_below(module.__name__), *bound)}.values())


def origin_of(point: EntryPoint) -> str:
    """Name the distribution that an entry point comes from; the entry point itself where there is none."""
    return point.name if point.dist is None else point.dist.name


def version_of(point: EntryPoint) -> str:
    """Return the version of the distribution."""
    return "0" if point.dist is None else point.dist.version


def _guess_file(point: EntryPoint) -> str:
    module = sys.modules.get(point.module)
    return getattr(module, "__file__", None) or point.value
