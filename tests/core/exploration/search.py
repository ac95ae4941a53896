"""Walking through all states of a world, each once, and finding the shortest way to one that breaks a rule."""

from __future__ import annotations

import gc
from collections import Counter, defaultdict
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from tests.core.exploration.cores import Core, Event, ViolationError
from tests.core.exploration.shapes import Shape
from tests.core.exploration.worlds import Worlds

Place = tuple[Core, int]


@dataclass(frozen=True)
class Found:
    """What an exploration has met."""

    states: int
    transitions: int
    cores: int
    left: int
    """How many states it has not looked at: none, or it wasn't complete."""
    events: Counter[str]
    """How often the core was asked about each kind of event."""
    statuses: frozenset[str]
    """Where runs came to rest."""
    landed: int


def explore(shape: Shape) -> Found:
    """Visit every state that *shape* can come to, depth first; raises ViolationError."""
    worlds = Worlds(shape)
    with _without_collecting():
        seen, transitions, left = _visit(worlds)
    check_liveness(worlds)
    every = list(worlds.cores.by_key.values())
    found = Found(
        states=sum(map(len, seen)),
        transitions=transitions,
        cores=len(every),
        left=left,
        events=Counter(
            " ".join(map(str, event[: 1 + (event[0] in {"claim", "ask"})])) for core in every for event in core.edges
        ),
        statuses=frozenset(str(core.status) for core in every if core.status is not None),
        landed=worlds.landed,
    )
    for core in every:  # they refer to each other in circles
        core.edges.clear()
    return found


def _visit(worlds: Worlds) -> tuple[list[set[int]], int, int]:
    seen: list[set[int]] = [{worlds.first}]
    stack: list[Place] = [(worlds.cores.first, worlds.first)]
    transitions = 0
    next_of = worlds.next_of
    while stack:
        for _, target, after in next_of(*stack.pop()):
            transitions += 1
            while target.number >= len(seen):
                seen.append(set())
            here = seen[target.number]
            if after not in here:
                here.add(after)
                stack.append((target, after))
    return seen, transitions, len(stack)


@contextmanager
def _without_collecting() -> Iterator[None]:
    """Keep the collector from looking through millions of living objects again and again."""
    was_on = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_on:
            gc.enable()


def check_liveness(worlds: Worlds) -> None:
    """V1, V2: raise if a run can go round in circles without a fault and without a person.

    That nothing stands still before its rest is checked state by state. So where there are no circles either, every
    state leads to a rest, or to waiting for people, in a bounded number of steps once faults have stopped.
    """
    targets: defaultdict[int, list[int]] = defaultdict(list)
    entries: Counter[int] = Counter()
    for source, target in worlds.cores.faultless:
        targets[source].append(target)
        entries[target] += 1
    free = [number for number in range(len(worlds.cores.by_key)) if not entries[number]]
    done = 0
    while free:
        done += 1
        for target in targets[free.pop()]:
            entries[target] -= 1
            if not entries[target]:
                free.append(target)
    if done < len(worlds.cores.by_key):
        raise ViolationError("V2: the run can go round in circles")


@dataclass(frozen=True)
class Path:
    """The shortest way to a violation: what happened where, one event after the other, and what is wrong then."""

    worlds: Worlds
    events: tuple[tuple[Core, Event], ...]
    what: str


def find_shortest(shape: Shape) -> Path | None:
    """Return the shortest path to a violation, breadth first, or None where there is none."""
    with _without_collecting():
        return _find_shortest(Worlds(shape))


def _find_shortest(worlds: Worlds) -> Path | None:
    start = (worlds.cores.first, worlds.first)
    before: dict[Place, tuple[Place, Event] | None] = {start: None}
    row = [start]
    while row:
        after_row = []
        for place in row:
            try:
                found = worlds.next_of(*place)
            except ViolationError as violation:
                last = () if violation.event is None else ((place[0], violation.event),)
                return Path(worlds, (*_trace(before, place), *last), str(violation))
            for event, target, after in found:
                if (target, after) not in before:
                    before[target, after] = place, event
                    after_row.append((target, after))
        row = after_row
    return None


def _trace(before: dict[Place, tuple[Place, Event] | None], place: Place) -> tuple[tuple[Core, Event], ...]:
    steps = []
    while (found := before[place]) is not None:
        place, event = found
        steps.append((place[0], event))
    return tuple(reversed(steps))
