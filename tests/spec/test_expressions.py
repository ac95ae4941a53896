"""Where in the file an expression stands, however its value is written."""

from __future__ import annotations

import pytest

from sagactl.spec.expressions import placed_expressions
from sagactl.written.findings import Findings
from sagactl.written.positions import read_yaml
from sagactl.written.source import Source


def places(text: str) -> list[tuple[str, bool, bool]]:
    """Return, for each expression, the characters at its place, and whether they are exact and all of the value."""
    source = Source("x", text)
    node = read_yaml(source, Findings(source))
    assert node is not None
    return [
        (text[placed.span.start : placed.span.end], placed.is_exact, placed.is_whole)
        for placed in placed_expressions(node, source)
    ]


@pytest.mark.parametrize(
    "text",
    [
        "a: ${{ input.x }}\n",
        'a: "${{ input.x }}"\n',
        "a: '${{input.x}}'\n",
        "漢: [1, '${{  input.x  }}']\r\n",
        "a: |-\n  ${{ input.x }}\n",
        '{"${{ input.k }}": "${{ input.x }}"}\n',
    ],
)
def test_a_whole_value_is_found_at_its_characters(text: str) -> None:
    """F5: an expression's place are its own characters, in every way of quoting; keys hold none."""
    assert places(text) == [("input.x", True, True)]


def test_each_of_several_has_its_own_place() -> None:
    """F5: equal expressions, literal marks and marks within strings don't shift the others."""
    text = "a: 'x $${{ y ${{ input.x }}${{ input.x }} ${{ \"${{\" + input.y }} ${{ input.z }}'\n"
    assert places(text) == [
        ("input.x", True, False),
        ("input.x", True, False),
        ('"${{" + input.y', True, False),
        ("input.z", True, False),
    ]
    source = Source("x", text)
    node = read_yaml(source, Findings(source))
    assert node is not None
    starts = [placed.span.start for placed in placed_expressions(node, source)]
    assert starts == sorted(set(starts))


def test_a_folded_expression_is_shown_by_its_opening() -> None:
    """F5: where the value has other characters than the file, the place is no finer than is certain."""
    assert places("a: >-\n  ${{ input.a +\n  1 }} ${{ input.b }}\n") == [
        ("${{", False, False),
        ("input.b", True, False),
    ]


def test_an_escaped_mark_makes_the_whole_text_the_place() -> None:
    """F5: an opening that is written with escapes can't be told from another, so the value is shown."""
    text = 'a: "\\x24{{ input.a }} ${{ input.b }}"\n'
    assert places(text) == [(text[3:-1], False, False)] * 2
