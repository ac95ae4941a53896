"""Every prefix of a log can be resumed: cut after each record, the run ends as the rules allow.

A run is recorded; then, for each of its records, a new driver finds the log as it was when that record was the last,
and a world that holds exactly the effects of then. The judge decides about the whole: what was before the cut and what
came after it.
"""

from __future__ import annotations

import random
from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any

import pytest

from sagactl.core.records import Operation
from sagactl.core.saga import Saga
from tests.core.builders import saga, spell
from tests.core.simulation.drive import Simulation
from tests.core.simulation.generate import CALM_SEA, Plan, generate, read_traits
from tests.core.simulation.judge import judge
from tests.core.simulation.trial import gather
from tests.core.simulation.world import Job

SEEDS = 100


class Scripted(Simulation):
    """A simulation whose tools always answer the same."""

    script: Mapping[str, str] = {}

    def choose_word(self, op: Operation, job: Job) -> str:
        """Return what the script says of this operation."""
        return self.script.get(spell(op), "ok")


def cut(recorded: Simulation, kept: int) -> Simulation:
    """Return a simulation that begins where the log of *recorded* held *kept* records, with no more faults to come."""
    plan = replace(recorded.plan, trouble=replace(recorded.plan.trouble, crashes=0, requests=(), after_end=None))
    resumed = type(recorded)(plan, rng=random.Random(kept))
    if isinstance(recorded, Scripted) and isinstance(resumed, Scripted):
        resumed.script = recorded.script
    resumed.crashes_left = 0
    resumed.jobs = recorded.jobs
    resumed.evaluator.count = recorded.evaluator.count
    resumed.log.keep(recorded.log.records[:kept], 0)
    resumed.log.writers = recorded.log.writers[:kept]
    resumed.log.fence = max(resumed.log.writers)
    resumed.world.rebuild(recorded.world.ledger, kept)
    resumed.world.durable = kept
    resumed.world.now_ms = max(resumed.now, recorded.log.records[kept - 1].at_ms)
    end_open_calls(resumed)
    known = {record.request.id for record in resumed.log.records if hasattr(record, "request")}
    resumed.requests = [request for request in recorded.requests if request.id in known]
    return resumed


def end_open_calls(resumed: Simulation) -> None:
    """The process that made them is gone, and so are they."""
    ended = {line["job"] for line in resumed.world.ledger if line["what"] == "end"}
    for line in list(resumed.world.ledger):
        if line["what"] == "begin" and line["job"] not in ended:
            resumed.world.ledger.append({**line, "what": "end", "n": len(resumed.world.ledger)})


def resume_everywhere(recorded: Simulation) -> Iterator[tuple[int, Simulation, list[str]]]:
    """Yield each cut of a recorded run, resumed to its rest, and what the judge says of it."""
    for kept in range(2, len(recorded.log.records) + 1):
        resumed = cut(recorded, kept)
        resumed.claim(calls_ended=True)
        resumed.drain()
        resumed.finish()
        yield kept, resumed, judge(gather(resumed))


CORPUS: dict[str, tuple[str, dict[str, Any], dict[str, Any], dict[str, str]]] = {
    "a chain that succeeds": ("a -> b -> c", {}, {}, {}),
    "a chain that is rolled back": ("a -> b -> c", {}, {}, {"c": "reject"}),
    "a diamond that is rolled back": ("a -> [b | c] -> d -> e", {}, {}, {"e": "reject"}),
    "an outcome that is never known": ("a -> b", {"b": {"attempts": 6}}, {}, {"b": "lost"}),
    "items that are rolled back": (
        "a -> f -> g",
        {"f": {"foreach": "${{ input.xs }}", "concurrency": 2}},
        {"xs": [1, 2, 3]},
        {"g": "reject"},
    ),
    "a skipped step": ("a -> b -> c", {"b": {"when": "${{ input.on }}"}}, {"on": False}, {"c": "reject"}),
    "a pivot that passes": ("a -> p* -> [b | c]", {}, {}, {}),
    "a pivot that is rejected": ("[a | b] -> p* -> c", {"p": {"probe": True}}, {}, {"p": "reject"}),
    "a step behind the pivot that never works": ("a -> p* -> [b | c] -> d", {}, {}, {"b": "retry"}),
    "an undo that is rejected": ("a -> [b | c] -> d", {}, {}, {"d": "reject", "b'": "reject"}),
    "an effect that can't be undone": ("a -> b -> c", {"a": {"undo": False}}, {}, {"c": "reject"}),
    "a doubt that only a person can clear": (
        "a -> b",
        {"b": {"null_safe": False, "on_unknown": "compensate"}},
        {},
        {"b": "lost"},
    ),
    "tools that are probed": (
        "a -> b -> c",
        {name: {"probe": True, "idempotent": False} for name in "abc"},
        {},
        {"b": "lost", "c": "reject"},
    ),
}
"""Shape, what is special about its steps, input, and what each tool always answers."""


def record(name: str) -> Scripted:
    """Run one entry of the corpus from its beginning to its rest."""
    shape, steps, data, script = CORPUS[name]
    spec = {step: {"attempts": 6, "undo_attempts": 6, "interval": 100, **fields} for step, fields in steps.items()}
    for step in "abcdefgp":
        if step in shape and step not in spec:
            spec[step] = {"attempts": 6, "undo_attempts": 6, "interval": 100}
    what: Saga = saga(shape, **spec)
    traits = {step.id: read_traits(step, what.tools) for step in what.steps}
    simulation = Scripted(Plan(1, what, traits, data, CALM_SEA))
    simulation.script = script
    simulation.run()
    simulation.finish()
    return simulation


@pytest.mark.parametrize("name", CORPUS)
def test_every_prefix_of_a_known_run_ends_as_the_run_itself(name: str) -> None:
    """C5, L4: a crash at any record changes nothing about how a run ends, but for what it leaves in doubt."""
    recorded = record(name)
    assert judge(gather(recorded)) == []
    expected = gather(recorded).status
    for kept, resumed, findings in resume_everywhere(recorded):
        assert findings == [], f"cut after record {kept}"
        assert gather(resumed).status == expected, f"cut after record {kept}"


@pytest.mark.parametrize("name", ["a chain that is rolled back", "items that are rolled back", "a pivot that passes"])
def test_a_resume_that_is_cut_off_can_be_resumed_again_at_every_record(name: str) -> None:
    """C5: two crashes in a row, at every pair of records, end as none does."""
    recorded = record(name)
    expected = gather(recorded).status
    for _, resumed, _ in resume_everywhere(recorded):
        for kept, again, findings in resume_everywhere(resumed):
            assert findings == [], f"cut after record {kept}"
            assert gather(again).status == expected


def test_every_prefix_of_a_storm_ends_as_the_rules_allow() -> None:
    """C5, S1-S11: whatever had happened up to a record, what follows it is right."""
    cuts = 0
    for seed in range(SEEDS):
        recorded = Simulation(generate(seed))
        recorded.run()
        for kept, _, findings in resume_everywhere(recorded):
            assert findings == [], f"seed {seed}, cut after record {kept}: {findings}"
            cuts += 1
    assert cuts > 10 * SEEDS
