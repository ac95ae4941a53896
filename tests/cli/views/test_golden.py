"""Golden files: what each view says of each situation, at 80 columns without colour.

`SAGACTL_REWRITE_GOLDEN=1 pytest tests/cli/views` writes them anew; look at the difference as at code.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from sagactl.cli.views.commands import list_decidable
from sagactl.cli.views.consequences import say_consequence
from sagactl.cli.views.dlq import Decided, render_letter, render_letters
from sagactl.cli.views.error import render_error, render_warning
from sagactl.cli.views.live import View, render_live
from sagactl.cli.views.log import LogFilter, render_log
from sagactl.cli.views.progress import Progress
from sagactl.cli.views.report import render_report
from sagactl.cli.views.runs import render_runs
from sagactl.cli.views.sandbox import render_sandbox
from sagactl.cli.views.scene import Scene
from sagactl.cli.views.show import render_run
from sagactl.cli.views.spelling import spell
from sagactl.cli.views.style import Style
from sagactl.cli.views.text import width_of
from sagactl.cli.views.tools import render_tool, render_tools
from sagactl.cli.views.verify import render_verification
from sagactl.core.evolve import replay
from sagactl.core.foresight import Situation, foresee_decision
from sagactl.core.records import Direction, Operation
from sagactl.errors import NotFoundError, StorageError
from sagactl.log.base import Captured, DeadLetter, Finding, Verification
from sagactl.usecases.documents import write_run
from tests.cli.views.plain_values import BROKEN, LEDGER, MANY_LETTERS, MANY_ROWS, SETTLED_LETTER, SYSTEMS, TOOL_ROWS
from tests.cli.views.scripted import HOLDER, RUN_ID, SHORT_ID, START_MS, TZ, PlainEvaluator, Stage
from tests.cli.views.situations import SITUATIONS, ending_of

GOLDEN = Path(__file__).parent / "golden"
SHORT_IDS = {RUN_ID: SHORT_ID}
DAY_MS = 86_400_000


def _report(name: str, stage: Stage, style: Style) -> str:
    return render_report(stage.scene(style), ending_of(name, stage))


def _show(name: str, stage: Stage, style: Style) -> str:
    printed = [Captured(Operation("lead", None, Direction.ACTION), 1, "creating ana\n\x1b[2Jdone\n")]
    captured = printed if name == "succeeded" else [] if name == "retried" else None
    holder = HOLDER if name in {"waiting_for_timer", "hanging"} else None
    return render_run(replace(stage.scene(style, after_ms=120_000), holder=holder), captured=captured)


def _log(name: str, stage: Stage, style: Style) -> str:
    return render_log(stage.row(), stage.stored, short_id=SHORT_ID, tz=TZ, style=style)


def _detail(name: str, stage: Stage, style: Style) -> str:
    chosen = {"undo_failed": LogFilter(step="deposit"), "many_items": LogFilter(step="servers[20]", last=2)}.get(name)
    chosen = chosen or LogFilter(only_failed=True)
    return render_log(stage.row(), stage.stored, short_id=SHORT_ID, tz=TZ, style=style, chosen=chosen, detail=True)


def _progress(name: str, stage: Stage, style: Style) -> str:
    return "\n".join(stage.watch(lambda: Progress(style=style, tz=TZ, short_ids=SHORT_IDS)))


def _live(name: str, stage: Stage, style: Style) -> str:
    """Return a picture from the middle, one after the last record, and the last one, which stays."""
    watched = stage.watched()
    early = stage.watched(batches=len(stage.batches) // 2)
    pictures = [render_live(early, View(early.last_ms + 300, style, 24))]
    pictures.append(render_live(watched, View(stage.now_ms + 300, style, 24)))
    watched.is_let_go = True
    pictures.append(render_live(watched, View(stage.now_ms + 300, style, 24, is_last=True)))
    return "\n\n".join("\n".join(lines) for lines in pictures)


def _dlq(name: str, stage: Stage, style: Style) -> str:
    scene = stage.scene(style, after_ms=3 * 3_600_000)
    return "\n".join(
        render_letter(scene, letter, stage.stored, _decide(scene, letter, stage), printed=2)
        for letter in stage.letters()
    )


def _decide(scene: Scene, letter: DeadLetter, stage: Stage) -> list[Decided]:
    """Let the core say what each decision would lead to."""
    decided = []
    for choice in list_decidable(stage.saga, stage.state, SHORT_ID, letter.operation, stage.now_ms):
        state = replay(stage.saga, (each.record for each in stage.stored))
        foresight = foresee_decision(stage.saga, state, choice.request, PlainEvaluator(), Situation(scene.now_ms, 8))
        decided.append(Decided(choice, say_consequence(scene, choice, foresight)))
    return decided


def _list(name: str, stage: Stage, style: Style) -> str:
    return render_runs([stage.row()], 143, short_ids=SHORT_IDS, now_ms=stage.now_ms + 9_000, style=style)


def _json(name: str, stage: Stage, style: Style) -> str:
    return spell(write_run(stage.saga, stage.state), indent=2)


RUN_VIEWS: dict[str, Callable[[str, Stage, Style], str]] = {
    "report": _report,
    "show": _show,
    "log": _log,
    "log-detail": _detail,
    "progress": _progress,
    "live": _live,
    "dlq-show": _dlq,
    "list": _list,
    "json": _json,
}


def _plain_views(style: Style) -> Iterator[tuple[str, str]]:
    now_ms = START_MS + DAY_MS
    short_ids = {row.run_id: row.run_id[:6] for row in MANY_ROWS}
    yield (
        "list of several runs",
        render_runs(MANY_ROWS, len(MANY_ROWS), short_ids=short_ids, now_ms=now_ms, style=style),
    )
    yield "list of no runs", render_runs([], 0, short_ids={}, now_ms=now_ms, style=style)
    yield "dead letters", render_letters(MANY_LETTERS, short_ids=short_ids, now_ms=now_ms, style=style)
    settled = [SETTLED_LETTER, MANY_LETTERS[0]]
    yield "dead letters, settled ones too", render_letters(settled, short_ids=short_ids, now_ms=now_ms, style=style)
    yield "no dead letters", render_letters([], short_ids={}, now_ms=now_ms, style=style)
    yield "tools", render_tools(TOOL_ROWS, BROKEN, style=style)
    yield "no tools", render_tools([], style=style)
    for row in TOOL_ROWS:
        yield f"tool {row.facts.name}", render_tool(row, TOOL_ROWS, style=style)
    sound = Verification(2, 37, {RUN_ID: "ab" * 32, "b2m4cd7kq2m9x": "cd" * 32})
    yield "verify, sound", render_verification(sound, short_ids=SHORT_IDS, style=style)
    findings = (Finding(RUN_ID, 7, "the hash does not fit: the record was changed"), Finding(RUN_ID, None, "no row"))
    damaged = Verification(1, 19, {RUN_ID: "ab" * 32}, findings)
    yield "verify, damaged", render_verification(damaged, short_ids=SHORT_IDS, style=style)
    yield "verify, beside kept heads", render_verification(sound, short_ids=SHORT_IDS, style=style, kept=2)
    problem = "record 7 is gone or another: cut off, rewritten or set back"
    behind = Verification(
        1, 4, {RUN_ID: "ab" * 32}, (Finding(RUN_ID, 7, problem), Finding("gone9", 3, problem.replace("7", "3")))
    )
    yield "verify, behind a kept head", render_verification(behind, short_ids=SHORT_IDS, style=style, kept=2)
    yield "verify, empty", render_verification(Verification(0, 0), short_ids={}, style=style)
    yield "sandbox", render_sandbox(SYSTEMS, LEDGER, style=style)
    yield "sandbox, empty", render_sandbox({}, [], style=style)
    missing = NotFoundError("no saga onboard", code="no-such-saga", hint="sagas here: onboarding, release")
    yield "error with a hint", render_error(missing, style)
    yield "error without", render_error(StorageError("the disk is full"), style)
    yield "warning", render_warning("the definition has changed since run 7kq2m9", style, code="changed")


def _compare(file: Path, text: str) -> None:
    if os.environ.get("SAGACTL_REWRITE_GOLDEN"):
        file.write_text(text, encoding="utf-8")
    assert text == file.read_text(encoding="utf-8")


STYLES = {"": Style(), "-ascii": Style(unicode=False)}
stages: dict[str, Stage] = {}


def _stage(name: str) -> Stage:
    """Drive a situation once for all views, none of which changes it."""
    if name not in stages:
        stages[name] = SITUATIONS[name]()
    return stages[name]


@pytest.mark.parametrize("kind", STYLES)
@pytest.mark.parametrize("view", RUN_VIEWS)
def test_each_view_of_a_run_is_as_it_was_reviewed(view: str, kind: str) -> None:
    """Each situation of a run reads as the golden file says, in Unicode and in ASCII."""
    parts = []
    for name, make in SITUATIONS.items():
        text = RUN_VIEWS[view](name, _stage(name), STYLES[kind])
        if text:
            parts.append(f"==== {name}: {make.__doc__}\n{text}\n")
    _compare(GOLDEN / f"{view}{kind}.txt", "\n".join(parts))


@pytest.mark.parametrize("kind", STYLES)
def test_each_other_view_is_as_it_was_reviewed(kind: str) -> None:
    """Lists, tools, verification, sandbox and errors read as the golden file says."""
    parts = [f"==== {name}\n{text}\n" for name, text in _plain_views(STYLES[kind])]
    _compare(GOLDEN / f"others{kind}.txt", "\n".join(parts))


@pytest.mark.parametrize("width", [40, 60, 80, 132])
@pytest.mark.parametrize("view", [name for name in RUN_VIEWS if name != "json"])
def test_no_line_is_wider_than_the_terminal(view: str, width: int) -> None:
    """Only commands, hashes and heads, which are copied whole, may pass the edge of the terminal."""
    style = Style(width=width)
    for name in SITUATIONS:
        for line in RUN_VIEWS[view](name, _stage(name), style).splitlines():
            assert width_of(line) <= width or "sagactl " in line, (name, line)


@pytest.mark.parametrize("view", [name for name in RUN_VIEWS if name != "json"])
def test_ascii_views_are_ascii(view: str) -> None:
    """Where a terminal can't show symbols, nothing but ASCII is printed."""
    for name in SITUATIONS:
        assert RUN_VIEWS[view](name, _stage(name), Style(unicode=False)).isascii()


@pytest.mark.parametrize("view", RUN_VIEWS)
def test_colour_changes_nothing_but_colour(view: str) -> None:
    """A view with colour is the plain view with codes for colour in it."""
    import re

    for name in SITUATIONS:
        colored = RUN_VIEWS[view](name, _stage(name), Style(color=True))
        assert re.sub(r"\x1b\[\d+m", "", colored) == RUN_VIEWS[view](name, _stage(name), Style())
