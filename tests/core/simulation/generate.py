"""Random sagas and random trouble: everything that a seed decides before its run begins."""

from __future__ import annotations

import random
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from sagactl.core.canonical import Json
from sagactl.core.saga import Approval, CompensateFailed, Jitter, OnUnknown, Saga, Step, StepClass, ToolFacts
from sagactl.core.template import parse_template
from tests.core.builders import Spec, build_step
from tests.core.simulation.world import Traits

ANSWERS = ("ok", "retry", "retry_after", "reject", "fatal", "lost", "lost_clean", "misfit", "hang", "hang_clean")
CALM = (80, 5, 1, 2, 1, 4, 3, 1, 2, 1)
STORMY = (40, 14, 3, 7, 2, 12, 9, 4, 5, 4)
UNDO_CALM = (90, 3, 1, 0, 0, 3, 2, 0, 1, 0)
UNDO_STORMY = (55, 14, 2, 4, 1, 10, 8, 1, 3, 2)


@dataclass(frozen=True)
class Trouble:
    """The faults and requests that await a run."""

    weights: tuple[int, ...]
    undo_weights: tuple[int, ...]
    crashes: int
    crash_chance: float
    requests: tuple[tuple[int, str, bool], ...]
    after_end: str | None
    is_operator_patient: bool
    missing_until_ms: int
    missing_tool: str | None
    slots: int
    deadline_ms: int | None
    pauses: tuple[int, ...] = ()


CALM_SEA = Trouble((1, *[0] * 9), (1, *[0] * 9), 0, 0.0, (), None, False, 0, None, 8, None)
"""No trouble at all: every call does as it is told."""


@dataclass(frozen=True)
class Plan:
    """One seed: a saga, what its targets are like, its input, and its trouble."""

    seed: int
    saga: Saga
    traits: dict[str, Traits]
    data: dict[str, Json]
    trouble: Trouble


@dataclass
class _Draft:
    rng: random.Random
    people: random.Random
    """Draws what is up to people; apart, so that it changes nothing else of a seed."""
    data: dict[str, Json]
    tools: dict[str, ToolFacts] = field(default_factory=dict)
    steps: list[Step] = field(default_factory=list)


def generate(seed: int) -> Plan:
    """Return the plan of *seed*, always the same."""
    rng = random.Random(seed)
    people = random.Random(f"people of {seed}")
    draft = _Draft(rng, people, {"who": f"customer {seed}"})
    _draw_steps(draft)
    saga = Saga(
        "sim",
        tuple(draft.steps),
        draft.tools,
        settle_timeout_ms=rng.choice([1_000, 5_000, 30_000]),
        compensation_concurrency=rng.choice([1, 1, 1, 2, 3]),
    )
    traits = {step.id: read_traits(step, draft.tools) for step in draft.steps}
    pauses = tuple(int(people.expovariate(1 / 3_000)) for _ in range(people.choice([0, 0, 0, 0, 1, 2])))
    return Plan(seed, saga, traits, draft.data, replace(_draw_trouble(rng, saga), pauses=pauses))


def _draw_steps(draft: _Draft) -> None:
    rng = draft.rng
    before = [f"a{n}" for n in range(rng.randint(1, 4))]
    for place, step_id in enumerate(before):
        needs = tuple(sorted(rng.sample(before[:place], rng.randint(0, place)))) if rng.random() < 0.8 else ()
        kinds = [StepClass.COMPENSABLE, StepClass.READ_ONLY, StepClass.NOT_UNDOABLE]
        _draw_step(draft, step_id, needs, rng.choices(kinds, weights=[8, 1, 1])[0])
    barrier = before
    for pivot in ["p", "q"][: rng.choice([0, 1, 1, 2])]:
        _draw_step(draft, pivot, tuple(barrier), StepClass.PIVOT if pivot == "p" else StepClass.RETRIABLE)
        behind = [f"{pivot}{n}" for n in range(rng.randint(0, 2))]
        for place, step_id in enumerate(behind):
            needs = (pivot, *behind[:place]) if rng.random() < 0.5 else (pivot,)
            _draw_step(draft, step_id, needs, StepClass.RETRIABLE)
        barrier = [pivot, *behind]


def _draw_step(draft: _Draft, step_id: str, needs: tuple[str, ...], klass: StepClass) -> None:
    rng, data, tools = draft.rng, draft.data, draft.tools
    fields: dict[str, Any] = {}
    arguments: dict[str, Json] = {"who": "${{ input.who }}", "nonce": "${{ draw() }}"}
    may_branch = step_id not in {"p", "q"}
    if may_branch and rng.random() < 0.2:
        data[f"xs_{step_id}"] = list(range(rng.choice([0, 1, 2, 3, 3, 4])))
        fields |= {"foreach": f"${{{{ input.xs_{step_id} }}}}", "concurrency": rng.choice([1, 1, 2, 3])}
        arguments["item"] = "${{ item }}"
    if rng.random() < (0.15 if may_branch else 0.04):
        data[f"on_{step_id}"] = rng.random() < 0.5
        fields["when"] = f"${{{{ input.on_{step_id} }}}}"
    if rng.random() < 0.05:
        data[f"guard_{step_id}"] = rng.random() < 0.6
        fields["guard"] = f"${{{{ input.guard_{step_id} }}}}"
    if draft.people.random() < 0.12:
        fields["approval"] = _draw_approval(draft, step_id)
    plain = [step.id for step in draft.steps if step.id in needs and step.when is None and step.foreach is None]
    if plain and rng.random() < 0.5:
        arguments["before"] = f"${{{{ steps.{rng.choice(plain)}.output.id }}}}"
    fields["compensate_failed"] = rng.choices(list(CompensateFailed), weights=[86, 7, 7])[0]
    spec = _draw_spec(rng, klass)
    if fields["compensate_failed"] is CompensateFailed.ALWAYS:
        spec = replace(spec, null_safe=True)  # the undo of what never happened must cope without an output
    if klass in {StepClass.PIVOT, StepClass.RETRIABLE} and rng.random() < 0.4:
        fields["with_undo"] = True
    step = build_step(step_id, needs, replace(spec, arguments=arguments), fields, tools)
    if klass is StepClass.READ_ONLY:
        tools[step.action.tool] = replace(tools[step.action.tool], read_only=True)
    draft.steps.append(step)


def _draw_approval(draft: _Draft, step_id: str) -> Approval:
    required = None
    if draft.people.random() < 0.3:
        draft.data[f"ask_{step_id}"] = draft.people.random() < 0.6
        required = parse_template(f"${{{{ input.ask_{step_id} }}}}")
    return Approval(required, timeout_ms=draft.people.choice([None, None, 3_000, 90_000]))


def _draw_spec(rng: random.Random, klass: StepClass) -> Spec:
    has_probe = rng.random() < 0.35
    must_repeat = klass is StepClass.RETRIABLE and not has_probe
    idempotent = must_repeat or klass is StepClass.READ_ONLY or rng.random() < 0.7
    policies = [OnUnknown.ASK]
    policies += [OnUnknown.PROBE] * 6 if has_probe else []
    policies += [OnUnknown.RETRY] * 6 if idempotent else []
    if klass in {StepClass.COMPENSABLE, StepClass.READ_ONLY, StepClass.NOT_UNDOABLE}:
        policies += [OnUnknown.COMPENSATE]
    return Spec(
        klass=klass,
        attempts=rng.choice([1, 2, 3, 4]),
        undo_attempts=rng.choice([2, 3, 4, 7]),
        interval=rng.choice([50, 200, 1_000, 4_000]),
        cap=rng.choice([1_500, 10_000, 60_000]),
        jitter=rng.choice(list(Jitter)),
        non_retryable=("fatal",),
        on_unknown=rng.choice(policies),
        probe=has_probe,
        undo_probe=rng.random() < 0.2,
        idempotent=idempotent,
        null_safe=rng.random() < 0.65,
        late_safe=rng.random() < 0.4,
        key_retention=rng.choice([None, None, None, 4_000, 45_000]),
        timeout=rng.choice([500, 2_000, 10_000]),
        schedule=rng.choice([None, None, None, 5_000, 40_000]),
        undo_schedule=rng.choice([None, None, None, None, 60_000]),
        undo_arguments={"id": "${{ output.id }}", "who": "${{ args.who }}", "nonce": "${{ draw() }}"},
    )


def read_traits(step: Step, tools: Mapping[str, ToolFacts]) -> Traits:
    """Return what the target of a step is like, going by what its tools promise."""
    facts = tools[step.action.tool]
    undo = None if step.compensation is None else tools[step.compensation.tool]
    return Traits(
        honours_keys=facts.idempotent,
        keeps_tombstones=facts.late_safe,
        finds_by_key=undo is not None and undo.null_safe,
        is_read_only=step.klass is StepClass.READ_ONLY,
        key_retention_ms=facts.key_retention_ms,
    )


def _draw_trouble(rng: random.Random, saga: Saga) -> Trouble:
    is_stormy = rng.random() < 0.55
    verbs = ["cancel", "rollback", "terminate"]
    count = rng.choice([0, 0, 0, 0, 0, 1, 1, 2])
    requests = tuple(
        (int(rng.expovariate(1 / 3_000)), rng.choices(verbs, weights=[4, 4, 2])[0], rng.random() < 0.4)
        for _ in range(count)
    )
    return Trouble(
        weights=STORMY if is_stormy else CALM,
        undo_weights=UNDO_STORMY if rng.random() < 0.4 else UNDO_CALM,
        crashes=rng.choice([0, 0, 1, 1, 2, 3, 5]),
        crash_chance=rng.choice([0.03, 0.08, 0.2]),
        requests=requests,
        after_end=rng.choice([*[None] * 6, *verbs]),
        is_operator_patient=rng.random() < 0.75,
        missing_until_ms=rng.choice([0, 0, 0, 0, 2_000, 20_000]),
        missing_tool=rng.choice(sorted(saga.tools)),
        slots=rng.choice([1, 2, 8, 8]),
        deadline_ms=rng.choice([None] * 5 + [2_000, 15_000, 90_000]),
    )
