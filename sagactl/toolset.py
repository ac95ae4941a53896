"""The tools of a project, of every kind, put together when they are first asked for.

Kinds of tools don't know of each other. This is the one place that chooses which there are, and closes what they keep
open: processes, connections, servers.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import TYPE_CHECKING

from sagactl.errors import StorageError
from sagactl.once import once_property

if TYPE_CHECKING:
    from sagactl.config import Config
    from sagactl.secrets.vault import Vault
    from sagactl.tools.built_in import BuiltIn
    from sagactl.tools.http.kinds import HttpTools
    from sagactl.tools.invoke import PluginToolbox
    from sagactl.tools.isolated.caller import IsolatedCaller
    from sagactl.tools.isolated.rules import IsolationRules
    from sagactl.tools.mcp.servers import McpServers
    from sagactl.tools.plugin import BrokenPlugin, Loaded
    from sagactl.tools.registry import Registry


class ToolSet:
    """The tools of the program, the project and the installed plugins; any thread may ask for them.

    Args:
        config: Where the plugins are, and which may be loaded.
        given: Functions with `@tool` that the program itself has.
    """

    def __init__(self, config: Config, given: tuple[Callable[..., object], ...]) -> None:
        self._config = config
        self._given = given
        self.watch_import: Callable[[str], AbstractContextManager[None]] = lambda _: nullcontext()
        """What is around the import of each plugin, by its name."""

    @once_property
    def registry(self) -> Registry:
        """All tools, and all that is wrong with them."""
        from sagactl.tools.given import check_described
        from sagactl.tools.registry import collect_tools

        folder = self._config.project / "plugins"
        found = collect_tools(
            folder if folder.is_dir() else None,
            allowed=self._config.plugins,
            given=self._given,
            built_in=[self.built_in.load()],
            declared=self._load_declared(),
            watch=self.watch_import,
            place=self._isolation.place,
        )
        return check_described(found, self._given)

    @once_property
    def _isolation(self) -> IsolationRules:
        from sagactl.tools.isolated.rules import read_rules

        return read_rules(self._config.isolation)

    @once_property
    def built_in(self) -> BuiltIn:
        """The tools that are always there; their commands under way are noted beside the log."""
        from sagactl.log.holder import read_boot_id
        from sagactl.tools.built_in import BuiltIn

        return BuiltIn(self._config.calls, read_boot_id, _make_private)

    def _load_declared(self) -> list[Loaded | BrokenPlugin]:
        """Return the tools that are declared and not written in Python, and what is wrong with them."""
        from sagactl.tools.http.files import find_files

        of_servers = () if self.servers is None else self.servers.load()
        of_files = self.http.load() if find_files(self._config.project / "plugins") else ()
        return [*of_servers, *of_files]

    @once_property
    def servers(self) -> McpServers | None:
        """The servers of the Model Context Protocol that the settings name; None where they name none."""
        if self._config.mcp is None:
            return None
        from sagactl.tools.mcp.servers import McpServers

        return McpServers(
            self._config.mcp,
            project=self._config.project,
            processes=self.built_in.processes,
            resolve=self.vault.resolve,
        )

    @once_property
    def http(self) -> HttpTools:
        """The tools that are declared as requests, in files of `plugins/`."""
        from sagactl.tools.http.kinds import HttpTools

        return HttpTools(self._config.http, self._config.project)

    @once_property
    def toolbox(self) -> PluginToolbox:
        """The tools as the engine calls them."""
        from sagactl.tools.invoke import PluginToolbox

        return PluginToolbox(self.registry, self._end_orphans, self.vault, isolated=lambda: self._isolated)

    def _end_orphans(self, run_id: str) -> None:
        self.built_in.end_orphans(run_id)
        if self.servers is not None:
            self.servers.end_orphans()

    @once_property
    def _isolated(self) -> IsolatedCaller:
        from sagactl.tools.isolated.caller import IsolatedCaller

        return IsolatedCaller(self.built_in.processes, self._isolation)

    @once_property
    def vault(self) -> Vault:
        """The secrets that sagas may name, resolved when a call needs them."""
        from sagactl.secrets.vault import Vault

        return Vault(self._config.secrets)

    def move_servers(self, copy: Path) -> None:
        """Start servers in *copy*, which stands for the project's folder in this process."""
        if self.servers is not None:
            self.servers.move(copy)

    def why_missing(self, tool: str) -> tuple[str, str | None] | None:
        """Return what keeps *tool* from being used, its plugin is broken, or two give it, and what mends that."""
        broken = self.registry.find_broken(tool)
        return None if broken is None else (str(broken), broken.remedy)

    def close(self) -> None:
        """Let go of what calls needed."""
        if "servers" in vars(self) and self.servers is not None:
            self.servers.close()
        if "built_in" in vars(self):
            self.built_in.close()
        if "http" in vars(self):
            self.http.close()


def _make_private(folder: Path) -> None:
    """Make the folder of calls as the log makes its own: a server may be started where there is no log yet."""
    from sagactl.log.file_system import make_private_folder

    try:
        make_private_folder(folder)
    except StorageError as error:
        raise OSError(error.message) from error
