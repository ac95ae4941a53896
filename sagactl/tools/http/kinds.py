"""Declared tools as functions that are called, and the connections they share."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from sagactl.core.saga import FILE_BYTES_MAX
from sagactl.errors import NotFoundError
from sagactl.hashing import sha256
from sagactl.regular_file import find_descriptor, read_given, read_regular
from sagactl.tools.api import DECLARATIONS, PLACE, CallContext
from sagactl.tools.convert import bound_line
from sagactl.tools.http.declared import HttpDeclaration
from sagactl.tools.http.files import SUFFIX, find_files
from sagactl.tools.http.library import guard_library, is_installed
from sagactl.tools.http.reading import Broken, read_file, spell_problems
from sagactl.tools.http.settings import HttpSettings, read_settings
from sagactl.tools.plugin import BrokenPlugin, Loaded, Plugin

if TYPE_CHECKING:
    from sagactl.tools.http.openapi_writing import Imported
    from sagactl.tools.http.transport import PooledTransport


class HttpTools:
    """The declared tools of one project, and their connections; any thread may call them.

    Args:
        table: `[http]` of the settings; read when it is needed, raises InvalidError then.
        folder: The project's folder.
        resolve: Looks host names up; the system by default.
    """

    def __init__(
        self,
        table: Mapping[str, Any] | None,
        folder: Path,
        resolve: Callable[[str, int], list[str]] | None = None,
    ) -> None:
        self._table = table
        self._folder = folder
        self._resolve = resolve
        self._lock = threading.Lock()
        self._transport: tuple[int, PooledTransport] | None = None
        self._settings: HttpSettings | None = None

    @property
    def settings(self) -> HttpSettings:
        """What the operator says of HTTP tools; raises InvalidError."""
        if self._settings is None:
            self._settings = read_settings(self._table, self._folder)
        return self._settings

    def load(self) -> Iterator[Loaded | BrokenPlugin]:
        """Read each file of declarations in `plugins/`."""
        for file in find_files(self._folder / "plugins"):
            yield from self._load_file(file)

    def _load_file(self, file: Path) -> Iterator[Loaded | BrokenPlugin]:
        name = file.name.removesuffix(SUFFIX)
        try:
            raw = read_regular(file, FILE_BYTES_MAX)
        except OSError as error:
            yield BrokenPlugin(name, str(file), 1, f"can't be read: {error.strerror}")
            return
        declared = read_file(raw, file=str(file), server=self.settings.servers.get(name))
        for broken in declared.broken:
            yield _break(name, str(file), broken)
        version = f"sha256:{sha256(raw).hexdigest()[:16]}"
        plugin = Plugin(name, "project", str(file), version, description=declared.description)
        if declared.tools:
            yield Loaded(plugin, tuple(HttpTool(each, self, str(file)) for each in declared.tools))

    def import_openapi(self, file: Path, *, only: Sequence[str] = (), server: str | None = None) -> Imported:
        """Return declarations made of a description in OpenAPI, `-` for stdin; raises InvalidError, NotFoundError."""
        from sagactl.tools.http.openapi_reading import DESCRIPTION_BYTES_MAX, DESCRIPTION_SECONDS_MAX
        from sagactl.tools.http.openapi_writing import import_openapi

        number = find_descriptor(file)
        shown = str(file) if number is None else "a pipe" if number else "stdin"
        try:
            raw = read_given(file, DESCRIPTION_BYTES_MAX, seconds_max=DESCRIPTION_SECONDS_MAX)
        except OSError as error:
            raise NotFoundError(f"{shown} can't be read: {error.strerror}", code="no-such-file") from None
        name, stem = (file.name, file.stem) if number is None else (shown, "")
        return import_openapi(raw, file=name, stem=stem, only=only, server=server)

    def lacks_library(self) -> bool:
        """Tell whether there are declarations, and nothing to send their requests with."""
        return bool(find_files(self._folder / "plugins")) and not is_installed()

    def transport(self) -> PooledTransport:
        """Return the connections of this process; a process that was forked has its own."""
        from sagactl.tools.http.transport import PooledTransport

        with self._lock:
            if self._transport is None or self._transport[0] != os.getpid():
                self._transport = os.getpid(), PooledTransport(self.settings, self._resolve)
            return self._transport[1]

    def close(self) -> None:
        """Close what calls opened."""
        with self._lock:
            if self._transport is not None and self._transport[0] == os.getpid():
                self._transport[1].close()
            self._transport = None


def _break(name: str, file: str, broken: Broken) -> BrokenPlugin:
    from sagactl.written.report import render_problems

    line = broken.problems[0].line if broken.problems else 1
    shown = render_problems(broken.problems, broken.source_text)
    return BrokenPlugin(name, file, line or 1, bound_line(spell_problems(broken.problems)), broken.names, shown)


class HttpTool:
    """A declared tool, to be called as any function with `@tool` is."""

    def __init__(self, tool: HttpDeclaration, home: HttpTools, file: str) -> None:
        request = tool.request
        where = "" if request.server is None else f", at {request.server.origin}"
        self._tool = tool
        self._home = home
        self.__doc__ = tool.description or f"{request.written}{where}"
        setattr(self, PLACE, (file, tool.line))
        setattr(self, DECLARATIONS, (replace(tool.declaration, guard=guard_library),))

    def __call__(self, sagactl_call: CallContext, **arguments: Any) -> object:
        """Make the request, and say what its answer means (E3)."""
        from sagactl.tools.http.calling import Calling

        return Calling(self._tool, self._home, sagactl_call, arguments).run()
