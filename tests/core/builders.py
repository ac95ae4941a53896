"""Compact sagas and scripted runs for the tests of the core.

`saga("a -> [b | c] -> p* -> d")` is a chain with a parallel part and a pivot; keyword arguments named after steps say
what is special about them. `Play` drives one saga at core level under virtual time: a script says what each call comes
to, or a test answers the calls itself, one by one. An operation is named as people write it: `a` is the action of step
a, `a'` its compensation, `f[2]` the third item of a `foreach`.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from sagactl.core.advance import Turn, advance
from sagactl.core.canonical import Json
from sagactl.core.evolve import evolve, replay
from sagactl.core.operators import answer_request
from sagactl.core.records import (
    Direction,
    DriverClaimed,
    Failure,
    Holder,
    Intent,
    Operation,
    Operator,
    Outcome,
    OutcomeKind,
    Probe,
    ProbeAnswer,
    Record,
    Request,
    Resolution,
    RunCreated,
    RunStatus,
    Timer,
    Verb,
)
from sagactl.core.saga import Call, Jitter, OnUnknown, Retry, Saga, Step, StepClass, ToolFacts
from sagactl.core.state import RunState
from sagactl.core.summary import Summary, summarize
from sagactl.core.template import ExpressionError, Scope, Template, parse_template
from sagactl.core.world import AskProbe, MakeCall, Rest, World

NAME = re.compile(r"(?P<step>[a-z][a-z0-9_]*)(?:\[(?P<item>\d+)\])?(?P<undo>')?")
HOLDER = Holder("here", 1, "then", "boot")


@dataclass(frozen=True)
class Plain:
    """An evaluator for tests: expressions from a table, argument objections by tool."""

    values: Mapping[str, Any] = field(default_factory=dict)
    objections: Mapping[str, str] = field(default_factory=dict)

    def evaluate(self, expression: str, scope: Scope) -> Json:
        """Look *expression* up; a function is called with the scope."""
        if expression not in self.values:
            raise ExpressionError(f"no value for {expression}")
        value = self.values[expression]
        found: Json = value(scope) if callable(value) else value
        return found

    def check_arguments(self, tool: str, arguments: Json) -> str | None:
        """Return the objection written down for *tool*."""
        return self.objections.get(tool)


def operation(name: str) -> Operation:
    """Return the operation that *name* spells."""
    match = NAME.fullmatch(name)
    assert match is not None, name
    item = None if match["item"] is None else int(match["item"])
    return Operation(match["step"], item, Direction.COMPENSATION if match["undo"] else Direction.ACTION)


def spell(op: Operation) -> str:
    """Return the name of an operation: the other way around."""
    item = "" if op.item is None else f"[{op.item}]"
    return f"{op.step}{item}" + ("'" if op.direction is Direction.COMPENSATION else "")


def template(value: Json | None) -> Template | None:
    """Parse a value as written in a saga, or pass None on."""
    return None if value is None else parse_template(value)


@dataclass(frozen=True)
class Spec:
    """What is special about one step; the defaults are those of the scenarios: one attempt, null-safe undo."""

    klass: StepClass | None = None
    undo: bool = True
    attempts: int = 1
    undo_attempts: int = 1
    interval: int = 1_000
    cap: int = 300_000
    jitter: Jitter = Jitter.NONE
    non_retryable: tuple[str, ...] = ()
    on_unknown: str | None = None
    undo_on_unknown: str | None = None
    probe: bool = False
    undo_probe: bool = False
    idempotent: bool = True
    null_safe: bool = True
    late_safe: bool = False
    key_retention: int | None = None
    timeout: int = 30_000
    schedule: int | None = None
    undo_schedule: int | None = None
    own_secrets: tuple[str, ...] = ()
    undo_own_secrets: tuple[str, ...] = ()
    probe_own_secrets: tuple[str, ...] = ()
    undo_key_retention: int | None = None
    undo_timeout: int = 30_000
    arguments: Json = None
    undo_arguments: Json = None
    fields: Mapping[str, Any] = field(default_factory=dict)


def saga(shape: str, *, saga_fields: Mapping[str, Any] | None = None, **steps: Mapping[str, Any]) -> Saga:
    """Build the saga that *shape* draws; `name={…}` overrides fields of `Spec` or of `Step` for a step."""
    tools: dict[str, ToolFacts] = {}
    built = []
    for step_id, needs, klass in _read_shape(shape):
        given = dict(steps.get(step_id, {}))
        known = {name: given.pop(name) for name in list(given) if name in Spec.__dataclass_fields__}
        spec = Spec(**{"klass": klass, **known})
        built.append(build_step(step_id, needs, spec, given, tools))
    unknown = set(steps) - {step.id for step in built}
    assert not unknown, f"no such steps: {unknown}"
    return Saga("test", tuple(built), tools, **(saga_fields or {}))


def _read_shape(shape: str) -> list[tuple[str, tuple[str, ...], StepClass]]:
    found: list[tuple[str, tuple[str, ...], StepClass]] = []
    before: tuple[str, ...] = ()
    is_behind = False
    for part in shape.split("->"):
        names = [name.strip() for name in part.strip().strip("[]").split("|")]
        for name in names:
            behind = StepClass.RETRIABLE if is_behind else StepClass.COMPENSABLE
            klass = StepClass.PIVOT if name.endswith("*") and not is_behind else behind
            found.append((name.rstrip("*"), before, klass))
        is_behind = is_behind or names[0].endswith("*")
        before = tuple(name.rstrip("*") for name in names)
    return found


def build_step(
    step_id: str, needs: tuple[str, ...], spec: Spec, rest: dict[str, Any], tools: dict[str, ToolFacts]
) -> Step:
    """Build one step and note the facts of its tools in *tools*; *rest* holds fields of `Step` itself."""
    klass = spec.klass or StepClass.COMPENSABLE
    has_undo = rest.pop("with_undo", spec.undo and klass is StepClass.COMPENSABLE) or "compensation" in rest
    probe = f"probe.{step_id}" if spec.probe else None
    undo_probe = f"probe.undo_{step_id}" if spec.undo_probe else None
    tools[f"do.{step_id}"] = ToolFacts(
        f"do.{step_id}",
        idempotent=spec.idempotent,
        late_safe=spec.late_safe,
        key_retention_ms=spec.key_retention,
        probe=probe,
        secrets=spec.own_secrets,
    )
    for name in filter(None, (probe, undo_probe)):
        schema: dict[str, Json] = {"properties": {"id": {}, "who": {}}}
        tools[name] = ToolFacts(name, read_only=True, arguments_schema=schema, secrets=spec.probe_own_secrets)
    if has_undo:
        tools[f"undo.{step_id}"] = ToolFacts(
            f"undo.{step_id}",
            null_safe=spec.null_safe,
            key_retention_ms=spec.undo_key_retention,
            probe=undo_probe,
            secrets=spec.undo_own_secrets,
        )
    templates = {name: template(rest.pop(name, None)) for name in ("when", "foreach", "guard")}
    fields: dict[str, Any] = {"needs": needs, **templates, **rest, **spec.fields}
    undo = _undo_call(step_id, spec) if has_undo else None
    return Step(step_id, klass, _action_call(step_id, spec), fields.pop("compensation", undo), **fields)


def _action_call(step_id: str, spec: Spec) -> Call:
    policy = OnUnknown.PROBE if spec.probe else (OnUnknown.RETRY if spec.idempotent else OnUnknown.ASK)
    return Call(
        f"do.{step_id}",
        parse_template(spec.arguments if spec.arguments is not None else {}),
        _retry(spec, spec.attempts),
        start_to_close_ms=spec.timeout,
        schedule_to_close_ms=spec.schedule,
        on_unknown=OnUnknown(spec.on_unknown or policy),
    )


def _undo_call(step_id: str, spec: Spec) -> Call:
    return Call(
        f"undo.{step_id}",
        parse_template(spec.undo_arguments if spec.undo_arguments is not None else {"id": "${{ output.id }}"}),
        _retry(spec, spec.undo_attempts),
        start_to_close_ms=spec.undo_timeout,
        schedule_to_close_ms=spec.undo_schedule,
        on_unknown=OnUnknown(spec.undo_on_unknown or ("probe" if spec.undo_probe else "retry")),
    )


def _retry(spec: Spec, attempts: int) -> Retry:
    return Retry(attempts, spec.interval, 200, spec.cap, spec.jitter, spec.non_retryable)


Script = Callable[[Operation, int], str]


class Play:
    """One run at core level: `turn` decides, `answer` and `reply` tell what calls came to, `run` does all of it."""

    def __init__(
        self,
        what: Saga,
        *,
        data: Json = None,
        evaluator: Plain | None = None,
        slots: int = 8,
        deadline: int | None = None,
        draw: Callable[[int, int], int] = lambda floor, ceiling: ceiling,
        start: int = 0,
    ) -> None:
        self.saga = what
        self.state = RunState()
        self.records: list[Record] = []
        self.now = start
        self.slots = slots
        self.draw = draw
        self.evaluator = evaluator or Plain()
        self.missing: frozenset[str] = frozenset()
        self.no_secrets: frozenset[str] = frozenset()
        self.under_way: dict[Operation, MakeCall | AskProbe] = {}
        self.calls: list[str] = []
        """Everything called, by name, in order; a probe is spelled with a question mark."""
        self.requests = 0
        self.last: Turn | None = None
        self.put(RunCreated(start, "r1", what.name, "digest", data if data is not None else {}, "me", None, deadline))
        self.put(DriverClaimed(start, 1, HOLDER, calls_ended=True))

    def put(self, record: Record) -> None:
        """Fold a record and keep it."""
        evolve(self.saga, self.state, record)
        self.records.append(record)

    def turn(self) -> Turn:
        """Let the core decide until it waits; notes the calls that it wants made."""
        room = self.slots - len(self.under_way)
        world = World(self.now, room, self.evaluator, self.missing, self.no_secrets)
        found = advance(self.saga, self.state, world, self.draw)
        self.records += found.records
        until_ms = getattr(found.then, "until_ms", None)
        assert until_ms is None or until_ms > self.now, f"told to wait until {until_ms} at {self.now}"
        for call in found.calls:
            op = call.intent.operation if isinstance(call, MakeCall) else call.probe.operation
            self.under_way[op] = call
            self.calls.append(spell(op) + ("" if isinstance(call, MakeCall) else "?"))
        self.last = found
        return found

    def answer(self, name: str, word: str, **fields: Any) -> Turn:
        """Fold what the call of *name* came to (`ok`, `reject`, `retry`, `lost`, `pending`), and decide."""
        op = operation(name)
        call = self.under_way.pop(op)
        if isinstance(call, AskProbe):
            self.put(_probe_answer(self.now, call, word, fields))
        else:
            self.put(_outcome(self.now, call.intent, word, fields))
        return self.turn()

    def run(self, script: Mapping[str, Iterable[str]] | None = None, *, ms: int = 10, until: int = 10**12) -> Summary:
        """Answer each call by *script* (words by name, the last repeated; `ok` otherwise) until the run rests."""
        words = {name: list(given) for name, given in (script or {}).items()}
        self.turn()
        for _ in range(100_000):
            assert self.last is not None
            if self.under_way:
                name = self._next_name()
                left = words.get(name, ["ok"])
                self.now += ms
                self.answer(name.rstrip("?"), left.pop(0) if len(left) > 1 else left[0])
            elif isinstance(self.last.then, Rest) or self.wake_ms() is None or (self.wake_ms() or 0) > until:
                return self.summary
            else:
                self.now = max(self.now, self.wake_ms() or 0)
                self.turn()
        raise AssertionError("the run doesn't end")

    def _next_name(self) -> str:
        op, call = next(iter(self.under_way.items()))
        return spell(op) + ("?" if isinstance(call, AskProbe) else "")

    def wake_ms(self) -> int | None:
        """Return until when the core wants to wait."""
        assert self.last is not None
        return getattr(self.last.then, "until_ms", None)

    def claim(self, *, calls_ended: bool = True) -> Turn:
        """Let the driver die: the next one folds the log anew and claims the run."""
        self.under_way.clear()
        assert replay(self.saga, self.records) == self.state
        self.state = replay(self.saga, self.records)
        self.put(DriverClaimed(self.now, self.state.fence + 1, HOLDER, calls_ended))
        return self.turn()

    def ask(self, verb: Verb, name: str | None = None, **fields: Any) -> Operator:
        """Let an operator ask for *verb* (of a dead letter, by *name*), and decide."""
        self.requests += 1
        op = None if name is None else operation(name)
        request = Request(f"q{self.requests}", verb, "eva", operation=op, **fields)
        record = answer_request(self.saga, self.state, request, self.now)
        self.put(record)
        self.turn()
        return record

    def resolve(self, name: str, how: Resolution, **fields: Any) -> Operator:
        """Let an operator settle a dead letter."""
        return self.ask(Verb.RESOLVE, name, resolution=how, **{"reason": "looked it up", **fields})

    @property
    def summary(self) -> Summary:
        """Return the run's row; a fold of the log must give the same state."""
        assert replay(self.saga, self.records) == self.state
        return summarize(self.saga, self.state)

    def fold(self) -> RunState:
        """Return the state that a new driver would find."""
        return replay(self.saga, self.records)

    def status(self) -> RunStatus:
        """Return where the run stands."""
        return self.summary.status

    def of(self, kind: type[Any]) -> list[Any]:
        """Return the records of one kind."""
        return [record for record in self.records if isinstance(record, kind)]

    @property
    def waits(self) -> list[int]:
        """Return the delays that were drawn, in milliseconds."""
        return [timer.due_ms - timer.at_ms for timer in self.of(Timer)]


_KINDS = {
    "ok": OutcomeKind.SUCCEEDED,
    "reject": OutcomeKind.REJECTED,
    "retry": OutcomeKind.UNAVAILABLE,
    "lost": OutcomeKind.UNKNOWN,
    "pending": OutcomeKind.PENDING,
}


def _outcome(now: int, intent: Intent, word: str, fields: dict[str, Any]) -> Outcome:
    kind = _KINDS[word]
    if kind is OutcomeKind.SUCCEEDED:
        fields = {"output": {"id": spell(intent.operation)}, **fields}
    elif kind is not OutcomeKind.PENDING:
        fields = {"failure": Failure(word, f"{spell(intent.operation)} {word} {intent.attempt}"), **fields}
    return Outcome(now, intent.operation, intent.attempt, kind, **fields)


def _probe_answer(now: int, call: AskProbe, word: str, fields: dict[str, Any]) -> Probe:
    probe = call.probe
    kinds = {"ok": ProbeAnswer.DONE, "not": ProbeAnswer.NOT_DONE, "dunno": ProbeAnswer.CANNOT_TELL}
    answer = kinds[word]
    if answer is ProbeAnswer.DONE:
        fields = {"output": {"id": spell(probe.operation)}, **fields}
    common = (probe.operation, probe.number, probe.fence, probe.tool, probe.deadline_ms)
    return Probe(now, *common, answer=answer, **fields)
