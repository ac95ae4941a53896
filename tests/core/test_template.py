"""F3: templates are parsed once, rendered exactly, and what they yield is never looked at again."""

from __future__ import annotations

import time
from contextlib import suppress
from decimal import Decimal
from typing import Any

import pytest
from hypothesis import assume, given, reject
from hypothesis import strategies as st

from sagactl.core.canonical import canonical
from sagactl.core.keys import SECRET_MARK
from sagactl.core.template import (
    EXPRESSION_LENGTH_MAX,
    Expression,
    ExpressionError,
    Literal,
    Reference,
    TemplateSyntaxError,
    Text,
    parse_template,
    paths_of,
    render,
    spell_path,
    write_template,
)
from tests.core.builders import Plain
from tests.core.test_canonical import VALUES

SCOPE: dict[str, Any] = {
    "input": {"a": [{"b": 2**70}], "d": Decimal("1.10"), "t": "text", "n": None, "odd key": 1},
    "output": None,
    "args": {"x": True},
}


def value_of(template: Any, scope: dict[str, Any] | None = None, **values: Any) -> Any:
    """Parse and render *template*; keyword arguments say what expressions yield."""
    return render(parse_template(template), SCOPE if scope is None else scope, Plain(values))


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("${{ input.a[0].b }}", 2**70),
        ("${{input.d}}", Decimal("1.10")),
        ("${{ input['odd key'] }}", 1),
        ('${{ input["t"] }}', "text"),
        ("${{ input.n }}", None),
        ("n=${{ input.a[0].b }}!", f"n={2**70}!"),
        ("${{ input.t }}${{ input.d }}", "text1.10"),
        ("${{ input.a }} of ${{ args.x }}", '[{"b":1180591620717411303424}] of true'),
        ("$${{ input.t }}", "${{ input.t }}"),
        ("a $${{ b", "a ${{ b"),
        (["$${{ input.t }}", {"k": "$${{"}], ["${{ input.t }}", {"k": "${{"}]),
        ("{ plain }", "{ plain }"),
        ({"k": ["${{ args.x }}", 1]}, {"k": [True, 1]}),
        ("${{ output.id }}", None),
        ("${{ output.deep.er[3] }}", None),
    ],
)
def test_a_plain_reference_keeps_its_type_and_each_of_its_digits(text: Any, value: Any) -> None:
    """F3: references are resolved without CEL; text around an expression makes a string."""
    found = value_of(text)
    assert found == value
    assert type(found) is type(value)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("${{ input.x }}", "input has no x, in input.x"),
        ("${{ input.t.y }}", "input.t is text, so it has no y, in input.t.y"),
        ("${{ input.n.y }}", "input.n is null, so it has no y, in input.n.y"),
        ("${{ input.a[1] }}", "input.a has 1 items, no [1], in input.a[1]"),
        ("${{ input.t[0] }}", "input.t is no list, in input.t[0]"),
        ("${{ item }}", "item is not known here, in item"),
        ("so ${{ input.n }}", "null can't be part of a text, in input.n"),
    ],
)
def test_a_reference_without_a_value_says_why(text: str, message: str) -> None:
    """E21: what can't be evaluated is refused with the reason."""
    with pytest.raises(ExpressionError) as caught:
        value_of(text)
    assert str(caught.value) == message


def test_only_a_missing_output_is_null_and_not_a_null_inside_one() -> None:
    """E7: null stands for "the action left no output"; a hole in an output that is there is an error."""
    assert value_of("${{ output.a.b }}", {"output": None}) is None
    with pytest.raises(ExpressionError):
        value_of("${{ output.a.b }}", {"output": {"a": None}})


def test_an_expression_over_a_missing_output_is_null() -> None:
    """E7: a compensation's arguments that are computed from the output come out as null without it."""
    assert value_of("${{ output.id + 1 }}") is None
    assert value_of("${{ args.n + 1 }}", None, **{"args.n + 1": 3}) == 3


@given(VALUES)
def test_what_an_expression_yields_is_never_evaluated_again(value: Any) -> None:
    """X1: data that looks like an expression stays what it is."""
    assume(SECRET_MARK not in canonical(value))  # that is refused, see below
    scope = {"input": {"x": {"deep": ["${{ secrets.KEY }}", value]}}}
    assert value_of("${{ input.x.deep }}", scope) == ["${{ secrets.KEY }}", value]


@pytest.mark.parametrize("data", [{SECRET_MARK: "KEY"}, [{"x": {SECRET_MARK: "KEY"}}], {SECRET_MARK: 1, "y": 2}])
def test_data_cannot_name_a_secret(data: Any) -> None:
    """E19, X1: only the saga says which secret goes where; data that looks like our mark is refused."""
    with pytest.raises(ExpressionError, match="can't name a secret"):
        value_of("${{ input.x }}", {"input": {"x": data}})
    with pytest.raises(ExpressionError, match="can't name a secret"):
        value_of("${{ f(1) }}", None, **{"f(1)": data})


def test_a_secret_is_a_reference_in_the_arguments_and_no_part_of_a_text() -> None:
    """E19: the log holds the name of a secret, never a text that was meant to hold its value."""
    assert value_of({"token": "${{ secrets.KEY }}"}) == {"token": {SECRET_MARK: "KEY"}}
    with pytest.raises(ExpressionError, match="a secret can't be part of a text"):
        value_of("Bearer ${{ secrets.KEY }}")


@pytest.mark.parametrize("text", ["${{ a", "${{", "${{ }}", "${{   }}", '${{ {"a": 1 }'])
def test_an_unfinished_expression_is_a_syntax_error(text: str) -> None:
    """F3: what stands between the braces ends, and isn't empty."""
    with pytest.raises(TemplateSyntaxError):
        parse_template(text)


def test_an_expression_has_a_limit() -> None:
    """Limits: 4,000 characters are read, white space around them not counted; one more is over the limit."""
    longest = "1 + " * (EXPRESSION_LENGTH_MAX // 4 - 1) + "1   "
    assert isinstance(parse_template(f"${{{{   {longest}   }}}}"), Expression)
    with pytest.raises(TemplateSyntaxError, match="has 4001 characters; at most 4000") as caught:
        parse_template(f"${{{{ {'1' * (EXPRESSION_LENGTH_MAX + 1)} }}}}")
    assert caught.value.code == "over-limit"


@pytest.mark.parametrize("end", ["", " }}"])
@pytest.mark.parametrize(
    "piece",
    ['\\"', "\\'", '\\"""', "\\'''", '\\"""y"', "\"'", '"""\'', "r\"'", "{", "}", "a.b ", 'a["', "a['", "a[1", "x"],
)
@pytest.mark.parametrize("mark", ["", '"', "'", '"""', "'''", 'r"', "rb'''"])
def test_the_time_to_read_a_text_grows_with_its_length_alone(mark: str, piece: str, end: str) -> None:
    """H01: no long text makes the reader of expressions look at its characters again and again."""
    started = time.process_time()
    with suppress(TemplateSyntaxError):
        parse_template("${{ " + mark + piece * (120_000 // len(piece)) + end)
    assert time.process_time() - started < 2


@pytest.mark.parametrize(
    ("text", "paths"),
    [
        ('"""\\""" + input.a + """ + input.b', [("input", "b")]),
        ('r"""x""" + input.a + R"y" + input.b', [("input", "a"), ("input", "b")]),
        ('"\\\\" + input.a', [("input", "a")]),
        ("'input.a", [("input", "a")]),
        ('"\\" + input.a', [("input", "a")]),
    ],
)
def test_a_string_ends_where_it_ends_in_cel(text: str, paths: list[Any]) -> None:
    """F3: a mark behind a backslash ends no string, so what stands in one and what behind it are told apart."""
    assert list(paths_of(parse_template("${{ " + text + " }}"))) == paths


def test_braces_inside_an_expression_do_not_end_it() -> None:
    """F3: maps and strings of an expression may hold braces."""
    found = parse_template("${{ {'a': {'b': '}}'}} }}!")
    assert found == Text((Expression("{'a': {'b': '}}'}}", ()), "!"))


def test_the_references_of_an_expression_are_found() -> None:
    """F5: a wrong reference inside an expression is found at load, so its paths are known; strings hold none."""
    found = parse_template("${{ input.a[0].b + size(steps.x.output.y) + 'input.z' + foo.input.q }}")
    assert list(paths_of(found)) == [("input", "a", 0, "b"), ("steps", "x", "output", "y")]


def test_the_references_in_lists_maps_and_texts_are_found_in_order() -> None:
    """F5: each reference of a value is checked at load, wherever it stands."""
    found = parse_template(["${{ input.a }}", {"k": "x ${{ args.b }} y ${{ input.c }}", "l": 1}, "${{ index }}"])
    assert list(paths_of(found)) == [("input", "a"), ("args", "b"), ("input", "c"), ("index",)]
    assert list(paths_of(Literal(1))) == []


PARTS = st.sampled_from(
    ["${{ input.a }}", "${{ steps.x.output['k'] }}", "${{ 1 + 2 }}", "$${{", "$", "{{", "}}", "a", " "]
)
TEMPLATES = st.recursive(
    st.lists(PARTS, max_size=5).map("".join) | st.integers() | st.none(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text("abc", max_size=3), inner, max_size=3),
    max_leaves=8,
)


@given(TEMPLATES)
def test_a_template_is_written_so_that_it_reads_back_equal(value: Any) -> None:
    """E16: the snapshot of a saga gives the very templates back."""
    try:
        template = parse_template(value)
    except TemplateSyntaxError:
        reject()
    assert parse_template(write_template(template)) == template


@given(VALUES)
def test_a_literal_is_written_so_that_it_means_itself(value: Any) -> None:
    """E16: text that happens to hold our braces is escaped in the snapshot."""
    written = write_template(Literal(value))
    assert value_of(written) == value
    assert not list(paths_of(parse_template(written)))


def test_a_reference_is_told_from_an_expression() -> None:
    """F3: what is a plain path needs no CEL; anything else does."""
    assert parse_template("${{ input.a[0] }}") == Reference(("input", "a", 0), "input.a[0]")
    assert parse_template("${{ input.a[0] > 1 }}") == Expression("input.a[0] > 1", (("input", "a", 0),))
    assert isinstance(parse_template("${{ other.a }}"), Expression)


def test_a_path_is_spelled_as_sagas_write_it() -> None:
    """F3: what is said of a reference can be found in the file; of nothing, nothing is said."""
    assert spell_path(("steps", "f", "output", 0, "id")) == "steps.f.output[0].id"
    assert spell_path(()) == ""
