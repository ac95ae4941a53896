"""Binding a run that is under way to another definition (rule E16): what would change, and what forbids it.

The log isn't rewritten and no record is read twice in two ways. A run may be bound to a new definition only where its
whole log is a log of the new definition too: every record that is there could have come about under it, and leaves the
run where it stands. From then on the run is folded under the new definition alone, from its first record on, so no
reader of a log ever has to know more than one definition. The record that binds it names both.

How that is made sure
---------------------
1. By rules, each with a reason that people understand: what was called keeps its tool, its arguments, its undo and its
   place among the others; what was evaluated once isn't evaluated otherwise; the pivot stays where it was reached.
2. By trial: the log is folded under both, and the two states must agree in all that was ever touched. What no rule
   thought of is refused here.

What is still to come may change, come and go as it likes; so may names, descriptions, delays and limits.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import field, replace
from functools import cached_property
from typing import Any, Final

from sagactl.core.difference import Aspect, Difference, compare, first_pivot
from sagactl.core.evolve import replay
from sagactl.core.records import (
    Direction,
    Disposition,
    Intent,
    Operation,
    Operator,
    Record,
    Request,
    StepDecided,
)
from sagactl.core.saga import Saga, Step, ToolFacts
from sagactl.core.state import OperationState, RunState
from sagactl.core.transitions import IllegalRecordError, Phase
from sagactl.dataclass import dataclass


@dataclass(frozen=True, slots=True)
class Change:
    """A difference, and why the run forbids it, if it does."""

    difference: Difference
    objection: str | None = None


@dataclass(frozen=True, slots=True)
class Rebinding:
    """What binding a run to another definition would change, and everything that forbids it."""

    changes: tuple[Change, ...]
    others: tuple[str, ...] = ()
    """Objections that belong to no single difference."""

    @property
    def objections(self) -> list[str]:
        """List all that forbids it."""
        return [*self.others, *(describe_objection(change) for change in self.changes if change.objection)]


def describe_objection(change: Change) -> str:
    """Return the objection with what it is about before it."""
    subject = change.difference.step or change.difference.tool
    return str(change.objection) if subject is None else f"{subject}: {change.objection}"


@dataclass
class Past:
    """What the records of a run have touched of its steps."""

    named: set[str] = field(default_factory=set)
    """Steps that any record speaks of."""
    decided: set[str] = field(default_factory=set)
    """Steps whose `when`, `foreach` or `approval` was evaluated."""
    fixed: set[str] = field(default_factory=set)
    """Steps whose arguments stand: they were called, or a person was shown them."""
    called: set[str] = field(default_factory=set)
    undo_called: set[str] = field(default_factory=set)


def read_past(records: Iterable[Record]) -> Past:
    """Return what *records* have touched."""
    past = Past()
    for record in records:
        operation = _operation_of(record)
        step = operation.step if operation is not None else getattr(record, "step", None)
        if step is None:
            continue
        past.named.add(step)
        if isinstance(record, StepDecided):
            past.decided.add(step)
            if record.arguments:
                past.fixed.add(step)
        if isinstance(record, Intent):
            is_action = record.operation.direction is Direction.ACTION
            (past.called if is_action else past.undo_called).add(step)
            past.fixed.add(step)
    return past


def _operation_of(record: Record) -> Operation | None:
    if isinstance(record, Operator):
        return record.request.operation
    found: Operation | None = getattr(record, "operation", None)
    return found


def plan_rebinding(old: Saga, new: Saga, records: Sequence[Record], *, input_problem: str | None = None) -> Rebinding:
    """Return what going on under *new* would change for the run that *records*, folded under *old*, tell of.

    *input_problem* is what *new* finds wrong with the input of the run, which stays as it is.
    """
    differences = compare(old, new)
    if not differences:
        return Rebinding(())
    state = replay(old, records)
    judge = _Judge(old, new, state, read_past(records), input_problem)
    changes = tuple(Change(each, judge.object_to(each)) for each in differences)
    others = [] if state.ended is None else [f"the run has ended {state.ended.status}"]
    if not others and not any(change.objection for change in changes):
        found = _try_out(new, state, records, judge.past)
        others += [] if found is None else [f"what has happened can't have happened under it: {found}"]
    return Rebinding(changes, tuple(others))


def rebinding_record(request: Request, at_ms: int) -> Operator:
    """Return the record that binds a run to the definition that *request* names, where nothing forbids it."""
    return Operator(at_ms, request, Disposition.ACCEPTED)


@dataclass
class _Judge:
    """Says of each difference why a run that has come so far forbids it."""

    old: Saga
    new: Saga
    state: RunState
    past: Past
    input_problem: str | None

    def object_to(self, each: Difference) -> str | None:
        """Return why *each* can't be, or None."""
        if each.aspect is Aspect.NAME:
            return "it is another saga"
        if each.aspect is Aspect.INPUT:
            return self.input_problem
        if each.aspect is Aspect.PIVOT:
            return self._object_to_pivot()
        if each.aspect is Aspect.TOOL_FACTS:
            return self._object_to_facts(each)
        if each.step is None or each.step not in self.past.named:
            return None
        rule = _RULES.get(each.aspect)
        return None if rule is None else rule(self, each.step, each.aspect)

    def _object_to_pivot(self) -> str | None:
        reached = [pivot for pivot in (first_pivot(self.old), first_pivot(self.new)) if pivot in self.past.named]
        return f"{reached[0]} was reached: the point of no return stays where it is" if reached else None

    def object_to_going(self, step: str, _: Aspect) -> str:
        """A step with records can't be gone: nobody could undo it, or say what became of it."""
        return f"it {self._say_past(step)}, so it can't be gone"

    def _say_past(self, step: str) -> str:
        return "was called" if step in self.past.called else "has records"

    def object_to_class(self, step: str, _: Aspect) -> str:
        """What can be done about a step that has run is settled when it runs (F4)."""
        return f"it {self._say_past(step)} as {self.old.by_id[step].klass}"

    def object_to_needs(self, step: str, _: Aspect) -> str | None:
        """E11: what came before a step decides when it is undone; what it needs has happened (F7)."""
        before, after = self._ancestors_old[step], self._ancestors_new[step]
        missing = [each for each in self.new.by_id if each in after and not self._is_finished(each)]
        if missing:
            return f"it has begun, and would need {missing[0]}, which has not run"
        lost = [each for each in self.old.by_id if each in before - after and each in self.past.named]
        if lost:
            return f"it ran after {lost[0]}, and is undone before it"
        gained = [each for each in self.new.by_id if each in after - before and each in self.past.named]
        return f"it didn't wait for {gained[0]} when it began" if gained else None

    def _is_finished(self, step: str) -> bool:
        found = self.state.steps.get(step)
        return found is not None and found.finished

    def object_to_call(self, step: str, aspect: Aspect) -> str | None:
        """E20: arguments are evaluated once, and each attempt is the same call."""
        if step in self.past.called:
            return f"it was called, and {_STAYS[aspect]}"
        return f"a person was asked about it, and {_STAYS[aspect]}" if step in self.past.fixed else None

    def object_to_evaluated(self, step: str, aspect: Aspect) -> str | None:
        """F8, F9: `when` and `foreach` are evaluated once, and so is who must agree."""
        if step in self.past.decided:
            return f"its {aspect} was evaluated, once and for all"
        return f"it was called without another {aspect}" if step in self.past.called else None

    def object_to_undo(self, step: str, aspect: Aspect) -> str | None:
        """E1: how a call is undone is known before it is made."""
        return f"it was called, and {_STAYS[aspect]}" if step in self.past.called else None

    def _object_to_facts(self, each: Difference) -> str | None:
        tool = str(each.tool)
        before, after = self.old.tools[tool], self.new.tools[tool]
        broken = _broken_promise(before, after)
        for step_id in self.old.by_id:
            if step_id not in self.past.called or step_id not in self.new.by_id:
                continue
            step = self.old.by_id[step_id]
            is_action = step.action.tool == tool
            is_undo = step.compensation is not None and step.compensation.tool == tool
            if (is_action or is_undo) and broken is not None:
                return f"{step_id} was called, and {broken}"
            if self._is_under_way(step, is_action=is_action, is_undo=is_undo) and _has_new_arguments(before, after):
                return f"{step_id} was called with arguments of another shape, and may be called again"
            if is_action and before.output_schema != after.output_schema:
                return f"{step_id} gave an output of another shape"
        return None

    def _is_under_way(self, step: Step, *, is_action: bool, is_undo: bool) -> bool:
        is_open = is_action and not self._is_finished(step.id)
        return is_open or (is_undo and step.id in self.past.undo_called)

    @cached_property
    def _ancestors_old(self) -> Mapping[str, frozenset[str]]:
        return _find_ancestors(self.old, self.past.named)

    @cached_property
    def _ancestors_new(self) -> Mapping[str, frozenset[str]]:
        return _find_ancestors(self.new, self.past.named)


_STAYS: Final = {
    Aspect.TOOL: "its tool stays",
    Aspect.ARGUMENTS: "its arguments stay",
    Aspect.GUARD: "its guard stays",
    Aspect.UNDO: "its undo stays",
    Aspect.COMPENSATE_FAILED: "its undo stays",
}
_Rule = Callable[[_Judge, str, Aspect], str | None]
_RULES: Final[Mapping[Aspect, _Rule]] = {
    Aspect.STEP_GONE: _Judge.object_to_going,
    Aspect.CLASS: _Judge.object_to_class,
    Aspect.NEEDS: _Judge.object_to_needs,
    Aspect.TOOL: _Judge.object_to_call,
    Aspect.ARGUMENTS: _Judge.object_to_call,
    Aspect.GUARD: _Judge.object_to_call,
    Aspect.WHEN: _Judge.object_to_evaluated,
    Aspect.FOREACH: _Judge.object_to_evaluated,
    Aspect.APPROVAL: _Judge.object_to_evaluated,
    Aspect.UNDO: _Judge.object_to_undo,
    Aspect.COMPENSATE_FAILED: _Judge.object_to_undo,
}
"""What is asked of an aspect of a step that the log speaks of; all others are free, unless the trial finds more."""


def _find_ancestors(saga: Saga, wanted: set[str]) -> dict[str, frozenset[str]]:
    """Return for each of *wanted* all steps that it needs, however indirectly."""
    found = {}
    for step_id in wanted & saga.by_id.keys():
        seen: set[str] = set()
        open_ = list(saga.by_id[step_id].needs)
        while open_:
            need = open_.pop()
            if need not in seen:
                seen.add(need)
                open_ += saga.by_id[need].needs
        found[step_id] = frozenset(seen)
    return found


def _broken_promise(before: ToolFacts, after: ToolFacts) -> str | None:
    """Return which promise, that a call may have been made on, the tool takes back."""
    for name in ("idempotent", "null_safe", "late_safe"):
        if getattr(before, name) and not getattr(after, name):
            return f"{before.name} is no longer {name}"
    if before.probe is not None and after.probe != before.probe:
        return f"{before.name} has another probe"
    return None if before.read_only == after.read_only else f"{before.name} is no longer what it was: read_only changed"


def _has_new_arguments(before: ToolFacts, after: ToolFacts) -> bool:
    return before.arguments_schema != after.arguments_schema


def _try_out(new: Saga, state: RunState, records: Sequence[Record], past: Past) -> str | None:
    """Fold the log under the new definition; return in what the run would stand otherwise than it does."""
    try:
        other = replay(new, records)
    except IllegalRecordError as error:
        return str(error)
    return next(_find_disagreements(state, other, past), None)


_SAME: Final = (
    *("direction", "cause", "failure", "failed_step", "touched", "dead", "doubtful", "undrawn", "exhausted"),
    *(
        "awaiting",
        "alerts",
        "troubled",
        "has_recovered",
        "failing",
        "failing_since_ms",
        "terminating",
        "pivot",
        "pivot_passed",
        "pivot_announced",
    ),
    *("deferred", "answered", "paused_since_ms", "deadline_ms", "deadline_alerted", "people_since_ms", "not_undone"),
    *("abandoned", "waiting", "stuck", "ended", "in_flight"),
)


def _find_disagreements(state: RunState, other: RunState, past: Past) -> Iterator[str]:
    for name in _SAME:
        if getattr(state, name) != getattr(other, name):
            yield f"its {name} would be another"
    for operation, op in state.operations.items():
        if operation.step in past.named and not _agree(op, other.operations.get(operation)):
            yield f"{operation} would stand otherwise"
    for step in past.named:
        if state.steps.get(step) != other.steps.get(step):
            yield f"{step} would stand otherwise"
    for operation in _ready(state, past) ^ _ready(other, past):
        yield f"{operation} would have its turn otherwise"
    if _frontier(state) != _frontier(other):
        yield "its rollback would stand otherwise"


def _agree(one: OperationState, other: OperationState | None) -> bool:
    """Tell whether two folds left an operation alike, but for delays that aren't drawn and limits of time."""
    if other is None:
        return False
    plain: list[OperationState] = [replace(each, delay=None, schedule_deadline_ms=None) for each in (one, other)]
    return plain[0] == plain[1]


def _ready(state: RunState, past: Past) -> set[Operation]:
    return {
        operation
        for operation in state.ready
        if operation.step in past.named and state.operations[operation].phase is Phase.READY
    }


def _frontier(state: RunState) -> Any:
    """Return the frontier of the rollback as far as it is about what was touched."""
    backward = state.backward
    if backward is None:
        return None
    steps = {step: (backward.blockers.get(step), backward.waiting.get(step)) for step in backward.open_items}
    return backward.left, backward.open_items, backward.next_item, steps
