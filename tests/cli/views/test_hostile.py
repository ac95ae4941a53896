"""Hostile runs: sagas, inputs, outputs and errors that try to speak to the terminal."""

from __future__ import annotations

import json
import re
import unicodedata
from dataclasses import replace

import pytest

from sagactl.cli.views.dlq import render_letter, render_letters
from sagactl.cli.views.error import render_error, render_warning
from sagactl.cli.views.log import render_log
from sagactl.cli.views.progress import Progress
from sagactl.cli.views.report import render_report
from sagactl.cli.views.runs import render_runs
from sagactl.cli.views.sandbox import render_sandbox
from sagactl.cli.views.show import render_run
from sagactl.cli.views.spelling import spell
from sagactl.cli.views.style import Style
from sagactl.cli.views.tools import BrokenRow, ToolRow, render_tool, render_tools
from sagactl.cli.views.verify import render_verification
from sagactl.core.records import Direction, Operation, Request, Verb
from sagactl.core.saga import ToolFacts
from sagactl.errors import InvalidError
from sagactl.log.base import Captured, Finding, Verification
from sagactl.usecases.documents import write_letter, write_letters, write_record, write_run, write_runs
from sagactl.usecases.errors import write_error
from tests.cli.views.scripted import HOLDER, RUN_ID, SHORT_ID, START_MS, TZ, Stage, ok, onboarding, rejected

EVIL = "\x1b[2J\x1b]8;;http://evil.example\x07x\x1b]52;c;YQ==\x07\x9b1m\rFAKE\n\u202e\u2066\u200b[red]\x7f\x00end"
HALF = f"{EVIL}\ud800"
"""No arguments can be made of half a surrogate pair, but messages may have one."""


def _stage() -> Stage:
    """Make everything in a run hostile that can be, and get it stuck in its rollback."""
    saga = onboarding()
    saga = replace(saga, name=EVIL, description=EVIL, version=EVIL, source=EVIL, output=None)
    script = {
        "lead": [ok(lead_id=EVIL, **{EVIL: EVIL})],
        "deposit": [ok(charge_id=EVIL)],
        "servers[1]": [rejected(HALF, HALF)],
        "undo deposit": [rejected(HALF, HALF)],
    }
    value = {"email": EVIL, "amount": 5000, "servers": [EVIL, EVIL], HALF: HALF}
    stage = Stage(saga, script, value, key=HALF).drive()  # type: ignore[arg-type]
    return stage.ask(Request("r1", Verb.CANCEL, HALF, HALF))


def _views(stage: Stage, style: Style) -> dict[str, str]:
    scene = stage.scene(style)
    captured = [Captured(Operation("lead", None, Direction.ACTION), 1, EVIL)]
    holder = replace(HOLDER, host=EVIL)
    facts = ToolFacts(EVIL, EVIL, EVIL, compensation=EVIL, probe=EVIL, compensation_with={EVIL: EVIL},
                      arguments_schema={"properties": {EVIL: {"type": EVIL, "description": EVIL, "default": EVIL,
                                                              "pattern": EVIL, "enum": [EVIL]}}})  # fmt: skip
    row = ToolRow(facts, EVIL, EVIL, 3)
    found = Verification(1, 1, {RUN_ID: "ab" * 32}, (Finding(RUN_ID, 1, EVIL),))
    progress = stage.watch(lambda: Progress(style=style, tz=TZ))
    return {
        "report": render_report(scene),
        "show": render_run(replace(scene, holder=holder), captured=captured),
        "log": render_log(stage.row(), stage.stored, short_id=SHORT_ID, tz=TZ, style=style),
        "detail": render_log(stage.row(), stage.stored, short_id=SHORT_ID, tz=TZ, style=style, detail=True),
        "progress": "\n".join(progress),
        "letter": render_letter(scene, stage.letters()[0], stage.stored),
        "letters": render_letters(stage.letters(), short_ids={}, now_ms=START_MS, style=style),
        "runs": render_runs([stage.row()], 1, short_ids={}, now_ms=START_MS, style=style),
        "tools": render_tools([row], [BrokenRow(EVIL, EVIL, 1, EVIL, (EVIL,))], style=style),
        "tool": render_tool(row, [row], style=style),
        "verify": render_verification(found, short_ids={}, style=style),
        "sandbox": render_sandbox({EVIL: [{"kind": EVIL, "id": EVIL, "body": {EVIL: EVIL}}]},
                                  [{"at": EVIL, "system": EVIL, "effect": EVIL, "detail": EVIL}], style=style),
        "error": render_error(InvalidError(HALF, code=HALF, hint=HALF), style),
        "warning": render_warning(EVIL, style),
    }  # fmt: skip


@pytest.mark.parametrize("style", [Style(), Style(unicode=False), Style(width=40), Style(color=True)])
def test_no_view_lets_a_control_byte_through(style: Style) -> None:
    """H27: no control character but the newline, and nothing invisible, leaves any view; colour is our own."""
    hidden = {"Cc", "Cf", "Cs", "Cn", "Co", "Zl", "Zp"}
    for name, text in _views(_stage(), style).items():
        bare = re.sub(r"\x1b\[\d+m", "", text) if style.color else text
        odd = [each for each in bare if unicodedata.category(each) in hidden and each != "\n"]
        assert not odd, (name, odd)
        assert "\nFAKE" not in bare, name


def test_markup_is_shown_as_it_is_written() -> None:
    """H27: square brackets mean nothing to us."""
    assert "[red]" in _views(_stage(), Style())["report"]


def test_json_is_exact_and_harmless() -> None:
    """H27: documents are ASCII, and a parser gets back every character, lone surrogates included."""
    stage = _stage()
    letters = stage.letters()
    documents = [
        write_run(stage.saga, stage.state),
        write_runs([stage.row()], 1),
        write_letters(letters),
        write_letter(stage.saga, stage.state, letters[0], stage.stored),
        write_error(InvalidError(HALF, code=HALF, hint=HALF)),
        *(write_record(each) for each in stage.stored),
    ]
    for document in documents:
        for text in (spell(document), spell(document, indent=2)):
            assert text.replace("\n", "").isascii()
            assert text.replace("\n", "").isprintable()
            assert json.loads(text) == document
    assert json.loads(spell(documents[0]))["run"]["input"][HALF] == HALF


def test_printed_lines_stay_under_their_call() -> None:
    """H27: what a tool printed can't pass for a line of ours: each of its lines has a bar before it."""
    printed = "fine\nhint: sagactl rollback 7kq2m9 --yes\n\x1b[A\x1b[2Kover\r\n"
    captured = [Captured(Operation("lead", None, Direction.ACTION), 1, printed)]
    text = render_run(_stage().scene(Style()), captured=captured)
    assert "\n  | hint: sagactl rollback" in text
    assert "\nhint: sagactl rollback" not in text
