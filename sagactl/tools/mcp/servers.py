"""All servers of a project: their tools, their pins, their connections.

Nothing here starts a server before a call, or an operator, needs it; the library of the protocol, which takes most of a
second to import, waits until then as well.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import field, replace
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from sagactl.core.records import ToolChange
from sagactl.dataclass import dataclass
from sagactl.errors import InvalidError, NotFoundError, StorageError
from sagactl.once import once_property
from sagactl.tools.mcp.describe import describe_server
from sagactl.tools.mcp.lock import LOCK_FILE, Lock, PinnedServer, compare_servers, read_lock, write_lock
from sagactl.tools.mcp.names import NOTE_NAME
from sagactl.tools.mcp.settings import BadServerError, Server, read_servers
from sagactl.tools.plugin import BrokenPlugin, Loaded

if TYPE_CHECKING:
    from sagactl.tools.mcp.connection import Connection, Host
    from sagactl.tools.shell.processes import Processes

LOOKED_AT_MAX: Final = 8
"""Servers that are started at once to be looked at."""

INSTALL: Final = "pip install 'sagactl[mcp]'"


@dataclass(frozen=True, slots=True)
class Look:
    """What a server says of its tools, beside what is pinned; `present` is None where it can't be reached.

    `status` is `new`, `same`, `changed`, `unreachable`, or `removed` for one that the settings don't name any more.
    """

    name: str
    status: str
    pinned: PinnedServer | None = None
    present: PinnedServer | None = None
    changes: Mapping[str, tuple[ToolChange, ...]] = field(default_factory=dict)
    error: str | None = None
    needs_secret: bool = False
    """Whether it can't be reached because one of its secrets can't be had."""


class McpServers:
    """The servers in the table `[mcp]`.

    Args:
        table: The table as it was read.
        project: The folder of the project.
        processes: What starts programs, and ends them.
        resolve: Returns the value of a secret; raises SecretError.
    """

    def __init__(
        self,
        table: Mapping[str, Any],
        *,
        project: Path,
        processes: Processes,
        resolve: Callable[[str], str],
    ) -> None:
        self._project = project
        self._processes = processes
        self._resolve = resolve
        self._place = str(project / "sagactl.toml")
        self.bad: dict[str, BadServerError] = {}
        """Servers whose settings can't be taken, by name."""
        self.servers: dict[str, Server] = {}
        for name, found in read_servers(table):
            if isinstance(found, Server):
                self.servers[name] = found
            else:
                self.bad[name] = found
        self._connections: dict[str, Connection] = {}

    @property
    def lock_file(self) -> Path:
        """Return the file of the pins."""
        return self._project / "plugins" / LOCK_FILE

    @once_property
    def lock(self) -> Lock:
        """What is pinned; raises InvalidError."""
        return read_lock(self.lock_file)

    def load(self) -> list[Loaded | BrokenPlugin]:
        """Return the tools of all servers, and what of them can't be used; starts none."""
        found: list[Loaded | BrokenPlugin] = [
            BrokenPlugin(name, self._place, 0, f"[mcp.{name}]: {error}") for name, error in self.bad.items()
        ]
        try:
            lock = self.lock
        except InvalidError as error:
            return [*found, *(self._break_lock(name, error.message) for name in self.servers)]
        for name, server in self.servers.items():
            found += self._load_server(server, lock.get(name))
        return found

    def _break_lock(self, name: str, message: str) -> BrokenPlugin:
        return BrokenPlugin(name, str(self.lock_file), 0, message, remedy="sagactl tools pin")

    def _load_server(self, server: Server, pinned: PinnedServer | None) -> list[Loaded | BrokenPlugin]:
        if pinned is None:
            remedy = f"sagactl tools pin {server.name}"
            return [BrokenPlugin(server.name, self._place, 0, f"its tools aren't pinned: `{remedy}`", remedy=remedy)]
        if find_spec("mcp") is None:
            message = f"the library of the protocol isn't installed: {INSTALL}"
            return [BrokenPlugin(server.name, self._place, 0, message)]
        connection = self.connect(server.name, pinned)
        return list(describe_server(server, pinned, connection, place=self._place, lock=str(self.lock_file)))

    def connect(self, name: str, pinned: PinnedServer | None = None) -> Connection:
        """Return the connection to a server, which is made when it is used; raises NotFoundError, InvalidError."""
        from sagactl.tools.mcp.connection import Connection

        if name in self.bad:
            raise InvalidError(f"[mcp.{name}]: {self.bad[name]}", code="invalid-config", hint="sagactl help mcp")
        if name not in self.servers:
            raise NotFoundError(f"no server {name} in [mcp]", code="no-such-server", hint="sagactl help mcp")
        made = Connection(self.servers[name], pinned or PinnedServer(), self._host)
        return self._connections.setdefault(
            name, made
        )  # it opens nothing before it is used, so one too many is no loss

    def move(self, copy: Path) -> None:
        """Start all servers of this process in *copy* in place of the project, from the next time on."""
        from sagactl.tools.mcp.elsewhere import move_server

        for name, connection in self._connections.items():
            connection.move(move_server(self.servers[name], self._project, copy))

    def look(self, names: Sequence[str] = ()) -> list[Look]:
        """Return what the servers say of their tools now, all of them or those of the *names*.

        Starts servers. Raises NotFoundError for a name that isn't in the settings, InvalidError.
        """
        for name in names:
            self.connect(name)
        if names:
            return self._look_at_all(names, self.lock)
        try:
            lock = self.lock
        except InvalidError as error:  # all of it is to be pinned anew, and that is a change to be agreed to
            vars(self)["lock"] = {}
            damage = (ToolChange(LOCK_FILE, "", error.message, None),)
            looks = self._look_at_all(sorted(self.known), {})
            return [replace(look, status="changed", changes={"": damage}) if look.present else look for look in looks]
        removed = [Look(name, "removed", pinned) for name, pinned in lock.items() if name not in self.known]
        return [*self._look_at_all(sorted(self.known), lock), *removed]

    def _look_at_all(self, names: Sequence[str], lock: Lock) -> list[Look]:
        """Look at servers at once: each may take its time to start."""
        from concurrent.futures import ThreadPoolExecutor

        with ThreadPoolExecutor(LOOKED_AT_MAX) as threads:
            return list(threads.map(lambda name: self._look_at(name, lock), names))

    @property
    def known(self) -> set[str]:
        """Return the names of all servers in the settings, those that can't be taken included."""
        return self.servers.keys() | self.bad.keys()

    def _look_at(self, name: str, lock: Lock) -> Look:
        from sagactl.tools.mcp.connection import NotReachedError

        pinned = lock.get(name)
        if find_spec("mcp") is None:
            return Look(name, "unreachable", pinned, error=f"the library of the protocol isn't installed: {INSTALL}")
        try:
            present = self.connect(name).list_tools()
        except NotReachedError as error:
            return Look(name, "unreachable", pinned, error=str(error), needs_secret=error.code == "missing_secret")
        except InvalidError as error:
            return Look(name, "unreachable", pinned, error=str(error))
        if pinned is None:
            return Look(name, "new", None, present)
        changes = compare_servers(pinned, present)
        return Look(name, "changed" if changes else "same", pinned, present, changes)

    def pin(self, looks: Sequence[Look]) -> Path:
        """Write down what was looked at, beside what is pinned already, and return the file; raises StorageError."""
        lock = dict(self.lock)
        for look in looks:
            if look.present is not None:
                lock[look.name] = look.present
            elif look.status == "removed":
                lock.pop(look.name, None)
        try:
            self.lock_file.parent.mkdir(parents=True, exist_ok=True)
            part = self.lock_file.with_name(f"{LOCK_FILE}.{os.getpid()}")
            part.write_text(write_lock(lock), encoding="utf-8")
            part.replace(self.lock_file)
        except OSError as error:
            raise StorageError(f"{self.lock_file} can't be written: {error.strerror}") from error
        return self.lock_file

    @once_property
    def _host(self) -> Host:
        from sagactl.tools.mcp.connection import Host
        from sagactl.tools.mcp.loop import LoopThread

        return Host(LoopThread(), self._processes, self._project, self._resolve)

    def end_orphans(self) -> None:
        """End servers that drivers which are gone left running; raises BusyError where one can't be ended (E17)."""
        self._processes.end_abandoned(NOTE_NAME)

    def close(self) -> None:
        """End all connections, and the servers that are processes of ours."""
        if "_host" not in vars(self):
            return
        for connection in self._connections.values():
            connection.close()
        self._host.loop.close()
