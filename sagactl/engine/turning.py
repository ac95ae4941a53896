"""A turn of the core for a run in a driver's hands, with the guards of its tools asked between turns (rule E16)."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from sagactl.core.advance import Turn, advance
from sagactl.core.calls import candidates
from sagactl.core.world import Wait
from sagactl.engine.guards import Purpose, Question, list_pending, name_purpose
from sagactl.engine.run import Run

Draw = Callable[[int, int], int]


def take_turn(run: Run, now_ms: int, slots: int, draw: Draw, *, now: float) -> Turn:
    """Decide and fold until the run waits or rests.

    A tool with a guard isn't called until its guard has answered, and that is asked when nothing but its guard keeps a
    call of it from being made: so nobody asks a server about a tool that a run doesn't come to, or has behind it. The
    run's `questions` are those that are open after the turn, each of which needs a slot. An answer is good for the one
    turn after it, and only for calls that it was asked for; remembering is the guard's own affair.
    """
    if not run.guards:
        return advance(run.saga, run.state, run.make_world(now_ms, slots), draw)
    return _GuardedTurn(run, now_ms, slots, draw, now).take()


class _GuardedTurn:
    """A turn of a run some of whose tools have guards."""

    def __init__(self, run: Run, now_ms: int, slots: int, draw: Draw, now: float) -> None:
        self._run, self._draw, self._now = run, draw, now
        # What is answered from here on is for the next turn, which the answer brings about.
        self._pending = set(list_pending(run.questions))
        self._world = run.make_world(now_ms, max(0, slots - len(self._pending)))
        self._unasked = set(run.guards)
        self._turn = Turn((), (), Wait("call"))

    def take(self) -> Turn:
        self._advance(self._unasked)
        while (wanted := self._list_wanted()) and self._hear(wanted):
            self._advance(self._unasked)
        self._ask(wanted)
        # No call can be made now whose guard wasn't asked: what is waited for is an answer, a slot or something else.
        self._advance(set(self._run.questions))
        return self._turn

    def _advance(self, unasked: set[str]) -> None:
        missing = frozenset(self._run.missing_tools)
        world = self._world._replace(missing_tools=missing, unasked_tools=frozenset(unasked))
        more = advance(self._run.saga, self._run.state, world, self._draw)
        self._turn = Turn(self._turn.records + more.records, self._turn.calls + more.calls, more.then)
        self._world = self._world._replace(slots=max(0, self._world.slots - len(more.calls)))

    def _list_wanted(self) -> dict[str, frozenset[Purpose]]:
        """Return for which calls that are next which guards must be asked; in a paused run, none is next."""
        run, found = self._run, dict[str, set[Purpose]]()
        if run.state.paused or not isinstance(self._turn.then, Wait):
            return {}
        world = self._world._replace(missing_tools=frozenset(run.missing_tools))
        for candidate in candidates(run.saga, run.state, world):
            if candidate.tool in self._unasked:
                found.setdefault(candidate.tool, set()).add(name_purpose(candidate))
        return {tool: frozenset(purposes) for tool, purposes in found.items()}

    def _hear(self, wanted: Mapping[str, frozenset[Purpose]]) -> bool:
        """Take the answers to what is wanted now; tell whether there were any."""
        run = self._run
        heard = [
            run.questions.pop(tool)
            for tool, purposes in sorted(wanted.items())
            if tool in run.questions.keys() - self._pending and run.questions[tool].covers(purposes, self._now)
        ]
        for question in heard:
            tool = question.pinned.name
            if question.error is not None:
                raise question.error
            if question.misfit is not None:
                run.missing_tools[tool] = question.misfit
            self._unasked.discard(tool)
        return bool(heard)

    def _ask(self, wanted: Mapping[str, frozenset[Purpose]]) -> None:
        """Leave the run with the questions that are under way and still wanted, and those that there is a slot for."""
        run = self._run
        open_still = self._pending & wanted.keys()
        run.questions = {tool: question for tool, question in run.questions.items() if tool in open_still}
        for tool, purposes in sorted(wanted.items()):
            if tool not in run.questions and self._world.slots > 0:
                run.questions[tool] = Question(run.run_id, run.saga.tools[tool], run.guards[tool], purposes)
                self._world = self._world._replace(slots=self._world.slots - 1)
