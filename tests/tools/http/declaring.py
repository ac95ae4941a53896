"""Projects with one file of declarations, and their tools as the engine calls them."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

from sagactl.core.answer import Answer, ProbeReply
from sagactl.core.canonical import Json
from sagactl.core.records import Direction, Operation
from sagactl.secrets.sources import Source
from sagactl.secrets.vault import Vault
from sagactl.tools.http.kinds import HttpTools
from sagactl.tools.invoke import PluginToolbox
from sagactl.tools.registry import Registry, collect_tools
from tests.tools.building import invocation


class Project:
    """The tools of one folder."""

    def __init__(
        self,
        folder: Path,
        settings: Mapping[str, Any] | None = None,
        secrets: Mapping[str, str] | None = None,
        resolve: Callable[[str, int], list[str]] | None = None,
    ) -> None:
        self.http = HttpTools(settings, folder, resolve)
        environ = {f"SECRET_{name}": value for name, value in (secrets or {}).items()}
        vault = Vault({name: Source("env", f"SECRET_{name}") for name in secrets or {}}, environ=environ)
        self.registry: Registry = collect_tools(None, entry_points=(), declared=self.http.load())
        self._toolbox = PluginToolbox(self.registry, secrets=vault)

    def call(self, tool: str, arguments: dict[str, Json] | None = None, **facts: Any) -> Answer:
        """Call a tool as an action, or with `is_undo` as a compensation."""
        asked = invocation(tool, arguments, **{name: each for name, each in facts.items() if name != "is_undo"})
        if facts.get("is_undo"):
            operation = Operation("deposit", None, Direction.COMPENSATION)
            asked = replace(asked, operation=operation, idempotency_key="run2345678abc/deposit/compensation")
        return self._toolbox.call(asked)

    def probe(self, tool: str, arguments: dict[str, Json] | None = None, **facts: Any) -> ProbeReply:
        """Ask a probe."""
        return self._toolbox.probe(invocation(tool, arguments, **facts))


@contextmanager
def project(folder: Path, text: str, **given: Any) -> Iterator[Project]:
    """Make a project whose `plugins/shop.yaml` is *text*."""
    (folder / "plugins").mkdir(exist_ok=True)
    (folder / "plugins" / "shop.yaml").write_text(text, encoding="utf-8")
    made = Project(folder, **given)
    try:
        yield made
    finally:
        made.http.close()


def one_tool(server: str, lines: str, more: str = "") -> str:
    """Return a file with one tool `shop.buy`, made of *lines*."""
    body = "".join(f"    {line}\n" for line in lines.strip().splitlines())
    return f"server: {server}\n{more}tools:\n  shop.buy:\n{body}"
