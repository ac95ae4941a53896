"""What two looks at the world have in common, and what has come or gone between them.

A look is JSON. Two looks are *the same* if they are equal to the letter, but for the id of the run; that is asked where
everything was undone. Where something is to stay, its names and moments differ from run to run, so what is compared is
how much there is of each kind: its *traits*. Things that stand in a list are counted by their shape. What stands
outside of lists is counted by its value, and numbers there are added up. Files are also counted by their names, unless
these differ between two runs of the same kind.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from decimal import Decimal
from typing import Final, TypeAlias

from sagactl.core.canonical import Json

LEDGER: Final = "effects"
"""The trait of an operation in ledgers is `effects.` and its name."""

FILES: Final = "files"
PATHS: Final = "paths"

Number: TypeAlias = int | Decimal
Growth: TypeAlias = Mapping[str, Number]
"""By trait, how much more there is of it; what is as it was isn't in it."""


def count_traits(look: Json) -> dict[str, Number]:
    """Return how much there is of each trait."""
    found: dict[str, Number] = {}
    _count(look, "", found, in_list=False)
    return found


def _count(value: Json, path: str, found: dict[str, Number], *, in_list: bool) -> None:
    match value:
        case dict():
            for key, member in value.items():
                _count(member, f"{path}.{key}" if path else key, found, in_list=in_list)
        case list():
            _add(found, f"{path}[]", len(value))
            for member in value:
                _count(member, f"{path}[]", found, in_list=True)
        case bool() | str() | None:
            _add(found, path if in_list else f"{path}={value}", 1)
        case _:
            _add(found, path, 1 if in_list else value)


def _add(found: dict[str, Number], trait: str, much: Number) -> None:
    found[trait] = found.get(trait, 0) + much


def measure_growth(before: Json, after: Json) -> dict[str, Number]:
    """Return what there is more, or less, of each trait."""
    first, second = count_traits(before), count_traits(after)
    grown = {trait: second.get(trait, 0) - first.get(trait, 0) for trait in first.keys() | second.keys()}
    return {trait: much for trait, much in sorted(grown.items()) if much != 0}


def add_up(growths: Iterable[Growth]) -> dict[str, Number]:
    """Return all growths as one."""
    total: dict[str, Number] = {}
    for growth in growths:
        for trait, much in growth.items():
            _add(total, trait, much)
    return {trait: much for trait, much in total.items() if much != 0}


def is_name(trait: str) -> bool:
    """Tell whether a trait is the name of a file."""
    return trait.startswith(f"{PATHS}.")


def name_trait(trait: str) -> str:
    """Return a trait as people know it: of a file its name, of a ledger nothing that isn't known already."""
    if trait.startswith(f"{LEDGER}."):
        return ""
    if trait.startswith(f"{FILES}[]"):
        return "a file whose name is another each time"
    return trait.removeprefix(f"{PATHS}.").removesuffix("=True") if is_name(trait) else trait


def keep_steady(first: Growth, second: Growth) -> dict[str, Number]:
    """Return what has grown alike in two runs of the same kind."""
    return {trait: much for trait, much in first.items() if second.get(trait) == much}


def find_difference(before: Json, after: Json) -> str:
    """Return the first thing that isn't as it was: a file, or what a check tool shows; empty where all is."""
    first, second = _index(before), _index(after)
    changed = sorted(name for name in first.keys() | second.keys() if first.get(name) != second.get(name))
    return changed[0] if changed else ""


def list_changed(before: Json, after: Json) -> list[Json]:
    """Return the names of what was there before and isn't the same now."""
    first, second = _index(before), _index(after)
    return [name for name in sorted(first.keys() & second.keys()) if first[name] != second[name]]


def _index(look: Json) -> dict[str, Json]:
    if not isinstance(look, dict):
        return {}
    files = look.get(FILES)
    found = (
        {str(each["path"]): each["content"] for each in files if isinstance(each, dict)}
        if isinstance(files, list)
        else {}
    )
    return {**found, **{name: value for name, value in look.items() if name not in {FILES, PATHS}}}
