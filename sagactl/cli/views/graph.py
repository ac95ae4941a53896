"""`sagactl graph`: the steps of a saga as a picture, in text, Mermaid or DOT.

A `Picture` is what there is to draw, of a saga or of a run, and each renderer draws any picture. Where the steps have a
status it stands in words at each, and in colour besides.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from enum import StrEnum
from typing import Final

from sagactl.cli.views.layout import Cell, Column, join_blocks, lay_out, marked
from sagactl.cli.views.plan import CLASS_WORDS
from sagactl.cli.views.show import STEP_MARKS
from sagactl.cli.views.style import Hue, Style
from sagactl.cli.views.text import plural, safe, wrap
from sagactl.cli.views.words import plain
from sagactl.core.preview import preview
from sagactl.core.records import RunStatus
from sagactl.core.saga import Saga, Step, StepClass
from sagactl.core.state import RunState
from sagactl.core.summary import StepStatus, step_rows, summarize
from sagactl.dataclass import dataclass
from sagactl.usecases.documents import Document

GRAPH_SCHEMA: Final = "sagactl.graph/1"
NEEDS_SHOWN_MAX: Final = 6
"""Needs of one step that the text names; Mermaid, DOT and JSON have all of them."""


class Format(StrEnum):
    """How a graph is written."""

    TEXT = "text"
    MERMAID = "mermaid"
    DOT = "dot"


@dataclass(frozen=True, slots=True)
class Node:
    """A step: when it is called (steps with one number together), what it needs, and what undoes it."""

    id: str
    number: int
    klass: StepClass
    tool: str
    undo: str | None
    needs: tuple[str, ...]
    is_repeated: bool = False
    is_conditional: bool = False
    status: StepStatus | None = None
    """In the picture of a run."""

    @property
    def is_pivot(self) -> bool:
        """Tell whether the step is the point of no return."""
        return self.klass is StepClass.PIVOT

    @property
    def marks(self) -> list[str]:
        """Return the words that are written at the node."""
        words = [("pivot", self.is_pivot), ("for each", self.is_repeated), ("if", self.is_conditional)]
        return [word for word, holds in words if holds] + ([] if self.status is None else [plain(self.status)])


@dataclass(frozen=True, slots=True)
class Picture:
    """A graph of steps, in the order of their calls."""

    name: str
    source: str
    nodes: tuple[Node, ...]
    run_id: str = ""
    run_status: RunStatus | None = None


def draw(saga: Saga) -> Picture:
    """Return the picture of a saga, whatever its input."""
    found = preview(saga)
    nodes = tuple(_draw_node(step, found.numbers[step.id]) for step in found.steps)
    return Picture(saga.name, saga.source or "", nodes)


def draw_run(saga: Saga, state: RunState) -> Picture:
    """Return the picture of a run: its saga, with how each step stands."""
    found: dict[str, list[StepStatus]] = {}
    for row in step_rows(saga, state):
        found.setdefault(row.id, []).append(row.status)
    picture = draw(saga)
    nodes = tuple(replace(node, status=_sum_up(found[node.id])) for node in picture.nodes)
    return replace(picture, nodes=nodes, run_id=state.run_id, run_status=summarize(saga, state).status)


_TELLING: Final = (
    StepStatus.STUCK,
    StepStatus.IN_DOUBT,
    StepStatus.FAILED,
    StepStatus.COMPENSATING,
    StepStatus.RETRYING,
    StepStatus.RUNNING,
    StepStatus.COMPENSATED,
)
"""What one item is, its step is shown as, the first of them."""


def _sum_up(statuses: Sequence[StepStatus]) -> StepStatus:
    """Return the status of a step by those of its items."""
    for status in _TELLING:
        if status in statuses:
            return status
    if StepStatus.PENDING in statuses and StepStatus.SUCCEEDED in statuses:
        return StepStatus.RUNNING
    return next((each for each in (StepStatus.PENDING, StepStatus.SUCCEEDED) if each in statuses), statuses[0])


def _draw_node(step: Step, number: int) -> Node:
    return Node(
        id=step.id,
        number=number,
        klass=step.klass,
        tool=step.action.tool,
        undo=None if step.compensation is None else step.compensation.tool,
        needs=step.needs,
        is_repeated=step.foreach is not None,
        is_conditional=step.when is not None,
    )


_COLUMNS: Final = (
    Column("", to_right=True, is_whole=True),
    Column("", is_whole=True),
    Column("step", columns_min=10),
    Column("status", columns_min=8),
    Column("after"),
    Column("undone by"),
    Column("class"),
)


def render_graph(picture: Picture, style: Style) -> str:
    """Return the graph as text: steps side by side are joined by a bar."""
    counted = f"{style.show(picture.name)}   {_name_source(picture, style)}   {plural(len(picture.nodes), 'step')}"
    rows = [_lay_node(picture.nodes, place, style) for place in range(len(picture.nodes))]
    lines = lay_out(_COLUMNS, rows, style)
    pivot = next((place for place, node in enumerate(picture.nodes) if node.is_pivot), None)
    if pivot is not None:
        last = max(place for place, node in enumerate(picture.nodes) if node.number == picture.nodes[pivot].number)
        words = style.fit("---- the point of no return: below it nothing is undone", style.columns - 2)
        lines.insert(last + 2, f"  {style.paint(words, Hue.ODD)}")
    return join_blocks(wrap(counted, style.columns), lines)


def _name_source(picture: Picture, style: Style) -> str:
    if picture.run_status is None:
        return style.show(picture.source)
    return f"run {style.show(picture.run_id)}, {plain(picture.run_status)}"


def _lay_node(nodes: Sequence[Node], place: int, style: Style) -> list[Cell | str]:
    node = nodes[place]
    is_first = place == 0 or nodes[place - 1].number != node.number
    is_last = place == len(nodes) - 1 or nodes[place + 1].number != node.number
    marks = [mark for mark in replace(node, status=None).marks if mark != "pivot"]
    return [
        Cell(str(node.number) if is_first else "", Hue.DIM),
        Cell(_bar(is_first=is_first, is_last=is_last, style=style), Hue.DIM),
        style.show(node.id),
        "" if node.status is None else marked(STEP_MARKS[node.status], plain(node.status), style),
        style.show(_name_needs(node.needs)),
        style.show(node.undo or "-"),
        Cell(", ".join([CLASS_WORDS[node.klass], *marks]), Hue.ODD if node.is_pivot else Hue.PLAIN),
    ]


def _bar(*, is_first: bool, is_last: bool, style: Style) -> str:
    if not style.unicode:
        return "--" if is_first and is_last else "+-"
    if is_first:
        return "──" if is_last else "┬─"
    return "└─" if is_last else "├─"


def _name_needs(needs: Sequence[str]) -> str:
    more = len(needs) - NEEDS_SHOWN_MAX
    return ", ".join([*needs[:NEEDS_SHOWN_MAX], *([f"{more:,} more"] if more > 0 else [])])


def render_mermaid(picture: Picture) -> str:
    """Return the graph as a Mermaid flowchart; undos hang on dotted edges."""
    lines = [f"%% saga {_comment(picture.name)}", "flowchart TD"]
    for node in picture.nodes:
        before, after = ("{{", "}}") if node.is_pivot else ("[", "]")
        lines.append(f"    step_{node.id}{before}{_label([node.id, node.tool, *node.marks])}{after}")
    lines += [f"    step_{need} --> step_{node.id}" for node in picture.nodes for need in node.needs]
    for node in picture.nodes:
        if node.undo is not None:
            lines.append(f"    undo_{node.id}([{_label([f'undo of {node.id}', node.undo])}])")
            lines.append(f"    step_{node.id} -.-> undo_{node.id}")
    lines += [f"    style step_{node.id} stroke-width:4px" for node in picture.nodes if node.is_pivot]
    lines += [f"    class step_{node.id} is_{node.status}" for node in picture.nodes if node.status is not None]
    for status in sorted({node.status for node in picture.nodes if node.status is not None}):
        fill, stroke = _COLOURS[STEP_MARKS[status].hue]
        lines.append(f"    classDef is_{status} fill:{fill},stroke:{stroke},color:#1f2328")
    return "\n".join(lines)


_COLOURS: Final = {
    Hue.GOOD: ("#d2f4d9", "#1a7f37"),
    Hue.BAD: ("#ffd7d5", "#cf222e"),
    Hue.ODD: ("#fff3c4", "#9a6700"),
    Hue.PLAIN: ("#ddf4ff", "#0969da"),
    Hue.DIM: ("#f0f1f3", "#6e7781"),
}
"""What fills and frames a node, by the colour of its mark."""


def _comment(text: str) -> str:
    return safe(text, is_ascii=True)


def _label(lines: Sequence[str]) -> str:
    return '"' + "<br/>".join(map(_escape_label, lines)) + '"'


def _escape_label(text: str) -> str:
    """Write all but plain characters as Mermaid's `#35;`: a label can't end itself nor hold markup."""
    return "".join(each if each.isascii() and (each.isalnum() or each in " ._-") else f"#{ord(each)};" for each in text)


def render_dot(picture: Picture) -> str:
    """Return the graph in the DOT language; undos hang on dotted edges."""
    lines = [f"digraph {_quote(picture.name)} {{", "    node [shape=box];"]
    for node in picture.nodes:
        shape = ", shape=octagon, penwidth=3" if node.is_pivot else ""
        lines.append(f"    {_quote(node.id)} [label={_quote(node.id, node.tool, *node.marks)}{shape}{_fill(node)}];")
    lines += [f"    {_quote(need)} -> {_quote(node.id)};" for node in picture.nodes for need in node.needs]
    for node in picture.nodes:
        if node.undo is not None:
            undo = _quote(f"undo of {node.id}")
            label = _quote(f"undo of {node.id}", node.undo)
            lines.append(f'    {undo} [label={label}, style="rounded,dashed"];')
            lines.append(f"    {_quote(node.id)} -> {undo} [style=dotted];")
    return "\n".join([*lines, "}"])


def _fill(node: Node) -> str:
    if node.status is None:
        return ""
    fill, stroke = _COLOURS[STEP_MARKS[node.status].hue]
    return f', style=filled, fillcolor="{fill}", color="{stroke}"'


def _quote(*lines: str) -> str:
    r"""Return a string of DOT, its lines joined by `\n`; a backslash of ours would be an escape there."""
    shown = (safe(line, is_ascii=True).replace("\\", "\\\\").replace('"', '\\"') for line in lines)
    return '"' + "\\n".join(shown) + '"'


def write_graph(picture: Picture) -> Document:
    """Return the document of a graph."""
    return {
        "schema": GRAPH_SCHEMA,
        "graph": {
            "saga": picture.name,
            "file": picture.source or None,
            "run": None if picture.run_status is None else {"id": picture.run_id, "status": picture.run_status.value},
            "nodes": [_write_node(node) for node in picture.nodes],
            "edges": [{"from": need, "to": node.id} for node in picture.nodes for need in node.needs],
        },
        "error": None,
    }


def _write_node(node: Node) -> Document:
    return {
        "id": node.id,
        "number": node.number,
        "class": node.klass.value,
        "tool": node.tool,
        "compensation": node.undo,
        "foreach": node.is_repeated,
        "when": node.is_conditional,
        "status": None if node.status is None else node.status.value,
    }
