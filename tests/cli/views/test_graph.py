"""`sagactl graph`: text for people, Mermaid and DOT that parse whatever steps and tools are called."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from dataclasses import replace

import pytest

from sagactl.cli.views.graph import Picture, draw, draw_run, render_dot, render_graph, render_mermaid, write_graph
from sagactl.cli.views.spelling import spell
from sagactl.cli.views.style import Style
from sagactl.cli.views.text import width_of
from sagactl.core.saga import Saga, StepClass
from sagactl.core.state import RunState
from sagactl.core.summary import step_rows
from tests.cli.views.scripted import onboarding, step
from tests.cli.views.situations import SITUATIONS
from tests.cli.views.test_golden import GOLDEN, STYLES, _compare
from tests.cli.views.test_plan import chain

KEYWORDS = (
    *("end", "graph", "subgraph", "style", "class", "click", "default", "linkstyle", "flowchart"),
    *("node", "edge", "digraph", "strict", "o", "x"),
)
HOSTILE = 'a.b"]; %% ${{}} <script> #quot; \\ \x1b[2J\n\u202e {{ | `md`'


def _wide() -> Picture:
    steps = [step(f"s{n}", "crm.create_lead", undo="crm.archive_lead") for n in range(9)]
    last = step("join", "mail.send", needs=tuple(each.id for each in steps), none="sent", when="${{ input.x }}")
    return draw(onboarding(steps=(*steps, last)))


def _keywords() -> Picture:
    steps = tuple(
        step(word, "mail.send", undo="crm.archive_lead", needs=KEYWORDS[place - 1 : place] if place else ())
        for place, word in enumerate(KEYWORDS)
    )
    return draw(onboarding(steps=(*steps[:-1], replace(steps[-1], klass=StepClass.PIVOT, compensation=None))))


def _hostile() -> Picture:
    picture = draw(onboarding())
    nodes = tuple(replace(node, tool=HOSTILE, undo=HOSTILE) for node in picture.nodes)
    return Picture(HOSTILE, HOSTILE, nodes)


def _run(name: str) -> Picture:
    stage = SITUATIONS[name]()
    return draw_run(stage.saga, stage.state)


PICTURES: dict[str, Callable[[], Picture]] = {
    "onboarding": lambda: draw(onboarding()),
    "many side by side": _wide,
    "words of the languages": _keywords,
    "hostile names": _hostile,
    "a chain": lambda: draw(chain(3)),
    "a run that failed": lambda: _run("rolled_back"),
    "a run that is stuck": lambda: _run("undo_failed"),
    "a run with items": lambda: _run("many_items"),
}
STRING = r'"(?:[^"\\\x00-\x1f]|\\["\\n])*"'
FILL = r'fillcolor="#[0-9a-f]{6}", color="#[0-9a-f]{6}"'
DOT_LINE = re.compile(
    rf"digraph {STRING} \{{|\}}|    node \[shape=box\];"
    rf"|    {STRING} \[label={STRING}(?:, shape=octagon, penwidth=3)?"
    rf'(?:, style=filled, {FILL}|, style="rounded,dashed")?\];'
    rf"|    {STRING} -> {STRING}(?: \[style=dotted\])?;"
)
LABEL = r'"(?:[A-Za-z0-9 ._-]|#\d+;|<br/>)*"'
MERMAID_LINE = re.compile(
    rf"%% saga [ -~]*|flowchart TD|    step_\w+(?:\[{LABEL}\]|\{{\{{{LABEL}\}}\}})|    undo_\w+\(\[{LABEL}\]\)"
    r"|    step_\w+ --> step_\w+|    step_\w+ -\.-> undo_\w+|    style step_\w+ stroke-width:4px"
    r"|    class step_\w+ is_\w+|    classDef is_\w+ fill:#[0-9a-f]{6},stroke:#[0-9a-f]{6},color:#1f2328",
    re.ASCII,
)


@pytest.mark.parametrize("kind", STYLES)
def test_each_graph_is_as_it_was_reviewed(kind: str) -> None:
    """Text, Mermaid and DOT of each picture read as the golden file says."""
    parts = []
    for name, make in PICTURES.items():
        text = render_graph(make(), STYLES[kind])
        others = [] if kind else [render_mermaid(make()), render_dot(make())]
        parts.append("\n\n".join([f"==== {name}\n{text}", *others]) + "\n")
    _compare(GOLDEN / f"graph{kind}.txt", "\n".join(parts))


@pytest.mark.parametrize("name", PICTURES)
def test_every_line_is_one_of_the_language(name: str) -> None:
    """No name of a saga, step or tool can begin another statement, in either language."""
    for line in render_mermaid(PICTURES[name]()).splitlines():
        assert MERMAID_LINE.fullmatch(line), line
    for line in render_dot(PICTURES[name]()).splitlines():
        assert DOT_LINE.fullmatch(line), line


@pytest.mark.parametrize("name", PICTURES)
def test_every_need_is_an_edge_and_every_undo_a_dotted_one(name: str) -> None:
    """F7: what a step needs is drawn as an arrow, what undoes it hangs on a dotted one."""
    picture = PICTURES[name]()
    needs = sum(len(node.needs) for node in picture.nodes)
    undos = sum(node.undo is not None for node in picture.nodes)
    mermaid, dot = render_mermaid(picture), render_dot(picture)
    assert (mermaid.count(" --> "), mermaid.count(" -.-> ")) == (needs, undos)
    assert (len(re.findall(r'" -> "', dot)), dot.count("style=dotted")) == (needs + undos, undos)
    document = json.loads(spell(write_graph(picture)))["graph"]
    assert (len(document["edges"]), len(document["nodes"])) == (needs, len(picture.nodes))


@pytest.mark.parametrize("width", [40, 60, 80, 132])
def test_no_line_is_wider_than_the_terminal(width: int) -> None:
    """A graph in text fits, whatever the width, and shows nothing raw."""
    for name, make in PICTURES.items():
        text = render_graph(make(), Style(width=width))
        assert not set("\x1b\u202e") & set(text)
        for line in text.splitlines():
            assert width_of(line) <= width, (name, line)


@pytest.mark.parametrize("name", SITUATIONS)
def test_every_status_of_a_run_is_said_in_words(name: str) -> None:
    """Decision: nothing is said by colour alone: each step's status stands in every form of the picture."""
    picture = _run(name)
    assert {node.id for node in picture.nodes} == {row.id for row in step_rows(*_stage_of(name))}
    document = json.loads(spell(write_graph(picture)))["graph"]
    for node, written in zip(picture.nodes, document["nodes"], strict=True):
        assert node.status is not None
        assert written["status"] == node.status.value
        assert node.marks[-1] == node.status.value.replace("_", " ")
        assert f"class step_{node.id} is_{node.status}" in render_mermaid(picture)
    for line in [*render_dot(picture).splitlines(), *render_mermaid(picture).splitlines()]:
        assert DOT_LINE.fullmatch(line) or MERMAID_LINE.fullmatch(line), line


def _stage_of(name: str) -> tuple[Saga, RunState]:
    stage = SITUATIONS[name]()
    return stage.saga, stage.state
