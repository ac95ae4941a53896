"""What a file of declarations and each tool in it both have, read with places: headers, query, statuses, templates."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Mapping
from typing import Final, TypeAlias

from sagactl.core.template import Template, TemplateSyntaxError
from sagactl.tools.http.declared import Meaning
from sagactl.tools.http.references import REQUEST_ROOTS, parse
from sagactl.written.fields import Fields, kind_of
from sagactl.written.findings import Findings
from sagactl.written.positions import Entry, ListNode, MapNode, Node, Scalar, plain_value
from sagactl.written.visible import quote

PAIRS_MAX: Final = 100
"""Headers, or parameters of a query, in one declaration."""

HEADER_NAME: Final = re.compile(r"[A-Za-z0-9!#$%&'*+.^_`|~-]+", re.ASCII)
OUR_HEADERS: Final = frozenset(
    {"host", "content-length", "transfer-encoding", "connection", "te", "trailer", "upgrade", "expect", "keep-alive"}
    | {"accept-encoding", "proxy-authorization", "proxy-connection", "traceparent"}
)
"""Headers that are sagactl's own business."""

Pairs: TypeAlias = tuple[tuple[str, Template], ...]

_CLASS: Final = re.compile("[1-5]xx")
_STATUSES: Final = range(200, 600)
_REFERENCE_HINT: Final = "`sagactl help http` lists what may stand between ${{ and }}; $${{ is just text"


def read_template(node: Node, roots: Collection[str], findings: Findings) -> Template | None:
    """Return *node* as a template, or None where a text in it can't be read."""
    before = findings.count
    for scalar in _texts(node):
        try:
            parse(scalar.value, roots)
        except TemplateSyntaxError as error:
            findings.error(error.code, str(error), scalar.span, hint=_REFERENCE_HINT)
    return parse(plain_value(node), roots) if findings.count == before else None


def _texts(node: Node) -> Iterator[Scalar]:
    if isinstance(node, Scalar):
        if isinstance(node.value, str):
            yield node
    else:
        for child in node.items if isinstance(node, ListNode) else [entry.node for entry in node.entries]:
            yield from _texts(child)


def read_pairs(fields: Fields, key: str, findings: Findings, roots: Collection[str] = REQUEST_ROOTS) -> Pairs:
    """Return a map of names and values, as headers and a query are."""
    node = fields.map(key)
    if node is None:
        return ()
    if len(node.entries) > PAIRS_MAX:
        findings.error("over-limit", f"{key}: {len(node.entries)} entries; at most {PAIRS_MAX} are allowed", node.span)
        return ()
    found = []
    for entry in node.entries:
        if key == "headers":
            check_header(entry, findings)
        if isinstance(entry.node, MapNode) or (key == "headers" and isinstance(entry.node, ListNode)):
            findings.error(
                "wrong-type", f"{quote(entry.key)} must be a single value, not {kind_of(entry.node)}", entry.span
            )
            continue
        template = read_template(entry.node, roots, findings)
        if template is not None:
            found.append((entry.key, template))
    return tuple(found)


def check_header(entry: Entry, findings: Findings) -> None:
    """Note a header that can't be one, or that isn't for a declaration to set."""
    if not HEADER_NAME.fullmatch(entry.key):
        findings.error("bad-header", f"{quote(entry.key)} is no name of a header", entry.key_span)
    elif entry.key.lower() in OUR_HEADERS:
        findings.error("bad-header", f"the header {entry.key} is set by sagactl itself", entry.key_span)


def read_statuses(fields: Fields, findings: Findings) -> Mapping[int, Meaning]:
    """Return what the statuses that are named mean; a single one counts more than `4xx`."""
    node = fields.map("statuses")
    if node is None:
        return {}
    inner = Fields(node, [str(each) for each in Meaning], "statuses", findings)
    exact: dict[int, Meaning] = {}
    classes: dict[int, Meaning] = {}
    for meaning in Meaning:
        entry = inner.entry(meaning)
        if entry is None:
            continue
        for item in entry.node.items if isinstance(entry.node, ListNode) else [entry.node]:
            for status, is_class in read_status(item, findings):
                known = classes if is_class else exact
                if known.setdefault(status, meaning) is not meaning:
                    findings.error("exclusive-keys", f"{status} means {known[status]} already", item.span)
    return {**classes, **exact}


def read_status(node: Node, findings: Findings) -> list[tuple[int, bool]]:
    """Return the statuses that `404` or `4xx` names, each with whether it was named by its class."""
    value = node.value if isinstance(node, Scalar) else None
    if isinstance(value, int) and not isinstance(value, bool) and value in _STATUSES:
        return [(value, False)]
    if isinstance(value, str) and _CLASS.fullmatch(value) and value[0] != "1":
        first = int(value[0]) * 100
        return [(status, True) for status in range(first, first + 100)]
    hint = "write a number from 200 to 599, or a class such as 4xx"
    findings.error("bad-status", f"{kind_of(node)} is no status", node.span, hint=hint)
    return []
