"""From a declaration and the arguments of a call to what is sent: each value encoded as its place wants it.

A value can't become another part of the request. In a path it is percent-encoded, and a segment that would lead
elsewhere is refused; in a query it is a value; in a header a line break is refused; JSON and forms have their own ways.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Final
from urllib.parse import quote, quote_plus, urlsplit

from sagactl.core.canonical import Json, canonical
from sagactl.core.template import ExpressionError, Template
from sagactl.dataclass import dataclass
from sagactl.tools.api import CallContext, Rejected
from sagactl.tools.http.declared import BodyKind, HttpDeclaration, Request
from sagactl.tools.http.policy import Destination
from sagactl.tools.http.references import Missing, as_text, look_up, render
from sagactl.tools.http.urls import URL_LENGTH_MAX, BadUrlError, find_port, is_dots, split_url

BODY_BYTES_MAX: Final = 4_194_304
HEADERS_BYTES_MAX: Final = 65_536
USER_AGENT: Final = "sagactl"

_FIELD_VALUE: Final = re.compile(r"[\x20-\x7e\t]*")
_SAFE_IN_PATH: Final = "-._~!$'()*,:@"
_CONTENT_TYPES: Final = {
    BodyKind.JSON: "application/json",
    BodyKind.FORM: "application/x-www-form-urlencoded",
    BodyKind.TEXT: "text/plain; charset=utf-8",
}


@dataclass(frozen=True, slots=True)
class Prepared:
    """A request ready to be sent."""

    method: str
    url: str
    destination: Destination
    headers: tuple[tuple[str, str], ...]
    body: bytes
    has_key: bool


def prepare(tool: HttpDeclaration, context: CallContext, arguments: Mapping[str, Json]) -> Prepared:
    """Return what is sent for a call; raises Rejected where the arguments don't make a request."""
    scope = make_scope(tool, context, arguments)
    try:
        return _prepare(tool.request, context, scope)
    except (ExpressionError, BadUrlError) as error:
        raise Rejected(str(error), code="bad_arguments") from None


def make_scope(tool: HttpDeclaration, context: CallContext, arguments: Mapping[str, Json]) -> dict[str, Json]:
    """Return what the references of a request may lead to."""
    given: dict[str, Json] = {**{name: _as_json(value) for name, value in tool.defaults.items()}, **arguments}
    call: dict[str, Json] = {
        "run_id": context.run_id,
        "step": context.step,
        "item": context.item,
        "direction": context.direction,
        "attempt": context.attempt,
        "tool": context.tool,
        "traceparent": context.traceparent,
    }
    return {
        "args": given,
        "key": context.idempotency_key,
        "forward_key": context.forward_key,
        "context": call,
        "secrets": {name: context.secrets[name] for name in tool.declaration.secrets},
    }


def _as_json(value: object) -> Json:
    from sagactl.tools.convert import write_json

    return write_json(value)


def _prepare(request: Request, context: CallContext, scope: Mapping[str, Json]) -> Prepared:
    url, destination = _write_url(request, scope)
    body = _write_body(request, scope)
    if len(body) > BODY_BYTES_MAX:
        raise Rejected(f"the body has {len(body)} bytes; at most {BODY_BYTES_MAX} are sent", code="request_too_large")
    headers = _write_headers(request, context, scope)
    if len(url) > URL_LENGTH_MAX or sum(len(name) + len(value) for name, value in headers) > HEADERS_BYTES_MAX:
        raise Rejected("the URL or the headers are larger than any server would take", code="request_too_large")
    return Prepared(request.method, url, destination, headers, body, request.key_header is not None)


def _write_url(request: Request, scope: Mapping[str, Json]) -> tuple[str, Destination]:
    if request.url is not None:
        url = as_text(look_up(request.url, scope), request.url.text)
        parts = split_url(url)
        return url, Destination(str(parts.hostname), find_port(parts), is_declared=False)
    server = request.server
    assert server is not None, "a request has a server, or its URL is an argument"
    path = "".join("/" + _write_segment(each, scope) for each in request.segments) or ("" if server.base else "/")
    query = "&".join(_write_parameters(request.query, scope))
    url = f"{server.origin}{server.base}{path}" + (f"?{query}" if query else "")
    return url, Destination(server.host, server.port, is_declared=True)


def _write_segment(template: Template, scope: Mapping[str, Json]) -> str:
    from sagactl.core.template import Literal, Reference, Text

    if isinstance(template, Literal):
        return str(template.value)
    parts = template.parts if isinstance(template, Text) else (template,)
    written = ""
    for part in parts:
        if isinstance(part, str):
            written += part
        elif isinstance(part, Reference):
            written += quote(as_text(look_up(part, scope), part.text), safe=_SAFE_IN_PATH)
    if not written or is_dots(written):
        raise BadUrlError(f"the path would lead elsewhere: a part of it would be {written or 'nothing'!r}")
    return written


def _write_parameters(query: tuple[tuple[str, Template], ...], scope: Mapping[str, Json]) -> list[str]:
    found = []
    for name, template in query:
        value = render(template, scope)
        if value is None or isinstance(value, Missing):
            continue
        values = value if isinstance(value, list) else [value]
        found += [f"{quote_plus(name)}={quote_plus(as_text(each, name))}" for each in values]
    return found


def _write_headers(request: Request, context: CallContext, scope: Mapping[str, Json]) -> tuple[tuple[str, str], ...]:
    given = [
        (name, as_text(value, f"the header {name}"))
        for name, template in request.headers
        if (value := render(template, scope)) is not None and not isinstance(value, Missing)
    ]
    names = {name.lower() for name, _ in given}
    if request.key_header is not None and request.key_header.lower() not in names:
        key = context.idempotency_key
        given.append((request.key_header, _write_quoted(key) if request.is_key_quoted else key))
    usual = {"accept": "application/json", "user-agent": USER_AGENT, "traceparent": context.traceparent}
    if request.body_kind is not None:
        usual["content-type"] = _CONTENT_TYPES[request.body_kind]
    usual["accept-encoding"] = "gzip"
    given += [(name, value) for name, value in usual.items() if name not in names and value]
    for name, value in given:
        if not _FIELD_VALUE.fullmatch(value):
            raise Rejected(f"the header {name} would hold characters that no header may have", code="bad_arguments")
    return tuple((name, value.strip()) for name, value in given)


def _write_quoted(key: str) -> str:
    """Return the key as a string of structured fields, as the IETF draft has it."""
    return '"' + key.replace("\\", "\\\\").replace('"', '\\"') + '"'


def _write_body(request: Request, scope: Mapping[str, Json]) -> bytes:
    if request.body is None:
        return b""
    value = render(request.body, scope)
    if isinstance(value, Missing):
        return b""
    if request.body_kind is BodyKind.JSON:
        return canonical(value).encode()
    if request.body_kind is BodyKind.TEXT:
        return as_text(value, "the body").encode()
    assert isinstance(value, dict), "a form is a map"
    return "&".join(_write_fields(value)).encode()


def _write_fields(form: Mapping[str, Json]) -> list[str]:
    return [
        f"{quote_plus(name)}={quote_plus(as_text(each, name))}"
        for name, value in form.items()
        if value is not None
        for each in (value if isinstance(value, list) else [value])
    ]


def describe_target(prepared: Prepared) -> str:
    """Return method and host, for a message: path and query may hold what isn't for everybody's eyes."""
    return f"{prepared.method} {urlsplit(prepared.url).netloc}"
