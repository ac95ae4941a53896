"""The core as a graph: each state that its log can give, once, and what each event makes of it.

Many states of the world share one state of the core, so what `decide` and `evolve` say of a pair of state and event is
asked once and remembered. It is asked of the shipped functions: the state is copied, an event is folded as a driver
folds it, and the driver's crank is turned until the run waits. Each new record is told to the judge's reading as well,
which knows the rules by itself and shares no code with what it judges.
"""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import Any, Final, TypeAlias

from sagactl.core.advance import advance
from sagactl.core.canonical import Json
from sagactl.core.evolve import evolve, replay
from sagactl.core.operators import answer_request
from sagactl.core.records import (
    Direction,
    DriverClaimed,
    Failure,
    Intent,
    Operation,
    Outcome,
    OutcomeKind,
    Probe,
    ProbeAnswer,
    Record,
    Request,
    Resolution,
    RunCreated,
    RunStatus,
    Verb,
)
from sagactl.core.state import RunState
from sagactl.core.transitions import Phase
from sagactl.core.world import AskProbe, EndCalls, MakeCall, Rest, Wait, World
from tests.core.builders import HOLDER, Plain, spell
from tests.core.exploration.folding import copy_state, key_of
from tests.core.exploration.shapes import Shape
from tests.core.exploration.telling import begin_reading, copy_reading, tell
from tests.core.simulation.judge import judge_requests
from tests.core.simulation.reading import Reading

SLOTS: Final = 8
REPLAY_EVERY: Final = 16
"""Of so many states one is compared with the fold of its log, besides all those at rest."""
DOWNTIME_MS: Final = 1_000_000
"""Longer than everything that the shapes wait for."""

DO, UNDO, ASK_DO, ASK_UNDO = range(4)
"""What a call at a place is: of the action, of the compensation, or a probe of one of them."""

Event: TypeAlias = tuple[Any, ...]
Flight: TypeAlias = tuple[tuple[int, int], ...]


class ViolationError(AssertionError):
    """A rule is broken; the text begins with its name. `event` is what broke it, where a single one did."""

    def __init__(self, what: str, event: Event | None = None) -> None:
        super().__init__(what)
        self.event = event


@dataclass(slots=True, eq=False)
class Core:
    """A state of the core; `then` is None where a driver has yet to look at it."""

    number: int
    state: RunState
    now_ms: int
    reading: Reading
    then: Wait | Rest | None
    before: tuple[Core, Event] | None
    records: tuple[Record, ...]
    """What the event that first led here added to the log."""
    flight: Flight = ()
    edges: dict[Event, Edge | None] = field(default_factory=dict)
    good: set[int] = field(default_factory=set)
    """Sets of effects that were found to agree with this state."""

    @property
    def status(self) -> RunStatus | None:
        """Return the status of a run at rest."""
        return self.then.status if isinstance(self.then, Rest) else None

    @property
    def log(self) -> list[Record]:
        """Return all records of the path on which this state was found."""
        batches = []
        core: Core | None = self
        while core is not None:
            batches.append(core.records)
            core = None if core.before is None else core.before[0]
        return [record for batch in reversed(batches) for record in batch]


@dataclass(slots=True, eq=False)
class Edge:
    """What an event makes of a state: the next one, and the calls that begin after it."""

    target: Core
    started: Flight
    killed: bool
    """The calls under way were ended first."""
    keeps: int = -1
    """Bits of the world that stay (see `worlds`)."""
    sets: int = 0
    conflicts: int = 0
    """Bits that must not be set: calls that would overlap, effects that had to be undone before."""
    awaits: int = 0
    """Bits that keep the event from happening: calls that must have ended by then."""


class Cores:
    """All states of the core that were met so far, of one shape."""

    def __init__(self, shape: Shape) -> None:
        self.shape = shape
        self.place_of = {place: index for index, place in enumerate(shape.places)}
        self.by_key: dict[Any, Core] = {}
        self.faultless: list[tuple[int, int]] = []
        """Which states follow which without a fault and without a person."""
        self.first = self._begin()

    def _begin(self) -> Core:
        shape = self.shape
        created = RunCreated(0, "r1", "sim", "digest", dict(shape.data), "me", None, shape.deadline_ms)
        step = Step(self, RunState(), 0, begin_reading(shape.saga))
        step.put(created)
        step.put(DriverClaimed(0, 1, HOLDER, calls_ended=True))
        return self._intern(step, None, None)

    def go(self, core: Core, event: Event) -> Edge | None:
        """Return what *event* makes of *core*; None where it can't happen now. Raises ViolationError."""
        edge = core.edges[event] = self._go(core, event)
        if edge is not None and event[0] in {"answer", "probe", "look", "time"}:
            self.faultless.append((core.number, edge.target.number))
        return edge

    def _go(self, core: Core, event: Event) -> Edge | None:
        step = Step(self, copy_state(core.state), core.now_ms, copy_reading(core.reading))
        try:
            then = step.take(core, event)
        except ViolationError:
            raise
        except Exception as error:
            raise ViolationError(f"crash: {type(error).__name__}: {error}") from error
        check_first_error(core.state, step.state)
        step.check()
        return Edge(self._intern(step, then, (core, event)), tuple(step.started), step.killed)

    def records_after(self, core: Core, event: Event) -> list[Record]:
        """Return what *event* adds to the log, as far as it comes."""
        step = Step(self, copy_state(core.state), core.now_ms, copy_reading(core.reading))
        with suppress(Exception):
            step.take(core, event)
        return step.records

    def _intern(self, step: Step, then: Wait | Rest | None, before: tuple[Core, Event] | None) -> Core:
        what = None if then is None else (type(then) is Rest, getattr(then, "what", None))
        key = (what, *key_of(self.shape.saga, step.state, step.now_ms))
        found = self.by_key.get(key)
        if found is not None:
            return found
        core = Core(len(self.by_key), step.state, step.now_ms, step.reading, then, before, tuple(step.records))
        core.flight = tuple(sorted(self.spot(step.state, operation) for operation in step.state.in_flight))
        self.by_key[key] = core
        self._check_new(core)
        return core

    def spot(self, state: RunState, operation: Operation) -> tuple[int, int]:
        """Return the place of *operation*, and what the call of it is that is under way."""
        is_probe = state.operations[operation].phase is Phase.PROBING
        is_undo = operation.direction is Direction.COMPENSATION
        return self.place_of[operation.step, operation.item], 2 * is_probe + is_undo

    def _check_new(self, core: Core) -> None:
        """L4, C5, E22: the state is the fold of its log, and a run at rest stays as it is when it is resumed."""
        is_at_rest = isinstance(core.then, Rest)
        if not is_at_rest and core.number % REPLAY_EVERY:
            return
        if replay(self.shape.saga, core.log) != core.state:
            raise ViolationError("L4: the state is not the fold of the log")
        if is_at_rest:
            self._check_rest(core)

    def _check_rest(self, core: Core) -> None:
        step = Step(self, copy_state(core.state), core.now_ms, copy_reading(core.reading))
        step.put(DriverClaimed(step.now_ms, step.state.fence + 1, HOLDER, calls_ended=True))
        then = step.look()
        if len(step.records) > 1 or then != core.then:
            raise ViolationError("C5: a resume of a run at rest does something")
        evidence = replace(core.reading.evidence, status=str(core.status), requests=list(core.reading.answers))
        for finding in judge_requests(evidence, core.reading):
            raise ViolationError(finding)


class Step:
    """One event being folded: what a driver does between two waits, and commits at once (E2)."""

    def __init__(self, cores: Cores, state: RunState, now_ms: int, reading: Reading) -> None:
        self.cores = cores
        self.saga = cores.shape.saga
        self.state = state
        self.now_ms = now_ms
        self.reading = reading
        self.records: list[Record] = []
        self.started: list[tuple[int, int]] = []
        self.killed = False

    def put(self, record: Record) -> None:
        """Fold *record* into the state and tell it to the judge."""
        evolve(self.saga, self.state, record)
        self._note(record)

    def _note(self, record: Record, fences_behind: int = 0) -> None:
        self.records.append(record)
        told = tell(record)
        fence = told["fence"] if told["type"] == "driver_claimed" else self.reading.fence
        self.reading.read_one(told, fence - fences_behind)

    def take(self, core: Core, event: Event) -> Wait | Rest | None:
        """Do what a driver does about *event*; return what it waits for then, None for one that has yet to look."""
        match event:
            case ("answer", place, kind, word):
                self.put(self._make_outcome(self._operation(place, kind), word))
            case ("late answer", place, kind):  # only where the log doesn't keep its fence
                late = self._make_outcome(self._operation(place, kind), "ok")
                self._note(late, fences_behind=1)
                evolve(self.saga, self.state, late)
            case ("probe", place, kind, answer):
                self.put(self._make_answer(self._operation(place, kind), answer))
            case ("time",):
                assert isinstance(core.then, Wait)
                assert core.then.until_ms is not None
                self.now_ms = core.then.until_ms
            case ("claim", how):
                self.now_ms += DOWNTIME_MS if how == "late" else 0
                self.put(DriverClaimed(self.now_ms, self.state.fence + 1, HOLDER, calls_ended=how != "alive"))
                return None
            case ("ask", command, operation):
                self._ask(core, command, operation)
            case ("expire",):
                assert self.state.deadline_ms is not None
                self.now_ms = max(self.now_ms, self.state.deadline_ms)
        return self.look()

    def look(self) -> Wait | Rest:
        """Decide and fold until the run waits or rests, with calls ended that took too long to settle."""
        while True:
            slots = SLOTS - len(self.state.in_flight)
            before = len(self.records)
            turn = advance(self.saga, self.state, World(self.now_ms, slots, EVALUATOR), draw)
            for record in turn.records:
                self._note(record)
            for call in turn.calls:
                self._check_call(call, before)
            if not isinstance(turn.then, EndCalls):
                return turn.then
            self.killed = True
            for operation in turn.then.operations:
                is_probe = self.state.operations[operation].phase is Phase.PROBING
                self.put(
                    self._make_answer(operation, ProbeAnswer.CANNOT_TELL)
                    if is_probe
                    else self._make_outcome(operation, "lost")
                )

    def _operation(self, place: int, kind: int) -> Operation:
        step_id, item = self.cores.shape.places[place]
        return Operation(step_id, item, Direction.COMPENSATION if kind & 1 else Direction.ACTION)

    def _make_outcome(self, operation: Operation, word: str) -> Outcome:
        attempt = self.state.operations[operation].attempts
        name = spell(operation)
        if word == "ok":
            return Outcome(self.now_ms, operation, attempt, OutcomeKind.SUCCEEDED, output={"id": name})
        return Outcome(self.now_ms, operation, attempt, KINDS[word], failure=Failure("trouble", name))

    def _make_answer(self, operation: Operation, answer: ProbeAnswer) -> Probe:
        op = self.state.operations[operation]
        output: Json = {"id": spell(operation)} if answer is ProbeAnswer.DONE else None
        tool = "probe"
        return Probe(
            self.now_ms, operation, op.probes, self.state.fence, tool, op.deadline_ms, answer=answer, output=output
        )

    def _ask(self, core: Core, command: str, operation: Operation | None) -> None:
        """Let an operator ask; where the run is at rest, the command takes the lease itself (E22)."""
        if isinstance(core.then, Rest):
            self.put(DriverClaimed(self.now_ms, self.state.fence + 1, HOLDER, calls_ended=True))
        verb, resolution = COMMANDS[command]
        output: Json = None
        if resolution is Resolution.DONE and operation is not None and operation.direction is Direction.ACTION:
            output = {"id": spell(operation)}
        digest = None
        if verb is Verb.APPROVE and operation is not None:
            digest = self.state.awaiting[operation.step].digest
        request = Request(
            f"to {command}", verb, "eva", "because", operation, resolution, output, command == "roll far back", digest
        )
        self.put(answer_request(self.saga, self.state, request, self.now_ms))

    def _check_call(self, call: MakeCall | AskProbe, before: int) -> None:
        """S1, S3, S10: the intent of a call is in the log, and its key and arguments are those of its operation."""
        record: Intent | Probe = call.intent if isinstance(call, MakeCall) else call.probe
        if not any(record is each for each in self.records[before:]):
            raise ViolationError(f"S1: {spell(record.operation)} is called without an intent")
        operation = record.operation
        key = call.intent.key if isinstance(call, MakeCall) else call.key
        item = "" if operation.item is None else f"/{operation.item}"
        if key != f"r1/{operation.step}{item}/{operation.direction.value}":
            raise ViolationError(f"S3: {spell(operation)} is called under the key {key}")
        if call.forward_key != f"r1/{operation.step}{item}/action":
            raise ViolationError(f"S3: {spell(operation)} is told the forward key {call.forward_key}")
        if isinstance(call, MakeCall) and call.arguments != self.state.operations[operation].arguments:
            raise ViolationError(f"S10: {spell(operation)} gets arguments that were not recorded")
        self.started.append((self.cores.place_of[operation.step, operation.item], _kind_of(call, operation)))

    def check(self) -> None:
        """Raise what the judge's reading has found."""
        for finding in self.reading.findings:
            raise ViolationError(finding)


def _kind_of(call: MakeCall | AskProbe, operation: Operation) -> int:
    return 2 * isinstance(call, AskProbe) + (operation.direction is Direction.COMPENSATION)


def check_first_error(before: RunState, after: RunState) -> None:
    """S11: the first error of a run stays."""
    if before.failure is not None and (before.failure, before.failed_step) != (after.failure, after.failed_step):
        raise ViolationError(f"S11: {before.failure} was overwritten by {after.failure}")


def draw(floor_ms: int, ceiling_ms: int) -> int:
    """Draw the shortest delay that isn't none, so that whatever can come before its end does."""
    return max(floor_ms, min(ceiling_ms, 1))


EVALUATOR: Final = Plain()
KINDS: Final = {
    "reject": OutcomeKind.REJECTED,
    "retry": OutcomeKind.UNAVAILABLE,
    "lost": OutcomeKind.UNKNOWN,
    "gone": OutcomeKind.UNKNOWN,
}
COMMANDS: Final[dict[str, tuple[Verb, Resolution | None]]] = {
    "cancel": (Verb.CANCEL, None),
    "roll back": (Verb.ROLLBACK, None),
    "roll far back": (Verb.ROLLBACK, None),
    "terminate": (Verb.TERMINATE, None),
    "pause": (Verb.PAUSE, None),
    "unpause": (Verb.UNPAUSE, None),
    "retry": (Verb.RETRY, None),
    "resolve done": (Verb.RESOLVE, Resolution.DONE),
    "resolve not done": (Verb.RESOLVE, Resolution.NOT_DONE),
    "skip": (Verb.RESOLVE, Resolution.SKIP),
    "abandon": (Verb.RESOLVE, Resolution.ABANDON),
    "approve": (Verb.APPROVE, None),
    "deny": (Verb.DENY, None),
}
