"""F3: looking at the output of a step that may have been skipped."""

from __future__ import annotations

import pytest

from sagactl.core.template import ExpressionError
from sagactl.spec.cel import CelEvaluator
from sagactl.spec.guards import conditions, succeeded_if_true, unguarded
from tests.spec.conftest import LoadSteps, Refuse

GUARDED = [
    'steps.x.status == "succeeded" && steps.x.output.y > 1',
    "steps.x.output.y > 1 && steps.x.status == 'succeeded'",
    "'succeeded' == steps.x.status && steps.x.output.y > 1",
    "steps.x.status != 'skipped' && steps.x.output.y > 1",
    "steps.x.output != null && steps.x.output.y > 1",
    'steps["x"].output != null && steps["x"].output.y > 1',
    "steps.x.status == 'skipped' || steps.x.output.y > 1",
    "steps.x.output == null ? 0 : steps.x.output.y",
    "steps.x.status == 'succeeded' ? steps.x.output.y : 0",
    "!(steps.x.status == 'succeeded') ? 0 : steps.x.output.y",
    "(input.a && (steps.x.status == 'succeeded')) ? steps.x.output.y : 0",
    "size(steps.x.status == 'succeeded' ? steps.x.output.list : []) > 0",
    "[1, steps.x.output != null ? steps.x.output.y : 2][1]",
    "{'a': steps.x.output != null ? steps.x.output.y : 2}.a",
    "!(steps.x.status == 'skipped' || input.a) && steps.x.output.y > 1",
    "!!(steps.x.status == 'succeeded') && steps.x.output.y > 1",
    "! ! !(steps.x.status == 'skipped') && steps.x.output.y > 1",
    "!(!(steps.x.status == 'succeeded') || input.a) && steps.x.output.y > 1",
    r"""r'\\' != 'x' && steps.x.status == 'succeeded' && steps.x.output.y > 1""",
    "steps.x.status",
    "'steps.x.output.y'",
    "input.a ? 'steps.x.output' : 'b'",
]
UNGUARDED = [
    "steps.x.output.y",
    "steps.x.output",
    "has(steps.x.output.y)",
    "steps.x.status == 'skipped' ? steps.x.output.y : 0",
    "steps.x.status == 'succeeded' ? 0 : steps.x.output.y",
    "steps.x.status == 'succeeded' || steps.x.output.y > 1",
    "steps.x.status == 'skipped' && steps.x.output.y > 1",
    "(steps.x.status == 'succeeded' || input.a) && steps.x.output.y > 1",
    "input.a ? steps.x.output.y : 0",
    "steps.z.status == 'succeeded' && steps.x.output.y > 1",
    "'steps.x.status == \"succeeded\"' != '' && steps.x.output.y > 1",
    "size(steps.x.output.list)",
    "input.list.exists(i, i == steps.x.output.y)",
    "steps.x.output.y == 1 ? true : false",
    "!steps.x.output.y",
    "!!steps.x.output.y",
    "!(!(steps.x.status == 'succeeded') && input.a) && steps.x.output.y > 1",
    "! ! !(steps.x.status == 'succeeded') && steps.x.output.y > 1",
    "!" * 3000 + "steps.x.output.y",
    "input.a ? steps.x.output.y : " * 130 + "1",
    r"""r'\\' != steps.x.output.y && 'steps.x.status == "succeeded"' != ''""",
    "(" * 60 + "steps.x.output.y" + ")" * 60,
]


@pytest.mark.parametrize("text", GUARDED)
def test_what_a_test_guards_may_be_looked_at(text: str) -> None:
    """F3: an output is guarded where the step has certainly succeeded."""
    assert list(unguarded(text)) == []


@pytest.mark.parametrize("text", UNGUARDED)
def test_what_nothing_guards_is_found(text: str) -> None:
    """F3: anything less than certainty is unguarded."""
    assert set(unguarded(text)) == {"x"}
    assert list(unguarded(text, frozenset({"x"}))) == []


@pytest.mark.parametrize("text", GUARDED)
def test_a_guarded_expression_has_a_value_when_the_step_was_skipped(text: str) -> None:
    """F3: the rule is sound: evaluated with the null output of a skipped step, nothing that it passes fails."""
    steps = {"x": {"output": None, "status": "skipped"}, "z": {"output": None, "status": "succeeded"}}
    try:
        CelEvaluator().evaluate(text, {"steps": steps, "input": {"a": True, "list": [1]}})
    except ExpressionError as error:
        pytest.fail(str(error))


def test_conditions_are_the_parts_that_must_all_hold() -> None:
    """F3: a `when` is compared by its conditions, whatever their order and brackets."""
    assert conditions(" (a && b) && (c || d)") == {"a", "b", "c || d"}
    assert succeeded_if_true("steps.x.output != null && input.a") == {"x"}
    assert succeeded_if_true("steps.x.output != null || input.a") == frozenset()


MAYBE = '  - {id: maybe, tool: cloud.provision_vm, with: {name: x}, when: "${{ input.vip }}"}\n'


@pytest.mark.parametrize(
    "when",
    [
        "${{ input.vip }}",
        "${{ input.amount > 5 && input.vip }}",
        "${{ steps.maybe.status == 'succeeded' }}",
        "${{ steps.maybe.output != null && input.amount > 5 }}",
    ],
)
def test_the_when_of_a_step_guards_all_that_it_says(load_steps: LoadSteps, when: str) -> None:
    """F3: a step that runs only if the other has succeeded may look at its output, in its undo as well."""
    undo = '{tool: any.undo, with: {v: "${{ steps.maybe.output.vm }}"}}'
    use = f'with: {{to: "${{{{ steps.maybe.output.vm }}}}"}}, compensate: {undo}'
    load_steps(MAYBE + f'  - {{id: use, tool: mail.send, when: "{when}", {use}}}\n')


def test_certainty_is_handed_on(load_steps: LoadSteps) -> None:
    """F3: if b ran, a ran; so who runs only if b did may look at a."""
    text = MAYBE + (
        "  - {id: b, tool: any.thing, when: \"${{ steps.maybe.status == 'succeeded' }}\"}\n"
        "  - {id: c, tool: mail.send, when: \"${{ steps.b.status == 'succeeded' }}\", compensate: {none: x},\n"
        '     with: {to: "${{ steps.maybe.output.vm }}"}}\n'
    )
    load_steps(text)


@pytest.mark.parametrize("when", ["true", "${{ input.amount > 5 }}", "${{ input.vip || input.amount > 5 }}"])
def test_another_when_guards_nothing(refuse_steps: Refuse, when: str) -> None:
    """F3: an unguarded reference to a step that has `when` is a load error."""
    quoted = when if when == "true" else f'"{when}"'
    rest = 'with: {to: "${{ steps.maybe.output.vm }}"}, compensate: {none: x}'
    use = f"  - {{id: use, tool: mail.send, when: {quoted}, {rest}}}\n"
    [problem] = refuse_steps(MAYBE + use)
    assert problem.code == "unguarded"
