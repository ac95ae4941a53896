"""Calling tools: whatever a tool does, the caller gets an answer and never an exception.

What is done before a tool is entered stands in `preparing`, and what it means that it returned or raised in `answers`.
"""

from __future__ import annotations

import contextlib
import inspect
import os
from collections.abc import Callable, Coroutine, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any, Final, cast

from sagactl.core.answer import Answer, ProbeReply
from sagactl.core.canonical import Json
from sagactl.core.pinned import Guard, Misfit
from sagactl.core.records import ProbeAnswer
from sagactl.core.saga import ToolFacts
from sagactl.tools.answers import answer_exception, answer_result, answer_unready, read_message, read_reply
from sagactl.tools.base import Invocation, Secrets, Tracing
from sagactl.tools.capture import Captured, capturing
from sagactl.tools.convert import bound_line
from sagactl.tools.describe import Tool
from sagactl.tools.preparing import Preparation, make_traceparent
from sagactl.tools.registry import Registry
from sagactl.tools.sealing import seal, seal_reply
from sagactl.tools.validate import compile_schema

if TYPE_CHECKING:
    from sagactl.tools.isolated.caller import IsolatedCaller

FORKED_EXIT_CODE: Final = 70
"""What the child of a tool ends with that forked and went on as if it were the driver."""


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
        self._preparation = Preparation(registry, secrets, isolated)
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
            tool, enter = self._preparation.prepare(invocation, self.tracing)
        except BaseException as error:  # whatever it is, nothing was called
            return seal(answer_unready(error))
        with _OneProcess(tool), _attach(invocation, self.tracing), self._keeping() as captured:
            try:
                answer = answer_result(tool.facts, _finish(enter(), invocation))
            except BaseException as error:  # sys.exit and Ctrl-C in a tool are outcomes too
                answer = answer_exception(tool, error)
        return seal(answer, captured.text)

    async def call_async(self, invocation: Invocation) -> Answer:
        """Await the tool, a plain one on a thread; only cancelling the task raises."""
        import asyncio

        prepare = self._preparation.prepare
        try:
            if self._preparation.needs_secrets(invocation):
                tool, enter = await asyncio.to_thread(prepare, invocation, self.tracing)
            else:
                tool, enter = prepare(invocation, self.tracing)
        except asyncio.CancelledError:
            raise
        except BaseException as error:
            return seal(answer_unready(error))
        if not tool.is_async:
            return await asyncio.to_thread(self.call, invocation)
        with _OneProcess(tool), _attach(invocation, self.tracing), self._keeping() as captured:
            try:
                answer = answer_result(tool.facts, await cast("Coroutine[Any, Any, object]", enter()))
            except asyncio.CancelledError as error:
                task = asyncio.current_task()
                if task is None or task.cancelling():
                    raise
                answer = answer_exception(tool, error)
            except BaseException as error:
                answer = answer_exception(tool, error)
        return seal(answer, captured.text)

    def probe(self, invocation: Invocation) -> ProbeReply:
        """Call a probe with those arguments that it takes; its own failure is `cannot_tell`."""
        try:
            tool, enter = self._preparation.prepare(invocation, self.tracing, is_probe=True)
        except BaseException as error:
            return seal_reply(ProbeReply(ProbeAnswer.CANNOT_TELL, failure=answer_unready(error).failure))
        with _OneProcess(tool), _attach(invocation, self.tracing, is_probe=True), self._keeping() as captured:
            try:
                result = _finish(enter(), invocation)
                reply = read_reply(result, self._registry.probed_by(tool.facts.name))
            except BaseException as error:
                reply = ProbeReply(ProbeAnswer.CANNOT_TELL, failure=answer_exception(tool, error).failure)
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


def _attach(invocation: Invocation, tracing: Tracing | None, *, is_probe: bool = False) -> AbstractContextManager[None]:
    """Make the call's span the present one, for what traces of its own accord."""
    if tracing is None:
        return contextlib.nullcontext()
    return tracing.attached(make_traceparent(invocation, tracing, is_probe=is_probe))


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
