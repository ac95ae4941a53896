"""What a tool sends, from the line `POST /leads/${{ args.lead_id }}?notify=1` and the keys around it."""

from __future__ import annotations

import re
from typing import Final
from urllib.parse import unquote_plus

from sagactl.core.template import Literal, Reference, Template, TemplateSyntaxError, Text
from sagactl.dataclass import dataclass
from sagactl.tools.http.declared import KEY_HEADER, METHODS, BodyKind, Request, Server
from sagactl.tools.http.fields import HEADER_NAME, OUR_HEADERS, Pairs, read_pairs, read_template
from sagactl.tools.http.references import REQUEST_ROOTS, parse
from sagactl.tools.http.urls import BadUrlError, check_path, read_server
from sagactl.written.fields import Fields, Placed
from sagactl.written.findings import Findings
from sagactl.written.positions import MapNode, Scalar
from sagactl.written.visible import quote

REDIRECTS_MAX: Final = 5
BODY_KEYS: Final = tuple(str(kind) for kind in BodyKind)
REQUEST_KEYS: Final = ("request", "query", "headers", *BODY_KEYS, "key", "redirects")
"""The keys of a tool that say what is sent."""

_LINE: Final = re.compile(rf"({'|'.join(METHODS)})\s+(\S.*?)\s*", re.ASCII)
_ANY_LINE: Final = re.compile(r"([A-Za-z]+)\s+\S.*", re.ASCII)
_ABSOLUTE: Final = re.compile(r"(https?://[^/?${}]+)(.*)", re.ASCII | re.DOTALL)
_BRACES: Final = re.compile(r"(\$?\$\{\{.*?\}\})", re.DOTALL)
_PATH_ROOTS: Final = REQUEST_ROOTS - {"secrets"}
_HINT: Final = "write request: POST /leads, or request: GET https://host/path/${{ args.id }}"


@dataclass(frozen=True, slots=True)
class Line:
    """What the line of a request says."""

    method: str
    server: Server | None
    segments: tuple[Template, ...]
    url: Reference | None
    query: Pairs


@dataclass(frozen=True, slots=True)
class Key:
    """Which header bears the idempotency key, if one does; *is_given* where the declaration says so in words."""

    header: str | None
    is_quoted: bool
    is_given: bool


def read_request(
    fields: Fields, findings: Findings, *, server: Server | None, headers: Pairs, query: Pairs, is_read_only: bool
) -> tuple[Request, Key] | None:
    """Return what is sent, with what the file says for all its tools."""
    written = fields.text("request", hint=_HINT)
    line = None if written is None else _read_line(written, server, findings)
    own_headers, own_query = read_pairs(fields, "headers", findings), read_pairs(fields, "query", findings)
    kind, body = _read_body(fields, findings)
    key = _read_key(fields, findings)
    redirects = fields.count("redirects", REDIRECTS_MAX)
    if line is None or written is None:
        return None
    if redirects is not None and line.method != "GET":
        findings.error("bad-choice", "only a GET may follow redirects: another method may act twice", redirects.span)
    if body is not None and line.method in {"GET", "HEAD"}:
        findings.error("bad-choice", f"a {line.method} has no body", written.span)
    names = {name.lower() for name, _ in own_headers}
    request = Request(
        method=line.method,
        server=line.server,
        segments=line.segments,
        url=line.url,
        query=(*query, *line.query, *own_query),
        headers=(*((name, value) for name, value in headers if name.lower() not in names), *own_headers),
        body_kind=kind,
        body=body,
        key_header=None if is_read_only and not key.is_given else key.header,
        is_key_quoted=key.is_quoted,
        redirects_max=0 if redirects is None else redirects.value,
        written=written.value.strip(),
    )
    return request, key


def _read_line(written: Placed[str], server: Server | None, findings: Findings) -> Line | None:
    found = _LINE.fullmatch(written.value.strip())
    if found is None:
        other = _ANY_LINE.fullmatch(written.value.strip())
        wrong = f"{quote(other[1])} is no method: {', '.join(METHODS)}" if other else "a method and a URL are wanted"
        findings.error("bad-request", f"request: {wrong}", written.span, hint=_HINT)
        return None
    try:
        return _read_target(found[1], found[2], server)
    except BadUrlError as error:
        findings.error("bad-url", f"request: {error}", written.span, hint=_HINT)
    except TemplateSyntaxError as error:
        findings.error(error.code, f"request: {error}", written.span)
    return None


def _read_target(method: str, target: str, server: Server | None) -> Line:
    absolute = _ABSOLUTE.fullmatch(target)
    if absolute is not None:
        server, target = read_server(absolute[1]), absolute[2]
    elif not target.startswith("/"):
        whole = parse(target, _PATH_ROOTS)
        if isinstance(whole, Reference) and whole.path[0] == "args" and len(whole.path) > 1:
            return Line(method, None, (), whole, ())
        raise BadUrlError("the URL begins with / or https://, or it is one argument as a whole")
    if server is None:
        raise BadUrlError("it begins with /, and the file names no server")
    path, _, query = _partition(target, "?")
    segments = tuple(_read_segment(each) for each in _split_outside(path.removeprefix("/"), "/"))
    return Line(method, server, () if not path else segments, None, tuple(_read_parameters(query)))


def _read_segment(text: str) -> Template:
    template = parse(text, _PATH_ROOTS)
    fixed = (
        [template.value]
        if isinstance(template, Literal)
        else list(template.parts)
        if isinstance(template, Text)
        else []
    )
    for part in fixed:
        if isinstance(part, str):
            check_path(part)
    return template


def _read_parameters(query: str) -> list[tuple[str, Template]]:
    found = []
    for pair in _split_outside(query, "&") if query else []:
        name, _, value = _partition(pair, "=")
        if "${{" in name or not name:
            raise BadUrlError("the name of a parameter is fixed text")
        found.append((unquote_plus(name), _decode(parse(value, REQUEST_ROOTS))))
    return found


def _decode(template: Template) -> Template:
    """Return the template with its fixed text decoded, since all of it is encoded when it is sent."""
    if isinstance(template, Literal):
        return Literal(unquote_plus(str(template.value)))
    if isinstance(template, Text):
        return Text(tuple(unquote_plus(part) if isinstance(part, str) else part for part in template.parts))
    return template


def _partition(text: str, separator: str) -> tuple[str, str, str]:
    first, *rest = _split_outside(text, separator, splits_max=1)
    return first, separator if rest else "", rest[0] if rest else ""


def _split_outside(text: str, separator: str, *, splits_max: int = -1) -> list[str]:
    """Split *text* where *separator* stands outside of braces."""
    parts = [""]
    for index, piece in enumerate(_BRACES.split(text)):
        if index % 2:
            parts[-1] += piece
            continue
        left = -1 if splits_max < 0 else splits_max - (len(parts) - 1)
        first, *rest = piece.split(separator, left) if left else [piece]
        parts[-1] += first
        parts += rest
    return parts


def _read_body(fields: Fields, findings: Findings) -> tuple[BodyKind | None, Template | None]:
    given = [(kind, entry) for kind in BodyKind if (entry := fields.entry(kind)) is not None]
    if not given:
        return None, None
    kind, entry = given[0]
    for _, other in given[1:]:
        message = f"a request has one body: {entry.key} or {other.key}"
        findings.error("exclusive-keys", message, other.key_span, first=entry.key_span)
    is_map = isinstance(entry.node, MapNode)
    if kind is BodyKind.FORM and not is_map:
        fields.refuse(entry, "a map of fields")
    if kind is BodyKind.TEXT and not (isinstance(entry.node, Scalar) and isinstance(entry.node.value, str)):
        fields.refuse(entry, "text")
    return kind, read_template(entry.node, REQUEST_ROOTS, findings)


def _read_key(fields: Fields, findings: Findings) -> Key:
    entry = fields.entry("key")
    if entry is None:
        return Key(KEY_HEADER, is_quoted=False, is_given=False)
    if isinstance(entry.node, Scalar) and entry.node.raw == "none":
        return Key(None, is_quoted=False, is_given=False)
    if not isinstance(entry.node, MapNode):
        fields.refuse(entry, "none, or a map", "write key: none, or key: {header: Idempotency-Key}")
        return Key(None, is_quoted=False, is_given=False)
    inner = Fields(entry.node, ("header", "quoted"), "key", findings)
    header, quoted = inner.text("header"), inner.flag("quoted")
    name = KEY_HEADER if header is None else header.value
    if not HEADER_NAME.fullmatch(name) or name.lower() in OUR_HEADERS:
        findings.error("bad-header", f"{quote(name)} can't bear the key", entry.span)
    return Key(name, is_quoted=quoted is not None and quoted.value, is_given=True)
