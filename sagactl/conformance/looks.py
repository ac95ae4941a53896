"""What a world is compared by: each file, each operation in the ledger, and each thing that an observation shows.

A look becomes an index of small entries. What stands in a list is counted by its whole value, so that one more of the
same is seen; what stands outside of lists is an entry by its path.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, TypeAlias

from sagactl.chaos.traits import FILES, LEDGER, PATHS
from sagactl.core.canonical import Json, canonical
from sagactl.secrets.masking import KNOWN

SHOWN_MAX: Final = 3
"""Changes that a finding names."""

SHOWN_LENGTH_MAX: Final = 60
"""Characters of one of them."""

Index: TypeAlias = Mapping[str, Json]
Changes: TypeAlias = Mapping[str, tuple[Json, Json]]
"""By entry, what it was and what it is; None where it isn't there."""


def index_look(look: Json) -> Index:
    """Return the entries of a look of `chaos.world.Looking`."""
    found: dict[str, Json] = {}
    assert isinstance(look, dict), "a look is a map"
    for name, value in look.items():
        if name == FILES:
            assert isinstance(value, list), "files are a list"
            found.update({f"file {each['path']}": each["content"] for each in value if isinstance(each, dict)})
        elif name == LEDGER:
            assert isinstance(value, dict), "a ledger is a map"
            found.update({f"ledger of {step}": count for step, count in value.items()})
        elif name != PATHS:
            _add(value, name, found)
    return found


def _add(value: Json, path: str, found: dict[str, Json]) -> None:
    if isinstance(value, dict):
        for key, member in value.items():
            _add(member, f"{path}.{key}", found)
    elif isinstance(value, list):
        for member in value:
            name = f"{path}[] {canonical(member)}"
            before = found.get(name, 0)
            found[name] = (before if isinstance(before, int) else 0) + 1
    else:
        found[path] = value


def compare(before: Index, after: Index) -> Changes:
    """Return what isn't as it was."""
    names = sorted(before.keys() | after.keys())
    pairs = {name: (before.get(name), after.get(name)) for name in names}
    return {name: pair for name, pair in pairs.items() if canonical(pair[0]) != canonical(pair[1])}


def find_left(action: Changes, before: Index, after: Index) -> Changes:
    """Return what an action changed and an undo hasn't put back; what the undo itself leaves behind isn't in it."""
    now = compare(before, after)
    return {name: now[name] for name in action if name in now}


def weigh(changes: Changes) -> int:
    """Return how much has changed: an entry counts once, a count by how much it grew."""
    return sum(_weigh_one(*pair) for pair in changes.values())


def _weigh_one(before: Json, after: Json) -> int:
    first, second = (each if isinstance(each, int) and not isinstance(each, bool) else None for each in (before, after))
    if first is None and second is None:
        return 1
    return max(1, abs((second or 0) - (first or 0)))


def describe(changes: Changes) -> str:
    """Return in a line what has changed."""
    shown = [_describe_one(name, *pair) for name, pair in list(changes.items())[:SHOWN_MAX]]
    more = len(changes) - SHOWN_MAX
    return ", ".join([*shown, *([f"and {more} more"] if more > 0 else [])])


def _describe_one(name: str, before: Json, after: Json) -> str:
    name = KNOWN.shorten(name, SHOWN_LENGTH_MAX + 1, dots="…")
    if before is None:
        return f"{name} came"
    if after is None:
        return f"{name} went"
    if name.startswith("file "):
        return f"{name} changed"
    return KNOWN.shorten(f"{name} from {canonical(before)} to {canonical(after)}", 2 * SHOWN_LENGTH_MAX)
