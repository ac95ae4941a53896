"""The world around the core: targets, calls at any point of their way, drivers that die or live on without a lease.

A state of the world is a state of the core and one number. Its bits tell, place by place, how many effects are there,
whether the key of the action has taken effect, whether an undo has, how far the call under way has come, and how far
calls are that a driver without a lease has left behind; then how many faults are still to come, and who drives.
`next_of` lists everything that can happen next, one atomic thing each: an effect takes place, an answer is heard and
what follows from it is committed, time passes, a driver dies, loses its lease, or takes over, an operator asks.

Rules that the log can't know of are checked here: what the log says of each place must agree with what is there
(S1, S5, S8), a key takes effect once (S2), calls don't overlap (S4), no effect comes after its undo (S6), an undo waits
for everything that needed its step (S7), and something can always happen until the run rests or waits for people (V1).
"""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from typing import Final, TypeAlias

from sagactl.core.records import Direction, Operation, ProbeAnswer
from sagactl.core.state import RunState
from sagactl.core.transitions import Phase
from sagactl.core.world import Rest, Wait
from tests.core.exploration.cores import ASK_DO, ASK_UNDO, DO, UNDO, Core, Cores, Edge, Event, ViolationError
from tests.core.exploration.shapes import Shape
from tests.core.simulation.effects import Effects

SENT, ACTED, BARRED = 1, 2, 3
"""How far a call has come; a probe that has found something has `ACTED`, one that found nothing is `BARRED`."""

DIED, LOST = 1, 2
"""Why nobody drives: the last driver is dead, or it lives on without its lease."""

Next: TypeAlias = tuple[Event, Core, int]


class Worlds:
    """All states of the world of one shape, and what can happen in each."""

    def __init__(self, shape: Shape) -> None:
        self.shape = shape
        self.cores = Cores(shape)
        count = len(shape.places)
        self.acted_at, self.undone_at, self.job_at = 2 * count, 3 * count, 4 * count
        self.late_do_at, self.late_undo_at, self.crashes_at = 6 * count, 8 * count, 10 * count
        self.losses_at, self.asks_at, self.nobody_at = self.crashes_at + 2, self.crashes_at + 4, self.crashes_at + 5
        every = (1 << 2 * count) - 1
        self.nets, self.jobs = every, every << self.job_at
        self.late = (every << self.late_do_at) | (every << self.late_undo_at)
        self.first = shape.crashes << self.crashes_at | shape.losses << self.losses_at
        self.first |= bool(shape.commands) << self.asks_at
        self.landed = 0
        """How often a call took effect whose driver had lost its lease."""
        self.answers = [[self._list_answers(place, kind) for kind in range(4)] for place in range(count)]

    # -- what can happen ------------------------------------------------------------------------------------------

    def next_of(self, core: Core, world: int) -> list[Next]:
        """Return all that can happen next; raises ViolationError, also where nothing can and something should."""
        found: list[Next] = []
        nobody = world >> self.nobody_at & 3
        if nobody:
            self._take_over(found, core, world, nobody)
        elif core.then is None:
            self._follow(found, core, ("look",), world)
        elif not isinstance(core.then, Rest):
            for place, kind in core.flight:
                self._move_job(found, core, world, place, kind)
            self._pass_time(found, core, world)
        if world & self.late:
            self._move_late(found, core, world)
        if not found and not _may_stand_still(core):
            raise ViolationError(f"V1: nothing can happen any more, and the run waits: {core.then}")
        if not nobody:
            self._strike(found, core, world)
            self._ask(found, core, world)
        return found

    def _follow(self, found: list[Next], core: Core, event: Event, world: int) -> None:
        """Add what *event* makes of the core, unless something must have ended before it can happen."""
        try:
            edge = core.edges[event]
        except KeyError:
            edge = self._edge_or_violation(core, event)
        if edge is None or world & edge.awaits:
            return
        if world & edge.conflicts:
            self._name_conflict(edge, world, event)
        after = world & edge.keeps | edge.sets
        nets = after & self.nets
        if nets not in edge.target.good:
            self._agree(edge.target, nets, event)
        if "order" in self.shape.lies:
            self._act_early(found, core, edge, world)
        found.append((event, edge.target, after))

    def _move_job(self, found: list[Next], core: Core, world: int, place: int, kind: int) -> None:
        stage = world >> self.job_at + 2 * place & 3
        if stage == SENT:
            acted = self._act(core, world, place, kind)
            stage_bits = self._stage_after(world, place, kind) << self.job_at + 2 * place
            after = acted & ~(3 << self.job_at + 2 * place) | stage_bits
            self._note(found, ("act", place, kind), core, after)
        for event in self.answers[place][kind][stage - 1]:
            self._follow(found, core, event, world)

    def _note(self, found: list[Next], event: Event, core: Core, after: int) -> None:
        """Add something that the core hears nothing of."""
        nets = after & self.nets
        if nets not in core.good:
            self._agree(core, nets, event)
        found.append((event, core, after))

    def _act_early(self, found: list[Next], core: Core, edge: Edge, world: int) -> None:
        """For checking the checker: let calls act before their intents are durable, and the driver die in between."""
        for place, kind in edge.started:
            if kind == DO and world >> self.crashes_at & 3:
                early = self._act(core, world, place, kind) & ~self.jobs
                after = early - (1 << self.crashes_at) | DIED << self.nobody_at
                self._note(found, ("act", place, kind), core, after)

    def _act(self, core: Core, world: int, place: int, kind: int) -> int:
        """Return the world after the call at *place* has done what it does; raises ViolationError."""
        traits = self.shape.traits[place]
        is_undone = world >> self.undone_at + place & 1
        there = world >> 2 * place & 3
        if kind == DO and not traits.is_read_only:
            if traits.keeps_tombstones and is_undone:
                return world
            if traits.honours_keys and world >> self.acted_at + place & 1 and not self._has_forgotten(core, place):
                return world
            self._check_effect(core, place, there, is_undone=bool(is_undone))
            return world + (1 << 2 * place) | 1 << self.acted_at + place
        if kind == UNDO:
            finds_all = traits.finds_by_key and not self._has_forgotten(core, place)
            gone = there if finds_all else min(there, self._has_output(core, place))
            return world - (gone << 2 * place) | 1 << self.undone_at + place
        return world

    def _has_forgotten(self, core: Core, place: int) -> bool:
        """Tell whether the target may know nothing any more of the action's key, and of what was done under it."""
        kept_ms = self.shape.traits[place].key_retention_ms
        action = core.state.operations[Operation(*self.shape.places[place], Direction.ACTION)]
        return kept_ms is not None and core.now_ms >= action.first_intent_ms + kept_ms

    def _check_effect(self, core: Core, place: int, there: int, *, is_undone: bool) -> None:
        step_id, item = self.shape.places[place]
        undo = core.state.operations.get(Operation(step_id, item, Direction.COMPENSATION))
        has_begun = undo is not None and undo.attempts > 0
        tool = self.shape.saga.tools[self.shape.saga.by_id[step_id].action.tool]
        if is_undone or (has_begun and not tool.late_safe):
            raise ViolationError(f"S6: {step_id} took effect after its undo began", ("act", place, DO))
        if there and tool.idempotent:
            raise ViolationError(f"S2: {step_id} happened twice", ("act", place, DO))
        if there >= 2:
            raise ViolationError(f"S2: {step_id} happened three times", ("act", place, DO))

    def _has_output(self, core: Core, place: int) -> int:
        step_id, item = self.shape.places[place]
        arguments = core.state.operations[Operation(step_id, item, Direction.COMPENSATION)].arguments
        return int(isinstance(arguments, dict) and "id" in arguments)

    def _stage_after(self, world: int, place: int, kind: int) -> int:
        traits = self.shape.traits[place]
        is_undone = world >> self.undone_at + place & 1
        if kind == DO:
            return BARRED if traits.keeps_tombstones and is_undone else ACTED
        if kind == UNDO:
            return ACTED
        is_there = is_undone if kind == ASK_UNDO else (world >> 2 * place & 3 and not traits.is_read_only)
        return ACTED if is_there else BARRED

    def _list_answers(self, place: int, kind: int) -> list[list[Event]]:
        """List the answers that can come from a call that was sent, that acted, and that is barred."""
        step_id, item = self.shape.places[place]
        if kind in {ASK_DO, ASK_UNDO}:
            answers = (ProbeAnswer.CANNOT_TELL, ProbeAnswer.DONE, ProbeAnswer.NOT_DONE)
            found: list[list[Event]] = [[("probe", place, kind, answer)] for answer in answers]
            return found if self.shape.words.get("?") != ("truth",) else [[], *found[1:]]
        direction = Direction.COMPENSATION if kind == UNDO else Direction.ACTION
        words = self.shape.words_of(Operation(step_id, item, direction))
        sent = ["lost" if word == "gone" else word for word in words if word not in {"ok", "lost"}]
        acted = [word for word in words if word in {"ok", "lost"}]
        return [[("answer", place, kind, word) for word in each] for each in (sent, acted, ["reject"])]

    def _pass_time(self, found: list[Next], core: Core, world: int) -> None:
        self._follow(found, core, ("time",), world)
        if core.state.deadline_ms is not None:
            self._follow(found, core, ("expire",), world)

    def _move_late(self, found: list[Next], core: Core, world: int) -> None:
        """Calls of a driver without a lease land, or end; what it hears then it can't write any more (C1)."""
        for kind, at in ((DO, self.late_do_at), (UNDO, self.late_undo_at)):
            rest, place = world >> at & self.nets, 0
            while rest:
                stage = rest & 3
                if stage:
                    here = at + 2 * place
                    if "fence" in self.shape.lies and stage == ACTED:
                        self._follow(found, core, ("late answer", place, kind), world & ~(3 << here))
                    self._note(found, ("end", place, kind), core, world & ~(3 << here))
                    if stage == SENT:
                        acted = self._act(core, world, place, kind)
                        self.landed += acted != world
                        self._note(found, ("land", place, kind), core, acted & ~(3 << here) | ACTED << here)
                rest, place = rest >> 2, place + 1

    def _strike(self, found: list[Next], core: Core, world: int) -> None:
        """The driver dies, or loses its lease and lives on with its calls."""
        if isinstance(core.then, Rest):
            return
        if world >> self.crashes_at & 3:
            after = (world & ~self.jobs) - (1 << self.crashes_at) | DIED << self.nobody_at
            found.append((("die",), core, after))
        if world >> self.losses_at & 3:
            after = (world & ~self.jobs) - (1 << self.losses_at) | LOST << self.nobody_at
            for place, kind in core.flight:
                stage = world >> self.job_at + 2 * place & 3
                if kind in {DO, UNDO}:
                    at = (self.late_undo_at if kind == UNDO else self.late_do_at) + 2 * place
                    after |= min(stage, ACTED) << at
            found.append((("lose the lease",), core, after))

    def _take_over(self, found: list[Next], core: Core, world: int, nobody: int) -> None:
        world &= ~(3 << self.nobody_at)
        if nobody == DIED or "dead" in self.shape.lies:
            self._follow(found, core, ("claim", "ended"), world)
            self._follow(found, core, ("claim", "late"), world)
        self._follow(found, core, ("claim", "alive"), world)

    # -- people ---------------------------------------------------------------------------------------------------

    def _ask(self, found: list[Next], core: Core, world: int) -> None:
        if core.then is None:
            return
        state = core.state
        if isinstance(core.then, Wait) and state.paused and core.then.what == "paused":
            self._follow(found, core, ("ask", "unpause", None), world)
        for step_id in state.awaiting if isinstance(core.then, Wait) else ():
            operation = Operation(step_id, None, Direction.ACTION)
            self._follow(found, core, ("ask", "approve", operation), world)
            self._follow(found, core, ("ask", "deny", operation), world)
        if not world >> self.asks_at & 1:
            return
        world &= ~(1 << self.asks_at)
        for command in self.shape.commands:
            if command not in LETTER_COMMANDS:
                self._follow(found, core, ("ask", command, None), world)
                continue
            for operation in state.dead:
                self._answer_letter(found, core, command, operation, world)

    def _answer_letter(self, found: list[Next], core: Core, command: str, operation: Operation, world: int) -> None:
        """Let a person look at the target and say of a dead letter what is true, or mend it there first."""
        place = self.cores.place_of[operation.step, operation.item]
        there = world >> 2 * place & 3
        is_undo = operation.direction is Direction.COMPENSATION
        if command == "resolve done" and is_undo:
            world -= there << 2 * place
        is_protected = self.shape.traits[place].honours_keys and not self._has_forgotten(core, place)
        is_harmful = command == "retry" and not is_undo and not is_protected
        is_true = {
            "resolve done": is_undo or there == 1,
            "resolve not done": not there,
            "retry": not (is_harmful and there),
        }
        if not is_true.get(command, True):
            return
        self._follow(found, core, ("ask", command, operation), world)

    # -- what must hold -------------------------------------------------------------------------------------------

    def _edge_or_violation(self, core: Core, event: Event) -> Edge | None:
        try:
            return self._edge(core, event)
        except ViolationError as violation:
            raise ViolationError(str(violation), event) from violation

    def _edge(self, core: Core, event: Event) -> Edge | None:
        if event[0] in {"time", "expire"} and not _may_time_pass(core, event):
            core.edges[event] = None
            return None
        edge = self.cores.go(core, event)
        if edge is None:
            return None
        clears = self.jobs if edge.killed else 0
        if event[0] in {"answer", "probe"}:
            clears |= 3 << self.job_at + 2 * event[1]
        for place, kind in edge.started:
            clears |= 3 << self.job_at + 2 * place
            edge.sets |= SENT << self.job_at + 2 * place
            edge.conflicts |= self._conflicts_of(edge.target, place, kind)
        edge.keeps = ~clears
        if event == ("claim", "late"):
            edge.awaits = self.late
        elif event[0] in {"time", "expire"}:
            edge.awaits = self._must_have_ended(edge.target)
        return edge

    def _must_have_ended(self, core: Core) -> int:
        """Return the late calls that can't be under way any more as their deadline and a grace are over (E9)."""
        bits = 0
        for place, (step_id, item) in enumerate(self.shape.places):
            for direction, at in ((Direction.ACTION, self.late_do_at), (Direction.COMPENSATION, self.late_undo_at)):
                op = core.state.operations.get(Operation(step_id, item, direction))
                if op is not None and op.late_until_ms <= core.now_ms:
                    bits |= 3 << at + 2 * place
        return bits

    def _conflicts_of(self, core: Core, place: int, kind: int) -> int:
        late_do, late_undo = 3 << self.late_do_at + 2 * place, 3 << self.late_undo_at + 2 * place
        step_id = self.shape.places[place][0]
        if kind == DO:
            return late_do | late_undo
        if kind == ASK_DO:
            return late_do
        if kind == ASK_UNDO:
            return late_undo
        is_late_safe = self.shape.saga.tools[self.shape.saga.by_id[step_id].action.tool].late_safe
        return late_undo | (0 if is_late_safe else late_do) | self._dependents_of(core, step_id)

    def _dependents_of(self, core: Core, step_id: str) -> int:
        """S7: return the effects that must be gone before *step_id* is undone."""
        reading, bits = core.reading, 0
        by_people = reading.settled_by_hand | reading.dead_ever
        for place, (other_id, item) in enumerate(self.shape.places):
            if other_id not in reading.evidence.descendants[step_id]:
                continue
            known = reading.known.get((other_id, item, "action"))
            is_excused = known is not None and reading.is_left(known)
            if not is_excused and not {(other_id, item, "action"), (other_id, item, "compensation")} & by_people:
                bits |= 3 << 2 * place
        return bits

    def _name_conflict(self, edge: Edge, world: int, event: Event) -> None:
        found = world & edge.conflicts
        names = [self.shape.places[place][0] + "'" * (kind & UNDO) for place, kind in edge.started]
        if found & self.nets:
            raise ViolationError(
                f"S7: {', '.join(names)} begins while the effect of a step that needed it is there", event
            )
        raise ViolationError(f"S4: {', '.join(names)} begins while an earlier call is under way", event)

    def _agree(self, core: Core, nets: int, event: Event) -> None:
        """S1, S5, S8: check that what the log says of each place can be true of what is there."""
        for place, (step_id, item) in enumerate(self.shape.places):
            there = nets >> 2 * place & 3
            if there not in allowed_at(core.state, step_id, item):
                what = f"{there} effects of {step_id}{'' if item is None else [item]} are there"
                raise ViolationError(f"S5: {what}, and the log can't explain them", event)
        if isinstance(core.then, Rest):
            evidence = replace(core.reading.evidence, status=str(core.then.status))
            effects = Effects(evidence, core.reading)
            effects.net = Counter({place: nets >> 2 * n & 3 for n, place in enumerate(self.shape.places)})
            effects._check_end()
            if effects.findings:
                raise ViolationError(effects.findings[0], event)
        core.good.add(nets)


LETTER_COMMANDS: Final = frozenset({"retry", "resolve done", "resolve not done", "skip", "abandon"})


def _may_stand_still(core: Core) -> bool:
    """Tell whether a run is at rest, or waits for people by name."""
    return isinstance(core.then, Rest) or (isinstance(core.then, Wait) and core.then.what in {"paused", "approval"})


def _may_time_pass(core: Core, event: Event) -> bool:
    """Tell whether time can go on to what is waited for: no call under way has its deadline before."""
    assert isinstance(core.then, Wait)
    until_ms = core.state.deadline_ms if event[0] == "expire" else core.then.until_ms
    if until_ms is None or until_ms <= core.now_ms:
        return False
    return all(core.state.operations[each].deadline_ms > until_ms for each in core.state.in_flight)


def allowed_at(state: RunState, step_id: str, item: int | None) -> frozenset[int]:
    """Return how many effects can be at a place by what the log says of it."""
    action = state.operations.get(Operation(step_id, item, Direction.ACTION))
    undo = state.operations.get(Operation(step_id, item, Direction.COMPENSATION))
    if action is None or action.attempts == 0:
        return NONE
    if undo is not None and undo.phase in {Phase.SUCCEEDED, Phase.FAILED}:
        return NONE
    if undo is not None and undo.attempts > 0:
        return PERHAPS
    if action.doubt or action.phase in {Phase.CALLING, Phase.PENDING, Phase.PROBING}:
        return PERHAPS
    return ONE if action.phase is Phase.SUCCEEDED else NONE


NONE: Final = frozenset({0})
ONE: Final = frozenset({1})
PERHAPS: Final = frozenset({0, 1})
