"""Toolboxes made of functions that stand in a test, and calls to them."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from sagactl.core.answer import Answer, ProbeReply
from sagactl.core.canonical import Json
from sagactl.core.records import Direction, Operation
from sagactl.tools.api import declarations_of
from sagactl.tools.base import Invocation
from sagactl.tools.describe import Place, Tool, describe_tool
from sagactl.tools.invoke import PluginToolbox
from sagactl.tools.registry import Registry


def describe(function: Callable[..., object]) -> Tool:
    """Describe the tool that a decorated function is."""
    (declaration,) = declarations_of(function)
    return describe_tool(declaration, function, place=Place("test", __file__, 1), version="1")


def toolbox(*functions: Callable[..., object]) -> PluginToolbox:
    """Return a toolbox of decorated functions."""
    tools = [describe(function) for function in functions]
    return PluginToolbox(Registry({tool.facts.name: tool for tool in tools}))


def invocation(tool: str, arguments: dict[str, Json] | None = None, **facts: Any) -> Invocation:
    """Return a call of *tool* with a key of its own."""
    given: dict[str, Any] = {
        "run_id": "run2345678abc",
        "operation": Operation("deposit", None, Direction.ACTION),
        "attempt": 1,
        "idempotency_key": "run2345678abc/deposit/action",
        "forward_key": "run2345678abc/deposit/action",
        "deadline_ms": int(time.time() * 1000) + 30_000,
        "seconds_left": 30.0,
        "project": Path.cwd(),
    }
    return Invocation(tool=tool, arguments=arguments or {}, **{**given, **facts})


def call(function: Callable[..., object], arguments: dict[str, Json] | None = None, **facts: Any) -> Answer:
    """Call the one tool that *function* is."""
    (declaration,) = declarations_of(function)
    return toolbox(function).call(invocation(declaration.name, arguments, **facts))


def probe(function: Callable[..., object], arguments: dict[str, Json] | None = None, **facts: Any) -> ProbeReply:
    """Call the one probe that *function* is."""
    (declaration,) = declarations_of(function)
    return toolbox(function).probe(invocation(declaration.name, arguments, **facts))
