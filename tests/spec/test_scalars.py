"""F2: what an unquoted word means."""

from __future__ import annotations

from decimal import Decimal

import pytest

from sagactl.core.canonical import Json
from sagactl.written.findings import Findings
from sagactl.written.positions import plain_value, read_yaml
from sagactl.written.scalars import BadNumberError, read_plain
from sagactl.written.source import Source


@pytest.mark.parametrize(
    "word",
    [
        *("no", "No", "NO", "on", "off", "yes", "y", "n", "1:30", "22:22", "12:30:45", "2026-01-01", "012", "01234"),
        *("0755", "0o17", "0x1F", "0b1", "1_000", "00", "-012", "00.5", "1.2.3", "1e", "e5", ".", "-", "+", "..", "="),
        *("nULL", "tRUE", "2001-12-14t21:59:43.10-05:00", "inf", "nan", "Infinity", "1,000", "0_1", ".5.", "--1"),
        *("+-1", "1e5.5", "\uff11\uff12", "\u0663"),
    ],
)
def test_words_that_only_look_like_something_stay_text(word: str) -> None:
    """F2: whatever is no number, boolean or null of the core schema is text as written; so is a leading zero."""
    assert read_plain(word) == word
    assert isinstance(read_plain(word), str)


@pytest.mark.parametrize(
    ("word", "value"),
    [
        ("0", 0),
        ("-0", 0),
        ("5", 5),
        ("+5", 5),
        ("-17", -17),
        (str(2**53 + 1), 2**53 + 1),
        (str(2**64), 2**64),
        ("9" * 1000, 10**1000 - 1),
        ("1.10", Decimal("1.10")),
        (".5", Decimal("0.5")),
        ("5.", Decimal(5)),
        ("0.5", Decimal("0.5")),
        ("-0.0", Decimal("-0.0")),
        ("1e3", Decimal("1e3")),
        ("1E-3", Decimal("0.001")),
        ("0e0", Decimal(0)),
        ("0.1", Decimal("0.1")),
        ("true", True),
        ("True", True),
        ("FALSE", False),
        ("", None),
        ("~", None),
        ("null", None),
        ("Null", None),
    ],
)
def test_numbers_booleans_and_null_are_exact(word: str, value: Json) -> None:
    """F2: integers are exact at any size, fractions are exact decimals."""
    found = read_plain(word)
    assert found == value
    assert type(found) is type(value)
    assert str(found) == str(value)


@pytest.mark.parametrize(
    "word", [".nan", ".NaN", ".inf", "-.inf", "+.INF", "1e1001", "1e-1002", "1e999999999999", "9" * 1001]
)
def test_numbers_that_nothing_can_hold_are_errors(word: str) -> None:
    """F2: NaN, infinity and numbers beyond the limit are refused, H09."""
    with pytest.raises(BadNumberError):
        read_plain(word)


def test_quotes_make_text_of_everything() -> None:
    """F2: a quoted scalar and a block scalar are text whatever they say."""
    text = "a: '5'\nb: \"true\"\nc: |\n  null\nd: >-\n  1.5\ne: ''\n"
    node = read_yaml(Source("x", text), Findings(Source("x", text)))
    assert node is not None
    assert plain_value(node) == {"a": "5", "b": "true", "c": "null\n", "d": "1.5", "e": ""}
