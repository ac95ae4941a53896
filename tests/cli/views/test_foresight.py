"""What `--dry-run` of rollback and resume shows, for every situation of a run."""

from __future__ import annotations

import json
import re

import pytest

from sagactl.cli.views.foresight import CALLS_SHOWN_MAX, render_foresight, write_foresight
from sagactl.cli.views.spelling import spell
from sagactl.cli.views.style import Style
from sagactl.cli.views.text import width_of
from sagactl.core.canonical import Json
from sagactl.core.evolve import replay
from sagactl.core.foresight import Foresight, Situation, foresee_resume, foresee_rollback
from sagactl.core.records import Request, Verb
from tests.cli.views.scripted import PlainEvaluator, Stage, onboarding
from tests.cli.views.situations import SITUATIONS
from tests.cli.views.test_golden import GOLDEN, STYLES, _compare, _stage

ROLLBACK = Request("q", Verb.ROLLBACK, "ana", "wrong customer", past_pivot=True)


def _foresee(stage: Stage, request: Request | None) -> Foresight:
    state = replay(stage.saga, (stored.record for stored in stage.stored))
    situation = Situation(stage.now_ms, 8, stage.missing_tools)
    if request is None:
        return foresee_resume(stage.saga, state, PlainEvaluator(), situation)
    return foresee_rollback(stage.saga, state, request, PlainEvaluator(), situation)


def _render(name: str, request: Request | None, style: Style) -> str:
    stage = _stage(name)
    verb = None if request is None else request.verb
    return render_foresight(stage.scene(style, after_ms=120_000), _foresee(stage, request), verb=verb)


@pytest.mark.parametrize("kind", STYLES)
@pytest.mark.parametrize(("file", "request_"), [("dry-run-rollback", ROLLBACK), ("dry-run-resume", None)])
def test_each_dry_run_is_as_it_was_reviewed(file: str, request_: Request | None, kind: str) -> None:
    """In each situation of a run the dry run reads as the golden file says."""
    parts = [
        f"==== {name}: {make.__doc__}\n{_render(name, request_, STYLES[kind])}\n" for name, make in SITUATIONS.items()
    ]
    _compare(GOLDEN / f"{file}{kind}.txt", "\n".join(parts))


@pytest.mark.parametrize("width", [40, 60, 80, 132])
def test_no_line_is_wider_than_the_terminal(width: int) -> None:
    """A dry run fits, whatever the width."""
    for name in SITUATIONS:
        for line in _render(name, ROLLBACK, Style(width=width)).splitlines():
            assert width_of(line) <= width, (name, line)


def test_colour_changes_nothing_but_colour() -> None:
    """A dry run with colour is the plain one with codes for colour in it."""
    for name in SITUATIONS:
        colored = _render(name, ROLLBACK, Style(color=True))
        assert re.sub(r"\x1b\[\d+m", "", colored) == _render(name, ROLLBACK, Style())


def test_the_document_has_each_call_and_what_gets_none() -> None:
    """`sagactl.dry-run/1`: each call with its arguments, and each undo that isn't called with the reason."""
    stage = _stage("succeeded")
    document = write_foresight(stage.scene(Style()), _foresee(stage, ROLLBACK))
    assert document["schema"] == "sagactl.dry-run/1"
    dry_run = json.loads(spell(document))["dry_run"]
    first = dry_run["calls"][0]
    assert (first["number"], first["step"], first["item"], first["tool"]) == (1, "servers", 1, "cloud.delete_vm")
    assert dry_run["ends"] == "rolled_back"
    assert [each["step"] for each in dry_run["not_undone"]] == ["welcome", "contract"]
    doubtful = _stage("crashed_in_doubt")
    dry_run = json.loads(spell(write_foresight(doubtful.scene(Style()), _foresee(doubtful, ROLLBACK))))["dry_run"]
    assert [(each["step"], each["reason"]) for each in dry_run["no_call"]] == [
        ("wire", "nobody can tell whether it happened")
    ]


def test_a_long_list_is_cut_in_text_and_whole_in_json() -> None:
    """A rollback of thousands of items shows its first calls and how many there are."""
    many: dict[str, Json] = {
        "email": "ana@example.com",
        "amount": 1,
        "servers": [f"vm{n}" for n in range(CALLS_SHOWN_MAX + 50)],
    }
    stage = Stage(onboarding(), input=many).drive(calls_max=5_000)
    seen = _foresee(stage, ROLLBACK)
    text = render_foresight(stage.scene(Style()), seen)
    assert "... and 52 calls more" in text
    assert len(text.splitlines()) < CALLS_SHOWN_MAX + 15
    assert len(seen.calls) == CALLS_SHOWN_MAX + 52
