"""`sagactl tools`: what steps can call, by plugin, and one tool with its arguments."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Final, cast

from sagactl.cli.views.layout import GAP, INDENT, Cell, Column, Fact, join_blocks, lay_out, list_facts, list_hints
from sagactl.cli.views.spelling import spell
from sagactl.cli.views.style import Hue, Style
from sagactl.cli.views.text import brief, plural, width_of
from sagactl.cli.views.times import show_rough
from sagactl.core.canonical import Json
from sagactl.core.saga import ToolFacts
from sagactl.dataclass import dataclass
from sagactl.usecases.documents import Document, write_list

TOOLS_SCHEMA: Final = "sagactl.tools/1"
TOOL_SCHEMA: Final = "sagactl.tool/1"
CHOICES_MAX: Final = 8
MEMBERS_MAX: Final = 12

_LIST_COLUMNS: Final = (Column("tool", is_whole=True), Column("undone by"), Column("traits"), Column("what it does"))
_ARGUMENT_COLUMNS: Final = (Column("name", is_whole=True), Column("type"), Column("given"), Column("meaning"))


@dataclass(frozen=True, slots=True)
class ToolRow:
    """A tool as it is shown; `file` and `line` are where its plugin defines it."""

    facts: ToolFacts
    description: str = ""
    file: str = ""
    line: int = 0
    isolated_by: str | None = None
    """Who wants each call in a process of its own, `author` or `operator`; None: nobody does."""


@dataclass(frozen=True, slots=True)
class RefusedRow:
    """A plugin of an installed package that the operator's list doesn't have; it was never imported."""

    plugin: str
    distribution: str
    version: str


@dataclass(frozen=True, slots=True)
class BrokenRow:
    """A plugin, or a part of one, that can't be used, and the tools that can't be called because of it."""

    plugin: str
    file: str
    line: int
    message: str
    tools: tuple[str, ...] = ()
    excerpt: str = ""
    """All that is wrong with a file of declarations, each with its lines."""


def render_tools(
    rows: Sequence[ToolRow], broken: Sequence[BrokenRow] = (), refused: Sequence[RefusedRow] = (), *, style: Style
) -> str:
    """Return all tools by plugin, then what is broken and why, and what may not be loaded."""
    by_plugin: dict[str, list[ToolRow]] = {}
    for row in sorted(rows, key=lambda each: (each.facts.plugin, each.facts.name)):
        by_plugin.setdefault(row.facts.plugin, []).append(row)
    undoes = _find_undone(rows)
    table = [_lay_tool(row, undoes, style) for found in by_plugin.values() for row in found]
    counted = f"{plural(len(rows), 'tool')} in {plural(len(by_plugin), 'plugin')}"
    return join_blocks(
        lay_out(_LIST_COLUMNS, table, style),
        _list_broken(broken, style),
        [style.show(f"not allowed: plugin {each.plugin} of {each.distribution} {each.version}") for each in refused],
        [counted if rows else "no tools: a project's plugins are in its plugins/ folder"],
    )


def _find_undone(rows: Iterable[ToolRow]) -> Mapping[str, list[str]]:
    """Map each compensation to the tools that it undoes."""
    undoes: dict[str, list[str]] = {}
    for row in rows:
        if row.facts.compensation is not None:
            undoes.setdefault(row.facts.compensation, []).append(row.facts.name)
    return undoes


def _lay_tool(row: ToolRow, undoes: Mapping[str, list[str]], style: Style) -> list[Cell | str]:
    facts = row.facts
    return [
        Cell(style.show(facts.name), Hue.COMMAND),
        style.show(facts.compensation or ""),
        style.show(", ".join(_list_traits(facts, undoes))),
        style.show(row.description),
    ]


def _list_traits(facts: ToolFacts, undoes: Mapping[str, list[str]]) -> list[str]:
    traits = [
        ("an undo", facts.name in undoes),
        ("read-only", facts.read_only),
        ("probed", facts.probe is not None),
        ("not idempotent", not facts.idempotent and not facts.read_only),
    ]
    return [word for word, holds in traits if holds]


def _list_broken(broken: Sequence[BrokenRow], style: Style) -> list[str]:
    lines = []
    for each in broken:
        where = f"{each.file}:{each.line}" if each.line else each.file
        lines.append(style.paint(f"broken: {style.show(each.plugin)}", Hue.BAD))
        tools = ", ".join(each.tools)
        lines += list_facts(
            [
                ("at", style.show(where)),
                ("why", "" if each.excerpt else style.show(each.message)),
                ("tools", style.show(tools)),
            ],
            style,
        )
        lines += [f"    {style.show(line)}".rstrip() for line in each.excerpt.splitlines()]
    return lines


def render_tool(row: ToolRow, others: Sequence[ToolRow] = (), *, style: Style) -> str:
    """Return one tool in detail; *others* are all tools, to say which of them it undoes or probes."""
    facts, show = row.facts, style.show
    head = style.paint(show(facts.name), Hue.STRONG)
    return join_blocks(
        [head],
        list_facts([("does", show(row.description)), *_list_relations(row, others, style)], style),
        _list_members("arguments", facts.arguments_schema, style),
        _list_members("output", facts.output_schema, style),
        list_hints(["sagactl tools"], style),
    )


def _list_relations(row: ToolRow, others: Sequence[ToolRow], style: Style) -> list[Fact]:
    facts = row.facts
    undoes = [each.facts.name for each in others if each.facts.compensation == facts.name]
    probes = [each.facts.name for each in others if each.facts.probe == facts.name]
    kept = "" if facts.key_retention_ms is None else f"; keys are kept for {show_rough(facts.key_retention_ms)}"
    again = "the same key has no second effect" if facts.idempotent else "no: a second call is a second effect"
    pairs = [
        ("plugin", f"{facts.plugin}, version {facts.version}"),
        ("class", _say_class(facts)),
        ("undone by", _say_undo(facts)),
        ("undoes", ", ".join(undoes)),
        ("probed by", facts.probe or ""),
        ("probes", ", ".join(probes)),
        ("again", "" if facts.read_only else again + kept),
        ("null-safe", "works without the action's output" if facts.null_safe else ""),
        ("secrets", ", ".join(facts.secrets)),
        ("late-safe", "after it, an action that comes late is refused" if facts.late_safe else ""),
        ("runs in", _say_isolation(row.isolated_by)),
    ]
    return [(label, style.show(text)) for label, text in pairs]


def _say_isolation(by: str | None) -> str:
    if by is None:
        return ""
    wanted = "its author requires it" if by == "author" else "the settings want it"
    return f"a process of its own for each call: {wanted}"


def _say_class(facts: ToolFacts) -> str:
    if facts.read_only:
        return "read-only: there is nothing to undo"
    return "compensable" if facts.compensation else "no compensation of its own"


def _say_undo(facts: ToolFacts) -> str:
    if facts.compensation is None:
        return ""
    given = brief(dict(facts.compensation_with)) if facts.compensation_with else ""
    return facts.compensation + (f", with {given}" if given else "")


def _list_members(title: str, schema: Mapping[str, Json], style: Style) -> list[str]:
    """Return a table of what a schema's object holds; of another schema only its type."""
    members = schema.get("properties")
    head = style.paint(f"{title}", Hue.STRONG)
    if not isinstance(members, dict) or not members:
        kind = _say_type(schema) if schema else "anything"
        return [head, f"  {style.show('none' if title == 'arguments' and schema.get('type') == 'object' else kind)}"]
    required = schema.get("required")
    needed = set(required) if isinstance(required, list) else set()
    rows = [_lay_member(name, member, needed, style) for name, member in members.items()]
    if _is_too_wide(rows, style):
        return [head, *list_facts([_tell_member(row) for row in rows], style)]
    return [head, *lay_out(_ARGUMENT_COLUMNS, rows, style, titles=title == "arguments")]


def _is_too_wide(rows: Sequence[Sequence[Cell]], style: Style) -> bool:
    widths = [max(width_of(row[index].text) for row in rows) for index in range(len(_ARGUMENT_COLUMNS))]
    return len(INDENT) + sum(widths) + len(GAP) * (len(widths) - 1) > style.columns


def _tell_member(row: Sequence[Cell]) -> Fact:
    """Return what a table would have to cut as a sentence that wraps."""
    name, kind, given, meaning = (cell.text for cell in row)
    what = f"{kind}, {given}" if given else kind
    return name, f"{what}: {meaning}" if meaning else what


def _lay_member(name: str, member: Json, needed: set[Json], style: Style) -> list[Cell]:
    facts = member if isinstance(member, dict) else {}
    given = "required" if name in needed else ""
    if "default" in facts:
        given = f"default {spell(facts['default'])}"
    meaning = str(facts.get("description") or "")
    bounds = _say_bounds(facts)
    return [
        Cell(style.show(name), Hue.COMMAND),
        Cell(style.show(_say_type(facts))),
        Cell(style.show(given)),
        Cell(style.show(f"{meaning} ({bounds})" if meaning and bounds else meaning or bounds)),
    ]


def _say_type(schema: Mapping[str, Json]) -> str:
    choices = schema.get("enum")
    if isinstance(choices, list):
        words = [each if isinstance(each, str) else spell(each) for each in choices]
        return " | ".join(words[:CHOICES_MAX]) + (" | ..." if len(words) > CHOICES_MAX else "")
    if "const" in schema:
        return spell(schema["const"])
    for word in ("anyOf", "oneOf"):
        parts = schema.get(word)
        if isinstance(parts, list):
            return " | ".join(_say_type(part) for part in parts if isinstance(part, dict))
    kind = schema.get("type", "any")
    text = " | ".join(_say_kind(each, schema) for each in (kind if isinstance(kind, list) else [kind]))
    inner = schema.get("additionalProperties")
    is_secret = any(isinstance(each, dict) and each.get("writeOnly") is True for each in (schema, inner))
    return f"{text}, secret" if is_secret else text


def _say_kind(kind: Json, schema: Mapping[str, Json]) -> str:
    """Return one of the types of a schema, with the items of an array and the members of an object."""
    items, members = schema.get("items"), schema.get("properties")
    if kind == "array" and isinstance(items, dict) and items:
        return f"array of {_say_type(items)}"
    if kind != "object" or not isinstance(members, dict) or not members:
        return str(kind)
    required = schema.get("required")
    needed = required if isinstance(required, list) else []
    names = [name if name in needed else f"{name}?" for name in members]
    return f"{{{', '.join(names[:MEMBERS_MAX])}{', ...' if len(names) > MEMBERS_MAX else ''}}}"


_BOUNDS: Final = {
    "minimum": "at least",
    "exclusiveMinimum": "more than",
    "maximum": "at most",
    "exclusiveMaximum": "less than",
    "minLength": "length at least",
    "maxLength": "length at most",
    "pattern": "matches",
    "format": "a",
}


def _say_bounds(schema: Mapping[str, Json]) -> str:
    found = [(words, schema[key]) for key, words in _BOUNDS.items() if key in schema]
    return ", ".join(f"{words} {value if isinstance(value, str) else spell(value)}" for words, value in found)


def write_tools(
    rows: Sequence[ToolRow], broken: Sequence[BrokenRow] = (), refused: Sequence[RefusedRow] = ()
) -> Document:
    """Return the document of all tools."""
    document = write_list(TOOLS_SCHEMA, [_write_facts(row) for row in rows])
    items = [
        {
            "plugin": each.plugin,
            "file": each.file,
            "line": each.line or None,
            "message": each.message,
            "tools": list(each.tools),
        }
        for each in broken
    ]
    kept_out: list[Json] = [
        {"plugin": each.plugin, "distribution": each.distribution, "version": each.version} for each in refused
    ]
    return {**document, "broken": cast("list[Json]", items), "not_allowed": kept_out}


def write_tool(row: ToolRow) -> Document:
    """Return the document of one tool."""
    return {"schema": TOOL_SCHEMA, "tool": _write_facts(row), "error": None}


def _write_facts(row: ToolRow) -> Document:
    facts = row.facts
    return {
        "name": facts.name,
        "description": row.description,
        "plugin": facts.plugin,
        "version": facts.version,
        "read_only": facts.read_only,
        "idempotent": facts.idempotent,
        "null_safe": facts.null_safe,
        "late_safe": facts.late_safe,
        "key_retention_ms": facts.key_retention_ms,
        "pending_max_ms": facts.pending_max_ms,
        "secrets": list(facts.secrets),
        "compensation": facts.compensation,
        "compensation_with": None if facts.compensation_with is None else dict(facts.compensation_with),
        "probe": facts.probe,
        "arguments": dict(facts.arguments_schema),
        "output": dict(facts.output_schema),
        "file": row.file or None,
        "line": row.line or None,
        "isolation": "none" if row.isolated_by is None else "process",
        "isolated_by": row.isolated_by,
    }
