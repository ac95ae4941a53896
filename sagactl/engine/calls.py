"""One call under way: started, watched, ended for sure (rules E3, E14, E15).

A call has a deadline on the monotonic clock. When it passes, the call is told to end (its event is set, its task
cancelled); what it answers from then on is kept as evidence, but the outcome is *unknown*: somebody who waits no longer
can't be told. Nothing else of that operation starts before the call has really returned.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Final

from sagactl.core.alerting import LATE
from sagactl.core.answer import Answer, ProbeReply
from sagactl.core.records import Failure, Operation, OutcomeKind, ProbeAnswer
from sagactl.dataclass import dataclass
from sagactl.engine.clock import Clock
from sagactl.engine.workers import AsyncJob, Workers
from sagactl.secrets.masking import KNOWN
from sagactl.tools.base import Invocation, Toolbox

Reply = Answer | ProbeReply

BUG_LENGTH_MAX: Final = 500
"""Of what an error says that no tool should have raised."""

NOT_MADE: Final = Answer(
    OutcomeKind.UNAVAILABLE, failure=Failure("not_started", "the call's time was up before it was made")
)
"""What came of a call that a slow log, or a busy machine, left no time for: nothing was done, and that is certain."""


@dataclass(slots=True, eq=False)
class CallUnderWay:
    """A call or probe that was started and has not answered."""

    run_id: str
    operation: Operation
    number: int
    invocation: Invocation
    deadline: float
    is_probe: bool
    is_asking_again: bool = False
    """The operation has said that it is pending: this call only asks after what an earlier one began (E5)."""
    job: AsyncJob | None = None
    told_to_end_at: float | None = None
    end_reason: str | None = None
    started_at: float = 0.0
    answered_at: float = 0.0
    reply: Reply | None = None
    """What came of it; None where it was not made, since the lease may have run out."""

    @property
    def seconds_taken(self) -> float:
        """Return how long the call took."""
        return self.answered_at - self.started_at

    def tell_to_end(self, now: float, reason: str | None = None) -> None:
        """Ask the call to end, for its deadline or for *reason*; idempotent."""
        if self.told_to_end_at is None:
            self.told_to_end_at = now
            self.end_reason = reason
            self.invocation.cancelled.set()
            if self.job is not None:
                self.job.cancel()


@dataclass(slots=True)
class CallStarter:
    """Makes calls; `may_call` is asked on the calling thread at the last moment, `answered` is told of the end."""

    toolbox: Toolbox
    workers: Workers
    clock: Clock
    may_call: Callable[[CallUnderWay], bool]
    answered: Callable[[CallUnderWay], None]

    def is_async(self, call: CallUnderWay) -> bool:
        """Tell whether *call* belongs on the event loop; probes, which are short, are awaited where they are made."""
        return not call.is_probe and self.toolbox.is_async(call.invocation.tool)

    def start(self, call: CallUnderWay) -> None:
        """Begin *call* on a thread, or on the event loop where its tool is async."""
        if self.is_async(call):
            self._start_async(call)
        else:
            self.workers.submit(lambda: self._run(call))

    def make(self, call: CallUnderWay) -> None:
        """Make *call* on this thread and note what came of it; never raises."""
        call.started_at = self.clock.monotonic()
        if _is_too_late(call):
            call.reply = NOT_MADE
        elif self.may_call(call):
            try:
                reply: Reply
                reply = self.toolbox.probe(call.invocation) if call.is_probe else self.toolbox.call(call.invocation)
            except BaseException as error:  # a toolbox never raises; if it does, the call is in doubt
                reply = _reply_for_bug(error, is_probe=call.is_probe)
            call.reply = reply
        call.answered_at = self.clock.monotonic()

    def _run(self, call: CallUnderWay) -> None:
        self.make(call)
        self.answered(call)

    def _start_async(self, call: CallUnderWay) -> None:
        call.started_at = self.clock.monotonic()
        if _is_too_late(call):
            call.reply, call.answered_at = NOT_MADE, call.started_at
        if call.reply is NOT_MADE or not self.may_call(call):
            self.answered(call)
            return
        call.job = self.workers.submit_async(
            lambda: self.toolbox.call_async(call.invocation), lambda result: self._finish_async(call, result)
        )

    def _finish_async(self, call: CallUnderWay, result: object) -> None:
        call.reply = result if isinstance(result, Answer) else _reply_for_bug(result, is_probe=False)
        call.answered_at = self.clock.monotonic()
        self.answered(call)


def _is_too_late(call: CallUnderWay) -> bool:
    """Tell whether no time is left for *call*, so that nothing is done where it isn't made.

    A probe's answer is judged alone, as it does nothing. And who asks after what an earlier call began can't say that
    there is nothing: what comes of that is late, and unknown.
    """
    return not (call.is_probe or call.is_asking_again) and call.started_at >= call.deadline


def _reply_for_bug(error: object, *, is_probe: bool) -> Reply:
    failure = Failure(type(error).__name__, KNOWN.shorten(str(error), BUG_LENGTH_MAX))
    if is_probe:
        return ProbeReply(ProbeAnswer.CANNOT_TELL, failure=failure)
    return Answer(OutcomeKind.UNKNOWN, failure=failure)


def judge_reply(call: CallUnderWay, reply: Reply, at: float, timeout_seconds: float) -> Reply:
    """Return *reply* as it counts: after the deadline it is evidence and the outcome unknown (E3).

    `unavailable` says that the call did nothing. Where it only asked after what an earlier one began, that says nothing
    about what was begun, so the operation is in doubt (E5).
    """
    if reply is NOT_MADE:
        return reply
    if call.is_asking_again and isinstance(reply, Answer) and reply.kind is OutcomeKind.UNAVAILABLE:
        reply = replace(reply, kind=OutcomeKind.UNKNOWN)
    if at <= call.deadline and (call.told_to_end_at is None or at < call.told_to_end_at):
        return reply
    failure = Failure(LATE, call.end_reason or f"no answer within {timeout_seconds:.3g}s")
    if isinstance(reply, ProbeReply):
        return ProbeReply(ProbeAnswer.CANNOT_TELL, failure=failure, printed=reply.printed)
    raw = reply.output if reply.kind is OutcomeKind.SUCCEEDED else reply.raw
    return replace(reply, kind=OutcomeKind.UNKNOWN, output=None, failure=failure, after_ms=None, token=None, raw=raw)
