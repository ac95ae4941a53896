"""What `sagactl chaos` shows, as it was reviewed."""

from __future__ import annotations

from dataclasses import replace
from typing import Final

import pytest

from sagactl.chaos.experiment import Asked, Experiment, Fault, FaultKind
from sagactl.chaos.findings import Code, find
from sagactl.chaos.report import ChaosReport, World, make_report
from sagactl.cli.views.chaos import render_chaos, render_experiments, say_finding, say_progress
from sagactl.cli.views.chaos_documents import make_chaos_suite, write_chaos, write_experiments
from sagactl.cli.views.junit import render_junit
from sagactl.cli.views.spelling import spell
from sagactl.core.records import Direction, Operation
from tests.cli.views.scripted import onboarding
from tests.cli.views.test_golden import GOLDEN, STYLES, _compare

SAGA: Final = onboarding()
LEAD: Final = Operation("lead", None, Direction.ACTION)
DEPOSIT: Final = Operation("deposit", None, Direction.ACTION)
SERVER: Final = Operation("servers", 2, Direction.ACTION)
WORDS: Final = ["sagactl", "chaos", "onboarding", "-i", "email=ada@example.com", "-i", 'servers:=["web", "db"]']


def _experiment(place: Operation | None, kind: FaultKind, name: str, asked: Asked = Asked.NEVER) -> Experiment:
    return Experiment(name, place, (Fault(kind, place),), asked)


MADE: Final = [
    Experiment("reference/succeeds", None, ()),
    Experiment("reference/is-undone", None, ()),
    _experiment(None, FaultKind.KILLED_AFTER_START, "run/killed-after-start"),
    _experiment(LEAD, FaultKind.KILLED_AFTER_INTENT, "lead/killed-after-intent"),
    _experiment(DEPOSIT, FaultKind.REPLY_LOST, "deposit/reply-lost"),
    _experiment(DEPOSIT, FaultKind.KILLED_AFTER_EFFECT, "deposit/killed-after-effect/rollback", Asked.AFTER_CRASH),
    Experiment(
        "deposit/killed-in-effect@billing.py:58",
        DEPOSIT,
        (Fault(FaultKind.KILLED_IN_EFFECT, DEPOSIT, line="billing.py:58"),),
    ),
    _experiment(SERVER.other, FaultKind.KILLED_AFTER_EFFECT, "undo-of-servers[2]/killed-after-effect"),
]
FOUND: Final = [
    find(Code.DOUBLE_EFFECT, DEPOSIT, "deposit/reply-lost"),
    find(Code.DOUBLE_EFFECT, DEPOSIT, "deposit/killed-in-effect@billing.py:58"),
    find(Code.LEFT_BEHIND, SERVER, "reference/is-undone", "\x1b[2Jfiles[]"),
    find(Code.ASKS_A_PERSON, LEAD, "lead/killed-after-intent"),
    find(Code.NEVER_ENDS, None, "run/killed-after-start", "it was ended after its time"),
]


def _report() -> ChaosReport:
    saga = replace(SAGA, source="sagas/onboarding.yaml")
    missed = ["lead/killed-after-intent"]
    return make_report(saga, World.TOOLS, ["crm.snapshot"], MADE, FOUND, not_reached=missed, left_out=1_203)


@pytest.mark.parametrize("kind", STYLES)
def test_what_chaos_shows_is_as_it_was_reviewed(kind: str) -> None:
    """Verdicts by step, findings with what to change and the command to see it again; what wasn't tried is said."""
    style = STYLES[kind]
    safe = make_report(SAGA, World.RECORDED, [], MADE, [])
    noted = make_report(SAGA, World.TOOLS, [], MADE, FOUND[3:4])
    parts = {
        "unsafe": render_chaos(_report(), WORDS, style=style),
        "noted": render_chaos(noted, WORDS, style=style),
        "safe, with recorded outputs": render_chaos(safe, WORDS, style=style),
        "list": render_experiments(MADE[2:], 1_203, style=style),
        "progress": "\n".join([say_progress(57, 1_203), *(say_finding(each, style) for each in FOUND)]),
    }
    _compare(GOLDEN / f"chaos{kind}.txt", "\n".join(f"==== {name}\n{text}\n" for name, text in parts.items()))


def test_what_programs_are_told_is_as_it_was_reviewed() -> None:
    """`sagactl.chaos/1` and `sagactl.chaos-experiments/1`: names stay; JUnit has a case for each step."""
    parts = {
        "report": spell(write_chaos(_report(), WORDS), indent=2),
        "experiments": spell(write_experiments(MADE[2:4], 7), indent=2),
        "junit": render_junit([make_chaos_suite(_report(), strict=False)]),
    }
    _compare(GOLDEN / "chaos.documents", "\n".join(f"==== {name}\n{text}\n" for name, text in parts.items()))
