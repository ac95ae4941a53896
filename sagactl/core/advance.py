"""Deciding until there is nothing left to decide: one turn of any driver.

Every engine and the simulator turn this same crank: fold what came in, `advance`, make the records durable in one
transaction (E2), and only then make the calls it names (E1).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import assert_never

from sagactl.core.evolve import evolve
from sagactl.core.machine import decide
from sagactl.core.records import Record, Timer
from sagactl.core.saga import Saga
from sagactl.core.state import RunState
from sagactl.core.world import AskProbe, DrawDelay, EndCalls, MakeCall, Rest, Wait, World, Write
from sagactl.dataclass import dataclass


@dataclass(frozen=True, slots=True)
class Turn:
    """Records to commit together, calls to make after that, and what is waited for then."""

    records: tuple[Record, ...]
    calls: tuple[MakeCall | AskProbe, ...]
    then: Wait | EndCalls | Rest


def advance(saga: Saga, state: RunState, world: World, draw: Callable[[int, int], int]) -> Turn:
    """Decide and fold until the run waits or rests; *draw* picks a delay between two bounds, both included."""
    records: list[Record] = []
    calls: list[MakeCall | AskProbe] = []
    while True:
        found = decide(saga, state, world)
        match found:
            case Wait() | EndCalls() | Rest():
                return Turn(tuple(records), tuple(calls), found)
            case Write(record):
                pass
            case DrawDelay(operation, kind, floor_ms, ceiling_ms):
                record = Timer(world.now_ms, operation, kind, world.now_ms + draw(floor_ms, ceiling_ms))
            case MakeCall() | AskProbe():
                record = found.intent if isinstance(found, MakeCall) else found.probe
                calls.append(found)
                world = world._replace(slots=world.slots - 1)
            case _:
                assert_never(found)
        evolve(saga, state, record)
        records.append(record)
