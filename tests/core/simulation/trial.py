"""One trial: a simulation run to its rest, its evidence turned into plain values, and the judge's verdict."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import fields, is_dataclass
from typing import Any

from sagactl.core.definition import write_definition
from sagactl.core.evolve import replay
from sagactl.core.records import RECORD_TYPES, Record
from sagactl.core.state import RunState
from sagactl.core.summary import summarize
from sagactl.core.transitions import IllegalRecordError
from tests.core.simulation.drive import Simulation, SpinError
from tests.core.simulation.evidence import Evidence
from tests.core.simulation.generate import generate
from tests.core.simulation.judge import judge

TYPE_NAMES = {kind: name for name, kind in RECORD_TYPES.items()}


def plain(value: Any) -> Any:
    """Turn dataclasses into dictionaries, enumerations into text and operations into tuples, all the way down."""
    if is_dataclass(value):
        return {each.name: plain(getattr(value, each.name)) for each in fields(value)}
    if isinstance(value, tuple):
        return tuple(plain(each) for each in value)
    return str(value) if isinstance(value, str) else value


def plain_record(record: Record) -> dict[str, Any]:
    """Turn a record into a dictionary that names its type."""
    return {"type": TYPE_NAMES[type(record)], **plain(record)}


def gather(simulation: Simulation) -> Evidence:
    """Collect the three witnesses of a simulation."""
    driver = simulation.driver
    assert driver is not None
    records = simulation.log.records
    state = _fold(simulation)
    return Evidence(
        saga=write_definition(simulation.saga),
        records=[plain_record(record) for record in records],
        writers=simulation.log.writers,
        ledger=simulation.world.ledger,
        seen=[
            {"status": str(summary.status), "failure": plain(summary.failure), "failed_step": summary.failed_step}
            for _, summary in simulation.seen
        ],
        requests=[request.id for request in simulation.requests],
        is_fold_equal=simulation.is_fold_equal and state == driver.state,
        is_at_rest=simulation.is_at_rest,
        status="unreadable" if state is None else str(summarize(simulation.saga, state).status),
    )


def _fold(simulation: Simulation) -> RunState | None:
    try:
        return replay(simulation.saga, simulation.log.records)
    except IllegalRecordError:
        return None


def try_seed(seed: int) -> tuple[list[str], Simulation]:
    """Run one seed and judge it."""
    simulation = Simulation(generate(seed))
    return run_and_judge(simulation), simulation


def run_and_judge(simulation: Simulation) -> list[str]:
    """Run *simulation* to its rest, resume it once more, and return the violations."""
    try:
        simulation.run()
        simulation.finish()
    except SpinError as error:
        return [str(error)]
    except Exception as error:  # whatever the core raises is a finding, and the seed tells how to see it
        return [f"crash: {type(error).__name__}: {error}", *_judge_what_is_left(simulation)]
    return judge(gather(simulation))


def _judge_what_is_left(simulation: Simulation) -> list[str]:
    """Judge a run that broke off: a core that stumbles over its own mistake still made it."""
    try:
        return judge(gather(simulation))
    except Exception as error:  # a log that can't even be folded tells no more than that
        return [f"crash: {type(error).__name__}: {error}"]


def describe(seeds: Sequence[int]) -> str:
    """Return the lines with which a person repeats what failed."""
    return "\n".join(f"pytest tests/core/simulation --seed {seed}" for seed in seeds)
