"""Calls as the engine makes them: the same toolbox, keys, contexts, deadlines, and tries.

A call is made on a thread of its own, which is left behind where it doesn't end.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import field
from pathlib import Path
from typing import Final, TypeVar

from sagactl.core.answer import Answer, ProbeReply
from sagactl.core.canonical import Json, canonical
from sagactl.core.keys import idempotency_key
from sagactl.core.records import Direction, Failure, Operation, OutcomeKind
from sagactl.dataclass import dataclass
from sagactl.secrets.masking import KNOWN, MASK
from sagactl.tools.base import Invocation, Toolbox

GRACE_SECONDS: Final = 2.0
"""How long a call that was told to end may take to end."""

TRIES_MAX: Final = 4
"""How often a call that is unavailable is made."""

PAUSE_SECONDS: Final = 0.5
"""How long is waited at most before a call is made again, however long the tool wanted."""

ASKINGS_MAX: Final = 200
"""How often a tool may say that it isn't done yet."""

Reply = TypeVar("Reply", Answer, ProbeReply)


class HangingError(Exception):
    """A call doesn't end; nothing more is tried with its tool."""


@dataclass(frozen=True, slots=True)
class Identity:
    """An operation of a run that isn't in any log: what its keys are made of, and when it was first intended."""

    run_id: str
    step: str
    begun_ms: int = field(default_factory=lambda: time.time_ns() // 1_000_000)

    def key(self, direction: Direction = Direction.ACTION) -> str:
        """Return its idempotency key."""
        return idempotency_key(self.run_id, Operation(self.step, None, direction))


@dataclass(frozen=True, slots=True)
class Asked:
    """One call: which tool with what, for which operation, in which folder."""

    tool: str
    arguments: Mapping[str, Json]
    identity: Identity
    folder: Path
    direction: Direction = Direction.ACTION


@dataclass(slots=True)
class Caller:
    """Makes calls, and notes what holds for all of them: whether they end in time, and whether they tell a secret."""

    tools: Toolbox
    timeout_seconds: float
    calling: Path
    """Where the tool is named that is called, for whoever finds this process dead."""
    telling: str = ""
    """What told a secret, and where."""
    late: str = ""
    """What didn't end in time."""
    is_used: bool = False

    def call(self, asked: Asked) -> Answer:
        """Call a tool until it has an answer to keep; raises HangingError."""
        attempt, askings, token = 1, 0, None
        self.is_used = True
        while True:
            answer = self._within(asked, self.tools.call, attempt, token)
            self._note_secret(asked.tool, answer.printed, answer.output, answer.failure)
            if answer.kind is OutcomeKind.PENDING and askings < ASKINGS_MAX:
                askings, token = askings + 1, answer.token
            elif answer.kind is OutcomeKind.UNAVAILABLE and attempt < TRIES_MAX:
                attempt += 1
            else:
                return answer
            time.sleep(min(PAUSE_SECONDS, (answer.after_ms or 50) / 1_000))

    def probe(self, asked: Asked) -> ProbeReply:
        """Ask a probe; raises HangingError."""
        reply = self._within(asked, self.tools.probe, 1, None)
        self._note_secret(asked.tool, reply.printed, reply.output, reply.failure)
        return reply

    def call_at_once(self, asked: Asked, number: int) -> list[Answer]:
        """Make the same call *number* times at the same moment."""
        barrier = threading.Barrier(number)
        answers: list[Answer] = []

        def work() -> None:
            barrier.wait()
            with suppress(HangingError):  # noted by then
                answers.append(self.call(asked))

        threads = [threading.Thread(target=work, daemon=True) for _ in range(number)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        if len(answers) < number:
            raise HangingError(self.late)
        return answers

    def _within(self, asked: Asked, make: Callable[[Invocation], Reply], attempt: int, token: Json) -> Reply:
        self.calling.write_text(asked.tool, encoding="utf-8")
        invocation = self._invoke(asked, attempt, token)
        replies: list[Reply] = []
        thread = threading.Thread(target=lambda: replies.append(make(invocation)), daemon=True)
        thread.start()
        thread.join(self.timeout_seconds)
        if thread.is_alive():
            invocation.cancelled.set()
            thread.join(GRACE_SECONDS)
        if not replies:
            self.late = (
                f"{asked.tool} hasn't ended {GRACE_SECONDS:.0f}s after its deadline of {self.timeout_seconds:g}s"
            )
            raise HangingError(self.late)
        return replies[0]

    def _invoke(self, asked: Asked, attempt: int, token: Json) -> Invocation:
        now_ms = time.time_ns() // 1_000_000
        identity = asked.identity
        return Invocation(
            tool=asked.tool,
            arguments=asked.arguments,
            run_id=identity.run_id,
            operation=Operation(identity.step, None, asked.direction),
            attempt=attempt,
            idempotency_key=identity.key(asked.direction),
            forward_key=identity.key(),
            deadline_ms=now_ms + int(self.timeout_seconds * 1_000),
            seconds_left=self.timeout_seconds,
            project=asked.folder,
            begun_ms=identity.begun_ms,
            token=token,
        )

    def _note_secret(self, tool: str, printed: str, output: Json, failure: Failure | None) -> None:
        """Note where the mask stands: there the tool told a secret that it was given."""
        if not KNOWN.is_active or self.telling:
            return
        places = {"what it prints": printed, "its output": canonical(output), "its message": str(failure or "")}
        found = next((place for place, text in places.items() if MASK in text), None)
        if found is not None:
            self.telling = f"{tool} tells a secret in {found}"
