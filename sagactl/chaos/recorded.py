"""Make-believe tools with the outputs of a former run: they keep exactly the promises that the real ones declare.

No tool is called. What is judged is what the declarations are worth: a target that honours keys where the tool says
that it is idempotent, and has a second effect where it doesn't; a probe that always tells the truth; a compensation
that finds nothing without the action's output unless it is `null_safe`.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from pathlib import Path

from sagactl.core.answer import Answer, ProbeReply
from sagactl.core.canonical import Json, canonical, parse
from sagactl.core.pinned import Guard
from sagactl.core.records import Direction, Failure, Operation, OutcomeKind, ProbeAnswer
from sagactl.core.saga import Saga, ToolFacts
from sagactl.core.state import RunState
from sagactl.core.transitions import Phase
from sagactl.errors import RefusedError
from sagactl.tools.base import Invocation, Toolbox


def gather_outputs(saga: Saga, state: RunState, run_id: str) -> dict[Operation, Json]:
    """Return what the operations of a run have returned; raises RefusedError where it didn't come to each step."""
    missing = [step.id for step in saga.steps if not _has_come_to(state, step.id)]
    if missing:
        message = f"run {run_id} has no output of step {missing[0]}"
        raise RefusedError(message, code="no-recording", hint="name a run of this saga that succeeded")
    return {operation: op.output for operation, op in state.operations.items() if op.phase is Phase.SUCCEEDED}


def _has_come_to(state: RunState, step_id: str) -> bool:
    step = state.steps.get(step_id)
    return step is not None and (step.finished or step.skipped)


class Target:
    """What the make-believe tools have done: pairs of a key and its forward key, in a file."""

    def __init__(self, file: Path) -> None:
        self._file = file
        self._marks = file.with_name(f"{file.name}.marks")

    def list_effects(self) -> Sequence[tuple[str, str]]:
        """Return all effects in their order."""
        if not self._file.exists():
            return []
        found = [parse(line) for line in self._file.read_text(encoding="utf-8").splitlines()]
        return [(str(pair[0]), str(pair[1])) for pair in found if isinstance(pair, list)]

    def add(self, key: str, forward_key: str) -> None:
        """Have an effect."""
        self._write(self._file, [key, forward_key])

    def bury(self, forward_key: str) -> None:
        """Leave a mark that refuses an action from now on."""
        self._write(self._marks, forward_key)

    def is_buried(self, forward_key: str) -> bool:
        """Tell whether an action is refused from now on."""
        return self._marks.exists() and canonical(forward_key) in self._marks.read_text(encoding="utf-8").splitlines()

    def has(self, key: str) -> bool:
        """Tell whether something was done under *key*."""
        return any(key == known for known, _ in self.list_effects())

    def is_there(self, forward_key: str) -> bool:
        """Tell whether an action's effect stands."""
        own = [key for key, forward in self.list_effects() if forward == forward_key]
        return own.count(forward_key) > len(own) - own.count(forward_key)

    @staticmethod
    def _write(file: Path, line: Json) -> None:
        descriptor = os.open(file, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            os.write(descriptor, (canonical(line) + "\n").encode())
        finally:
            os.close(descriptor)


class RecordedTools:
    """A toolbox that calls nothing.

    Args:
        tools: What knows the facts and schemas.
        target: Where effects are noted.
        outputs: What each operation has returned in the former run.
    """

    def __init__(self, tools: Toolbox, target: Target, outputs: Mapping[Operation, Json]) -> None:
        self._tools = tools
        self._target = target
        self._outputs = outputs

    def facts(self, name: str) -> ToolFacts:
        """Return what the core must know."""
        return self._tools.facts(name)

    def is_async(self, name: str) -> bool:
        """Say no: nothing is awaited."""
        del name
        return False

    def call(self, invocation: Invocation) -> Answer:
        """Answer as the former run was answered, with an effect under the key as the declarations have it."""
        facts, operation = self._tools.facts(invocation.tool), invocation.operation
        if operation.direction is Direction.COMPENSATION:
            return self._undo(invocation, facts)
        if operation not in self._outputs:
            return Answer(OutcomeKind.REJECTED, failure=Failure("not_recorded", "the former run has no output of it"))
        if self._target.is_buried(invocation.forward_key):
            return Answer(OutcomeKind.REJECTED, failure=Failure("already_undone", "its undo came before it"))
        has_acted = facts.idempotent and self._target.has(invocation.idempotency_key)
        if not facts.read_only and not has_acted:
            self._target.add(invocation.idempotency_key, invocation.forward_key)
        return Answer(OutcomeKind.SUCCEEDED, output=self._outputs[operation])

    def _undo(self, invocation: Invocation, facts: ToolFacts) -> Answer:
        operation = invocation.operation
        if facts.late_safe:
            self._target.bury(invocation.forward_key)
        if facts.idempotent and self._target.has(invocation.idempotency_key):
            return Answer(OutcomeKind.SUCCEEDED, output=self._outputs.get(operation))
        if self._target.is_there(invocation.forward_key):
            self._target.add(invocation.idempotency_key, invocation.forward_key)
        elif not facts.null_safe:
            failure = Failure("nothing_there", "the action left nothing, and the tool isn't declared null_safe")
            return Answer(OutcomeKind.REJECTED, failure=failure)
        return Answer(OutcomeKind.SUCCEEDED, output=self._outputs.get(operation))

    async def call_async(self, invocation: Invocation) -> Answer:
        """Never be awaited: `is_async` says no."""
        return self.call(invocation)

    def probe(self, invocation: Invocation) -> ProbeReply:
        """Tell the truth."""
        if self._target.has(invocation.idempotency_key):
            return ProbeReply(ProbeAnswer.DONE, output=self._outputs.get(invocation.operation))
        return ProbeReply(ProbeAnswer.NOT_DONE)

    def check_arguments(self, facts: ToolFacts, arguments: Json) -> str | None:
        """Return what is wrong with *arguments*, or None."""
        return self._tools.check_arguments(facts, arguments)

    def guard_of(self, name: str) -> Guard | None:
        """Ask nobody: nothing is called."""
        del name
        return None

    def missing_secrets(self, names: Sequence[str]) -> Mapping[str, str]:
        """Say that none is missing: nobody is given one."""
        del names
        return {}

    def end_orphans(self, run_id: str) -> None:
        """Do nothing: there are no processes."""
        del run_id
