"""Did you mean: the known words that are a slip of the finger away."""

from __future__ import annotations

from collections.abc import Iterable
from functools import lru_cache
from itertools import islice
from typing import Final

DISTANCE_MAX: Final = 2
SUGGESTIONS_MAX: Final = 3
NAMES_SHOWN_MAX: Final = 20
"""Known words that are listed where none is near."""

COMPARED_MAX: Final = 500
"""Known words that one unknown word is compared with: to compare costs, and files can hold thousands of either."""


def suggest(word: str, known: Iterable[str]) -> list[str]:
    """Return at most three of *known* within two edits and a third of the length of *word*, nearest first."""
    limit = min(DISTANCE_MAX, len(word) // 3)
    alike = islice((each for each in known if abs(len(each) - len(word)) <= limit), COMPARED_MAX)
    near = [(distance, each) for each in alike if 0 < (distance := edit_distance(word, each, limit)) <= limit]
    return [each for _, each in sorted(near)[:SUGGESTIONS_MAX]]


def suggestion_hint(word: str, known: Iterable[str]) -> str | None:
    """Return `did you mean a or b?`, or None where nothing is near."""
    near = suggest(word, known)
    return f"did you mean {' or '.join(near)}?" if near else None


@lru_cache(maxsize=4_096)
def edit_distance(first: str, second: str, limit: int) -> int:
    """Count insertions, deletions, replacements and swaps of neighbours; more than *limit* is `limit + 1`."""
    if abs(len(first) - len(second)) > limit:
        return limit + 1
    far = limit + 1
    before: list[int] = []
    previous = [min(column, far) for column in range(len(second) + 1)]
    for row, letter in enumerate(first, start=1):
        current = [min(row, far)] + [far] * len(second)
        # Further than the limit from the diagonal nothing can be near.
        for column in range(max(1, row - limit), min(len(second), row + limit) + 1):
            other = second[column - 1]
            cost = min(previous[column] + 1, current[column - 1] + 1, previous[column - 1] + (letter != other), far)
            if row > 1 and column > 1 and letter == second[column - 2] and first[row - 2] == other:
                cost = min(cost, before[column - 2] + 1)
            current[column] = cost
        if min(current) > limit:
            return far
        before, previous = previous, current
    return previous[-1]
