"""Calling tools: whatever a tool does, the caller gets an answer and never an exception.

The one question that matters is whether something may have happened. Only `Rejected` and `Unavailable` say that
nothing did, because the author of the tool says so. Everything else that goes wrong once the function was entered is
`unknown`: other exceptions, `sys.exit`, running out of memory, a reply that doesn't fit its schema or is too large.
"""

from __future__ import annotations

import contextlib
import inspect
import math
import os
import re
import time
from collections.abc import Callable, Coroutine, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, Final, cast

from sagactl.core.answer import Answer, ProbeReply
from sagactl.core.canonical import Json, NotJsonError, canonical
from sagactl.core.keys import SECRET_MARK
from sagactl.core.pinned import Guard, Misfit
from sagactl.core.records import Failure, OutcomeKind, ProbeAnswer
from sagactl.core.saga import INTERVAL_MS_MAX, PAYLOAD_BYTES_MAX, ToolFacts
from sagactl.core.secrets import secrets_in
from sagactl.core.tracing import call_span_id, probe_span_id, write_traceparent
from sagactl.errors import PluginError, SecretError
from sagactl.tools.api import (
    NO_SECRETS,
    CallContext,
    CannotTell,
    Done,
    NotDone,
    Pending,
    Rejected,
    Seconds,
    Unavailable,
)
from sagactl.tools.base import Invocation, Secrets, Tracing
from sagactl.tools.binding import bind
from sagactl.tools.capture import Captured, capturing
from sagactl.tools.convert import bound_line, describe_object, keep_raw, write_json
from sagactl.tools.describe import Isolation, Tool
from sagactl.tools.kind import Answered, Unsure
from sagactl.tools.registry import Registry
from sagactl.tools.sealing import as_word, seal, seal_reply
from sagactl.tools.validate import compile_schema

if TYPE_CHECKING:
    from sagactl.tools.isolated.caller import IsolatedCaller

FORKED_EXIT_CODE: Final = 70
"""What the child of a tool ends with that forked and went on as if it were the driver."""

_WORD_BREAK: Final = re.compile(r"(?<=[a-z0-9])(?=[A-Z])")


class PluginToolbox:
    """The tools of a registry, as the engine calls them."""

    def __init__(
        self,
        registry: Registry,
        end_orphans: Callable[[str], None] = lambda _: None,
        secrets: Secrets | None = None,
        *,
        isolated: Callable[[], IsolatedCaller] | None = None,
        keeping: Callable[[], AbstractContextManager[Captured]] = capturing,
    ) -> None:
        self._registry = registry
        self._end_orphans = end_orphans
        self._secrets = secrets
        self._isolated = isolated
        self._keeping = keeping
        self.tracing: Tracing | None = None
        """Set by who drives: what only looks at tools traces nothing."""

    def facts(self, name: str) -> ToolFacts:
        """Return what the core must know; raises NotFoundError, or PluginError where its plugin is broken."""
        return self._registry.facts_of(name)

    def is_async(self, name: str) -> bool:
        """Tell whether the tool is a coroutine function."""
        return self._registry.tool(name).is_async

    def call(self, invocation: Invocation) -> Answer:
        """Call the tool on this thread, an async one in an event loop of its own; never raises."""
        try:
            tool, enter = self._prepare(invocation)
        except BaseException as error:  # whatever it is, nothing was called
            return seal(_answer_unready(error))
        with _OneProcess(tool), self._traced(invocation), self._keeping() as captured:
            try:
                answer = _answer_result(tool.facts, _finish(enter(), invocation))
            except BaseException as error:  # sys.exit and Ctrl-C in a tool are outcomes too
                answer = _answer_exception(tool, error)
        return seal(answer, captured.text)

    async def call_async(self, invocation: Invocation) -> Answer:
        """Await the tool, a plain one on a thread; only cancelling the task raises."""
        import asyncio

        try:
            if self._needs_secrets(invocation):
                tool, enter = await asyncio.to_thread(self._prepare, invocation)  # who keeps them may take its time
            else:
                tool, enter = self._prepare(invocation)
        except asyncio.CancelledError:
            raise
        except BaseException as error:
            return seal(_answer_unready(error))
        if not tool.is_async:
            return await asyncio.to_thread(self.call, invocation)
        with _OneProcess(tool), self._traced(invocation), self._keeping() as captured:
            try:
                answer = _answer_result(tool.facts, await cast("Coroutine[Any, Any, object]", enter()))
            except asyncio.CancelledError as error:
                task = asyncio.current_task()
                if task is None or task.cancelling():
                    raise
                answer = _answer_exception(tool, error)
            except BaseException as error:
                answer = _answer_exception(tool, error)
        return seal(answer, captured.text)

    def probe(self, invocation: Invocation) -> ProbeReply:
        """Call a probe with those arguments that it takes; its own failure is `cannot_tell`."""
        try:
            tool, enter = self._prepare(invocation, is_probe=True)
        except BaseException as error:
            return seal_reply(ProbeReply(ProbeAnswer.CANNOT_TELL, failure=_answer_unready(error).failure))
        with _OneProcess(tool), self._traced(invocation, is_probe=True), self._keeping() as captured:
            try:
                reply = self._read_reply(tool, _finish(enter(), invocation))
            except BaseException as error:
                reply = ProbeReply(ProbeAnswer.CANNOT_TELL, failure=_answer_exception(tool, error).failure)
        return seal_reply(replace(reply, printed=captured.text))

    def check_arguments(self, facts: ToolFacts, arguments: Json) -> str | None:
        """Return what is wrong with *arguments* by the pinned schema, or None."""
        return compile_schema(facts.arguments_schema)(arguments)

    def check_output(self, facts: ToolFacts, output: Json) -> str | None:
        """Return what is wrong with *output* by the pinned schema, or None."""
        return compile_schema(facts.output_schema)(output)

    def guard_of(self, name: str) -> Guard | None:
        """Return what must be asked before an intent for the tool is written, where something must (E16)."""
        found = self._registry.tools.get(name)
        return None if found is None or found.guard is None else partial(_ask, found.guard)

    def missing_secrets(self, names: Sequence[str]) -> Mapping[str, str]:
        """Return which of the secrets can't be resolved now, each with the reason."""
        nobody = dict.fromkeys(names, "there is nothing that resolves it")
        return nobody if self._secrets is None else self._secrets.missing(names)

    def end_orphans(self, run_id: str) -> None:
        """End what calls of earlier drivers left running; raises BusyError where that can't be done (E17)."""
        self._end_orphans(run_id)

    def _prepare(self, invocation: Invocation, *, is_probe: bool = False) -> tuple[Tool, Callable[[], object]]:
        tool = self._registry.tool(invocation.tool)
        if tool.isolation is not None:
            return tool, self._enter_isolated(tool, tool.isolation, invocation, is_probe=is_probe)
        given = _choose_arguments(tool, invocation, is_probe=is_probe)
        if _names_secrets(given):
            given = self._fill_in(tool, given)
        own_secrets = self._resolve(
            tool.facts.secrets
        )  # also where it takes no context: what it needs is known, and masked
        arguments = bind(tool.converters, given)
        if tool.context_parameter is not None:
            traceparent = self._write_traceparent(invocation, is_probe=is_probe)
            arguments[tool.context_parameter] = make_context(invocation, traceparent, own_secrets)
        if not _fits(tool, given):
            tool.signature.bind(**arguments)  # it knows best what is missing or too much
        return tool, lambda: tool.function(**arguments)

    def _enter_isolated(
        self, tool: Tool, isolation: Isolation, invocation: Invocation, *, is_probe: bool
    ) -> Callable[[], object]:
        """Return what makes the call in a process of its own; raises SecretError where a value can't go along."""
        from sagactl.tools.isolated.request import Request

        find_caller = self._isolated
        if find_caller is None:
            raise PluginError(f"nothing here can start a process for {tool.facts.name}")
        given = _choose_arguments(tool, invocation, is_probe=is_probe)
        names = dict.fromkeys(name for value in given.values() for name in secrets_in(value))
        request = Request(
            invocation,
            isolation,
            secrets=self._resolve((*names, *tool.facts.secrets)),
            ends_at=time.monotonic() + invocation.seconds_left,
            is_probe=is_probe,
            traceparent=self._write_traceparent(invocation, is_probe=is_probe),
            is_sampled=self.tracing is None or self.tracing.is_sampled(invocation.run_id),
        )
        return lambda: find_caller().call(request)

    def _resolve(self, names: Iterable[str]) -> Mapping[str, str]:
        """Return the values of secrets by name; raises SecretError (E19)."""
        references: dict[str, Json] = {name: {SECRET_MARK: name} for name in names}
        if not references:
            return NO_SECRETS
        if self._secrets is None:
            raise SecretError("there is nothing that resolves secrets")
        return cast("Mapping[str, str]", self._secrets.fill(references))

    def _traced(self, invocation: Invocation, *, is_probe: bool = False) -> AbstractContextManager[None]:
        if self.tracing is None:
            return contextlib.nullcontext()
        return self.tracing.attached(self._write_traceparent(invocation, is_probe=is_probe))

    def _write_traceparent(self, invocation: Invocation, *, is_probe: bool) -> str:
        run_id, operation, number = invocation.run_id, invocation.operation, invocation.attempt
        if is_probe:
            at = {"fence": invocation.fence, "deadline_ms": invocation.deadline_ms}
            span_id = probe_span_id(run_id, operation, number, **at)
        else:
            span_id = call_span_id(run_id, operation, number)
        is_sampled = self.tracing is None or self.tracing.is_sampled(run_id)
        return write_traceparent(run_id, span_id, is_sampled=is_sampled)

    def _needs_secrets(self, invocation: Invocation) -> bool:
        return _names_secrets(invocation.arguments) or bool(self.facts(invocation.tool).secrets)

    def _fill_in(self, tool: Tool, given: dict[str, Json]) -> dict[str, Json]:
        """Put the values of secrets in their places; raises SecretError, also for one that its schema doesn't take."""
        if self._secrets is None:
            raise SecretError("there is nothing that resolves secrets")
        filled = dict(self._secrets.fill(given))
        problem = compile_schema(tool.facts.arguments_schema)(filled)
        if problem is not None and compile_schema(tool.facts.arguments_schema)(given) is None:
            raise SecretError(f"the value of a secret can't be taken: {problem}", code="bad-secret")
        return filled

    def _read_reply(self, tool: Tool, result: object) -> ProbeReply:
        answer, content = _read_probe_answer(result)
        if answer is ProbeAnswer.CANNOT_TELL:
            reason = bound_line(str(content)) if content else "the probe could not tell"
            return ProbeReply(answer, failure=Failure("cannot_tell", reason))
        if answer is ProbeAnswer.NOT_DONE:
            return ProbeReply(answer)
        output = _check_size(content)
        problems = [
            problem
            for facts in self._registry.probed_by(tool.facts.name)
            if (problem := compile_schema(facts.output_schema)(output)) is not None
        ]
        if problems and len(problems) == len(self._registry.probed_by(tool.facts.name)):
            raise BadOutputError(f"done, but with an output that does not fit: {problems[0]}")
        return ProbeReply(answer, output=output)


def _ask(guard: Guard, pinned: ToolFacts) -> Misfit | None:
    """Return what *guard* says; one that fails lets nothing be called."""
    try:
        return guard(pinned)
    except Exception as error:  # a kind of tools is as good as what it talks to
        return Misfit(bound_line(f"can't be compared with what was pinned: {read_message(error)}"))


class _OneProcess:
    """Ends the child of a tool that forked and came out of the tool twice: it would go on as a second driver (E15)."""

    def __init__(self, tool: Tool) -> None:
        self._tool = tool.facts.name

    def __enter__(self) -> None:
        self._pid = os.getpid()

    def __exit__(self, *_: object) -> None:
        if os.getpid() == self._pid:
            return
        message = f"tool {self._tool} forked, and its child came out of the tool; the child ends here\n"
        with contextlib.suppress(OSError):
            os.write(2, message.encode())
        os._exit(FORKED_EXIT_CODE)  # no handler, no buffer, no thread of the parent is the child's to touch


def _names_secrets(arguments: Mapping[str, Json]) -> bool:
    return any(True for value in arguments.values() for _ in secrets_in(value))


def _choose_arguments(tool: Tool, invocation: Invocation, *, is_probe: bool) -> dict[str, Json]:
    """Return what the tool is given: a probe receives those of the action's arguments that it takes."""
    given = invocation.arguments
    takes_all = tool.takes_more or not is_probe
    return {name: value for name, value in given.items() if takes_all or name in tool.parameters}


def _fits(tool: Tool, given: dict[str, Json]) -> bool:
    """Tell, at little cost, that the function takes just these arguments; False where it has to be looked into."""
    return tool.required <= given.keys() <= tool.parameters


class BadOutputError(Unsure):
    """The reply is none that can be recorded; raised and caught in this module."""

    def __init__(self, message: str) -> None:
        super().__init__(message, code="bad_output")


def make_context(invocation: Invocation, traceparent: str, secrets: Mapping[str, str] = NO_SECRETS) -> CallContext:
    """Return the context that a tool receives with this call."""
    operation = invocation.operation
    return CallContext(
        idempotency_key=invocation.idempotency_key,
        forward_key=invocation.forward_key,
        tool=invocation.tool,
        run_id=invocation.run_id,
        step=operation.step,
        item=operation.item,
        direction=operation.direction.value,
        attempt=invocation.attempt,
        project=invocation.project,
        begun_at=datetime.now(UTC) if invocation.begun_ms is None else _read_time(invocation.begun_ms),
        deadline=_read_time(invocation.deadline_ms),
        cancelled=invocation.cancelled,
        token=invocation.token,
        raw=invocation.raw,
        traceparent=traceparent,
        monotonic_deadline=time.monotonic() + invocation.seconds_left,
        secrets=secrets,
    )


def _read_time(at_ms: int) -> datetime:
    return datetime.fromtimestamp(0, UTC) + timedelta(milliseconds=at_ms)


def _finish(result: object, invocation: Invocation) -> object:
    """Return *result*, awaited if it must be; nobody else can end such a call, so its deadline does."""
    if not inspect.iscoroutine(result):
        return result

    import asyncio

    async def within_deadline() -> object:
        async with asyncio.timeout(max(0.0, invocation.seconds_left)):
            return await result

    main = within_deadline()
    try:
        return asyncio.run(main)
    finally:
        # Where a loop runs on this thread already, neither was started; closing them says that this is known.
        main.close()
        result.close()


def _answer_result(facts: ToolFacts, result: object) -> Answer:
    if isinstance(result, Pending):
        return _answer_pending(facts, result)
    try:
        output = _check_size(result)
    except BadOutputError as error:
        return _answer_misfit(str(error), result)
    problem = compile_schema(facts.output_schema)(output)
    return Answer(OutcomeKind.SUCCEEDED, output=output) if problem is None else _answer_misfit(problem, output)


def _check_size(result: object) -> Json:
    try:
        output = write_json(result)
        size = len(canonical(output).encode())
    except NotJsonError as error:
        raise BadOutputError(str(error)) from None
    if size > PAYLOAD_BYTES_MAX:
        raise BadOutputError(f"{size} bytes, more than the {PAYLOAD_BYTES_MAX} that an output may have")
    return output


def _answer_misfit(problem: str, result: object) -> Answer:
    failure = Failure("bad_output", bound_line(f"the tool returned what can't be taken: {problem}"))
    return Answer(OutcomeKind.UNKNOWN, failure=failure, raw=keep_raw(result))


def _answer_pending(facts: ToolFacts, pending: Pending) -> Answer:
    after_ms = _read_ms(pending.after, facts.pending_max_ms or INTERVAL_MS_MAX)
    try:
        token = _check_size(pending.token)
    except BadOutputError as error:
        return _answer_misfit(f"a token: {error}", pending.token)
    if after_ms is None:
        return _answer_misfit(f"Pending(after={describe_object(pending.after, length_max=60)})", pending.token)
    return Answer(OutcomeKind.PENDING, after_ms=after_ms, token=token)


def _answer_exception(tool: Tool, error: BaseException) -> Answer:
    if isinstance(error, Answered):
        return error.answer
    if isinstance(error, Pending):
        return _answer_pending(tool.facts, error)
    if isinstance(error, Rejected):
        return Answer(OutcomeKind.REJECTED, failure=_read_failure(error, error.code))
    if isinstance(error, Unavailable):
        failure = _read_failure(error, error.code)
        return Answer(OutcomeKind.UNAVAILABLE, failure=failure, after_ms=_read_ms(error.retry_after))
    if isinstance(error, Unsure):
        failure, after_ms = Failure(error.code, bound_line(str(error))), _read_ms(error.retry_after)
        return Answer(OutcomeKind.UNKNOWN, failure=failure, after_ms=after_ms, raw=error.raw)
    where = locate(error.__traceback__, tool.place.file)
    message = bound_line(f"{read_message(error) or 'no message'} ({where})")
    return Answer(OutcomeKind.UNKNOWN, failure=Failure(as_word(type(error).__name__), message))


def _answer_unready(error: BaseException) -> Answer:
    """Answer for a call that was never entered: nothing happened, and the same arguments would fail again."""
    message = bound_line(read_message(error) or type(error).__name__)
    if isinstance(error, SecretError):
        return Answer(OutcomeKind.UNAVAILABLE, failure=Failure(error.code.replace("-", "_"), message))
    if isinstance(error, MemoryError) or not isinstance(error, Exception):
        return Answer(OutcomeKind.UNAVAILABLE, failure=Failure(as_word(type(error).__name__), message))
    return Answer(OutcomeKind.REJECTED, failure=Failure("bad_arguments", message))


def _read_failure(error: Rejected | Unavailable, code: str | None) -> Failure:
    word = as_word(str(code)) if code else _WORD_BREAK.sub("_", type(error).__name__).lower()
    return Failure(word, bound_line(read_message(error)) or word)


def read_message(error: BaseException) -> str:
    """Return the text of an exception, whatever its `__str__` does."""
    try:
        return str(error)
    except BaseException as worse:  # foreign code
        return f"its message raised {type(worse).__name__}"


def locate(traceback: TracebackType | None, file: str) -> str:
    """Return `file:line` of the last frame in the tool's own folder, or of the last one at all."""
    folder, found, last = str(Path(file).parent), "", ""
    while traceback is not None:
        name = traceback.tb_frame.f_code.co_filename
        last = f"{Path(name).name}:{traceback.tb_lineno}"
        found = last if str(Path(name).parent) == folder else found
        traceback = traceback.tb_next
    return found or last or Path(file).name


def _read_ms(given: Seconds | None, ms_max: int = INTERVAL_MS_MAX) -> int | None:
    """Return a delay in milliseconds within *ms_max*; None for what is no delay."""
    seconds = given.total_seconds() if isinstance(given, timedelta) else given
    try:
        number = float(cast("float", seconds))
    except (TypeError, ValueError, OverflowError):
        return None
    return None if math.isnan(number) else int(max(0.0, min(number * 1_000, ms_max)))


def _read_probe_answer(result: object) -> tuple[ProbeAnswer, object]:
    match result:
        case Done():
            return ProbeAnswer.DONE, result.output
        case NotDone():
            return ProbeAnswer.NOT_DONE, None
        case CannotTell():
            return ProbeAnswer.CANNOT_TELL, result.reason
        case None:
            return ProbeAnswer.CANNOT_TELL, "the probe returned nothing"
        case Mapping() if result.get("answer") in set(ProbeAnswer) and result.keys() <= {"answer", "output", "reason"}:
            answer = ProbeAnswer(result["answer"])
            return answer, result.get("reason" if answer is ProbeAnswer.CANNOT_TELL else "output")
    raise BadOutputError(f"a probe answers Done, NotDone or CannotTell, not {describe_object(result, length_max=60)}")
