"""Declared tools as functions that are called, and the connections they share."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import urljoin

from sagactl.core.canonical import Json
from sagactl.hashing import sha256
from sagactl.tools.api import DECLARATIONS, CallContext, CannotTell, Done, NotDone, Rejected, Unavailable
from sagactl.tools.convert import bound_line, keep_raw
from sagactl.tools.http.answers import (
    BadAnswerError,
    fits,
    make_answer_scope,
    pick_output,
    read_body,
    read_raw,
    read_retry_after,
    say_answer,
)
from sagactl.tools.http.declared import AnswerKind, HttpDeclaration, Meaning
from sagactl.tools.http.policy import Destination, object_to_address, object_to_host, read_address
from sagactl.tools.http.reading import Broken, read_file, spell_problems
from sagactl.tools.http.requests import Prepared, describe_target, make_scope, prepare
from sagactl.tools.http.schemas import ALREADY_GONE
from sagactl.tools.http.settings import HttpSettings, read_settings
from sagactl.tools.http.statuses import RETRY_AFTER, judge_status
from sagactl.tools.kind import Unsure
from sagactl.tools.loading import BrokenPlugin, Loaded, Plugin
from sagactl.written.report import render_problems

if TYPE_CHECKING:
    from sagactl.tools.http.transport import PooledTransport, Received

SUFFIX: Final = ".yaml"
CHECK_SUFFIX: Final = ".check.yaml"
"""Files for `sagactl tools check`, which declare nothing."""

ERROR_BYTES_MAX: Final = 65_536
"""How much is read of an answer that is no success."""

EARLY_SECONDS: Final = 0.2
"""How long before the deadline of a call its own waiting ends, so that it is told why."""

MISSING_LIBRARY: Final = "HTTP tools need httpx: pip install 'sagactl[http]'"


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
        folder = self._folder / "plugins"
        try:
            names = sorted(os.listdir(folder))  # noqa: PTH208 - names are all that is wanted, at each start
        except OSError:
            return
        for name in names:
            if name.endswith(SUFFIX) and not name.endswith(CHECK_SUFFIX) and not name.startswith(("_", ".")):
                yield from self._load_file(folder / name)

    def _load_file(self, file: Path) -> Iterator[Loaded | BrokenPlugin]:
        name = file.name.removesuffix(SUFFIX)
        try:
            raw = file.read_bytes()
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
    line = broken.problems[0].line if broken.problems else 1
    shown = render_problems(broken.problems, broken.source_text)
    return BrokenPlugin(name, file, line or 1, bound_line(spell_problems(broken.problems)), broken.names, shown)


class HttpTool:
    """A declared tool, to be called as any function with `@tool` is."""

    def __init__(self, tool: HttpDeclaration, home: HttpTools, file: str) -> None:
        request = tool.request
        where = f"{request.method} " + ("" if request.server is None else request.server.origin)
        self._tool = tool
        self._home = home
        self.__doc__ = tool.description or f"{request.written}, at {where.split(' ')[1] or 'the URL given'}"
        self.__sagactl_place__ = (file, tool.line)
        setattr(self, DECLARATIONS, (tool.declaration,))

    def __call__(self, sagactl_call: CallContext, **arguments: Any) -> object:
        """Make the request, and say what its answer means (E3)."""
        prepared = prepare(self._tool, sagactl_call, arguments)
        received = self._exchange(prepared, sagactl_call)
        scope = make_scope(self._tool, sagactl_call, arguments)
        if self._tool.reply.is_probe:
            return self._answer_probe(received, scope)
        return self._judge(prepared, received, scope, is_undo=sagactl_call.direction == "compensation")

    def _exchange(self, prepared: Prepared, context: CallContext) -> Received:
        """Send, and follow redirects where the declaration lets it; raises Rejected, Unavailable, Unsure."""
        received = self._send(prepared, context)
        left = self._tool.request.redirects_max
        while left and 300 <= received.status < 400 and (place := received.header("location")):
            prepared = _follow(prepared, place)
            received, left = self._send(prepared, context), left - 1
        return received

    def _send(self, prepared: Prepared, context: CallContext) -> Received:
        objection = self._object(prepared.destination)
        if objection is not None:
            raise Rejected(objection, code="blocked")
        try:
            import httpx

            from sagactl.tools.http.network import Blocked, Bounds, Hurdle
            from sagactl.tools.http.transport import exchange

            transport = self._home.transport()
        except ImportError:
            raise Unavailable(MISSING_LIBRARY, code="missing_library") from None
        request = httpx.Request(prepared.method, prepared.url, headers=list(prepared.headers), content=prepared.body)
        seconds = context.seconds_left()
        bounds = Bounds(prepared.destination, max(seconds - EARLY_SECONDS, seconds / 2), context.cancelled)
        try:
            return exchange(transport, request, bounds, body_bytes_max=self._home.settings.answer_bytes_max)
        except Blocked as error:
            raise Rejected(str(error), code=error.code) from None
        except Hurdle as error:
            if not bounds.has_sent:
                raise Unavailable(f"{error}; nothing was sent", code=error.code) from None
            raise Unsure(f"{describe_target(prepared)}: {error}", code=error.code) from None

    def _object(self, destination: Destination) -> str | None:
        """Return why the destination may not be asked, as far as its name tells."""
        settings = self._home.settings
        objection = object_to_host(destination, settings)
        address = read_address(destination.host)
        if objection is not None or settings.proxy is None or address is None:
            return objection
        return object_to_address(address, destination, settings)  # behind a proxy nobody else would look

    def _judge(self, prepared: Prepared, received: Received, scope: Mapping[str, Json], *, is_undo: bool) -> object:
        reply, declaration = self._tool.reply, self._tool.declaration
        meaning = judge_status(
            received.status,
            reply.statuses,
            has_key=prepared.has_key,
            is_undo=is_undo,
            is_read_only=declaration.read_only,
        )
        if meaning is Meaning.SUCCEEDED and is_undo and received.status >= 400:
            return ALREADY_GONE
        if meaning is Meaning.SUCCEEDED:
            return self._read_output(prepared, received, scope)
        message, code = f"{describe_target(prepared)} {_say(received)}", f"http_{received.status}"
        after = read_retry_after(received) if received.status in RETRY_AFTER else None
        if meaning is Meaning.REJECTED:
            raise Rejected(message, code=code)
        if meaning is Meaning.UNAVAILABLE:
            raise Unavailable(message, retry_after=after, code=code)
        raise Unsure(message, code=code, raw=keep_raw(read_raw(received)), retry_after=after)

    def _read_output(self, prepared: Prepared, received: Received, scope: Mapping[str, Json]) -> Json:
        """Return the output of a call that took effect; an answer that can't be read leaves it in doubt."""
        reply = self._tool.reply
        what = f"{describe_target(prepared)} answered {received.status}, but"
        if received.trouble is not None and reply.kind is not AnswerKind.NONE:
            raise Unsure(f"{what} {received.trouble}", code=received.trouble.code, raw=_keep(received))
        try:
            body = read_body(received, reply.kind)
            return pick_output(reply, body, make_answer_scope(received, body, scope))
        except BadAnswerError as error:
            raise Unsure(f"{what} {error}", code="bad_answer", raw=_keep(received)) from None

    def _answer_probe(self, received: Received, scope: Mapping[str, Json]) -> object:
        reply = self._tool.reply
        if received.trouble is not None:
            return CannotTell(f"answered {received.status}, but {received.trouble}")
        try:
            body = None if received.status >= 300 else read_body(received, reply.kind)
            inner = make_answer_scope(received, body, scope)
            if fits(reply.done, received.status, inner):
                return Done(pick_output(reply, body, inner))
        except BadAnswerError as error:
            return CannotTell(str(error))
        if fits(reply.not_done, received.status, inner):
            return NotDone()
        return CannotTell(f"{_say(received)}; that is neither what `done` says nor what `not_done` says")


def _say(received: Received) -> str:
    """Return what came back, for a person."""
    place = received.header("location")
    if 300 <= received.status < 400 and place is not None:
        return f"answered {received.status} with another place, {_hide_query(place)}: redirects are not followed"
    return say_answer(received)


def _hide_query(url: str) -> str:
    return bound_line(url.partition("?")[0].partition("#")[0], 120)


def _keep(received: Received) -> Json:
    return keep_raw(read_raw(received)) if received.body else None


def _follow(prepared: Prepared, place: str) -> Prepared:
    """Return the request to where a redirect leads; raises Rejected where that is another server."""
    from dataclasses import replace
    from urllib.parse import urlsplit

    url = urljoin(prepared.url, place)
    if urlsplit(url)[:2] != urlsplit(prepared.url)[:2]:
        raise Rejected(f"redirected to another server, {_hide_query(url)}, which is not followed", code="redirect")
    return replace(prepared, url=url.partition("#")[0])
