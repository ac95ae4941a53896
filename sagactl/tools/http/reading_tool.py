"""One tool of a file of declarations: what it sends, what the answer means, and what it promises."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from datetime import timedelta
from typing import Final

from sagactl.core.canonical import Json, digest
from sagactl.core.keys import TOOL_NAME
from sagactl.core.template import Reference, Template, TemplateSyntaxError, Text, parse_template, references
from sagactl.dataclass import dataclass
from sagactl.tools.api import Declaration
from sagactl.tools.http.conditions import Condition, parse_condition
from sagactl.tools.http.declared import (
    IDEMPOTENT_METHODS,
    SAFE_METHODS,
    AnswerKind,
    Finding,
    HttpDeclaration,
    Meaning,
    Reply,
    Request,
    Server,
)
from sagactl.tools.http.fields import Pairs, read_status, read_statuses, read_template
from sagactl.tools.http.reading_request import REQUEST_KEYS, Key, read_request
from sagactl.tools.http.references import ANSWER_ROOTS
from sagactl.tools.http.schemas import SCHEMA_KEYS, read_schemas
from sagactl.written.fields import Fields, Placed
from sagactl.written.findings import Findings
from sagactl.written.positions import Entry, ListNode, MapNode, Scalar, plain_value
from sagactl.written.visible import quote

RETENTION_MS: Final = range(1_000, 3_650 * 86_400_000 + 1)
"""How long a server may remember a key."""

ANSWER_KEYS: Final = ("answer", "output", "statuses", "done", "not_done")
PROMISE_KEYS: Final = ("idempotent", "null_safe", "late_safe", "read_only", "chaos_safe", "key_retention")
PAIR_KEYS: Final = ("compensation", "compensation_with", "probe")
TOOL_KEYS: Final = ("description", *REQUEST_KEYS, *SCHEMA_KEYS, *ANSWER_KEYS, *PROMISE_KEYS, *PAIR_KEYS)


@dataclass(frozen=True, slots=True)
class Shared:
    """What a file says for all its tools."""

    server: Server | None
    headers: Pairs
    query: Pairs
    statuses: Mapping[int, Meaning]


def read_tool(entry: Entry, node: MapNode, shared: Shared, findings: Findings) -> HttpDeclaration | None:
    """Return the tool of *entry*, or None where it can't be made; what is wrong is noted."""
    if not TOOL_NAME.fullmatch(entry.key):
        hint = "a name is `system.verb`: small letters, digits, _ and -"
        findings.error("bad-name", f"{quote(entry.key)} can't be the name of a tool", entry.key_span, hint=hint)
    fields = Fields(node, TOOL_KEYS, f"the tool {quote(entry.key)}", findings)
    fields.require("request", entry.key_span)
    is_read_only = _is_read_only(fields)
    read = read_request(
        fields,
        findings,
        server=shared.server,
        headers=shared.headers,
        query=shared.query,
        is_read_only=is_read_only,
    )
    reply = _read_reply(fields, shared, findings)
    request = None if read is None else read[0]
    schemas = read_schemas(fields, request, findings)
    promises = _read_promises(entry, fields, findings, is_read_only=is_read_only)
    description = fields.text("description")
    if read is None or request is None:
        return None
    _check_url(request, fields, findings)
    if promises.null_safe:
        _check_null_safe(request, fields, findings)
    line, _ = findings.source.place(entry.key_span.start)
    declaration = replace(
        promises,
        idempotent=promises.idempotent
        if fields.entry("idempotent") is not None
        else _is_idempotent(request, read[1], is_read_only=is_read_only),
        version=f"sha256:{digest([plain_value(node), _write_shared(shared)])[:16]}",
        arguments_schema=schemas.arguments,
        output_schema=schemas.output,
        secrets=_secrets_of(request),
    )
    said = "" if description is None else " ".join(description.value.split())
    return HttpDeclaration(request, reply, declaration, said, line, schemas.defaults)


def _is_read_only(fields: Fields) -> bool:
    given = fields.flag("read_only")
    if given is not None:
        return given.value
    written = fields.entry("request")
    line = written.node.raw if written is not None and isinstance(written.node, Scalar) else ""
    return line.strip().split(" ")[0] in SAFE_METHODS or fields.entry("done") is not None


def _check_url(request: Request, fields: Fields, findings: Findings) -> None:
    """Refuse secrets where an argument says where the request goes: whoever chooses it would get them."""
    written = fields.entry("request")
    if request.url is None or written is None:
        return
    if request.query:
        message = "the URL is an argument, so its query is a part of it; headers and a body may be given"
        findings.error("exclusive-keys", message, written.span)
    if _secrets_of(request):
        message = "the URL is an argument, and the request holds a secret: whoever chooses the URL would get it"
        findings.error("secret-to-anybody", message, written.span, hint="write the host into the request")


def _secrets_of(request: Request) -> tuple[str, ...]:
    return tuple(dict.fromkeys(str(found.path[1]) for found in all_references(request) if found.path[0] == "secrets"))


def all_references(request: Request) -> Iterator[Reference]:
    """Yield each reference of a request, in all its places."""
    templates = [*request.segments, *(value for _, value in (*request.query, *request.headers))]
    if request.body is not None:
        templates.append(request.body)
    if request.url is not None:
        yield request.url
    for template in templates:
        yield from (found for found in references(template) if isinstance(found, Reference))


def _read_reply(fields: Fields, shared: Shared, findings: Findings) -> Reply:
    kind = fields.choice("answer", AnswerKind)
    output = fields.entry("output")
    template = None if output is None else read_template(output.node, ANSWER_ROOTS, findings)
    statuses = {**shared.statuses, **read_statuses(fields, findings)}
    done = _read_finding(fields, "done", findings, frozenset(range(200, 300)))
    not_done = _read_finding(fields, "not_done", findings, frozenset({404}))
    entry = fields.entry("not_done")
    if not_done is not None and done is None and entry is not None:
        findings.error("missing-key", "not_done is given without done", entry.key_span)
    if done is not None and not_done is None:
        not_done = Finding(frozenset({404}), None)
    return Reply(AnswerKind.JSON if kind is None else kind.value, template, statuses, done, not_done)


def _read_finding(fields: Fields, key: str, findings: Findings, statuses: frozenset[int]) -> Finding | None:
    inner = fields.fields(key, ("status", "if"), key)
    if inner is None:
        return None
    status = inner.entry("status")
    if status is not None:
        items = status.node.items if isinstance(status.node, ListNode) else [status.node]
        statuses = frozenset(number for item in items for number, _ in read_status(item, findings))
    condition = inner.text("if")
    return Finding(statuses, None if condition is None else _read_condition(condition, findings))


def _read_condition(written: Placed[str], findings: Findings) -> Condition | None:
    try:
        return parse_condition(written.value)
    except TemplateSyntaxError as error:
        findings.error(error.code, str(error), written.span)
        return None


def _read_promises(entry: Entry, fields: Fields, findings: Findings, *, is_read_only: bool) -> Declaration:
    """Return what the declaration promises in words; the rest is filled in from the request."""
    retention = fields.duration("key_retention", RETENTION_MS[0], RETENTION_MS[-1])
    return Declaration(
        name=entry.key,
        compensation=_read_partner(fields, "compensation", findings),
        compensation_with=_read_compensation_with(fields, findings),
        probe=_read_partner(fields, "probe", findings),
        idempotent=_flag(fields, "idempotent"),
        null_safe=_flag(fields, "null_safe"),
        late_safe=_flag(fields, "late_safe"),
        key_retention=None if retention is None else timedelta(milliseconds=retention.value),
        read_only=is_read_only,
        chaos_safe=_flag(fields, "chaos_safe"),
    )


def _is_idempotent(request: Request, key: Key, *, is_read_only: bool) -> bool:
    """Tell whether a second call has no second effect where nothing is said: as its method has it (RFC 9110).

    A POST may have one, whatever header it bears: only the author knows whether the server heeds it, and says so by
    `idempotent`, by `key`, or by putting `${{ key }}` where the server wants it.
    """
    bears_key = key.is_given or any(found.path[0] == "key" for found in all_references(request))
    return request.method in IDEMPOTENT_METHODS or is_read_only or bears_key


def _flag(fields: Fields, key: str) -> bool:
    given = fields.flag(key)
    return given is not None and given.value


def _check_null_safe(request: Request, fields: Fields, findings: Findings) -> None:
    """A compensation without its action's output has no arguments to make a path of."""
    entry = fields.entry("null_safe")
    in_path = [
        found.text
        for template in request.segments
        for found in references(template)
        if isinstance(found, Reference) and found.path[0] == "args"
    ]
    if in_path and entry is not None:
        message = f"null_safe: without the action's output there is no {in_path[0]} for the path"
        hint = "find the effect by ${{ forward_key }}, or leave null_safe out and give the action a probe"
        findings.error("not-null-safe", message, entry.key_span, hint=hint)


def _read_partner(fields: Fields, key: str, findings: Findings) -> str | None:
    given = fields.text(key)
    if given is None:
        return None
    if not TOOL_NAME.fullmatch(given.value):
        findings.error("bad-name", f"{key}: {quote(given.value)} can't be the name of a tool", given.span)
    return given.value


def _read_compensation_with(fields: Fields, findings: Findings) -> Mapping[str, Json] | None:
    node = fields.map("compensation_with")
    if node is None:
        return None
    for entry in node.entries:
        try:
            parse_template(plain_value(entry.node))
        except TemplateSyntaxError as error:
            findings.error(error.code, str(error), entry.span)
    if fields.entry("compensation") is None:
        findings.error("missing-key", "compensation_with is given without a compensation", node.span)
    value = plain_value(node)
    return value if isinstance(value, dict) else None


def _write_shared(shared: Shared) -> Json:
    """Return what all tools share, as the version of each of them counts it."""
    server = None if shared.server is None else shared.server.origin + shared.server.base
    pairs: list[Json] = [[name, _spell(value)] for name, value in (*shared.headers, *shared.query)]
    return [server, pairs, {str(status): str(meaning) for status, meaning in shared.statuses.items()}]


def _spell(template: Template) -> str:
    if isinstance(template, Text):
        return "".join(part if isinstance(part, str) else f"${{{{ {part.text} }}}}" for part in template.parts)
    return repr(template)
