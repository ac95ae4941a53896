"""Run ids as they are shown: the shortest prefix that means one run, and that every command takes."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import pairwise
from typing import Final

PREFIX_LENGTH_MIN: Final = 6


def shorten_ids(run_ids: Iterable[str], *, length_min: int = PREFIX_LENGTH_MIN) -> dict[str, str]:
    """Map each id to its shortest prefix, at least *length_min* long, that no other of *run_ids* begins with."""
    ordered = sorted(set(run_ids))
    lengths = dict.fromkeys(ordered, length_min)
    for first, second in pairwise(ordered):
        needed = _common_length(first, second) + 1
        lengths[first] = max(lengths[first], needed)
        lengths[second] = max(lengths[second], needed)
    return {run_id: run_id[: lengths[run_id]] for run_id in ordered}


def _common_length(first: str, second: str) -> int:
    for index, (one, other) in enumerate(zip(first, second, strict=False)):
        if one != other:
            return index
    return min(len(first), len(second))
