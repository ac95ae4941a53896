"""Limits: what an expression makes of its input stays bounded, whoever chooses the input."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from sagactl.core.template import ExpressionError
from sagactl.spec.cel import CelEvaluator
from sagactl.spec.cel_bounds import LOOPED_LENGTH_MAX

ROOT = Path(__file__).parents[2]
LONG = "x" * 900_000
MEASURE = """
import json, sys
from sagactl.core.template import ExpressionError
from sagactl.spec.cel import CelEvaluator
from tests.memory import read_peak_mib
expression, values = json.loads(sys.argv[1])
values = {name: value[0] * value[1] if isinstance(value, list) else value for name, value in values.items()}
values["l"] = list(range(values.get("n", 3)))
try:
    CelEvaluator().evaluate(expression, {"input": values})
except ExpressionError as error:
    print(error)
print(read_peak_mib(), file=sys.stderr)
"""


@pytest.mark.parametrize(
    ("expression", "values"),
    [
        ("input.l.map(x, x)", {"n": 9_999}),
        ("input.l.filter(x, x > 0).map(x, [x])", {"n": 9_999}),
        ("input.l.map(x, input.a)", {"n": 1_999, "a": ["x", 900_000]}),
        ("input.l.map(x, input.a).join('')", {"n": 1_999, "a": ["x", 900_000]}),
        ("input.l.map(x, input.a + 'b')", {"n": 1_999, "a": ["x", 900_000]}),
        ("input.a.split('').map(x, x)", {"a": ["x", 900_000]}),
        ("input.a.split(input.b).map(x, x)", {"a": ["x,", 400_000], "b": ","}),
        ("input.a . split ( ',' ) . filter ( x, true )", {"a": ["x,", 400_000]}),
        ("input.a.replace('', input.a)", {"a": ["x", 900_000]}),
        ("input.a.replace('x', input.a).replace('x', input.a)", {"a": ["x", 1_000]}),
        ("input.a.split('x').join(input.a)", {"a": ["x", 900_000]}),
        ("[input.a, input.a].map(x, x)", {"a": ["x", 900_000]}),
    ],
)
def test_no_input_makes_an_expression_take_all_memory(expression: str, values: dict[str, Any]) -> None:
    """H49: what would take gigabytes is refused or doesn't take them; each is measured in a process of its own."""
    command = [sys.executable, "-c", MEASURE, json.dumps([expression, values])]
    done = subprocess.run(command, capture_output=True, text=True, timeout=240, check=True, cwd=ROOT)
    assert "at most" in done.stdout or "larger than" in done.stdout
    assert int(done.stderr) < 200, done.stdout


@pytest.mark.parametrize(
    ("expression", "value"),
    [
        ("size(input.list)", 10_000),
        ("input.list.exists(x, x == 9)", True),
        ("input.some.map(x, x + 1) != []", True),
        ("input.text.replace('x', 'y') == input.text", False),
        ("input.text.split(',') == []", False),
        ("input.names.map(n, n + '@example.com').join(', ')", "a@example.com, b@example.com"),
        ("input.names.map(n, 'input.list.map(x, input.text)' + n).size()", 2),
        ("['a', 'b'].join(input.comma)", "a,b"),
        ("'a;b'.split(';').map(x, x)", ["a", "b"]),
        ("'.replace(input.a, input.b)' + input.comma", ".replace(input.a, input.b),"),
    ],
)
def test_what_stays_small_is_not_refused(expression: str, value: object) -> None:
    """F3: the limits are for what grows; a long text or list that is only looked at is none of theirs."""
    given = {"list": list(range(10_000)), "some": list(range(LOOPED_LENGTH_MAX)), "names": ["a", "b"], "comma": ","}
    assert CelEvaluator().evaluate(expression, {"input": {**given, "text": LONG}}) == value


def test_a_refusal_names_the_limit_and_what_there_is() -> None:
    """E21: who reads the error knows what to shorten."""
    given = {"input": {"l": [1] * (LOOPED_LENGTH_MAX + 1)}}
    with pytest.raises(ExpressionError, match=r"map and filter take 2000 items at most, and there are 2001, in input"):
        CelEvaluator().evaluate("input.l.map(x, x)", given)
