"""The checker is checked: each of these mistakes in the protocol is found by exploring all states of small sagas.

A checker that finds nothing may be blind. Some mistakes are planted into the core, some into what stands around it: a
log that doesn't keep its fence, targets that don't keep their promises, a driver that calls before it has committed.
What these sagas can't show by their nature (time drawn anew, arguments evaluated twice) is left to the simulation.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import pytest

from sagactl.core import (
    backward,
    called,
    calls,
    evolve,
    frontier,
    machine,
    operated,
    operators,
    policy,
    stands,
    transitions,
)
from sagactl.core.records import Direction, Disposition, DriverClaimed, Operation, Operator, Outcome, Verb
from sagactl.core.saga import OnUnknown
from sagactl.core.state import call_of
from sagactl.core.transitions import Event, Phase
from sagactl.core.world import Write
from tests.core import planted
from tests.core.builders import saga
from tests.core.exploration.cores import ViolationError
from tests.core.exploration.retelling import retell
from tests.core.exploration.search import explore, find_shortest
from tests.core.exploration.shapes import (
    ANY_TIME,
    ASKING,
    FORGETFUL,
    LATE_SAFE,
    LETTERS,
    ONCE,
    PROBED,
    TWICE,
    Shape,
    with_two_drivers,
)
from tests.core.planted import Patch, Plant
from tests.core.simulation.reading import Reading
from tests.proof import Prove

REFUSED_UNDO = {"a": ("ok",), "b": ("ok",), "c": ("ok", "reject"), "a'": ("ok", "reject"), "b'": ("ok", "reject")}
ITEMS = {**ONCE, "foreach": "${{ input.xs_f }}"}

SMALL = {
    "chain": Shape("chain", saga("a -> b", a=TWICE, b=TWICE), crashes=1),
    "probed": Shape("probed", saga("a -> b", a=ONCE, b=PROBED), crashes=1),
    "probed undo": Shape(
        "probed undo", saga("a", a={**PROBED, "null_safe": True, "on_unknown": "compensate"}), crashes=1
    ),
    "doubtful": Shape("doubtful", saga("a", a={**ONCE, "null_safe": False, "on_unknown": "compensate"}), crashes=1),
    "parallel": Shape("parallel", saga("[a | b]", a=ONCE, b=ONCE), crashes=1),
    "diamond": Shape("diamond", saga("a -> [b | c] -> d", a=ONCE, b=ONCE, c=ONCE, d=ONCE), crashes=0),
    "late safe": Shape("late safe", saga("a -> b", a=LATE_SAFE, b=ONCE), crashes=1),
    "asking": Shape("asking", saga("a -> b", a=ONCE, b={**ASKING, "attempts": 2}), crashes=1, commands=LETTERS),
    "pivot": Shape("pivot", saga("a -> p* -> c", a=ONCE, p=PROBED, c=TWICE), crashes=1, commands=("cancel", *LETTERS)),
    "asking pivot": Shape("asking pivot", saga("a -> p*", a=ONCE, p=ASKING), crashes=1, commands=ANY_TIME),
    "refused undo": Shape(
        "refused undo", saga("[a | b] -> c", a=ONCE, b=ONCE, c=ONCE), words=REFUSED_UNDO, crashes=0, commands=LETTERS
    ),
    "left": Shape("left", saga("a -> b", a={**ONCE, "undo": False}, b=ONCE), crashes=0),
    "items": Shape("items", saga("f -> c", f=ITEMS, c=ONCE), data={"xs_f": [1, 2]}, crashes=0),
    "skip": Shape("skip", saga("a -> b", a={**ONCE, "when": "${{ input.no }}"}, b=ONCE), data={"no": False}, crashes=0),
    "operator": Shape("operator", saga("a -> b", a=ONCE, b=ONCE), crashes=0, commands=ANY_TIME),
    "forgetful": Shape("forgetful", saga("a -> b", a=FORGETFUL, b=ONCE), crashes=2),
    "forgetful undo": Shape("forgetful undo", saga("a", a={**FORGETFUL, "on_unknown": "compensate"}), crashes=2),
}


@dataclass(frozen=True)
class Mistake:
    """Something wrong, the small saga that shows it, and the rules of which one must be named."""

    shape: str
    rules: set[str]
    plant: Plant | None = None
    lies: str = ""
    drivers: int = 1


def at_claim(change: Callable[[Any, Any, Any], None], *, direction: Direction) -> Plant:
    """Let a new driver do something to each operation of *direction* that was under way."""

    def plant(patch: Patch) -> None:
        def around(original: Any, saga: Any, state: Any, record: Any) -> None:
            lost = [state.operations[each] for each in state.in_flight if each.direction is direction]
            for op in lost:
                change(saga, state, op)
            original(saga, state, record)

        planted.wrap_fold(patch, DriverClaimed, around)

    return plant


def take_for_done(saga: Any, state: Any, op: Any) -> None:
    """Believe that a call whose answer was lost has succeeded."""
    del state.in_flight[op.operation]
    op.output = {"id": "?"}
    frontier.apply_event(saga, state, op, Event.SUCCEEDED, 0)


def undo_forward(patch: Patch) -> None:
    """Undo in the order in which the steps were called."""
    original = backward.begin_rollback

    def begin(saga: Any, state: Any, record: Any) -> None:
        state.touched.reverse()
        for place, operation in enumerate(state.touched):
            state.operations[operation].first_seq = -place
        original(saga, state, record)
        frontier_now = state.backward
        frontier_now.heap = [
            (place, operation) for place, operation in enumerate(reversed(state.touched)) if _is_open(state, operation)
        ]

    patch.setattr(backward, "begin_rollback", begin)
    patch.setattr(called, "has_turn", lambda state, operation: True)


def _is_open(state: Any, operation: Operation) -> bool:
    return operation in state.backward.open_items.get(operation.step, ())


def succeed_early(patch: Patch) -> None:
    """Let a run succeed with one step still to come."""
    original = machine._finish

    def finish(turn: Any) -> Any:
        if turn.state.unfinished == 1 and not turn.state.in_flight and turn.state.direction is Direction.ACTION:
            return Write(machine._succeed(turn))
        return original(turn)

    rules = list(machine._RULES)
    patch.setattr(machine, "_RULES", (*rules[:-2], finish, rules[-2], finish))
    patch.setattr(evolve, "_may_end", lambda state, status: True)


def forget_rejection(patch: Patch) -> None:
    """Take a rejection for a success."""

    def around(original: Any, saga: Any, state: Any, record: Any) -> None:
        original(saga, state, record)
        op = state.operations[record.operation]
        if op.phase is Phase.FAILED and not op.doubt and state.failing is not None:
            op.phase = Phase.SUCCEEDED

    planted.wrap_fold(patch, Outcome, around)


def count_lost_for_clean(patch: Patch) -> None:
    """Take an answer that never came for one that says no."""
    original = called._take_in

    def take_in(saga: Any, op: Any, record: Any, event: Event) -> None:
        original(saga, op, record, event)
        if event is Event.UNKNOWN:
            op.doubt = False

    patch.setattr(called, "_take_in", take_in)


def start_dependents_early(patch: Patch) -> None:
    """Let a step start as soon as one of those that it needs is done."""
    original = frontier.finish_step

    def finish_step(saga: Any, state: Any, step_id: str) -> None:
        for dependent in saga.dependents[step_id]:
            state.needs_left[dependent] = 1
        original(saga, state, step_id)

    patch.setattr(frontier, "finish_step", finish_step)


def cancel_behind_the_pivot(patch: Patch) -> None:
    """Let a cancel turn a run around while its pivot's outcome is open."""
    effects = {verb: dict(at) for verb, at in stands.EFFECTS.items()}
    effects[Verb.CANCEL][stands.Stand.PIVOT_OPEN] = (stands.Effect.TURN_BACK, "")
    effects[Verb.ROLLBACK][stands.Stand.PIVOT_OPEN] = (stands.Effect.TURN_BACK, "")
    for module in (operators, operated):
        patch.setattr(module, "EFFECTS", effects)


def drop_requests(patch: Patch) -> None:
    """Say yes to an operator, and do nothing."""
    original = operated.apply_request

    def apply_request(saga: Any, state: Any, record: Operator) -> None:
        if record.disposition is Disposition.ACCEPTED and record.request.verb is Verb.CANCEL:
            state.answered.add(record.request.id)
            return
        original(saga, state, record)

    patch.setattr(operated, "apply_request", apply_request)


def believe_haste(patch: Patch) -> None:
    """Believe a person who says "not done" while a late call may still land."""
    patch.setattr(operators, "_object_to_haste", lambda action, at_ms: None)


def call_while_paused(patch: Patch) -> None:
    """Go on in a run that is paused."""
    rules = tuple(rule for rule in machine._RULES if rule is not machine._hold)
    patch.setattr(machine, "_RULES", rules)
    original = transitions.require
    patch.setattr(called, "require", lambda holds, text: original(holds or "paused" in text, text))


def undo_twice(patch: Patch) -> None:
    """Call a compensation again that has succeeded."""

    def around(original: Any, saga: Any, state: Any, record: Any) -> None:
        original(saga, state, record)
        for op in state.operations.values():
            if op.operation.direction is Direction.COMPENSATION and op.phase is Phase.SUCCEEDED:
                op.phase = Phase.READY
                state.ready[op.operation] = None

    planted.wrap_fold(patch, DriverClaimed, around)


def retry_at_once(patch: Patch) -> None:
    """Call again without waiting for the earlier call to end."""
    original = evolve._on_claimed

    def claimed(saga: Any, state: Any, record: Any) -> None:
        original(saga, state, record)
        for op in state.operations.values():
            op.late_until_ms = 0

    patch.setitem(evolve._FOLDS, DriverClaimed, claimed)


def ask_again_for_ever(patch: Patch) -> None:
    """Let a probe that can't tell be asked again without end."""
    original = frontier.apply_event

    def apply_event(saga: Any, state: Any, op: Any, event: Event, at_ms: int) -> None:
        if event is Event.PROBE_CANNOT_TELL:
            op.probes = 1
        original(saga, state, op, event, at_ms)

    patch.setattr(called, "apply_event", apply_event)


def stand_still(patch: Patch) -> None:
    """Never come back to what waits for its next try."""
    for module in (calls,):
        patch.setattr(module, "due_timers", lambda state, now_ms: iter(()))
    patch.setattr(machine, "first_timer_after", lambda state, now_ms: None)


def retry_what_asks(patch: Patch) -> None:
    """Retry what is in doubt although its policy is to ask a person."""

    def policy_of(saga: Any, op: Any, at_ms: int) -> OnUnknown:
        found = call_of(saga, op.operation).on_unknown
        return OnUnknown.RETRY if found is OnUnknown.ASK else found

    patch.setattr(policy, "policy_in_doubt", policy_of)


def trust_keys_unseen(patch: Patch) -> None:
    """Trust keys for ever, where nobody but the target can tell."""
    planted.forget_retention(patch)
    patch.setattr(Reading, "_check_repeat", lambda self, known, record: None)


def look_unseen(patch: Patch) -> None:
    """Let an undo look by a forgotten key, where nobody but the target can tell."""
    planted.look_by_a_forgotten_key(patch)
    patch.setattr(Reading, "_check_undo", lambda self, known, record, *, is_first: None)


ACTION, UNDO = Direction.ACTION, Direction.COMPENSATION
MISTAKES: dict[str, Mistake] = {
    "an intent taken for done": Mistake("chain", {"S5", "L5", "S8"}, at_claim(take_for_done, direction=ACTION)),
    "an undo under way taken for done": Mistake("chain", {"S5", "L5", "S8"}, at_claim(take_for_done, direction=UNDO)),
    "no fence on outcomes": Mistake("chain", {"C1", "L5"}, lies="fence", drivers=2),
    "a target that ignores its keys": Mistake("chain", {"S2"}, lies="keys"),
    "a target without tombstones": Mistake("late safe", {"S6", "S5"}, lies="tombstones", drivers=2),
    "a call before its commit": Mistake("chain", {"S1", "S5"}, lies="order"),
    "calls said to have ended that haven't": Mistake("chain", {"S4", "S6"}, lies="dead", drivers=2),
    "undone in the order of the calls": Mistake("chain", {"S7"}, undo_forward),
    "undone by time stamp": Mistake("diamond", {"S7"}, planted.undo_by_timestamp),
    "items undone in list order": Mistake("items", {"F9"}, planted.undo_in_list_order),
    "a skipped step undone": Mistake("skip", {"S8", "S5"}, planted.undo_skipped),
    "a step in doubt skipped": Mistake("chain", {"S5", "S8"}, planted.treat_otherwise(planted._ignore_doubt)),
    "a rejection that clears a doubt": Mistake("chain", {"S5", "S7", "S8"}, planted.clear_doubt),
    "a lost answer taken for a no": Mistake("chain", {"S5", "S8"}, count_lost_for_clean),
    "a lost call taken for none": Mistake("chain", {"S5", "S7", "S8"}, planted.trust_lost_calls),
    "a clean failure compensated": Mistake("chain", {"S8"}, planted.treat_otherwise(planted._compensate_clean)),
    "an undo without output that isn't null-safe": Mistake(
        "doubtful", {"E7"}, planted.treat_otherwise(planted._undo_blindly)
    ),
    "a doubt compensated without a probe": Mistake("probed undo", {"E7"}, planted.treat_otherwise(planted._skip_probe)),
    "can't tell taken for not done": Mistake("probed", {"S5", "S7", "S8"}, planted.believe_probe),
    "a blind retry": Mistake("probed", {"E6"}, planted.retry_blindly),
    "a key trusted for ever": Mistake("forgetful", {"E6"}, planted.forget_retention),
    "a second effect under a forgotten key": Mistake("forgetful", {"S2"}, trust_keys_unseen),
    "an undo that looks by a forgotten key": Mistake("forgetful undo", {"E7"}, planted.look_by_a_forgotten_key),
    "an effect that such an undo leaves": Mistake("forgetful undo", {"S5"}, look_unseen),
    "a retry where a person is to be asked": Mistake("asking", {"E5", "E6", "S2"}, retry_what_asks),
    "a late call not awaited": Mistake("chain", {"S4", "S6", "E9"}, retry_at_once, drivers=2),
    "a person believed too early": Mistake("asking", {"E9", "S5", "S6", "S2"}, believe_haste, drivers=2),
    "a rollback that doesn't wait for calls": Mistake("parallel", {"E10"}, planted.roll_back_at_once),
    "a rollback given up at the first dead letter": Mistake("refused undo", {"E12"}, planted.give_up_the_rollback),
    "a dead letter reported as rolled back": Mistake("refused undo", {"S5"}, planted.call_it_rolled_back),
    "what is left not listed": Mistake("left", {"S5"}, planted.forget_what_is_left),
    "what terminate leaves not listed": Mistake("operator", {"E22"}, planted.forget_what_terminates),
    "a rollback behind the pivot": Mistake("pivot", {"S9"}, planted.turn_back_behind_the_pivot),
    "a rollback with the pivot in doubt": Mistake("asking pivot", {"S9"}, planted.give_up_a_doubtful_pivot),
    "a cancel while the pivot is open": Mistake("asking pivot", {"S9", "E13"}, cancel_behind_the_pivot),
    "a request lost at the pivot": Mistake("pivot", {"E22"}, planted.lose_deferred),
    "a request accepted and dropped": Mistake("operator", {"E22"}, drop_requests),
    "calls in a paused run": Mistake("operator", {"E22"}, call_while_paused),
    "the first error overwritten": Mistake("refused undo", {"S11"}, planted.overwrite_error),
    "concurrency of items ignored": Mistake("items", {"F9"}, planted.ignore_concurrency),
    "a step started before its needs": Mistake("diamond", {"F7"}, start_dependents_early),
    "a success with a step to come": Mistake("chain", {"S5", "L5"}, succeed_early),
    "a rejection taken for a success": Mistake("chain", {"S5", "S8"}, forget_rejection),
    "a compensation called twice": Mistake("chain", {"L5", "C5", "S4"}, undo_twice),
    "one attempt too many": Mistake("chain", {"E5"}, planted.shift_limit(1)),
    "one attempt too few": Mistake("chain", {"E5"}, planted.shift_limit(-1)),
    "attempts forgotten at resume": Mistake("chain", {"E5"}, planted.forget_attempts),
    "a timer fired early": Mistake("chain", {"V5", "E9", "E5"}, planted.fire_early),
    "a probe asked for ever": Mistake("probed", {"E6", "V2"}, ask_again_for_ever),
    "a timer forgotten": Mistake("chain", {"V1"}, stand_still),
    "a new key per attempt": Mistake("chain", {"S3"}, planted.vary_key("action")),
    "a new key per attempt of an undo": Mistake("chain", {"S3"}, planted.vary_key("compensation")),
}


def find(mistake: Mistake) -> str | None:
    """Return what the exploration says of *mistake*, None where it doesn't notice."""
    shape = replace(SMALL[mistake.shape], lies=frozenset({mistake.lies} - {""}))
    if mistake.drivers == 2:
        shape = with_two_drivers(shape)
    with pytest.MonkeyPatch.context() as patch:
        if mistake.plant is not None:
            mistake.plant(patch)
        try:
            explore(shape)
        except ViolationError as violation:
            return str(violation)
    return None


@pytest.mark.parametrize("name", MISTAKES)
def test_each_mistake_in_the_protocol_is_found(name: str, prove: Prove) -> None:
    """V0: a rule that no mistake can break isn't checked; each of these is named by a rule that it breaks."""
    found = find(MISTAKES[name])
    assert found is not None, f"{name}: not found"
    assert found.split(":")[0] in MISTAKES[name].rules, f"{name}: {found}"
    prove("seeded protocol errors found by it", 1, goal=30)


@pytest.mark.parametrize("shape", SMALL.values(), ids=lambda shape: shape.name)
def test_without_a_mistake_nothing_is_found(shape: Shape) -> None:
    """V0: the same small sagas, with one driver and with two, have no state that breaks a rule."""
    assert explore(shape).left == 0
    assert explore(with_two_drivers(shape)).left == 0


def test_the_shortest_way_to_a_mistake_is_told_as_people_tell_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """V0: what is found can be read, event by event, with the records that each adds to the log."""
    planted.forget_late_calls(monkeypatch)
    path = find_shortest(with_two_drivers(SMALL["chain"]))
    assert path is not None
    told = retell(path)
    lines = told.splitlines()
    assert "  1. the driver looks at the log" in lines
    assert any("the driver loses its lease and lives on" in line for line in lines)
    assert any("another driver takes over, and calls of the last one may still land" in line for line in lines)
    assert any(line.startswith("       + intent at 0: operation=a, attempt=1") for line in lines)
    assert lines[-1] == "     = S4: a' begins while an earlier call is under way"
    assert len(path.events) <= 6, told
