"""One call of a declared tool: the request is made and sent, and what comes back is judged."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Final
from urllib.parse import urljoin, urlsplit

from sagactl.core.canonical import Json
from sagactl.tools.api import CallContext, CannotTell, Done, NotDone, Rejected, Unavailable
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
from sagactl.tools.http.library import MISSING_LIBRARY
from sagactl.tools.http.policy import Destination, object_to_address, object_to_host, read_address
from sagactl.tools.http.requests import Prepared, describe_target, make_scope, prepare
from sagactl.tools.http.schemas import ALREADY_GONE
from sagactl.tools.http.statuses import RETRY_AFTER, judge_status
from sagactl.tools.kind import Unsure

if TYPE_CHECKING:
    from sagactl.tools.http.kinds import HttpTools
    from sagactl.tools.http.transport import Received

EARLY_SECONDS: Final = 0.2
"""How long before the deadline of a call its own waiting ends, so that it is told why."""


class Calling:
    """A call that is made: its tool, whose connections it uses, and what it was given."""

    def __init__(
        self, tool: HttpDeclaration, home: HttpTools, context: CallContext, arguments: Mapping[str, Json]
    ) -> None:
        self._tool = tool
        self._home = home
        self._context = context
        self._arguments = arguments

    def run(self) -> object:
        """Return the output, or what a probe found; raises Rejected, Unavailable, Unsure."""
        prepared = prepare(self._tool, self._context, self._arguments)
        received = self._exchange(prepared)
        scope = make_scope(self._tool, self._context, self._arguments)
        if self._tool.reply.is_probe:
            return self._answer_probe(received, scope)
        return self._judge(prepared, received, scope)

    def _exchange(self, prepared: Prepared) -> Received:
        """Send, and follow redirects where the declaration lets it."""
        received = self._send(prepared)
        left = self._tool.request.redirects_max
        while left and 300 <= received.status < 400 and (place := received.header("location")):
            prepared = _follow(prepared, place)
            received, left = self._send(prepared), left - 1
        return received

    def _send(self, prepared: Prepared) -> Received:
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
        try:
            request = httpx.Request(
                prepared.method, prepared.url, headers=list(prepared.headers), content=prepared.body
            )
        except (httpx.InvalidURL, ValueError) as error:
            raise Rejected(f"no request can be made of this URL: {error}", code="bad_arguments") from None
        seconds = self._context.seconds_left()
        bounds = Bounds(prepared.destination, max(seconds - EARLY_SECONDS, seconds / 2), self._context.cancelled)
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

    def _judge(self, prepared: Prepared, received: Received, scope: Mapping[str, Json]) -> object:
        reply, declaration = self._tool.reply, self._tool.declaration
        is_undo = self._context.direction == "compensation"
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
        message, code = f"{describe_target(prepared)} {self._say(received)}", f"http_{received.status}"
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
            body = read_raw(received) if received.status >= 300 else read_body(received, reply.kind)
            inner = make_answer_scope(received, body, scope)
            if fits(reply.done, received.status, inner):
                return Done(pick_output(reply, body, inner))
        except BadAnswerError as error:
            return CannotTell(str(error))
        if fits(reply.not_done, received.status, inner):
            return NotDone()
        return CannotTell(f"{self._say(received)}; that is neither what `done` says nor what `not_done` says")

    def _say(self, received: Received) -> str:
        """Return what came back, for a person."""
        place, followed_max = received.header("location"), self._tool.request.redirects_max
        if not 300 <= received.status < 400 or place is None:
            return say_answer(received)
        why = f"more than {followed_max} redirects" if followed_max else "redirects are not followed"
        return f"answered {received.status} with another place, {_hide_query(place)}: {why}"


def _hide_query(url: str) -> str:
    return bound_line(url.partition("?")[0].partition("#")[0], 120)


def _keep(received: Received) -> Json:
    return keep_raw(read_raw(received)) if received.body else None


def _follow(prepared: Prepared, place: str) -> Prepared:
    """Return the request to where a redirect leads; raises Rejected where that is another server."""
    url = urljoin(prepared.url, place)
    if urlsplit(url)[:2] != urlsplit(prepared.url)[:2]:
        raise Rejected(f"redirected to another server, {_hide_query(url)}, which is not followed", code="redirect")
    return replace(prepared, url=url.partition("#")[0])
