"""Another definition of a saga that is under way: changes of every kind, valid as a whole, fitting or not."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import replace

from sagactl.core.saga import Approval, Saga, Step, StepClass, ToolFacts
from sagactl.core.template import parse_template, write_template
from tests.core.builders import build_step
from tests.core.simulation.generate import _draw_spec

Change = Callable[[random.Random, Saga], Saga]


def redraw(rng: random.Random, saga: Saga) -> Saga:
    """Return *saga* after one to three changes."""
    for change in rng.choices(list(CHANGES.values()), weights=list(WEIGHTS), k=rng.choice([1, 1, 2, 3])):
        saga = change(rng, saga)
    return saga


def _set(saga: Saga, step: Step, facts: dict[str, ToolFacts] | None = None) -> Saga:
    steps = tuple(step if each.id == step.id else each for each in saga.steps)
    return replace(saga, steps=steps, tools={**saga.tools, **(facts or {})})


def _pick(rng: random.Random, saga: Saga) -> Step:
    return rng.choice(saga.steps)


def change_retry(rng: random.Random, saga: Saga) -> Saga:
    """Other budgets and delays, in both directions."""
    step = _pick(rng, saga)
    retry = replace(step.action.retry, max_attempts=rng.choice([1, 2, 5, 9]), initial_interval_ms=rng.choice([10, 900]))
    undo = step.compensation
    if undo is not None and rng.random() < 0.5:
        undo = replace(undo, retry=replace(undo.retry, max_attempts=rng.choice([1, 5, 9])))
    return _set(saga, replace(step, action=replace(step.action, retry=retry), compensation=undo))


def change_timeouts(rng: random.Random, saga: Saga) -> Saga:
    """Another limit for a call, for a step."""
    step = _pick(rng, saga)
    limit_ms = rng.choice([None, 3_000, 60_000])
    call = replace(step.action, start_to_close_ms=rng.choice([400, 9_000]), schedule_to_close_ms=limit_ms)
    return replace(_set(saga, replace(step, action=call)), settle_timeout_ms=rng.choice([500, 20_000]))


def change_arguments(rng: random.Random, saga: Saga) -> Saga:
    """One argument more."""
    step = _pick(rng, saga)
    arguments = write_template(step.action.arguments)
    assert isinstance(arguments, dict)
    changed = parse_template({**arguments, "more": rng.randint(1, 9)})
    return _set(saga, replace(step, action=replace(step.action, arguments=changed)))


def change_needs(rng: random.Random, saga: Saga) -> Saga:
    """A step also waits for another one that stands above it, on the same side of the pivot."""
    place = rng.randrange(len(saga.steps))
    step = saga.steps[place]
    above = [each.id for each in saga.steps[:place] if each.is_behind_pivot == step.is_behind_pivot]
    extra = [each for each in above if each not in step.needs and saga.by_id[each].klass is not StepClass.PIVOT]
    return _set(saga, replace(step, needs=(*step.needs, rng.choice(extra)))) if extra else saga


def drop_need(rng: random.Random, saga: Saga) -> Saga:
    """A step before the pivot no longer waits for one whose output it doesn't use."""
    step = _pick(rng, saga)
    text = str(write_template(step.action.arguments))
    free = [need for need in step.needs if f"steps.{need}." not in text]
    is_ordinary = step.klass not in {StepClass.PIVOT, StepClass.RETRIABLE}
    if not free or not is_ordinary:
        return saga
    dropped = rng.choice(free)
    return _set(saga, replace(step, needs=tuple(need for need in step.needs if need != dropped)))


def change_conditions(rng: random.Random, saga: Saga) -> Saga:
    """Another `when`, `guard` or approval."""
    step, kind = _pick(rng, saga), rng.choice(["when", "guard", "approval"])
    is_used = any(f"steps.{step.id}." in str(write_template(each.action.arguments)) for each in saga.steps)
    if kind == "approval":
        return _set(saga, replace(step, approval=None if step.approval else Approval()))
    if kind == "when" and (is_used or step.klass is StepClass.PIVOT):
        return saga
    constant = parse_template(rng.random() < 0.6)
    return _set(saga, replace(step, when=constant) if kind == "when" else replace(step, guard=constant))


def change_undo(rng: random.Random, saga: Saga) -> Saga:
    """No undo any more, or another one."""
    step = _pick(rng, saga)
    if step.compensation is None or step.klass is not StepClass.COMPENSABLE:
        return saga
    if rng.random() < 0.5:
        return _set(
            saga, replace(step, klass=StepClass.NOT_UNDOABLE, compensation=None, not_undoable_reason="so be it")
        )
    undo = replace(step.compensation, arguments=parse_template({"id": "${{ output.id }}", "more": 1}))
    return _set(saga, replace(step, compensation=undo))


def change_tool(rng: random.Random, saga: Saga) -> Saga:
    """A later release of a tool, which may take a promise back."""
    step = _pick(rng, saga)
    name = step.action.tool if step.compensation is None or rng.random() < 0.6 else step.compensation.tool
    facts = replace(saga.tools[name], version="2")
    if rng.random() < 0.4:
        facts = replace(facts, late_safe=False, arguments_schema={"type": "object"})
    return _set(saga, step, {name: facts})


def remove_step(rng: random.Random, saga: Saga) -> Saga:
    """A step on which nothing waits is gone."""
    leaves = [step for step in saga.steps if not saga.dependents[step.id]]
    gone = rng.choice(leaves)
    return saga if len(saga.steps) == 1 else replace(saga, steps=tuple(each for each in saga.steps if each != gone))


def add_step(rng: random.Random, saga: Saga) -> Saga:
    """A step at the end, behind all others, or one at the beginning, which the pivot waits for."""
    has_pivot, tools = saga.has_pivot, dict(saga.tools)
    step_id = next(f"z{n}" for n in range(100) if f"z{n}" not in saga.by_id)
    is_last = rng.random() < 0.7
    needs = tuple(step.id for step in saga.steps if not saga.dependents[step.id]) if is_last else ()
    klass = (
        StepClass.RETRIABLE if is_last and has_pivot else rng.choice([StepClass.COMPENSABLE, StepClass.NOT_UNDOABLE])
    )
    spec = replace(_draw_spec(rng, klass), arguments={"who": "${{ input.who }}", "nonce": "${{ draw() }}"})
    step = build_step(step_id, needs, spec, {}, tools)
    steps = list(saga.steps)
    if not is_last:
        for place, each in enumerate(steps):
            if each.klass is StepClass.PIVOT:
                steps[place] = replace(each, needs=(*each.needs, step_id))
    return replace(saga, steps=(*steps, step) if is_last else (step, *steps), tools=tools)


def move_pivot(rng: random.Random, saga: Saga) -> Saga:
    """The last step becomes the pivot, where there is none and nothing runs beside it; or there is none any more."""
    last = saga.steps[-1]
    if saga.has_pivot:
        if last.klass is not StepClass.PIVOT:
            return saga
        return _set(saga, replace(last, klass=StepClass.NOT_UNDOABLE, not_undoable_reason="it stays"))
    if last.foreach is not None or last.when is not None:
        return saga
    others = tuple(step.id for step in saga.steps[:-1])
    return _set(saga, replace(last, klass=StepClass.PIVOT, needs=others, compensation=None))


def change_words(rng: random.Random, saga: Saga) -> Saga:
    """Only what people read, and how many calls at once."""
    step = replace(_pick(rng, saga), description=f"number {rng.randint(1, 99)}")
    step = replace(step, concurrency=rng.choice([1, 2, 4])) if step.foreach is not None else step
    return replace(_set(saga, step), version=str(rng.randint(2, 9)), compensation_concurrency=rng.choice([1, 3]))


CHANGES: dict[str, Change] = {
    function.__name__: function
    for function in (
        *(change_retry, change_timeouts, change_arguments, change_needs, drop_need, change_conditions, change_undo),
        *(change_tool, remove_step, add_step, move_pivot, change_words),
    )
}
WEIGHTS = [2, 2, 1, 1, 1, 2, 1, 1, 1, 3, 1, 2]
