"""F2: one spelling for each JSON value, and nothing but JSON."""

from __future__ import annotations

import time
from decimal import Decimal
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sagactl.core.canonical import NESTING_MAX, NotJsonError, canonical, check_nesting, digest, parse, parse_trusted

NUMBERS = st.integers() | st.decimals(allow_nan=False, allow_infinity=False, min_value=-(10**30), max_value=10**30)
TEXTS = st.text(st.characters(exclude_categories=["Cs"]))
VALUES = st.recursive(
    st.none() | st.booleans() | NUMBERS | TEXTS,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(TEXTS, inner, max_size=4),
    max_leaves=12,
)


@given(VALUES)
def test_what_is_spelled_reads_back_as_the_same_value_with_the_same_bytes(value: Any) -> None:
    """F2, S10: spelling, reading and spelling again changes no byte."""
    text = canonical(value)
    assert canonical(parse(text)) == text
    assert canonical(parse_trusted(text)) == text
    assert digest(parse(text)) == digest(value)


@given(st.dictionaries(TEXTS, VALUES, min_size=2, max_size=5))
def test_the_order_of_keys_is_no_part_of_a_value(value: dict[str, Any]) -> None:
    """F2: two maps with the same content have the same bytes."""
    assert canonical(dict(reversed(value.items()))) == canonical(value)


@pytest.mark.parametrize("number", [2**53 + 1, 2**64, -(10**300), 10**999])
def test_integers_are_exact_at_any_size(number: int) -> None:
    """F2: an integer never passes through a float."""
    assert parse(canonical({"n": number})) == {"n": number}


@pytest.mark.parametrize("text", ["0.1", "1.10", "-0.0", "1e5", "123456789012345678901234567890.12345678901234567890"])
def test_fractions_are_exact_decimals(text: str) -> None:
    """F2: a fraction keeps each of its digits."""
    value = parse(text)
    assert isinstance(value, Decimal)
    assert canonical(value) == text


@pytest.mark.parametrize(
    "text",
    [
        "NaN",
        "Infinity",
        "-Infinity",
        "1e999999",
        "1e99999999999999999999",
        "1e-99999999999999999999",
        "1" * 1001,
        "1." + "1" * 1000,
        '{"a":1,"a":2}',
        '[{"b":{"c":0,"c":0}}]',
        '"\\ud800"',
        '{"\\udfff":1}',
        '"\ud800"',
        "[1,2",
        "01",
        "{a:1}",
        "[" * 100_000,
        '{"a":' * (NESTING_MAX + 1) + "1" + "}" * (NESTING_MAX + 1),
        "",
        b"\xff",
        b'"\xed\xa0\x80"',
    ],
)
def test_what_is_no_json_of_ours_is_refused(text: str | bytes) -> None:
    """F2: NaN, infinity, numbers out of range, twins of a key, half characters and bottomless nesting are errors."""
    with pytest.raises(NotJsonError):
        parse(text)


def test_a_twin_among_many_keys_is_found_at_once() -> None:
    """H03: a megabyte of keys of which the last is given twice is refused in a moment, by its name."""
    text = "{" + ",".join(f'"k{number}":1' for number in range(90_000)) + ',"k89999":1}'
    started = time.process_time()
    with pytest.raises(NotJsonError, match="'k89999' is given twice"):
        parse(text)
    assert time.process_time() - started < 2


@pytest.mark.parametrize(
    "value",
    [
        float("nan"),
        [float("inf")],
        Decimal("NaN"),
        {"a": Decimal("Infinity")},
        {"a": {1, 2}},
        object(),
        "\udc80",
        {"x": ["\ud800"]},
        {1: Decimal(1), "a": 2},
        b"bytes",
    ],
)
def test_what_has_no_spelling_is_refused(value: Any) -> None:
    """F2: a value that JSON lacks is an error of ours, never a crash and never a guess."""
    with pytest.raises(NotJsonError):
        canonical(value)


def test_a_value_that_holds_itself_is_refused() -> None:
    """F2: a cycle is no JSON."""
    endless: list[Any] = []
    endless.append(endless)
    with pytest.raises(NotJsonError):
        canonical(endless)
    endless.append(Decimal(1))
    with pytest.raises(NotJsonError):
        canonical(endless)


def test_nesting_has_a_limit() -> None:
    """F2: 64 levels are read, 65 are not."""
    deep: Any = 1
    for _ in range(NESTING_MAX):
        deep = [deep]
    check_nesting(deep)
    with pytest.raises(NotJsonError, match="deeper than 64"):
        check_nesting([deep])


def test_numbers_may_have_as_many_digits_as_the_limit() -> None:
    """F2: exact at any size up to a thousand digits or powers of ten, and an error beyond, never a rounded one."""
    longest = "0." + "1" * 998
    assert parse(longest) == Decimal(longest)
    assert parse("1" * 1000) == int("1" * 1000)
    assert parse("1.5e1000") == Decimal("1.5e1000")
    for text in (longest + "1", "1" * 1001, "1.5e1001"):
        with pytest.raises(NotJsonError):
            parse(text)


@pytest.mark.parametrize("half", [b'"\\ud800"', b'["\\udfff"]', b'{"\\ud800": 1}', '"\\ud800"', b'"\xed\xa0\x80"'])
def test_half_a_character_is_no_text_in_whatever_it_is_read_from(half: str | bytes) -> None:
    """F2: as an escape or as bytes, it could be written nowhere."""
    with pytest.raises(NotJsonError, match=r"\S"):
        parse(half)
    assert parse(b'"\\u0041\\ud83d\\ude00"') == "A\N{GRINNING FACE}"


def test_lists_in_what_is_spelled_slowly_keep_their_members() -> None:
    """F2: decimals are spelled exactly wherever they stand."""
    assert canonical([Decimal("1.50"), [True, {"a": Decimal("1e400")}]]) == '[1.50,[true,{"a":1e400}]]'
    with pytest.raises(NotJsonError, match="not JSON serializable"):
        canonical([Decimal(1), {1, 2}])  # type: ignore[list-item]
