"""From a call to what enters its tool: arguments, secrets, context. Whatever goes wrong here, nothing was called."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, cast

from sagactl.core.canonical import Json
from sagactl.core.keys import SECRET_MARK
from sagactl.core.secrets import secrets_in
from sagactl.core.tracing import call_span_id, probe_span_id, write_traceparent
from sagactl.errors import PluginError, SecretError
from sagactl.tools.api import NO_SECRETS, CallContext
from sagactl.tools.base import Invocation, Secrets, Tracing
from sagactl.tools.binding import bind
from sagactl.tools.describe import Isolation, Tool
from sagactl.tools.registry import Registry
from sagactl.tools.validate import compile_schema

if TYPE_CHECKING:
    from sagactl.tools.isolated.caller import IsolatedCaller


class Preparation:
    """Prepares calls of the tools of a registry, with what resolves secrets and what makes isolated calls."""

    def __init__(
        self, registry: Registry, secrets: Secrets | None, isolated: Callable[[], IsolatedCaller] | None
    ) -> None:
        self._registry = registry
        self._secrets = secrets
        self._isolated = isolated

    def prepare(
        self, invocation: Invocation, tracing: Tracing | None, *, is_probe: bool = False
    ) -> tuple[Tool, Callable[[], object]]:
        """Return the tool and what enters it; raises whatever keeps the call from being made."""
        tool = self._registry.tool(invocation.tool)
        if tool.isolation is not None:
            return tool, self._enter_isolated(tool, tool.isolation, invocation, tracing, is_probe=is_probe)
        given = _choose_arguments(tool, invocation, is_probe=is_probe)
        if _names_secrets(given):
            given = self._fill_in(tool, given)
        # Also where it takes no context: what it needs is known then, and masked.
        own_secrets = self._resolve(tool.facts.secrets)
        arguments = bind(tool.converters, given)
        if tool.context_parameter is not None:
            traceparent = make_traceparent(invocation, tracing, is_probe=is_probe)
            arguments[tool.context_parameter] = make_context(invocation, traceparent, own_secrets)
        if not _fits(tool, given):
            tool.signature.bind(**arguments)  # it knows best what is missing or too much
        return tool, lambda: tool.function(**arguments)

    def needs_secrets(self, invocation: Invocation) -> bool:
        """Tell whether preparing the call resolves secrets: who keeps them may take its time."""
        return _names_secrets(invocation.arguments) or bool(self._registry.facts_of(invocation.tool).secrets)

    def _enter_isolated(
        self, tool: Tool, isolation: Isolation, invocation: Invocation, tracing: Tracing | None, *, is_probe: bool
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
            traceparent=make_traceparent(invocation, tracing, is_probe=is_probe),
            is_sampled=_is_sampled(invocation, tracing),
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

    def _fill_in(self, tool: Tool, given: dict[str, Json]) -> dict[str, Json]:
        """Put the values of secrets in their places; raises SecretError, also for one that its schema doesn't take."""
        if self._secrets is None:
            raise SecretError("there is nothing that resolves secrets")
        filled = dict(self._secrets.fill(given))
        problem = compile_schema(tool.facts.arguments_schema)(filled)
        if problem is not None and compile_schema(tool.facts.arguments_schema)(given) is None:
            raise SecretError(f"the value of a secret can't be taken: {problem}", code="bad-secret")
        return filled


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


def make_traceparent(invocation: Invocation, tracing: Tracing | None, *, is_probe: bool) -> str:
    """Return what names the call's span to whoever it calls."""
    run_id, operation, number = invocation.run_id, invocation.operation, invocation.attempt
    if is_probe:
        at = {"fence": invocation.fence, "deadline_ms": invocation.deadline_ms}
        span_id = probe_span_id(run_id, operation, number, **at)
    else:
        span_id = call_span_id(run_id, operation, number)
    return write_traceparent(run_id, span_id, is_sampled=_is_sampled(invocation, tracing))


def _is_sampled(invocation: Invocation, tracing: Tracing | None) -> bool:
    return tracing is None or tracing.is_sampled(invocation.run_id)
