"""F3: templates filled in as far as what is known goes."""

from __future__ import annotations

import pytest

from sagactl.core.canonical import Json
from sagactl.core.partial import is_known, render_partly
from sagactl.core.template import ExpressionError, parse_template
from tests.core.builders import Plain

SCOPE = {"input": {"email": "ada@example.com", "big": 2**70, "mark": "${{ x }}"}}
KNOWN = Plain({"input.big > 1": True})

CASES: dict[str, tuple[Json, Json]] = {
    "a reference to an input": ("${{ input.big }}", 2**70),
    "a reference to an output": ("${{ steps.a.output.id }}", "${{ steps.a.output.id }}"),
    "CEL over inputs": ("${{ input.big > 1 }}", True),
    "CEL over both": ("${{ input.big > steps.a.output.n }}", "${{ input.big > steps.a.output.n }}"),
    "text around both": (
        "to ${{ input.email }}: ${{ steps.a.output.id }}",
        "to ada@example.com: ${{ steps.a.output.id }}",
    ),
    "an item": (["${{ item }}", {"x": "${{ input.email }}"}], ["${{ item }}", {"x": "ada@example.com"}]),
    "data that looks like an expression": ("${{ input.mark }}", "${{ x }}"),
    "a secret": ("${{ secrets.KEY }}", {"$secret": "KEY"}),
}


@pytest.mark.parametrize("name", CASES)
def test_what_is_known_has_its_value(name: str) -> None:
    """F3: exact values of what is known, and what isn't stays as it was written."""
    written, expected = CASES[name]
    assert render_partly(parse_template(written), SCOPE, KNOWN) == expected


def test_an_input_that_is_not_there_is_an_error() -> None:
    """F3, E21: what would refuse the step in a run is no different before it."""
    template = parse_template({"x": "${{ input.nothing }}"})
    assert is_known(template, SCOPE)
    with pytest.raises(ExpressionError):
        render_partly(template, SCOPE, KNOWN)
