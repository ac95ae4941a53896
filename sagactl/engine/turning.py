"""A turn of the core for a run in a driver's hands, with the guards of its tools asked on the way (rule E16)."""

from __future__ import annotations

from collections.abc import Callable

from sagactl.core.advance import Turn, advance
from sagactl.core.calls import candidates
from sagactl.core.world import Wait, World
from sagactl.engine.run import Run


def take_turn(run: Run, now_ms: int, slots: int, draw: Callable[[int, int], int]) -> Turn:
    """Decide and fold until the run waits or rests.

    A tool with a guard isn't called until its guard was asked, and that is done when nothing but its guard keeps a
    call of it from being made: so nobody asks a server about a tool that a run doesn't come to, or has behind it. A
    guard is asked in each turn that comes to a call, as what it knows may have changed; remembering is its own affair.
    """
    world = run.make_world(now_ms, slots)
    unasked = set(run.guards)
    turn = advance(run.saga, run.state, _without(world, unasked), draw)
    while unasked and isinstance(turn.then, Wait):
        passed = _ask_guards(run, world, unasked)
        world = world._replace(slots=max(0, slots - len(turn.calls)), missing_tools=frozenset(run.missing_tools))
        # Where none passed, no call is to be made whose guard wasn't asked: what is waited for is something else.
        more = advance(run.saga, run.state, _without(world, unasked) if passed else world, draw)
        turn = Turn(turn.records + more.records, turn.calls + more.calls, more.then)
        if not passed:
            break
    return turn


def _without(world: World, unasked: set[str]) -> World:
    return world._replace(unasked_tools=frozenset(unasked)) if unasked else world


def _ask_guards(run: Run, world: World, unasked: set[str]) -> bool:
    """Ask the guards of the calls that are next; tell whether one of them lets its tool be called."""
    wanted = {candidate.tool for candidate in candidates(run.saga, run.state, world)} & unasked
    unasked -= wanted
    for tool in sorted(wanted):
        misfit = run.guards[tool](run.saga.tools[tool])
        if misfit is not None:
            run.missing_tools[tool] = misfit
    return not wanted <= run.missing_tools.keys()
