"""Importing plugins so that a broken one breaks nothing but itself.

A project's `plugins/` folder becomes a package with a private name. So `plugins/stripe.py` doesn't hide the library
`stripe`, two projects in one process don't mix, and `from ._shared import x` works. What a module prints while it is
imported is captured, and an exception, `sys.exit` included, becomes a `BrokenPlugin`.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from types import ModuleType
from typing import Final

from sagactl.hashing import sha256
from sagactl.regular_file import read_regular
from sagactl.tools.api import declarations_of
from sagactl.tools.breaking import break_plugin
from sagactl.tools.capture import capturing
from sagactl.tools.installed import load_installed
from sagactl.tools.offered import describe_module, tools_below
from sagactl.tools.plugin import PROGRAM, BrokenPlugin, Home, Loaded, Plugin

PACKAGE_PREFIX: Final = "_sagactl_plugins_"
PLUGIN_BYTES_MAX: Final = 67_108_864
"""What one file of a plugin may have."""

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
        return load_installed(home)
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
        return break_plugin(name, Path(name), error)
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
        plugin = Plugin(name, PROGRAM, str(source), version, description=describe_module(module), home=home)
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
            functions = tools_below(module.__name__, f"{package}._")
        except (Exception, SystemExit) as error:  # foreign code; Ctrl-C still ends the command
            return break_plugin(name, source, error)
    folder = source.parent.parent if source.name == "__init__.py" else source.parent
    plugin = Plugin(
        name,
        "project",
        str(source),
        version,
        description=describe_module(module),
        printed=captured.text,
        home=Home("folder", str(folder.resolve()), name),
    )
    return Loaded(plugin, functions)


def _digest_sources(source: Path, shared: list[Path]) -> str:
    """Return a version made of the plugin's own files and the private ones beside it."""
    inside = source.parent.rglob("*.py") if source.name == "__init__.py" else [source]
    own = sorted(file for file in inside if file.is_file())
    summed = sha256(b"")
    for file in [*own, *shared]:
        summed.update(sha256(read_regular(file, PLUGIN_BYTES_MAX)).digest())
    return f"sha256:{summed.hexdigest()[:16]}"
