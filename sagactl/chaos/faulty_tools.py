"""The tools of an experiment: the real ones, between the run and which something goes wrong.

What they do is noted in the trail before anybody else is told of it. A wait that a tool asks for costs no time: one
until later is over at once, and a tool that isn't done yet is asked again soon.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from typing import Final

from sagactl.chaos.experiment import Fault, FaultKind
from sagactl.chaos.observed import Seen, Sight
from sagactl.chaos.tracing_lines import Sources, watching_lines
from sagactl.chaos.trail import Plan, Trail
from sagactl.chaos.traits import list_changed, measure_growth
from sagactl.core.answer import Answer, ProbeReply
from sagactl.core.canonical import Json, digest
from sagactl.core.pinned import Guard
from sagactl.core.records import Direction, Failure, Operation, OutcomeKind, ProbeAnswer
from sagactl.core.saga import ToolFacts
from sagactl.tools.base import Invocation, Toolbox

ASKINGS_MAX: Final = 100
"""How often a tool may say that it isn't done yet."""

PACE_SECONDS: Final = 0.02
"""How long is waited before such a tool is asked again, however long it wanted."""

WAITS: Final = frozenset({"time.sleep", "time.until"})
_UNSAID: Final = frozenset({FaultKind.REJECTED, FaultKind.UNAVAILABLE, FaultKind.REQUEST_LOST, FaultKind.EFFECT_LATE})
_SAID_OTHERWISE: Final = frozenset({FaultKind.REPLY_LOST, FaultKind.REPLY_LATE})
_LOST: Final = Failure("connection_lost", "chaos: nobody knows whether it happened")
_LATE: Final = Failure("timeout", "chaos: no answer within its time")


class FaultyTools:
    """A toolbox around another one.

    Args:
        tools: What really is called.
        plan: What goes wrong.
        trail: What is told of it.
        sources_of: The code of a tool, at whose lines a process may die; None where there is none.
        look: Looks at the world before and after each action, where that is wanted.
    """

    def __init__(
        self,
        tools: Toolbox,
        plan: Plan,
        trail: Trail,
        sources_of: Callable[[str], Sources | None],
        look: Callable[[], Json] | None = None,
    ) -> None:
        self._tools = tools
        self._plan = plan
        self._trail = trail
        self._sources_of = sources_of
        self._look = look
        self._late: dict[Operation, Invocation] = {}
        self._askings: dict[Operation, int] = {}

    def facts(self, name: str) -> ToolFacts:
        """Return what the core must know."""
        return self._tools.facts(name)

    def is_async(self, name: str) -> bool:
        """Say no: every call has a thread, so that lines can be counted on it."""
        del name
        return False

    def call(self, invocation: Invocation) -> Answer:
        """Call the tool, or not, and answer as the plan has it."""
        operation = invocation.operation
        if invocation.tool in WAITS:
            return _end_wait()
        self._plan.take(operation, {FaultKind.KILLED_IN_EFFECT})
        fault = self._plan.take(operation, _UNSAID)
        if fault is not None:
            if fault.kind is FaultKind.EFFECT_LATE:
                self._late.setdefault(operation, invocation)
            return _answer_fault(fault)
        answer = self._call(invocation)
        self._plan.take(operation, {FaultKind.KILLED_AFTER_EFFECT})
        if operation.direction is Direction.COMPENSATION and operation.other in self._late:
            self._land(self._late.pop(operation.other))
        return self._answer(operation, answer)

    async def call_async(self, invocation: Invocation) -> Answer:
        """Never be awaited: `is_async` says no."""
        return self.call(invocation)

    def probe(self, invocation: Invocation) -> ProbeReply:
        """Ask the probe, unless it is blind."""
        operation = invocation.operation
        if self._plan.take(operation, {FaultKind.PROBE_BLIND}):
            return ProbeReply(ProbeAnswer.CANNOT_TELL, failure=Failure("cannot_tell", "chaos: the probe is blind"))
        reply = self._tools.probe(invocation)
        self._trail.note(Seen(Sight.PROBE, operation, reply.answer.value, _digest(reply.output)))
        return reply

    def check_arguments(self, facts: ToolFacts, arguments: Json) -> str | None:
        """Return what is wrong with *arguments*, or None."""
        return self._tools.check_arguments(facts, arguments)

    def guard_of(self, name: str) -> Guard | None:
        """Return what must be asked before a call of the tool, if anything."""
        return self._tools.guard_of(name)

    def missing_secrets(self, names: Sequence[str]) -> Mapping[str, str]:
        """Return which of the secrets can't be resolved now."""
        return self._tools.missing_secrets(names)

    def end_orphans(self, run_id: str) -> None:
        """End what a process that died has left running."""
        self._tools.end_orphans(run_id)

    def _call(self, invocation: Invocation) -> Answer:
        operation = invocation.operation
        before = None if self._look is None else self._look()
        self._trail.note(Seen(Sight.CALL, operation))
        wants_lines = self._look is not None or self._plan.is_watching(operation)
        sources = self._sources_of(invocation.tool) if wants_lines else None
        with watching_lines(sources, self._note_line(operation)):
            answer = self._tools.call(invocation)
        self._trail.note(Seen(Sight.RETURN, operation, answer.kind.value, _digest(answer.output)))
        if self._look is not None:
            after = self._look()
            changed = digest(list_changed(before, after))
            self._trail.note(Seen(Sight.GROWTH, operation, digest=changed, growth=measure_growth(before, after)))
        return answer

    def _note_line(self, operation: Operation) -> Callable[[str], None]:
        reached: set[str] = set()

        def note(line: str) -> None:
            if line in reached:
                return
            reached.add(line)
            if self._look is not None:
                self._trail.note(Seen(Sight.LINE, operation, line))
            self._plan.take(operation, {FaultKind.KILLED_IN_EFFECT}, line)

        return note

    def _land(self, invocation: Invocation) -> None:
        """Let a call that was given up have its effect after all, or be refused."""
        answer = self._tools.call(invocation)
        self._trail.note(Seen(Sight.LATE, invocation.operation, answer.kind.value))

    def _answer(self, operation: Operation, answer: Answer) -> Answer:
        if answer.kind is OutcomeKind.PENDING:
            return self._hurry(operation, answer)
        fault = self._plan.take(operation, _SAID_OTHERWISE)
        return answer if fault is None else _answer_fault(fault, answer)

    def _hurry(self, operation: Operation, answer: Answer) -> Answer:
        self._askings[operation] = self._askings.get(operation, 0) + 1
        if self._askings[operation] > ASKINGS_MAX:
            failure = Failure("pending", f"chaos: not done after {ASKINGS_MAX} askings")
            return Answer(OutcomeKind.UNKNOWN, failure=failure)
        time.sleep(min((answer.after_ms or 0) / 1_000, PACE_SECONDS))
        return answer


def _answer_fault(fault: Fault, answer: Answer | None = None) -> Answer:
    match fault.kind:
        case FaultKind.REJECTED:
            return Answer(OutcomeKind.REJECTED, failure=Failure("rejected", "chaos: rejected"))
        case FaultKind.UNAVAILABLE:
            return Answer(OutcomeKind.UNAVAILABLE, failure=Failure("unavailable", "chaos: unavailable"))
        case FaultKind.REPLY_LATE if answer is not None:
            # What the engine makes of a reply that comes after its deadline: evidence, and no outcome (E3).
            raw = answer.output if answer.kind is OutcomeKind.SUCCEEDED else answer.raw
            return replace(answer, kind=OutcomeKind.UNKNOWN, output=None, failure=_LATE, after_ms=None, raw=raw)
        case _:
            return Answer(OutcomeKind.UNKNOWN, failure=_LOST)


def _end_wait() -> Answer:
    now = datetime.now(UTC).isoformat(timespec="milliseconds")
    return Answer(OutcomeKind.SUCCEEDED, output={"until": now})


def _digest(output: Json) -> str:
    return digest(output) if output is not None else ""
