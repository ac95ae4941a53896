"""`sagactl plan` as people and programs see it."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import pytest

from sagactl.cli.views.graph import draw, render_graph, render_mermaid
from sagactl.cli.views.plan import FAILURES_SHOWN_MAX, NAMES_SHOWN_MAX, Plan, list_objections, render_plan, write_plan
from sagactl.cli.views.spelling import spell
from sagactl.cli.views.style import Style
from sagactl.cli.views.text import width_of
from sagactl.core.canonical import Json
from sagactl.core.filled import fill_in
from sagactl.core.preview import preview, read_given
from sagactl.core.saga import Saga, Step, StepClass
from sagactl.core.template import Scope, parse_template
from tests.cli.views.scripted import INPUT, PlainEvaluator, onboarding, step
from tests.cli.views.test_documents import PlainProblem
from tests.cli.views.test_golden import GOLDEN, STYLES, _compare
from tests.core.simulation.generate import generate

EVALUATOR = PlainEvaluator()


def make_plan(saga: Saga, value: Json = None, **fields: Any) -> Plan:
    """Plan a saga as the command does."""
    scope: Scope = {} if value is None else {"input": value}
    given = read_given(saga, scope, EVALUATOR)
    filled = fill_in(saga, given, scope, EVALUATOR)
    has_input = value is not None
    return Plan(preview(saga, given), "3f8a12c0" * 8, has_input=has_input, input=value, filled=filled, **fields)


def _side_by_side() -> Saga:
    steps: tuple[Step, ...] = (
        step("lead", "crm.create_lead", undo="crm.archive_lead"),
        step("notice", "mail.send", needs=("lead",), none="a mail can't be unsent"),
        step("deposit", "billing.charge", needs=("lead",), undo="billing.refund"),
        step("audit", "crm.sign_contract", needs=()),
        step("server", "cloud.provision_vm", needs=("notice", "deposit"), undo="cloud.delete_vm"),
    )
    deposit = replace(steps[2], action=replace(steps[2].action, schedule_to_close_ms=300_000, start_to_close_ms=5_000))
    steps = (*steps[:2], deposit, *steps[3:])
    return onboarding(steps=steps, compensation_concurrency=2, run_timeout_ms=3_600_000)


def _decided_by_input() -> Saga:
    steps = onboarding().steps
    notice = step("notice", "mail.send", needs=("lead",), none="a mail can't be unsent", when="${{ input.notify }}")
    asked = step("asked", "mail.send", needs=("lead",), none="asked once", when="${{ steps.lead.output.is_new }}")
    refused = replace(steps[1], action=replace(steps[1].action, arguments=steps[0].action.arguments))
    servers = replace(steps[2], needs=("notice", "asked", "deposit"))
    return onboarding(steps=(steps[0], notice, asked, refused, servers, *steps[3:]))


def chain(length: int) -> Saga:
    """Return a saga of so many steps, one after another."""
    steps = [
        step(f"s{n}", "crm.create_lead", undo="crm.archive_lead", needs=(f"s{n - 1}",) if n else ())
        for n in range(length)
    ]
    return onboarding(steps=tuple(steps), output=None)


ASK = PlainProblem("ask-in-doubt", "in doubt, bank.wire can neither be repeated nor probed: a person will be asked")

PLANS: dict[str, Callable[[], Plan]] = {
    "without inputs": lambda: make_plan(onboarding()),
    "with inputs": lambda: make_plan(onboarding(), INPUT),
    "steps side by side, and a warning": lambda: make_plan(
        _side_by_side(), warnings=[ASK], isolated=["billing.charge", "mail.send"]
    ),
    "decided by the input": lambda: make_plan(_decided_by_input(), {**INPUT, "notify": False}),
    "decided by an input yet to come": lambda: make_plan(_decided_by_input()),
    "an input that doesn't fit": lambda: make_plan(onboarding(), {"email": "ana@example.com", "servers": "web"}),
    "no items": lambda: make_plan(onboarding(), {**INPUT, "servers": []}),
    "many steps": lambda: make_plan(chain(60)),
}


@pytest.mark.parametrize("kind", STYLES)
def test_each_plan_is_as_it_was_reviewed(kind: str) -> None:
    """Every kind of plan reads as the golden file says, in Unicode and in ASCII."""
    parts = []
    for name, make in PLANS.items():
        text = render_plan(make(), style=STYLES[kind], shows_inputs="input" in name and name != "without inputs")
        parts.append(f"==== {name}\n{text}\n")
    _compare(GOLDEN / f"plan{kind}.txt", "\n".join(parts))


def test_each_plan_is_the_document_that_was_reviewed() -> None:
    """`sagactl.plan/1` as the golden file says."""
    parts = [f"==== {name}\n{spell(write_plan(PLANS[name]()), indent=2)}\n" for name in ("with inputs", "no items")]
    _compare(GOLDEN / "plan-json.txt", "\n".join(parts))


@pytest.mark.parametrize("width", [40, 60, 80, 132])
def test_no_line_of_a_plan_is_wider_than_the_terminal(width: int) -> None:
    """A plan fits, whatever the width."""
    for name, make in PLANS.items():
        for line in render_plan(make(), style=Style(width=width), shows_inputs=True).splitlines():
            assert width_of(line) <= width, (name, line)


def test_colour_changes_nothing_but_colour() -> None:
    """A plan with colour is the plain one with codes for colour in it."""
    for make in PLANS.values():
        colored = render_plan(make(), style=Style(color=True), shows_inputs=True)
        assert re.sub(r"\x1b\[\d+m", "", colored) == render_plan(make(), style=Style(), shows_inputs=True)


def test_nothing_from_a_saga_reaches_the_terminal_raw() -> None:
    """Reasons, expressions and inputs are shown with their control characters escaped."""
    hostile = "\x1b[2J\n\u202e"
    steps = (step("a", "mail.send", {"x": hostile}, none=hostile), step("b", "mail.send", when=hostile, needs=("a",)))
    text = render_plan(
        make_plan(
            onboarding(steps=steps, source=hostile), {"x": 1}, warnings=[PlainProblem(hostile, hostile, hostile)]
        ),
        style=Style(),
        shows_inputs=True,
    )
    assert not set("\x1b\u202e") & set(text)


def test_the_text_of_a_large_plan_is_bounded_and_its_document_is_not() -> None:
    """Two thousand steps make two thousand rows and a few lines about failures; the document has each failure."""
    plan = make_plan(chain(2_000))
    text = render_plan(plan, style=Style())
    failures = [line for line in text.splitlines() if " fails: " in line]
    assert len(failures) == FAILURES_SHOWN_MAX
    assert max(line.count(", s") for line in failures) <= NAMES_SHOWN_MAX
    document = json.loads(spell(write_plan(plan)))["plan"]
    assert [each["on_failure"]["undone_count"] for each in document["steps"]] == list(range(2_000))
    assert document["steps"][-1]["on_failure"]["undone"] is None
    assert [each["step"] for each in document["undo_order"]] == [f"s{n}" for n in reversed(range(2_000))]


def test_the_document_of_a_plan_has_what_was_promised() -> None:
    """Each step has its number, class, calls, and what its failure undoes."""
    document = json.loads(spell(write_plan(make_plan(onboarding(), INPUT))))
    assert document["schema"] == "sagactl.plan/1"
    assert document["error"] is None
    plan = document["plan"]
    assert [each["number"] for each in plan["steps"]] == [1, 2, 3, 4, 5]
    assert [each["class"] for each in plan["steps"]] == [
        *[StepClass.COMPENSABLE] * 3,
        StepClass.PIVOT,
        StepClass.RETRIABLE,
    ]
    assert [call["arguments"] for call in plan["steps"][2]["calls"]] == [{"name": "web"}, {"name": "db"}]
    contract = plan["steps"][3]["on_failure"]
    assert [each["step"] for each in contract["undone"]] == ["servers", "deposit", "lead"]
    assert plan["steps"][4]["on_failure"] == {"direction": "forward", "undone_count": 0, "undone": []}


def test_what_the_definition_alone_decides_needs_no_input() -> None:
    """F8, F9, E21: conditions, lists and arguments that hang on nothing are known before any input is."""
    steps = (
        step("never", "mail.send", none="sent", when="1 < 0"),
        step("three", "mail.send", none="sent"),
        step("wrong", "mail.send", {"x": "${{ 1 / 0 }}"}, none="sent"),
    )
    never = replace(steps[0], when=parse_template("${{ 1 < 0 }}"))
    three = replace(steps[1], foreach=parse_template([1, 2, 3]))
    plan = make_plan(onboarding(steps=(never, three, steps[2])))
    assert list(plan.preview.numbers) == ["wrong", "three"]
    assert [each.item for each in plan.filled["three"]] == [0, 1, 2]
    assert list_objections(plan) == [("wrong", "1 / 0 has no value")]
    assert plan.filled["wrong"][0].arguments == {"x": "${{ 1 / 0 }}"}


@pytest.mark.parametrize("seed", range(100))
def test_every_saga_has_a_plan_and_a_graph(seed: int) -> None:
    """Whatever loads can be planned and drawn, with its input and without."""
    drawn = generate(seed)
    for plan in (make_plan(drawn.saga), make_plan(drawn.saga, drawn.data)):
        for width in (40, 80):
            lines = render_plan(plan, style=Style(width=width), shows_inputs=True).splitlines()
            lines += render_graph(draw(drawn.saga), Style(width=width)).splitlines()
            assert max(map(width_of, lines)) <= width
        steps = json.loads(spell(write_plan(plan)))["plan"]["steps"]
        assert {each["id"] for each in steps} == set(drawn.saga.by_id)
        assert render_mermaid(draw(drawn.saga)).count("-->") == sum(len(step.needs) for step in drawn.saga.steps)


@dataclass(frozen=True)
class Objecting(PlainEvaluator):
    """Objects to every call of the bank."""

    def check_arguments(self, tool: str, arguments: Json) -> str | None:
        """Say no."""
        return "amount: too small" if tool == "billing.charge" else None


def test_a_call_whose_arguments_are_not_known_is_not_judged() -> None:
    """E21: only arguments that are known to the last are checked against the schema of their tool."""
    saga = onboarding()
    filled = fill_in(saga, {}, {"input": INPUT}, Objecting())
    assert filled["deposit"][0].objection is None
    known = replace(saga.steps[1], action=replace(saga.steps[1].action, arguments=saga.steps[0].action.arguments))
    filled = fill_in(replace(saga, steps=(saga.steps[0], known)), {}, {"input": INPUT}, Objecting())
    assert filled["deposit"][0].objection == "amount: too small"
