"""Between the core's values and those of tools: intents become calls, replies become records."""

from __future__ import annotations

from pathlib import Path

from sagactl.core.answer import Answer
from sagactl.core.canonical import Json
from sagactl.core.records import Cause, Decision, DecisionKind, Failure, Outcome, Probe, Record
from sagactl.core.world import AskProbe, MakeCall
from sagactl.engine.calls import CallUnderWay, Reply
from sagactl.tools.base import Invocation


def make_call(run_id: str, making: MakeCall | AskProbe, now_ms: int, now: float, project: Path) -> CallUnderWay:
    """Return the call that *making* asks for, to be started: it is *now_ms* by the run's time, *now* on the clock."""
    record = making.probe if isinstance(making, AskProbe) else making.intent
    number = record.number if isinstance(record, Probe) else record.attempt
    seconds = max(0.0, (record.deadline_ms - now_ms) / 1000)
    return CallUnderWay(
        run_id=run_id,
        operation=record.operation,
        number=number,
        invocation=_make_invocation(run_id, making, number, seconds, project),
        deadline=now + seconds,
        is_probe=isinstance(making, AskProbe),
        is_asking_again=isinstance(making, MakeCall) and making.intent.asking > 1,
    )


def _make_invocation(
    run_id: str, making: MakeCall | AskProbe, number: int, seconds: float, project: Path
) -> Invocation:
    record = making.probe if isinstance(making, AskProbe) else making.intent
    return Invocation(
        tool=record.tool,
        arguments=_copy_map(making.arguments),
        run_id=run_id,
        operation=record.operation,
        attempt=number,
        idempotency_key=making.key if isinstance(making, AskProbe) else making.intent.key,
        forward_key=making.forward_key,
        begun_ms=making.begun_ms,
        deadline_ms=record.deadline_ms,
        seconds_left=seconds,
        project=project,
        fence=record.fence,
        token=making.token if isinstance(making, MakeCall) else None,
        raw=making.raw,
    )


def _copy_map(arguments: Json) -> dict[str, Json]:
    """Return a copy that a tool may change as it likes: what was recorded stays as it is for the next try (E20)."""
    return {name: _copy(value) for name, value in arguments.items()} if isinstance(arguments, dict) else {}


def _copy(value: Json) -> Json:
    if isinstance(value, dict):
        return {name: _copy(child) for name, child in value.items()}
    return [_copy(child) for child in value] if isinstance(value, list) else value


def make_record(call: CallUnderWay, reply: Reply, now_ms: int, fence: int) -> Record:
    """Return the record that the *reply* of *call* becomes."""
    if isinstance(reply, Answer):
        return Outcome(
            now_ms,
            call.operation,
            call.number,
            reply.kind,
            output=reply.output,
            failure=reply.failure,
            after_ms=reply.after_ms,
            token=reply.token,
            raw=reply.raw,
        )
    return Probe(
        now_ms,
        call.operation,
        call.number,
        fence,
        call.invocation.tool,
        call.invocation.deadline_ms,
        answer=reply.answer,
        output=reply.output,
        failure=reply.failure,
    )


def make_hanging(call: CallUnderWay, now_ms: int) -> Record:
    """Return the record that says that *call* was told to end and didn't: the run waits for it (E14)."""
    failure = Failure(Cause.CANNOT_END.value, f"{call.operation} is past its time and has not returned")
    return Decision(now_ms, DecisionKind.WAITING, Cause.CANNOT_END, operation=call.operation, failure=failure)
