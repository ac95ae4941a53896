"""Text: what a terminal would obey, hide or reorder is shown, and lines keep to their columns."""

from __future__ import annotations

import unicodedata

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sagactl.cli.views.layout import Cell, Column, Row, lay_out, list_facts
from sagactl.cli.views.style import Style
from sagactl.cli.views.text import brief, fit, pad, plural, safe, width_of, wrap

ANY_TEXT = st.text(alphabet=st.characters(), max_size=60)
"""All characters there are, lone surrogates too."""


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("\x1b[2Jgone", r"\x1b[2Jgone"),
        ("\x1b]8;;http://evil.example\x1b\\link", r"\x1b]8;;http://evil.example\x1b\link"),
        ("\x1b]52;c;cm0gLXJm\x07", r"\x1b]52;c;cm0gLXJm\x07"),
        ("a\x9b31mb", r"a\x9b31mb"),
        ("ok\rFAIL", r"ok\rFAIL"),
        ("two\nlines\tand a tab", r"two\nlines\tand a tab"),
        ("\u202egnp.exe", r"\u202egnp.exe"),
        ("a\u2066b\u2069", r"a\u2066b\u2069"),
        ("ze\u200bro\u200d\ufeff", r"ze\u200bro\u200d\ufeff"),
        ("\U000e0041tag", r"\U000e0041tag"),
        ("smuggled\ufe01\U000e0101", r"smuggled\ufe01\U000e0101"),
        ("\ud800half", r"\ud800half"),
        ("line\u2028separator\x85", r"line\u2028separator\x85"),
        ("blank\u3164\u2800", r"blank\u3164\u2800"),
        ("\x7f\x00", r"\x7f\x00"),
        ("Grüße, 東京, Ελλάδα 🚀", "Grüße, 東京, Ελλάδα 🚀"),
        ("re\u0301sume\u0301", "re\u0301sume\u0301"),
        ("[bold red]no markup[/]", "[bold red]no markup[/]"),
    ],
)
def test_foreign_text_is_shown_for_what_it_is(text: str, shown: str) -> None:
    """H27: whatever a terminal would obey or hide comes out as an escape; writing stays writing."""
    assert safe(text) == shown


def test_marks_cannot_climb_into_other_lines() -> None:
    """H27: more marks on one letter than any script has are shown as escapes."""
    assert safe("a" + "\u0301" * 6) == "a" + "\u0301" * 3 + r"\u0301" * 3


def test_a_text_cannot_put_a_mark_on_our_own_letters() -> None:
    """H27: a mark at the beginning is an escape, so it doesn't change the letter before the text."""
    assert safe("\u0301x") == r"\u0301x"


@given(ANY_TEXT)
def test_nothing_invisible_is_left(text: str) -> None:
    """H27: no text whatever leaves a control, format, surrogate or separator character behind."""
    hidden = {"Cc", "Cf", "Cs", "Cn", "Co", "Zl", "Zp"}
    assert not [each for each in safe(text) if unicodedata.category(each) in hidden]
    assert safe(text, is_ascii=True).isascii()


@given(ANY_TEXT, st.integers(min_value=0, max_value=30))
def test_a_cut_text_fits(text: str, columns: int) -> None:
    """A text that is cut takes no more columns than it was given."""
    assert width_of(fit(safe(text), columns)) <= columns
    assert width_of(fit(safe(text, is_ascii=True), columns, ellipsis="...")) <= columns


@given(ANY_TEXT, st.integers(min_value=2, max_value=30))
def test_wrapped_lines_fit_and_lose_nothing_but_spaces(text: str, columns: int) -> None:
    """Wrapping keeps every character that isn't a space, and every line within its columns."""
    shown = safe(text)
    lines = wrap(shown, columns)
    assert all(width_of(line) <= columns for line in lines)
    assert "".join("".join(lines).split()) == "".join(shown.split())


def test_wide_characters_take_two_columns() -> None:
    """Tables stay aligned where East Asian text and emoji stand in them."""
    rows: list[Row] = [["東京", Cell("a")], ["x", Cell("b")], ["e\u0301", Cell("c")], ["🚀", Cell("d")]]
    lines = lay_out((Column("city"), Column("n")), rows, Style())
    assert {width_of(line) - 1 for line in lines[1:]} == {2 + 4 + 2}
    assert pad("東", 4) == "東  "
    assert pad("7", 4, to_right=True) == "   7"


@given(st.lists(st.tuples(ANY_TEXT, ANY_TEXT, ANY_TEXT), min_size=1, max_size=4), st.integers(10, 100))
def test_tables_fit_whatever_stands_in_them(rows: list[tuple[str, str, str]], width: int) -> None:
    """No row of a table without whole columns passes the edge."""
    style = Style(width=width)
    shown = [[style.show(cell) for cell in row] for row in rows]
    lines = lay_out((Column("one"), Column("two", to_right=True), Column("three")), shown, style)
    assert all(width_of(line) <= style.columns for line in lines)


def test_a_column_without_text_is_left_out() -> None:
    """A table has no columns in which nothing stands."""
    assert lay_out((Column("a"), Column("b"), Column("c")), [["1", "", "3"]], Style()) == ["  a  c", "  1  3"]


def test_facts_without_text_are_left_out() -> None:
    """A label stands only where there is something to say."""
    assert list_facts([("a", ""), ("b", "x"), ("c", ["1", "2"])], Style()) == [
        "  b         x", "  c         1", "            2",
    ]  # fmt: skip


def test_values_are_summed_up() -> None:
    """A value is named by its members; a secret by its name; nothing by nothing."""
    assert brief({"charge_id": "ch_1", "amount": 5000, "paid": True}) == "charge_id ch_1, amount 5000, paid true"
    assert brief({"key": {"$secret": "STRIPE"}}, joint="=") == "key=secret STRIPE"
    assert brief({"name": "two words", "list": [1, {"a": None}]}) == 'name "two words", list [1, {"a": null}]'
    assert brief(None) == brief({}) == ""
    assert brief(2**70) == str(2**70)


def test_a_huge_value_costs_little() -> None:
    """A megabyte in an output is cut before it is looked at letter by letter."""
    assert len(brief({"blob": "x" * 1_000_000, "more": ["y"] * 100_000})) <= 400


def test_numbers_agree_with_their_nouns() -> None:
    """One step, two steps, a thousand with its comma."""
    assert [plural(count, "step") for count in (0, 1, 1200)] == ["0 steps", "1 step", "1,200 steps"]
