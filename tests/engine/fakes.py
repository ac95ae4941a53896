"""Fakes for the engine: a toolbox whose tools do as told, a log that misbehaves on demand."""

from __future__ import annotations

import asyncio
import random
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeAlias, cast

from sagactl.core.answer import Answer, ProbeReply
from sagactl.core.canonical import Json
from sagactl.core.definition import take_snapshot
from sagactl.core.pinned import Guard
from sagactl.core.records import Failure, Holder, OutcomeKind, Record
from sagactl.core.saga import PATIENT_RETRY, Call, Retry, Saga, Step, StepClass, ToolFacts
from sagactl.core.template import ExpressionError, Scope, parse_template
from sagactl.engine.clock import Clock
from sagactl.engine.driver import Driver
from sagactl.engine.settings import Settings
from sagactl.errors import BusyError, NotFoundError
from sagactl.log.base import Batch, Lease, Log, NewRun
from sagactl.tools.base import Invocation

DONE = Answer(OutcomeKind.SUCCEEDED, output={})
REJECTED = Answer(OutcomeKind.REJECTED, failure=Failure("no", "not today"))
UNAVAILABLE = Answer(OutcomeKind.UNAVAILABLE, failure=Failure("busy", "later"))
UNKNOWN = Answer(OutcomeKind.UNKNOWN, failure=Failure("lost", "connection lost"))
FAST = Retry(3, 1, 100, 1)
HOLDER = Holder("here", 1, "", "")


Function: TypeAlias = Callable[[Invocation], Answer | ProbeReply]


def after(*actions: Callable[[], object], answer: Answer = DONE) -> Function:
    """Return a tool that does *actions* and then answers."""

    def function(_: Invocation) -> Answer:
        for action in actions:
            action()
        return answer

    return function


@dataclass
class FakeToolbox:
    """Tools by name; each is a function of the invocation, and every call is noted with begin and end."""

    functions: Mapping[str, Function]
    async_names: frozenset[str] = frozenset()
    known: dict[str, ToolFacts] = field(default_factory=dict)
    calls: list[tuple[str, Invocation]] = field(default_factory=list)
    fails_to_check: str = ""
    orphans: set[str] = field(default_factory=set)
    """Runs whose commands can't be ended."""
    no_secrets: dict[str, str] = field(default_factory=dict)
    """Secrets that can't be resolved, and why."""
    guards: dict[str, Guard] = field(default_factory=dict)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def facts(self, name: str) -> ToolFacts:
        if name not in self.known:
            raise NotFoundError(f"no tool {name}", code="missing-tool")
        return self.known[name]

    def is_async(self, name: str) -> bool:
        return name in self.async_names

    def call(self, invocation: Invocation) -> Answer:
        answer = self._do(invocation)
        assert isinstance(answer, Answer)
        return answer

    async def call_async(self, invocation: Invocation) -> Answer:
        self._note("begin", invocation)
        await asyncio.sleep(60)
        return DONE

    def probe(self, invocation: Invocation) -> ProbeReply:
        answer = self._do(invocation)
        assert isinstance(answer, ProbeReply)
        return answer

    def check_arguments(self, facts: ToolFacts, arguments: Json) -> str | None:
        if facts.name == self.fails_to_check:
            raise RuntimeError("the validator is broken")
        return None

    def guard_of(self, name: str) -> Guard | None:
        return self.guards.get(name)

    def missing_secrets(self, names: Sequence[str]) -> Mapping[str, str]:
        return {name: why for name, why in self.no_secrets.items() if name in names}

    def end_orphans(self, run_id: str) -> None:
        if run_id in self.orphans:
            raise BusyError(f"a command of run {run_id} can't be ended", code="cannot-end")

    def _do(self, invocation: Invocation) -> Answer | ProbeReply:
        self._note("begin", invocation)
        try:
            return self.functions[invocation.tool](invocation)
        finally:
            self._note("end", invocation)

    def _note(self, what: str, invocation: Invocation) -> None:
        with self._lock:
            self.calls.append((what, invocation))

    def begun(self) -> list[str]:
        """List `step/direction` of each call in the order they began."""
        return [f"{i.operation.step}/{i.operation.direction}" for what, i in self.calls if what == "begin"]


class WatchedLog:
    """A log that counts commits, and does *before* each append."""

    def __init__(self, log: Log, before: Callable[[Sequence[Batch]], None] = lambda _: None) -> None:
        self.log = log
        self.before = before
        self.commits: list[tuple[Record, ...]] = []

    def __getattr__(self, name: str) -> object:
        return getattr(self.log, name)

    def append(self, batches: Sequence[Batch]) -> list[Lease]:
        self.before(batches)
        refused = self.log.append(batches)
        self.commits.append(tuple(record for batch in batches for record in batch.records))
        return refused


def make_step(step_id: str, needs: tuple[str, ...] = (), *, tool: str = "do", **options: Any) -> Step:
    """Return a compensable step."""
    call = Call(tool, parse_template({}), **options)
    undo = Call("undo", parse_template({}), PATIENT_RETRY)
    return Step(step_id, StepClass.COMPENSABLE, call, undo, needs=needs)


def make_saga(*steps: Step, tools: Sequence[ToolFacts] = (), **options: Any) -> Saga:
    """Return a saga over the tools `do`, `undo` and those its steps name."""
    names = {step.action.tool for step in steps} | {"undo"}
    facts = {name: ToolFacts(name, null_safe=name == "undo") for name in names}
    facts.update({each.name: each for each in tools})
    return Saga("test", steps, facts, **options)


def make_driver(
    log: Log | WatchedLog, saga: Saga, toolbox: FakeToolbox, *, clock: Clock | None = None, **settings: Any
) -> Driver:
    """Return a driver whose delays are drawn from a seed."""
    toolbox.known.update(saga.tools)
    draw = random.Random(1)
    return Driver(
        cast("Log", log),
        toolbox,
        evaluate=_no_expressions,
        holder=HOLDER,
        project=Path(),
        draw=draw.randint,
        clock=clock,
        settings=Settings(**settings),
    )


def _no_expressions(expression: str, scope: Scope) -> Json:
    raise ExpressionError(f"no CEL here: {expression}")


def make_new_run(saga: Saga, run_id: str = "run1") -> NewRun:
    """Return a new run of *saga* without input."""
    return NewRun(run_id, saga.name, take_snapshot(saga), {}, "tester")
