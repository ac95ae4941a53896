"""An isolated call as its own interpreter sees it: import the one plugin, call the one tool, spell the answer.

The call is made by the same toolbox as in the driver's process, so whatever a tool may do means the same here. Schemas
are left to the driver, which has them compiled.
"""

from __future__ import annotations

import signal
import sys
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import replace
from typing import TYPE_CHECKING, Any, cast

from sagactl.core.answer import Answer, ProbeReply
from sagactl.core.canonical import Json
from sagactl.core.records import Failure, OutcomeKind, ProbeAnswer
from sagactl.core.secrets import fill_secrets
from sagactl.errors import PluginError
from sagactl.secrets.masking import KNOWN
from sagactl.tools.api import Unavailable, declarations_of
from sagactl.tools.capture import Captured
from sagactl.tools.describe import Tool, describe_tool
from sagactl.tools.invoke import PluginToolbox
from sagactl.tools.isolated.reply import write_answer, write_probe_reply
from sagactl.tools.isolated.request import read_home, read_invocation
from sagactl.tools.loading import load_one
from sagactl.tools.plugin import BrokenPlugin
from sagactl.tools.registry import Registry, find_place

if TYPE_CHECKING:
    import asyncio


class RefusedError(Exception):
    """The tool can't be called here, and nothing has happened."""

    def __init__(self, message: str, code: str) -> None:
        super().__init__(message)
        self.code = code


def answer(request: Mapping[str, Any], cancelled: threading.Event, note_entry: Callable[[], None]) -> bytes:
    """Make the call that *request* describes, and return its spelled answer; *note_entry* is told of the last moment.

    Nothing is called once *cancelled* is set.
    """
    for value in request["secrets"].values():
        KNOWN.add(value)
    is_probe, invocation = request["is_probe"], read_invocation(request, cancelled)
    try:
        tool = _enter_by(_load_tool(request, invocation.tool), cancelled, note_entry)
    except RefusedError as error:
        failure = Failure(error.code, str(error))
        if is_probe:
            return write_probe_reply(ProbeReply(ProbeAnswer.CANNOT_TELL, failure=failure))
        return write_answer(Answer(OutcomeKind.UNAVAILABLE, failure=failure))
    registry, secrets = Registry({tool.facts.name: tool}), _GivenSecrets(request["secrets"])
    toolbox = PluginToolbox(registry, secrets=secrets, keeping=_keeping_nothing)
    toolbox.tracing = _GivenTracing(is_sampled=request["is_sampled"])
    if is_probe:
        return write_probe_reply(toolbox.probe(invocation))
    return write_answer(toolbox.call(invocation))


def _load_tool(request: Mapping[str, Any], name: str) -> Tool:
    """Import the plugin and describe the tool; raises RefusedError, also where the plugin has changed."""
    streams = sys.stdout, sys.stderr
    loaded = load_one(read_home(request))
    sys.stdout, sys.stderr = streams
    if isinstance(loaded, BrokenPlugin):
        raise RefusedError(f"{loaded} (in the process that was started for the call)", "not_loaded")
    plugin = loaded.plugin
    if plugin.version != request["version"]:
        message = f"{plugin.file} has changed since sagactl read it; start sagactl anew to call {name}"
        raise RefusedError(message, "changed_tool")
    for function in loaded.functions:
        for declaration in declarations_of(function):
            if declaration.name == name:
                try:
                    return describe_tool(declaration, function, place=find_place(plugin, function), version="")
                except PluginError as error:
                    raise RefusedError(str(error), "not_loaded") from error
    raise RefusedError(f"{plugin.file} has no tool {name} when another interpreter imports it", "not_loaded")


def _enter_by(tool: Tool, cancelled: threading.Event, note_entry: Callable[[], None]) -> Tool:
    """Return *tool*, noting when its function is entered, and ended by cancelling where it is a coroutine."""

    def enter(**arguments: object) -> object:
        if cancelled.is_set():
            raise Unavailable("its time was up before it could start", code="not_started")
        note_entry()
        result = tool.function(**arguments)
        return _watched(result, cancelled) if tool.is_async else result

    facts = replace(tool.facts, output_schema={})
    return replace(tool, function=enter, facts=facts)


async def _watched(result: Any, cancelled: threading.Event) -> object:
    """Await *result*; its task is cancelled when the call shall end, as in the driver's process."""
    import asyncio

    task = cast("asyncio.Task[object]", asyncio.current_task())

    def end() -> None:
        cancelled.set()
        task.cancel()

    before = signal.getsignal(signal.SIGTERM)
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, end)
    if cancelled.is_set():
        task.cancel()
    try:
        return await result
    finally:
        signal.signal(signal.SIGTERM, before)


class _GivenSecrets:
    """The values that came with the call."""

    def __init__(self, values: Mapping[str, str]) -> None:
        self._values = values

    def missing(self, names: Sequence[str]) -> Mapping[str, str]:
        return {name: "it did not come with the call" for name in names if name not in self._values}

    def fill(self, arguments: Mapping[str, Json]) -> Mapping[str, Json]:
        return {name: fill_secrets(value, self._values.__getitem__) for name, value in arguments.items()}


class _GivenTracing:
    """The place in the trace that came with the call; a plugin that uses OpenTelemetry finds it as its context."""

    def __init__(self, *, is_sampled: bool) -> None:
        self._is_sampled = is_sampled

    def is_sampled(self, run_id: str) -> bool:
        del run_id
        return self._is_sampled

    def attached(self, traceparent: str) -> AbstractContextManager[None]:
        is_used = "opentelemetry" in sys.modules
        return _attached(traceparent) if is_used else nullcontext()


@contextmanager
def _attached(traceparent: str) -> Iterator[None]:
    from opentelemetry import context
    from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

    token = context.attach(TraceContextTextMapPropagator().extract({"traceparent": traceparent}))
    try:
        yield
    finally:
        context.detach(token)


@contextmanager
def _keeping_nothing() -> Iterator[Captured]:
    """Let what is written go by the descriptors: the driver keeps it, also of a process that crashes."""
    yield Captured()
