"""Plugins that installed distributions offer, each by an entry point."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Final

from sagactl.tools.api import declarations_of
from sagactl.tools.breaking import break_plugin
from sagactl.tools.capture import capturing
from sagactl.tools.offered import describe_module, tools_of_module
from sagactl.tools.plugin import BrokenPlugin, Home, Loaded, Plugin

if TYPE_CHECKING:
    from importlib.metadata import EntryPoint

ENTRY_POINT_GROUP: Final = "sagactl.plugins"


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


def load_installed(home: Home) -> Loaded | BrokenPlugin:
    """Import the one plugin that *home* names by its entry point."""
    from importlib.metadata import entry_points

    found = entry_points(group=ENTRY_POINT_GROUP, name=home.name)
    point = next((each for each in found if each.value == home.place), None)
    missing = BrokenPlugin(home.name, home.place, 1, "it isn't installed any more")
    return missing if point is None else load_entry_point(point)


def load_entry_point(point: EntryPoint) -> Loaded | BrokenPlugin:
    """Import one entry point: a module, a function that gives tools, or a list of tools."""
    file = _guess_file(point)
    with capturing() as captured:
        try:
            functions = _functions_of(point.load())
        except (Exception, SystemExit) as error:
            return break_plugin(point.name, Path(file), error)
    plugin = Plugin(
        point.name,
        origin_of(point),
        file,
        version_of(point),
        description=describe_module(sys.modules.get(point.module)),
        printed=captured.text,
        home=Home("entry_point", point.value, point.name),
    )
    return Loaded(plugin, functions)


def _functions_of(thing: object) -> tuple[object, ...]:
    if isinstance(thing, ModuleType):
        return tools_of_module(thing)
    if callable(thing) and not declarations_of(thing):
        thing = thing()
    given = list(thing) if isinstance(thing, Iterable) else [thing]
    functions = tuple(each for each in given if callable(each) and declarations_of(each))
    if len(functions) != len(given):
        raise TypeError("the entry point gives something that is no tool")
    return functions


def origin_of(point: EntryPoint) -> str:
    """Name the distribution that an entry point comes from; the entry point itself where there is none."""
    return point.name if point.dist is None else point.dist.name


def version_of(point: EntryPoint) -> str:
    """Return the version of the distribution."""
    return "0" if point.dist is None else point.dist.version


def _guess_file(point: EntryPoint) -> str:
    module = sys.modules.get(point.module)
    return getattr(module, "__file__", None) or point.value
