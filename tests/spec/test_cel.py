"""F3: CEL with honest numbers and errors that help."""

from __future__ import annotations

import sys
from decimal import Decimal

import pytest

from sagactl.core.canonical import Json
from sagactl.core.template import ExpressionError
from sagactl.errors import ExitCode, InvalidError
from sagactl.spec.cel import CelEvaluator, Complaint


@pytest.fixture(scope="module")
def evaluator() -> CelEvaluator:
    """Return an evaluator for the whole module."""
    return CelEvaluator()


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("input.a > 1", True),
        ("input.a + 1", 3),
        ("input.price", Decimal("0.1")),
        ("input.price * 2.0", Decimal("0.2")),
        ("input.half > 0.4", True),
        ("2.0", Decimal("2.0")),
        ("input.name + '!'", "Zoë!"),
        ("input.list.map(i, i * 2)", [2, 4, 6]),
        ("{'a': [input.a, null, true]}", {"a": [2, None, True]}),
        ("null", None),
        ("has(input.zip) ? 1 : 2", 2),
        ("input.?zip.orValue('none')", "none"),
        ("input.name.upperAscii()", "ZOë"),
        ("math.greatest(input.list)", 3),
        ("steps.x.output.rows[0].id", 7),
        ("9223372036854775807", 2**63 - 1),
        ("item == 5 && index == 0", True),
    ],
)
def test_values_come_back_as_exact_json(evaluator: CelEvaluator, text: str, value: Json) -> None:
    """F3: integers, decimals, text, lists and maps go in and come out as JSON."""
    scope = {
        "input": {"a": 2, "price": Decimal("0.1"), "half": Decimal("0.5"), "name": "Zoë", "list": [1, 2, 3]},
        "steps": {"x": {"output": {"rows": [{"id": 7}]}, "status": "succeeded"}},
        "item": 5,
        "index": 0,
    }
    found = evaluator.evaluate(text, scope)
    assert found == value
    assert type(found) is type(value)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("input.big + 1", "input.big is 9223372036854775808: CEL holds integers of 64 bits only"),
        ("input.exact > 1.0", "input.exact is 0.12345678901234567890: CEL would round it"),
        ("input.huge > 1.0", "input.huge is 1E+400: CEL would round it"),
        ("input.list.all(i, i > 0.0)", "input.list[1] is 0.12345678901234567890: CEL would round it"),
        ("9223372036854775807 + 1", "integer overflow"),
        ("1 / 0", "divide by zero"),
        ("1.0 / 0.0", "the result is no finite number"),
        ("input.nothing", "there is no nothing"),
        ("input.text.more", "a field is asked of something that is no map"),
        ("{1: 2}", "the result is a map with keys that are no text"),
        ("[timestamp('2026-01-01T00:00:00Z')]", "which JSON lacks"),
        ("other > 1", "undeclared reference"),
        ("item.?zip", "the result is an optional, which JSON lacks; use .orValue(...)"),
        ("dyn(optional.of(1))", "the result is an optional, which JSON lacks; use .orValue(...)"),
        ("[optional.none()]", "the result holds an optional, which JSON lacks; use .orValue(...)"),
        ("{'a': optional.of(1)}", "the result holds an optional, which JSON lacks; use .orValue(...)"),
        ("dyn({'a': [{'b': optional.of(1)}]})", "the result holds an optional, which JSON lacks"),
        ("dyn(type(1))", "the result is a type, which JSON lacks"),
        ("dyn(b'x')", "the result is bytes, which JSON lacks"),
        ("input.half_pair + 'x'", "in input.half_pair + 'x'"),
    ],
)
def test_what_has_no_honest_value_is_an_error(evaluator: CelEvaluator, text: str, message: str) -> None:
    """F3: a number that CEL can't hold is an error, never a rounded one; errors come as exceptions, never as values."""
    exact = Decimal("0.12345678901234567890")
    scope = {
        "input": {
            "big": 2**63,
            "exact": exact,
            "huge": Decimal("1e400"),
            "list": [Decimal(1), exact],
            "text": "x",
            "half_pair": "\ud800",
        },
        "item": {},
    }
    with pytest.raises(ExpressionError) as caught:
        evaluator.evaluate(text, scope)
    assert message in str(caught.value)
    assert "\n" not in str(caught.value)


def test_whatever_the_library_raises_is_an_error_of_the_expression(
    evaluator: CelEvaluator, monkeypatch: pytest.MonkeyPatch
) -> None:
    """E21: no exception of the library gets through as it is, whatever its class."""

    class Broken:
        def compile(self, expression: str) -> None:
            raise {"s": SystemError, "m": MemoryError, "r": RecursionError}[expression](expression)

    monkeypatch.setattr(evaluator, "_environment", Broken())
    for text in "smr":
        assert evaluator.compile(text) == (Complaint(text, 0, 1),)
        with pytest.raises(ExpressionError, match=f"^{text}, in {text}$"):
            evaluator.evaluate(text, {})


def test_only_what_is_mentioned_is_handed_over(evaluator: CelEvaluator) -> None:
    """F3: a number that CEL can't hold does no harm where the expression doesn't look."""
    scope = {"input": {"a": 1, "b": 2**70}, "steps": {"x": {"output": {"n": 1, "d": Decimal("1e500")}, "status": "s"}}}
    assert evaluator.evaluate("input.a + steps.x.output.n", scope) == 2


def test_a_loop_without_end_is_stopped(evaluator: CelEvaluator) -> None:
    """F3: an expression can't run for ever."""
    numbers: list[Json] = list(range(1_000))
    text = "input.l.all(a, input.l.all(b, input.l.all(c, a + b + c >= 0)))"
    with pytest.raises(ExpressionError):
        evaluator.evaluate(text, {"input": {"l": numbers}})


@pytest.mark.parametrize(
    ("text", "place", "message"),
    [
        ("inptu.a > 1", (0, 5), "undeclared reference to 'inptu.a'"),
        ("'ä' + zot", (6, 3), "undeclared reference to 'zot'"),
        ("input.a +", (9, 1), "the expression ends too early"),
        ("1 + 1.5", (2, 1), "+ can't be applied to int, double"),
        ("1 in 2", (2, 1), "in can't be applied to int, int"),
        ("input.a +\n  nobody(1)", (12, 6), "undeclared reference to 'nobody'"),
        ("b'x'", (0, 4), "the result is bytes, which JSON lacks; use string(...)"),
        ("input.?o.zz", (0, 11), "the result is an optional, which JSON lacks; use .orValue(...)"),
        ("optional.of(1)", (0, 14), "the result is an optional, which JSON lacks; use .orValue(...)"),
        ("[optional.none()]", (0, 17), "the result holds an optional, which JSON lacks; use .orValue(...)"),
        ("{'a': duration('1s')}", (0, 21), "the result holds a duration, which JSON lacks; use string(...)"),
        (
            "true ? 1 : 'x'",
            (5, 1),
            "the two results of ? : must be of one type, after a condition that is true or false",
        ),
    ],
)
def test_compile_errors_have_a_place(evaluator: CelEvaluator, text: str, place: tuple[int, int], message: str) -> None:
    """F5: an unknown name or a type that can't be is found before anything runs, at its characters."""
    assert evaluator.compile(text) == (Complaint(message, *place),)


def test_the_type_of_a_result_is_known_where_it_is_certain(evaluator: CelEvaluator) -> None:
    """F5: what an expression gives is compared with what is wanted."""
    assert evaluator.compile("input.a > 1") == frozenset({"boolean"})
    assert evaluator.compile("input.a") is None
    assert evaluator.compile("[1]") == frozenset({"array"})
    assert evaluator.compile("{'a': 1}") == frozenset({"object"})


def test_without_the_library_the_way_to_get_it_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    """F3: CEL is an extra; a saga that needs it says so, with a command that installs it."""
    monkeypatch.setitem(sys.modules, "cel_expr_python", None)
    with pytest.raises(InvalidError) as caught:
        CelEvaluator()
    assert caught.value.code == "cel-missing"
    assert caught.value.exit_code is ExitCode.INVALID
    assert caught.value.hint == "pip install 'sagactl[cel]'"
