"""Every pair of crash points: a run is killed, resumed, and killed again during the resume (F2).

A saga of four steps has nine outcome classes: it succeeds, or one of its steps is rejected, or is never heard of again.
For each class a driver is killed at every point of its life: before and after each commit, before each call, while the
call is under way, after its effect, and before its answer is recorded. The one that takes over is killed in the same
way, at every point of its own life. The third one ends the run, and the judge weighs all of it.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable, Iterator

import pytest

from sagactl.core.records import Operation
from tests.core.builders import saga
from tests.core.simulation.drivers import Driver
from tests.core.simulation.generate import CALM_SEA, Plan, read_traits
from tests.core.simulation.judge import judge
from tests.core.simulation.trial import gather
from tests.core.simulation.world import Job
from tests.core.test_prefixes import Scripted
from tests.proof import Prove

PAIRS = 5_000
POINTS_MAX = 1_000
STEP = {"attempts": 3, "undo_attempts": 6, "interval": 100}
SAGA = saga(
    "a -> b -> c -> d",
    a=STEP,
    b={**STEP, "probe": True, "idempotent": False},
    c={**STEP, "idempotent": False, "null_safe": False},
    d={**STEP, "late_safe": True},
)
"""Doubt is met in four ways: by another try, by a probe, by asking a person, and by a target with tombstones."""

CLASSES: dict[str, dict[str, str]] = {
    "succeeds": {},
    **{f"{step}_rejected": {step: "reject"} for step in "abcd"},
    **{f"{step}_unknown": {step: "lost"} for step in "abcd"},
}


class Doomed(Scripted):
    """A simulation whose drivers are killed at chosen points of their lives, and at no others."""

    def __init__(self, script: dict[str, str], kills: tuple[int, ...]) -> None:
        traits = {step.id: read_traits(step, SAGA.tools) for step in SAGA.steps}
        super().__init__(Plan(1, SAGA, traits, {}, CALM_SEA), rng=random.Random(1))
        self.script = script
        self.kills = list(kills)
        self.passed = 0
        """How many points the driver has passed in its life."""

    def _strikes(self) -> bool:
        if not self.kills:
            return False
        self.passed += 1
        if self.passed < self.kills[0]:
            return False
        del self.kills[0]
        self.passed = 0
        return True

    def die(self, driver: Driver) -> None:
        """Die, and let another driver notice at once."""
        driver.is_alive = False
        for job in driver.flight.values():
            self.world.end(job)
        self.at(self.now, lambda: self._take_over(driver, calls_ended=True))

    def _script_call(self, driver: Driver, op: Operation, job: Job) -> None:
        """Begin, act and answer one after the other, each a point at which the driver may die."""
        word = self.choose_word(op, job)
        self.at(self.now, lambda: self._pass(driver, job, lambda: self.world.begin(job), "during a call"))
        if word in {"ok", "lost"}:
            self.at(self.now + 1, lambda: self._pass(driver, job, lambda: self._act(job), "after an effect"))
        self.at(self.now + 2, lambda: self.deliver(driver, op, job, word))

    def _pass(self, driver: Driver, job: Job, what: Callable[[], object], where: str) -> None:
        if not driver.is_alive or job.has_ended:
            return
        what()
        if self._strikes():
            self.happened[f"died {where}"] += 1
            self.die(driver)


def live(script: dict[str, str], kills: tuple[int, ...] = ()) -> Doomed:
    """Run one life after the other to the end, and resume it once more (C5)."""
    run = Doomed(script, kills)
    run.run()
    run.finish()
    return run


def pairs(script: dict[str, str]) -> Iterator[tuple[tuple[int, int], Doomed]]:
    """Yield each pair of points, and the run whose drivers died there, until no second life has such a point."""
    for first in range(1, POINTS_MAX):
        for second in range(1, POINTS_MAX):
            run = live(script, (first, second))
            if run.kills:
                break
            yield (first, second), run
        if len(live(script, (first,)).kills):
            return


@pytest.mark.parametrize("name", CLASSES)
def test_a_run_that_is_killed_twice_ends_as_without_faults_or_waits_for_a_person(name: str, prove: Prove) -> None:
    """F2, C5, S1-S11: no pair of crash points makes a run end otherwise, but stuck where only a person knows."""
    script = CLASSES[name]
    calm = live(script)
    assert judge(gather(calm)) == []
    expected = gather(calm).status
    happened: Counter[str] = Counter()
    count = 0
    for points, run in pairs(script):
        evidence = gather(run)
        again = f"killed at {points}; repeat with: live(CLASSES[{name!r}], {points})"
        assert judge(evidence) == [], again
        is_letter = evidence.status == "stuck" and bool(run.driver is not None and run.driver.state.dead)
        assert evidence.status == expected or is_letter, f"{evidence.status}, not {expected}, {again}"
        happened += run.happened
        count += 1
    for where in ("before a commit", "after a commit", "before a call", "during a call"):
        assert happened[f"died {where}"], f"V0: nobody died {where}"
    prove("pairs of crash points (simulated)", count, goal=PAIRS)
