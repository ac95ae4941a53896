"""Tools of a plugin file in a folder of its own, called in this process or each in one of its own."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from textwrap import dedent
from typing import Any

from sagactl.core.answer import Answer, ProbeReply
from sagactl.core.canonical import Json
from sagactl.log.holder import read_boot_id
from sagactl.secrets.vault import Vault
from sagactl.tools.base import Invocation
from sagactl.tools.built_in import BuiltIn
from sagactl.tools.invoke import PluginToolbox
from sagactl.tools.isolated.caller import IsolatedCaller
from sagactl.tools.isolated.rules import IsolationRules
from sagactl.tools.registry import Registry, collect_tools
from tests.tools.building import invocation

HEAD = """
from __future__ import annotations
import asyncio, ctypes, gc, mmap, os, signal, subprocess, sys, threading, time
from dataclasses import dataclass
from datetime import timedelta
from decimal import Decimal
from typing import Any, Literal, TypedDict
from sagactl import CallContext, CannotTell, Done, NotDone, Pending, Rejected, Secret, Unavailable, tool
"""
EVERYTHING = IsolationRules(process=("*",))


@dataclass
class Calling:
    """A toolbox of the plugin `shop`, and where the calls under way are noted."""

    folder: Path
    rules: IsolationRules = EVERYTHING
    environ: Mapping[str, str] = field(default_factory=dict)
    built_in: BuiltIn = field(init=False)
    registry: Registry = field(init=False)
    toolbox: PluginToolbox = field(init=False)

    def __post_init__(self) -> None:
        self.built_in = BuiltIn(self.calls, read_boot_id)
        caller = IsolatedCaller(self.built_in.processes, self.rules)
        self.registry = collect_tools(self.folder / "plugins", entry_points=(), place=self.rules.place)
        assert not self.registry.broken, self.registry.broken
        secrets = Vault({}, environ=self.environ)
        self.toolbox = PluginToolbox(self.registry, self.built_in.end_orphans, secrets=secrets, isolated=lambda: caller)

    @property
    def calls(self) -> Path:
        """Where calls under way are noted."""
        return self.folder / "calls"

    def make(self, tool: str, arguments: dict[str, Json] | None = None, **facts: Any) -> Invocation:
        """Return a call of a tool of the plugin."""
        return invocation(f"shop.{tool}", arguments, **{"project": self.folder, **facts})

    def call(self, tool: str, arguments: dict[str, Json] | None = None, **facts: Any) -> Answer:
        """Call a tool."""
        return self.toolbox.call(self.make(tool, arguments, **facts))

    def probe(self, tool: str, arguments: dict[str, Json] | None = None, **facts: Any) -> ProbeReply:
        """Ask a probe."""
        return self.toolbox.probe(self.make(tool, arguments, **facts))


def write_plugin(folder: Path, text: str, name: str = "shop.py") -> Path:
    """Write a plugin into the folder's `plugins/`."""
    file = folder / "plugins" / name
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(HEAD + dedent(text))
    return file


def call_once(folder: Path, body: str, **facts: Any) -> Answer:
    """Call, isolated, one tool whose body is *body*, once."""
    indented = "\n".join(f"    {line}" for line in dedent(body).strip().splitlines())
    write_plugin(folder, f"@tool('shop.run', isolation='process')\ndef run(context: CallContext):\n{indented}\n")
    calling = Calling(folder, replace(EVERYTHING, **facts.pop("rules", {})))
    try:
        return calling.call("run", **facts)
    finally:
        calling.built_in.close()
