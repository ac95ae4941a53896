"""What an imported module offers: what became a tool while its own code ran, bound to a name or not.

What it imports from elsewhere stays with its owner.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Mapping
from inspect import cleandoc
from types import ModuleType
from typing import Final

from sagactl.tools.api import declarations_of, declared_in

DESCRIPTION_LENGTH_MAX: Final = 4_000


def tools_below(name: str, private: str | None = None) -> tuple[object, ...]:
    """Return what became a tool in the module *name*, below it, and in modules that begin with *private*.

    A private file belongs to no plugin, so its tools come with the first plugin that imports it.
    """
    homes = [
        getattr(module, "__dict__", {})  # any object may stand among the modules
        for known, module in list(sys.modules.items())
        if known == name or known.startswith(f"{name}.") or (private is not None and known.startswith(private))
    ]
    return _choose_bound(homes, [thing for home in homes for thing in declared_in(home)])


def tools_of_module(module: ModuleType) -> tuple[object, ...]:
    """Return the tools of an installed module, with those that it has from other modules of its own package."""
    top = module.__name__.partition(".")[0]
    of_package = {id(one) for thing in tools_below(top) for one in declarations_of(thing)}
    bound = [
        thing for thing in list(vars(module).values()) if any(id(one) in of_package for one in declarations_of(thing))
    ]
    return tuple({id(thing): thing for thing in (*tools_below(module.__name__), *bound)}.values())


def _choose_bound(homes: Iterable[Mapping[str, object]], declared: Iterable[object]) -> tuple[object, ...]:
    """Return each declared thing as its module has it: another decorator may have wrapped it since."""
    bound: dict[int, object] = {}
    for home in homes:
        for thing in list(home.values()):
            for declaration in declarations_of(thing):
                bound.setdefault(id(declaration), thing)
    chosen = [bound.get(id(one), thing) for thing in declared for one in declarations_of(thing)]
    return tuple({id(thing): thing for thing in chosen}.values())


def describe_module(module: object) -> str:
    """Return the docstring of a module, bounded; nothing where it has none."""
    text = getattr(module, "__doc__", None)
    return cleandoc(text)[:DESCRIPTION_LENGTH_MAX] if isinstance(text, str) else ""
