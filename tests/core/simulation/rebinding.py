"""A simulation in which whoever takes the run over may bind it to another definition first (rule E16).

The judge is handed the last definition alone: what it says of the whole run, from its first record on, holds for a run
that was never bound to another one.
"""

from __future__ import annotations

import random
import re

from sagactl.core.definition import take_snapshot
from sagactl.core.evolve import replay
from sagactl.core.rebinding import Rebinding, plan_rebinding, rebinding_record
from sagactl.core.records import Request, Verb, definition_in
from sagactl.core.state import RunState
from tests.core.simulation.drive import Simulation
from tests.core.simulation.generate import Plan, read_traits
from tests.core.simulation.redraw import redraw
from tests.core.simulation.trial import run_and_judge


class RebindingSimulation(Simulation):
    """A run whose definition changes now and then."""

    def __init__(self, plan: Plan, *, rng: random.Random | None = None, chance: float = 0.7) -> None:
        super().__init__(plan, rng=rng)
        self.chance = chance
        self.changes = random.Random(f"definitions of {plan.seed}")
        self.looked_at: list[Rebinding] = []
        self.bound: list[Rebinding] = []

    def settle_in(self, state: RunState) -> RunState:
        """Try another definition; where the run forbids it, it stays with the one that it has."""
        if state.ended is not None or self.changes.random() >= self.chance:
            return state
        candidate = redraw(self.changes, self.saga)
        rebinding = plan_rebinding(self.saga, candidate, self.log.records)
        self.looked_at.append(rebinding)
        if rebinding.objections or not rebinding.changes:
            return state
        name = f"d{len(self.bound) + 1}"
        after = take_snapshot(candidate).digest
        request = Request(name, Verb.REBIND, "eva", digest=after, replaces=state.definition)
        self.log.keep([rebinding_record(request, self.now)], self.log.fence)
        self.bound.append(rebinding)
        self.saga = candidate
        for step in candidate.steps:
            self.world.traits[step.id] = read_traits(step, candidate.tools)
        return replay(candidate, self.log.records)


_OLD_LIMITS = re.compile(
    r"(?:E5|E11|E12|E14): record (?P<seq>\d+): .*"
    r"(?:a deadline beyond start_to_close|waits \d+ ms, at (?:most|least) \d+|"
    r"over compensation_concurrency|its time is cut short)"
)


def judge_rebound(simulation: RebindingSimulation) -> list[str]:
    """Run to the end and judge all by the last definition, but for delays and limits of what was before it."""
    return forgive_old_limits(simulation, run_and_judge(simulation))


def forgive_old_limits(simulation: RebindingSimulation, violations: list[str]) -> list[str]:
    """Return *violations* without those of a delay or limit that the last definition has changed."""
    bound = [seq for seq, record in enumerate(simulation.log.records, 1) if definition_in(record) is not None]
    return [each for each in violations if not _is_of_old_limits(each, bound[-1])]


def _is_of_old_limits(violation: str, last_seq: int) -> bool:
    found = _OLD_LIMITS.match(violation)
    return found is not None and int(found["seq"]) < last_seq
