"""Files of declarations, from their text to tools, or to all that is wrong with them, each with its place.

A tool that is declared wrongly breaks only itself; what is wrong with the file, or with what all its tools share,
breaks them all. Nothing is called, fetched or evaluated.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import replace
from typing import Final, cast

from sagactl.core.canonical import Json
from sagactl.dataclass import dataclass
from sagactl.tools.http.declared import HttpDeclaration, Server
from sagactl.tools.http.fields import read_pairs, read_statuses
from sagactl.tools.http.reading_tool import Shared, read_tool
from sagactl.tools.http.schemas import admit_gone
from sagactl.tools.http.urls import BadUrlError, read_server
from sagactl.written.fields import Fields, kind_of
from sagactl.written.findings import Findings
from sagactl.written.positions import Entry, MapNode, Node, read_yaml
from sagactl.written.problem import Problem
from sagactl.written.source import Source, decode
from sagactl.written.visible import quote

TOOLS_MAX: Final = 1_000
"""Tools in one file."""

FILE_KEYS: Final = ("description", "headers", "query", "server", "statuses", "tools")


@dataclass(frozen=True, slots=True)
class Broken:
    """Tools that can't be used, and why; the text is for showing the problems in it."""

    names: tuple[str, ...]
    problems: tuple[Problem, ...]
    source_text: str


@dataclass(frozen=True, slots=True)
class Declared:
    """What a file declares."""

    description: str
    tools: tuple[HttpDeclaration, ...]
    broken: tuple[Broken, ...]


def read_file(raw: bytes, *, file: str, server: str | None = None) -> Declared:
    """Read a file of declarations; *server* is where the operator's settings send its requests instead."""
    source, unreadable = decode(raw, file, "tool file")
    findings = Findings(source)
    root: Node | None = None
    if unreadable is not None:
        findings.error(unreadable.code, unreadable.message, unreadable.span, hint=unreadable.hint)
    else:
        root = read_yaml(source, findings)
    if not isinstance(root, MapNode):
        if root is not None:
            findings.error("wrong-type", f"a file of tools is a map, not {kind_of(root)}", root.span)
        return Declared("", (), (Broken((), findings.sorted(), source.text),))
    return _read_root(root, source, findings, server)


def _read_root(root: MapNode, source: Source, findings: Findings, server: str | None) -> Declared:
    fields = Fields(root, FILE_KEYS, "a file of tools", findings)
    fields.require("tools", root.span)
    description = fields.text("description")
    shared = Shared(
        server=_read_server(fields, findings, server),
        headers=read_pairs(fields, "headers", findings),
        query=read_pairs(fields, "query", findings),
        statuses=read_statuses(fields, findings),
    )
    tools = fields.map("tools")
    entries = () if tools is None else tools.entries
    if len(entries) > TOOLS_MAX and tools is not None:
        message = f"{len(entries)} tools; at most {TOOLS_MAX} are allowed in a file"
        findings.error("over-limit", message, tools.span, hint="put the tools into several files")
    said = "" if description is None else description.value
    if findings.has_errors:
        names = tuple(entry.key for entry in entries)
        return Declared(said, (), (Broken(names, findings.sorted(), source.text),))
    read = [_read_entry(entry, source, shared) for entry in entries]
    good = [each for each in read if isinstance(each, HttpDeclaration)]
    undoing = {each.declaration.compensation for each in good}
    return Declared(
        said,
        tuple(_admit_gone(each, undoing) for each in good),
        tuple(each for each in read if isinstance(each, Broken)),
    )


def _admit_gone(tool: HttpDeclaration, undoing: Collection[str | None]) -> HttpDeclaration:
    """Let a tool that undoes say so where there is nothing to undo."""
    declaration = tool.declaration
    if tool.request.method != "DELETE" and declaration.name not in undoing:
        return tool
    schema = admit_gone(cast("Mapping[str, Json]", declaration.output_schema))
    return replace(tool, declaration=replace(declaration, output_schema=schema))


def _read_entry(entry: Entry, source: Source, shared: Shared) -> HttpDeclaration | Broken:
    findings = Findings(source)
    tool = None
    if isinstance(entry.node, MapNode):
        tool = read_tool(entry, entry.node, shared, findings)
    else:
        message = f"{quote(entry.key)} must be a map, not {kind_of(entry.node)}"
        findings.error("wrong-type", message, entry.span, hint="`sagactl help http` shows what a tool is made of")
    if tool is None or findings.has_errors:
        return Broken((entry.key,), findings.sorted(), source.text)
    return tool


def _read_server(fields: Fields, findings: Findings, server: str | None) -> Server | None:
    written = fields.text("server")
    if server is not None:
        return read_server(server)  # of the settings, which were checked
    if written is None:
        return None
    try:
        return read_server(written.value)
    except BadUrlError as error:
        findings.error("bad-url", f"server: {error}", written.span)
        return None


def spell_problems(problems: tuple[Problem, ...]) -> str:
    """Return what is wrong in one line: the first problem, and how many more there are."""
    errors = [problem for problem in problems if problem.severity == "error"]
    if not errors:
        return "it can't be read"
    more = f" (and {len(errors) - 1} more)" if len(errors) > 1 else ""
    hint = f"; {errors[0].hint}" if errors[0].hint else ""
    return f"{errors[0].message}{hint}{more}"
