"""A run before there is one: its calls in order, and what a failure at each step would undo (rules F7, E7, E11).

The order of the calls is that of a rehearsal of the real core, in which all succeeds; what is undone, and what is left
as it is, says the rollback's own plan of the run that results. A failure at a step undoes of that plan what has run by
then: for certain the steps that it needed, and, of those that run beside it, what has begun.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property
from typing import Final

from sagactl.core.backward import Treatment, plan_rollback, treat, why_left
from sagactl.core.canonical import Json
from sagactl.core.partial import is_known
from sagactl.core.rehearsal import BlankEvaluator, begin_imagined, blank_saga, rehearse
from sagactl.core.saga import CompensateFailed, Saga, Step, StepClass
from sagactl.core.state import RunState
from sagactl.core.template import Evaluator, ExpressionError, Scope, Template, render
from sagactl.dataclass import dataclass

_STATIC: Final = BlankEvaluator()


@dataclass(frozen=True, slots=True)
class Given:
    """What the input alone says of a step: what `when` comes to, and the items of `foreach`; None: not known yet.

    `objection` is why the step is refused if it is reached.
    """

    when: bool | None = None
    items: tuple[Json, ...] | None = None
    objection: str | None = None


NOTHING_GIVEN: Final = Given()


@dataclass(frozen=True, slots=True)
class Undone:
    """A step in the order of the undo; one that is not `certain` runs beside what failed, and may not have begun.

    With a `reason` it is not undone: it stays, and that is why.
    """

    step: str
    is_certain: bool = True
    reason: str | None = None


@dataclass(frozen=True)
class Preview:
    """Steps by the number of the turn in which they are called; `undo_order` is that of a whole run."""

    saga: Saga
    given: Mapping[str, Given]
    numbers: Mapping[str, int]
    """When each step is called, from 1, in the order of the calls; those that are never called aren't in it."""
    undo_order: tuple[Undone, ...]

    @cached_property
    def steps(self) -> tuple[Step, ...]:
        """The steps in the order of their calls, then those that are never called."""
        never = [step for step in self.saga.steps if step.id not in self.numbers]
        return (*(self.saga.by_id[step_id] for step_id in self.numbers), *never)

    @cached_property
    def pivot(self) -> str | None:
        """The point of no return, if it is reached at all."""
        return next((step.id for step in self.steps if step.klass is StepClass.PIVOT and step.id in self.numbers), None)

    def given_of(self, step_id: str) -> Given:
        """Return what the input says of a step."""
        return self.given.get(step_id, NOTHING_GIVEN)

    def turns_back(self, step_id: str) -> bool:
        """Tell whether a failure at the step rolls the run back."""
        return not self.saga.by_id[step_id].is_behind_pivot

    def undone_if_fails(self, step_id: str) -> list[Undone]:
        """Return what the rollback does, in its order, when the step fails for certain."""
        if not self.turns_back(step_id) or step_id not in self.numbers:
            return []
        own = self._lines.own.get(step_id, 0) if self.saga.by_id[step_id].foreach is None else 0
        certain = self._lines.before[step_id] | own
        return [self._undone_at(place, certain) for place in _places(self._mask_of(step_id))]

    def undone_if_one_fails(self, steps: Sequence[str]) -> list[Undone]:
        """Return the same for steps of one group (see `groups`): what only some of them undo is not certain."""
        if len(steps) == 1:
            return self.undone_if_fails(steps[0])
        mask = 0
        for step_id in steps:
            mask |= self._mask_of(step_id)
        return [self._undone_at(place, self._lines.before[steps[0]]) for place in _places(mask)]

    @cached_property
    def groups(self) -> list[tuple[str, ...]]:
        """Return the steps that turn the run back, those side by side with the same before and beside them together."""
        groups: list[list[str]] = []
        last: tuple[int, int] | None = None
        for step_id in self.numbers:
            if not self.turns_back(step_id):
                continue
            around = self._lines.before[step_id], self._mask_of(step_id) | self._lines.own.get(step_id, 0)
            if around == last:
                groups[-1].append(step_id)
            else:
                groups.append([step_id])
            last = around
        return [tuple(group) for group in groups]

    def count_undone(self, step_id: str) -> int:
        """Return how many steps that is; costs less than to list them."""
        return self._mask_of(step_id).bit_count() if self.turns_back(step_id) and step_id in self.numbers else 0

    def _undone_at(self, place: int, certain: int) -> Undone:
        found = self.undo_order[len(self.undo_order) - 1 - place]
        may_be_skipped = self.saga.by_id[found.step].when is not None and self.given_of(found.step).when is None
        return Undone(found.step, bool(certain >> place & 1) and not may_be_skipped, found.reason)

    def _mask_of(self, step_id: str) -> int:
        everything = (1 << len(self.undo_order)) - 1
        own = self._lines.own.get(step_id, 0)
        others = everything & ~self._lines.behind[step_id] & ~own
        return others | own if self._touches_itself(step_id) else others

    def _touches_itself(self, step_id: str) -> bool:
        """E7, F9: a failed step has something to undo where it is told so, or where some of its items had succeeded."""
        step = self.saga.by_id[step_id]
        is_asked = step.compensate_failed is CompensateFailed.ALWAYS and step.compensation is not None
        return is_asked or step.foreach is not None

    @cached_property
    def _lines(self) -> _Lines:
        return _draw_lines(self.saga, [undone.step for undone in reversed(self.undo_order)])


@dataclass(frozen=True, slots=True)
class _Lines:
    """Who is before and behind whom, as sets of bits: the place of a step counted from the end of the undo."""

    own: Mapping[str, int]
    before: Mapping[str, int]
    behind: Mapping[str, int]


def _draw_lines(saga: Saga, forward: Sequence[str]) -> _Lines:
    own = {step_id: 1 << place for place, step_id in enumerate(forward)}
    order = _sort(saga)
    before: dict[str, int] = {}
    behind: dict[str, int] = dict.fromkeys(saga.by_id, 0)
    for step_id in order:
        before[step_id] = 0
        for need in saga.by_id[step_id].needs:
            before[step_id] |= before[need] | own.get(need, 0)
    for step_id in reversed(order):
        for need in saga.by_id[step_id].needs:
            behind[need] |= behind[step_id] | own.get(step_id, 0)
    return _Lines(own, before, behind)


def _sort(saga: Saga) -> list[str]:
    """Return the steps, each behind all that it needs."""
    left = {step.id: len(step.needs) for step in saga.steps}
    order = list(saga.roots)
    for step_id in order:
        for dependent in saga.dependents[step_id]:
            left[dependent] -= 1
            if left[dependent] == 0:
                order.append(dependent)
    return order


def _places(mask: int) -> Iterator[int]:
    """Yield the places of the bits in *mask*, the highest first: the order of the undo."""
    while mask:
        place = mask.bit_length() - 1
        yield place
        mask ^= 1 << place


def preview(saga: Saga, given: Mapping[str, Given] | None = None) -> Preview:
    """Return what a run of *saga* would do; *given* is what its input says (see `read_given`)."""
    given = given or {}
    blank = blank_saga(
        saga,
        skipped=[step_id for step_id, known in given.items() if known.when is False],
        empty=[step_id for step_id, known in given.items() if known.items == ()],
    )
    state = begin_imagined(blank)
    rehearsal = rehearse(blank, state, _STATIC)
    numbers = {call.operation.step: call.turn + 1 for call in rehearsal.calls}
    return Preview(saga, given, numbers, tuple(_order_undo(blank, state)))


def _order_undo(saga: Saga, state: RunState) -> Iterator[Undone]:
    for operation in plan_rollback(saga, state):
        action = state.operations[operation]
        is_left = treat(saga, action) is Treatment.LEAVE
        yield Undone(operation.step, reason=why_left(saga, action) if is_left else None)


def read_given(saga: Saga, scope: Scope, evaluator: Evaluator) -> dict[str, Given]:
    """Return what *scope*, the input or nothing, says of steps whose `when` or `foreach` hang on nothing else."""
    found = {}
    for step in saga.steps:
        if step.when is not None or step.foreach is not None or step.guard is not None:
            found[step.id] = _read_step(step, scope, evaluator)
    return found


def _read_step(step: Step, scope: Scope, evaluator: Evaluator) -> Given:
    def value_of(template: Template | None) -> Json:
        is_there = template is not None and is_known(template, scope)
        return render(template, scope, evaluator) if template is not None and is_there else None

    try:
        when = value_of(step.when)
        if when is False:
            return Given(when=False)
        items = value_of(step.foreach)
        guard = value_of(step.guard)
    except ExpressionError as error:
        return Given(objection=str(error))
    objection = _object_to(when, items, guard)
    return Given(
        when if isinstance(when, bool) else None,
        tuple(items) if isinstance(items, list) else None,
        objection,
    )


def _object_to(when: Json, items: Json, guard: Json) -> str | None:
    if when is not None and not isinstance(when, bool):
        return "when must be true or false"
    if items is not None and not isinstance(items, list):
        return "foreach must be a list"
    return "the guard is false" if guard is False else None
