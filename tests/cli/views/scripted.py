"""Runs for views to look at: the core really driven, in virtual time, by tools that answer from a script."""

from __future__ import annotations

import hashlib
import heapq
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import timedelta, timezone

from sagactl.cli.views.progress import Progress
from sagactl.cli.views.scene import Scene
from sagactl.cli.views.style import Style
from sagactl.cli.views.timeline import Watched
from sagactl.core.advance import advance
from sagactl.core.answer import Answer, ProbeReply
from sagactl.core.canonical import Json
from sagactl.core.evolve import evolve
from sagactl.core.operators import answer_request
from sagactl.core.records import (
    Direction,
    DriverClaimed,
    Failure,
    Holder,
    Operation,
    Outcome,
    OutcomeKind,
    Probe,
    ProbeAnswer,
    Record,
    Request,
    RunCreated,
)
from sagactl.core.saga import Call, Jitter, OnUnknown, Retry, Saga, Step, StepClass, ToolFacts
from sagactl.core.state import RunState
from sagactl.core.summary import summarize
from sagactl.core.template import ExpressionError, Scope, parse_template
from sagactl.core.world import AskProbe, MakeCall, Wait, World
from sagactl.engine.ending import Ending, Why
from sagactl.engine.settings import Committed
from sagactl.log.base import DeadLetter, RunRow, StoredRecord

START_MS = 1_772_629_331_204
"""2026-03-04 14:02:11.204 at +01:00."""

TZ = timezone(timedelta(hours=1))
RUN_ID = "7kq2m9xw4tzn3"
SHORT_ID = RUN_ID[:6]
HOLDER = Holder("worker-2", 4711, "1772629300", "b00t")
CALL_MS = 800


def ok(**output: Json) -> Answer:
    """The call succeeded with this output."""
    return Answer(OutcomeKind.SUCCEEDED, output=output)


def rejected(code: str, message: str) -> Answer:
    """The call had no effect and never will."""
    return Answer(OutcomeKind.REJECTED, failure=Failure(code, message))


def unavailable(code: str, message: str, after_ms: int | None = None) -> Answer:
    """The call had no effect, this time."""
    return Answer(OutcomeKind.UNAVAILABLE, failure=Failure(code, message), after_ms=after_ms)


def unknown(code: str, message: str, raw: Json = None) -> Answer:
    """Nobody knows what the call did."""
    return Answer(OutcomeKind.UNKNOWN, failure=Failure(code, message), raw=raw)


@dataclass
class Lost:
    """The call never answers: the process dies before."""


class PlainEvaluator:
    """Expressions of CEL have no value here; arguments always fit."""

    def evaluate(self, expression: str, scope: Scope) -> Json:
        """Know two words only."""
        if expression in {"1 < 0", "0 < 1"}:
            return expression == "0 < 1"
        raise ExpressionError(f"{expression} has no value")

    def check_arguments(self, tool: str, arguments: Json) -> str | None:
        """Object to nothing but a mark that tests put into arguments."""
        if isinstance(arguments, dict) and "refuse" in arguments:
            return f"refuse: not an argument of {tool}"
        return None


RETRY = Retry(4, 200, 200, 10_000, Jitter.NONE)
UNDO_RETRY = Retry(3, 1_000, 200, 300_000, Jitter.NONE)


def step(
    step_id: str,
    tool: str,
    arguments: Mapping[str, Json] | None = None,
    *,
    undo: str | None = None,
    klass: StepClass | None = None,
    needs: tuple[str, ...] = (),
    when: str | None = None,
    foreach: str | None = None,
    none: str | None = None,
    line: int | None = None,
    on_unknown: OnUnknown = OnUnknown.RETRY,
    undo_arguments: Mapping[str, Json] | None = None,
) -> Step:
    """Make a step whose class follows from what it is given."""
    guess = StepClass.COMPENSABLE if undo else StepClass.NOT_UNDOABLE if none else StepClass.READ_ONLY
    compensation = None if undo is None else Call(undo, parse_template(dict(undo_arguments or {})), UNDO_RETRY)
    return Step(
        id=step_id,
        klass=klass or guess,
        action=Call(tool, parse_template(dict(arguments or {})), RETRY, on_unknown=on_unknown),
        compensation=compensation,
        not_undoable_reason=none,
        needs=needs,
        when=None if when is None else parse_template(when),
        foreach=None if foreach is None else parse_template(foreach),
        line=line,
    )


def facts(name: str, **known: object) -> ToolFacts:
    """Make the facts of a tool."""
    return ToolFacts(name=name, version="1", plugin=name.split(".", maxsplit=1)[0], **known)  # type: ignore[arg-type]


CHARGE_OUTPUT: dict[str, Json] = {
    "type": "object",
    "properties": {"charge_id": {"type": "string"}, "amount": {"type": "integer"}},
    "required": ["charge_id"],
}


def onboarding(**changes: object) -> Saga:
    """The saga of the documentation: two steps that can be undone, servers, the contract as pivot, a mail."""
    steps = (
        step("lead", "crm.create_lead", {"email": "${{ input.email }}"}, undo="crm.archive_lead", line=19,
             undo_arguments={"lead_id": "${{ output.lead_id }}"}),
        step("deposit", "billing.charge", {"lead_id": "${{ steps.lead.output.lead_id }}",
             "amount": "${{ input.amount }}"}, undo="billing.refund", needs=("lead",), line=26,
             undo_arguments={"charge_id": "${{ output.charge_id }}"}, on_unknown=OnUnknown.PROBE),
        step("servers", "cloud.provision_vm", {"name": "${{ item }}"}, undo="cloud.delete_vm", needs=("deposit",),
             foreach="${{ input.servers }}", line=30, undo_arguments={"vm_id": "${{ output.vm_id }}"}),
        step("contract", "crm.sign_contract", {"lead_id": "${{ steps.lead.output.lead_id }}"},
             klass=StepClass.PIVOT, needs=("servers",), line=35),
        step("welcome", "mail.send", {"to": "${{ input.email }}"}, klass=StepClass.RETRIABLE, needs=("contract",),
             line=40),
    )  # fmt: skip
    known: dict[str, object] = {
        "name": "onboarding",
        "version": "3",
        "description": "Lead in the CRM, deposit charged, servers allocated.",
        "steps": steps,
        "tools": TOOLS,
        "source": "sagas/onboarding.yaml",
        "output": parse_template({"lead_id": "${{ steps.lead.output.lead_id }}"}),
    }
    return Saga(**{**known, **changes})  # type: ignore[arg-type]


TOOLS: dict[str, ToolFacts] = {
    each.name: each
    for each in (
        facts("crm.create_lead", compensation="crm.archive_lead"),
        facts("crm.archive_lead", null_safe=True),
        facts("crm.sign_contract", output_schema={"type": "object"}),
        facts("billing.charge", compensation="billing.refund", probe="billing.find_charge",
              output_schema=CHARGE_OUTPUT),
        facts("billing.refund"),
        facts("billing.find_charge", read_only=True),
        facts("bank.wire", idempotent=False, output_schema=CHARGE_OUTPUT),
        facts("cloud.provision_vm", compensation="cloud.delete_vm"),
        facts("cloud.delete_vm", null_safe=True),
        facts("mail.send"),
    )
}  # fmt: skip

INPUT: dict[str, Json] = {"email": "ana@example.com", "amount": 5000, "servers": ["web", "db"]}

Reply = Answer | ProbeReply | Lost
Script = Mapping[str, Sequence[Reply]]


def _default(operation: Operation) -> Answer:
    if operation.direction is Direction.COMPENSATION:
        return ok()
    outputs = {"lead": ("lead_id", "lead_12"), "deposit": ("charge_id", "ch_8f2"), "welcome": ("message_id", "m_77")}
    if operation.step == "servers":
        return ok(vm_id=f"vm_{operation.item}")
    name, value = outputs.get(operation.step, ("id", f"{operation.step}_1"))
    return ok(**{name: value})


@dataclass
class Stage:
    """One run; `script` maps `step`, `step[item]`, `undo step` and `probe step` to the replies in their order."""

    saga: Saga
    script: Script = field(default_factory=dict)
    input: Json = field(default_factory=lambda: dict(INPUT))
    missing_tools: frozenset[str] = frozenset()
    waits_for_timers: bool = True
    call_ms: Mapping[str, int] = field(default_factory=dict)
    key: str | None = None
    state: RunState = field(default_factory=RunState)
    stored: list[StoredRecord] = field(default_factory=list)
    now_ms: int = START_MS
    then: object = None
    batches: list[tuple[Record, ...]] = field(default_factory=list)
    takeovers: list[int] = field(default_factory=list)
    """Which batches a new process saw first."""
    _batch: list[Record] = field(default_factory=list)
    _used: dict[str, int] = field(default_factory=dict)
    _under_way: list[tuple[int, int, MakeCall | AskProbe, Answer | ProbeReply]] = field(default_factory=list)
    _calls: int = 0

    def __post_init__(self) -> None:
        created = RunCreated(self.now_ms, RUN_ID, self.saga.name, "3f8a12c0" * 8, self.input, "ana", self.key)
        self.fold(created)
        self.now_ms += 5
        self.fold(DriverClaimed(self.now_ms, 1, HOLDER, calls_ended=True))
        self.commit()

    def fold(self, record: Record) -> None:
        """Take a record in; it becomes durable at the next commit."""
        evolve(self.saga, self.state, record)
        chained = hashlib.sha256(f"{RUN_ID}/{len(self.stored)}".encode()).hexdigest()
        self._batch.append(record)
        self.stored.append(StoredRecord(RUN_ID, self.state.seq, record, chained))

    def commit(self) -> None:
        """Make durable what was taken in."""
        if self._batch:
            self.batches.append(tuple(self._batch))
            self._batch = []

    def drive(self, *, calls_max: int = 1_000) -> Stage:
        """Go on until the run rests, waits, or a reply is lost."""
        for _ in range(calls_max):
            turn = advance(
                self.saga, self.state, World(self.now_ms, 8, PlainEvaluator(), self.missing_tools), lambda low, _: low
            )
            for record in turn.records:
                chained = hashlib.sha256(f"{RUN_ID}/{len(self.stored)}".encode()).hexdigest()
                self._batch.append(record)
                self.stored.append(StoredRecord(RUN_ID, len(self.stored) + 1, record, chained))
            self.commit()
            self.then = turn.then
            is_lost = sum(self._start(call) for call in turn.calls)
            if is_lost or not self._step(turn.then):
                return self
        raise AssertionError("the script never ends")

    def _start(self, making: MakeCall | AskProbe) -> bool:
        operation = making.intent.operation if isinstance(making, MakeCall) else making.probe.operation
        name = str(operation).replace("compensation of", "undo")
        name = name if isinstance(making, MakeCall) else f"probe {name}"
        reply = self._reply(name, operation)
        if isinstance(reply, Lost):
            return True
        self._calls += 1
        takes_ms = self.call_ms.get(name, CALL_MS)
        heapq.heappush(self._under_way, (self.now_ms + takes_ms, self._calls, making, reply))
        return False

    def _reply(self, name: str, operation: Operation) -> Reply:
        replies = self.script.get(name, ())
        used = self._used.get(name, 0)
        self._used[name] = used + 1
        if used < len(replies):
            return replies[used]
        if replies and not isinstance(replies[-1], Lost):
            return replies[-1]
        return ProbeReply(ProbeAnswer.NOT_DONE) if name.startswith("probe ") else _default(operation)

    def _step(self, then: object) -> bool:
        """Let time pass until the next thing happens."""
        wakes_ms = then.until_ms if isinstance(then, Wait) else None
        if self._under_way and (wakes_ms is None or self._under_way[0][0] <= wakes_ms):
            at_ms, _, making, reply = heapq.heappop(self._under_way)
            self.now_ms = max(self.now_ms, at_ms)
            self.fold(self._record(making, reply))
            return True
        if wakes_ms is None or not self.waits_for_timers:
            return False
        self.now_ms = max(self.now_ms, wakes_ms)
        return True

    def _record(self, making: MakeCall | AskProbe, reply: Answer | ProbeReply) -> Record:
        if isinstance(making, MakeCall):
            assert isinstance(reply, Answer)
            return Outcome(self.now_ms, making.intent.operation, making.intent.attempt, reply.kind, reply.output,
                           reply.failure, reply.after_ms, reply.token, reply.raw)  # fmt: skip
        assert isinstance(reply, ProbeReply)
        asked = making.probe
        return Probe(self.now_ms, asked.operation, asked.number, self.state.fence, asked.tool, asked.deadline_ms,
                     reply.answer, reply.output, reply.failure)  # fmt: skip

    def crash(self, *, after_ms: int = 60_000, calls_ended: bool = True) -> Stage:
        """Lose the process, and let another one take over."""
        self._under_way = []
        self.now_ms += after_ms
        self.fold(DriverClaimed(self.now_ms, self.state.fence + 1, HOLDER, calls_ended))
        self.commit()
        self.takeovers.append(len(self.batches) - 1)
        return self

    def watch(self, make: Callable[[], Progress]) -> list[str]:
        """Return what *make* would have said, a new one for each process."""
        state, progress, lines = RunState(), make(), []
        records: list[Record] = []
        for index, batch in enumerate(self.batches):
            for record in batch:
                evolve(self.saga, state, record)
            records += batch
            is_takeover = index in self.takeovers
            progress = make() if is_takeover else progress
            seen = tuple(records) if is_takeover else batch
            lines += progress.feed(Committed(RUN_ID, self.saga, state, len(records) - len(seen) + 1, seen))
        return lines

    def watched(self, *, batches: int | None = None) -> Watched:
        """Return the run as a live display has seen it after so many batches, or all of them."""
        watched, seq = Watched(RUN_ID, SHORT_ID, self.saga), 1
        for batch in self.batches[:batches]:
            watched.feed(seq, batch)
            seq += len(batch)
        return watched

    def ask(self, request: Request) -> Stage:
        """Let an operator ask for something."""
        self.fold(answer_request(self.saga, self.state, request, self.now_ms))
        return self

    def scene(self, style: Style, *, after_ms: int = 0) -> Scene:
        """Look at the run."""
        return Scene(self.saga, self.state, SHORT_ID, self.now_ms + after_ms, TZ, style)

    def ending(self, why: Why, *, left_in_doubt: tuple[str, ...] = ()) -> Ending:
        """Let go of the run."""
        return Ending(RUN_ID, summarize(self.saga, self.state), why, None, left_in_doubt)

    def row(self) -> RunRow:
        """Sum the run up as a log does."""
        summary, created = summarize(self.saga, self.state), self.state.created
        assert created is not None
        waiting = summary.waiting_for
        return RunRow(
            run_id=RUN_ID, saga=self.saga.name, definition=created.definition, status=summary.status,
            direction=summary.direction, cause=summary.cause, failure=summary.failure,
            failed_step=summary.failed_step, waiting_for=None if waiting is None else waiting.what,
            waiting_until_ms=None if waiting is None else waiting.until_ms, key=self.key, input_digest="",
            created_at_ms=created.at_ms, updated_at_ms=self.now_ms, ended_at_ms=summary.ended_at_ms,
            steps_total=summary.steps_total, steps_done=summary.steps_done, dead_letters=summary.dead_letters,
            seq=self.state.seq, head=self.stored[-1].hash,
        )  # fmt: skip

    def letters(self) -> list[DeadLetter]:
        """List the open dead letters as a log does."""
        found = []
        for operation in self.state.dead:
            op = self.state.operations[operation]
            reason = "" if op.cause is None else op.cause.value
            found.append(DeadLetter(RUN_ID, self.saga.name, 1, operation, reason, op.failure, self.now_ms))
        return found
