"""F5: whatever a file holds, it is a saga or an InvalidSagaError whose problems can be shown."""

from __future__ import annotations

from decimal import Decimal
from typing import Any

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from sagactl.core.canonical import canonical
from sagactl.spec.load import load_saga
from sagactl.written.problem import InvalidSagaError, Problem
from sagactl.written.report import render_problems
from tests.spec.toolbox import TOOLS


def find_errors(text: str | bytes) -> list[Problem]:
    """Load *text* and return its errors, having shown all its problems."""
    try:
        loaded = load_saga(text, file="fuzz.yaml", tools=TOOLS)
    except InvalidSagaError as error:
        render_problems(error.problems, error.source_text)
        return [problem for problem in error.problems if problem.severity == "error"] or [error.problems[0]]
    render_problems(loaded.warnings, loaded.source_text)
    return []


KEYS = "saga steps id tool with any.thing mail.send needs when foreach pivot true compensate none input properties"
VALUES_AND_MARKS = "type object default $ref #/properties/a pattern a b retry 12 1e9 .nan ~ << &a *a !x on_unknown"
EXPRESSIONS = ["${{ input.a }}", "${{", "}}", "${{ steps.a.output.b }}", "${{ item", "${{ input.?a.b }}"]
STRUCTURE = [": ", "- ", ", ", "[", "]", "{", "}", "\n", "\n  ", "\n    ", '"', "'", "#", "|", "\t", "---"]
ODD = ["\ufeff", "\x00", "é", "漢"]
WORDS = st.sampled_from([*KEYS.split(), *VALUES_AND_MARKS.split(), *EXPRESSIONS, *STRUCTURE, *ODD])
HALF_PAIR = st.just("\ud800")
"""Half of a surrogate pair: a text can have one, JSON that is written out can't."""


@settings(derandomize=True, max_examples=400, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(st.lists(WORDS | HALF_PAIR, max_size=40).map("".join) | st.binary(max_size=60) | st.text(max_size=60))
def test_no_text_makes_the_loader_raise_anything_else(text: str | bytes) -> None:
    """F5: any text is told what is wrong with it, or it is a saga."""
    assert find_errors(text) or b"any.thing" in (
        text if isinstance(text, bytes) else text.encode("utf-8", "surrogatepass")
    )


VALUES = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-3, 3000)
    | WORDS
    | st.sampled_from([Decimal("1.5"), "30s", "ask", "probe"]),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(WORDS, inner, max_size=4),
    max_leaves=8,
)
STEP_KEYS = "needs when foreach guard with compensate pivot read_only retry on_unknown concurrency"
STEP_WORDS = st.sampled_from(STEP_KEYS.split())
STEPS = st.lists(
    st.fixed_dictionaries({"id": st.sampled_from(["a", "b", "c"]), "tool": st.sampled_from(sorted(TOOLS))}).flatmap(
        lambda step: st.dictionaries(STEP_WORDS, VALUES, max_size=3).map(lambda more: {**step, **more})
    ),
    max_size=4,
)


@settings(derandomize=True, max_examples=400, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(
    STEPS,
    st.dictionaries(
        st.sampled_from(["input", "output", "defaults", "secrets", "run_key", "version"]), VALUES, max_size=2
    ),
)
def test_no_tree_makes_the_loader_raise_anything_else(steps: list[Any], more: dict[str, Any]) -> None:
    """F5: nor does any tree of values under the keys of a saga make it raise anything else."""
    errors = find_errors(canonical({"saga": "fuzz", "steps": steps, **more}))
    assert all(problem.line >= 1 and problem.column >= 1 for problem in errors)
