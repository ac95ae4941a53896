"""The people of a simulation: they look at dead letters, find out what is there, and say so truthfully."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from sagactl.core.records import Direction, Operation, Operator, Resolution, Verb
from sagactl.core.world import Rest, Wait
from tests.core.simulation.drivers import Driver
from tests.core.simulation.world import Job

if TYPE_CHECKING:
    from tests.core.simulation.drive import Simulation


def decide_letter(run: Simulation) -> None:
    """Let a person look at one dead letter of a run that is stuck, and at the next one later."""
    driver = run.driver
    if driver is None or not driver.is_alive or not isinstance(driver.then, Rest) or not driver.state.dead:
        return
    run.operator_acts += 1
    op = run.rng.choice(list(driver.state.dead))
    asked = len(run.requests)
    if run.operator_acts <= 6 and run.rng.random() < 0.35:
        run.submit(Verb.RETRY, op)
    else:
        _resolve_truthfully(run, driver, op)
    _withdraw(run, asked)
    still_open = run.driver is not None and isinstance(run.driver.then, Rest) and run.driver.state.dead
    if still_open and run.operator_acts < 12:
        run.at(run.now + run.rng.choice([10, 60_000]), partial(decide_letter, run))


def attend(run: Simulation, driver: Driver, wait: Wait) -> None:
    """Let somebody come, sooner or later, to a run that waits for nobody else."""
    answer = _unpause if wait.what == "paused" else _answer_approval
    run.at(run.now + run.rng.choice([1, 500, 20_000, 200_000]), partial(answer, run, driver))


def _unpause(run: Simulation, driver: Driver) -> None:
    if run.driver is driver and driver.is_alive and driver.state.paused:
        run.submit(Verb.UNPAUSE)


def _answer_approval(run: Simulation, driver: Driver) -> None:
    if run.driver is not driver or not driver.is_alive or not driver.state.awaiting:
        return
    step_id, awaited = run.rng.choice(list(driver.state.awaiting.items()))
    op = Operation(step_id, None, Direction.ACTION)
    if run.rng.random() < 0.2:
        run.submit(Verb.DENY, op)
        return
    if run.rng.random() < 0.2:
        run.submit(Verb.APPROVE, op, digest="of something else")
        if run.driver is not driver or step_id not in driver.state.awaiting:
            return
    run.submit(Verb.APPROVE, op, digest=awaited.digest)


def _withdraw(run: Simulation, asked: int) -> None:
    """Drop what died with its command before it was recorded: what a person saw then may not be so later."""
    recorded = {record.request.id for record in run.log.records if isinstance(record, Operator)}
    run.requests[asked:] = [request for request in run.requests[asked:] if request.id in recorded]


def _resolve_truthfully(run: Simulation, driver: Driver, op: Operation) -> None:
    """Say of a dead letter what a person finds at the target, or mend it there first."""
    forward = op if op.direction is Direction.ACTION else op.other
    forward_key = f"r1/{forward.step}{'' if forward.item is None else f'/{forward.item}'}/action"
    job = Job(0, op.step, op.item, op.direction.value, 0, 0, 0, "by hand", forward_key, "", False, None, 0)
    found = run.world.tell_output(forward_key)
    if op.direction is Direction.COMPENSATION:
        if found is None and driver.state.operations[forward].doubt and run.rng.random() < 0.5:
            run.submit(Verb.RESOLVE, op, Resolution.NOT_DONE)
        elif run.rng.random() < 0.3:
            run.submit(Verb.RESOLVE, op, Resolution.ABANDON)
        else:
            run.world.mend_by_hand(job)
            run.submit(Verb.RESOLVE, op, Resolution.DONE)
    elif run.rng.random() < 0.4 and run.saga.by_id[op.step].is_behind_pivot:
        run.submit(Verb.RESOLVE, op, Resolution.SKIP)
    elif found is not None:
        run.submit(Verb.RESOLVE, op, Resolution.DONE, {"id": found})
    else:
        run.submit(Verb.RESOLVE, op, Resolution.NOT_DONE)
