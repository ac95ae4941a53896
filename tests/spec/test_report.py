"""Problems as text: the caret stands under the very characters, and nothing in a file reaches the terminal raw."""

from __future__ import annotations

import unicodedata

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from rich.cells import cell_len

from sagactl.written.problem import Problem
from sagactl.written.report import render_problems
from sagactl.written.visible import show, width


def problem_at(line: int, column: int, end_column: int, **others: object) -> Problem:
    """Return an error at a place."""
    return Problem("some-code", "message", "file.yaml", line, column, end_column, **others)  # type: ignore[arg-type]  # fields by name


@pytest.mark.parametrize(
    ("line", "word"),
    [
        ("plain: word here", "word"),
        ("\ttab\tbefore: word", "word"),
        ("漢字: word", "word"),
        ("漢字: 漢字 x", "漢字 x"),
        ("e\u0301e\u0301: word", "word"),
        ("😀😀 word", "word"),
        ("\u202e\u200b word", "word"),
        ("nbsp\u00a0word", "word"),
        ("x" * 500 + " word " + "y" * 500, "word"),
        ("漢" * 500 + " word", "word"),
        ("a: b" * 400 + " word", "word"),
    ],
)
def test_the_caret_stands_under_the_word(line: str, word: str) -> None:
    """F5: with tabs, wide and combining characters, emoji and cut lines, carets fit what is shown above them."""
    column = line.rindex(word) + 1
    text = "first\r\n" + line + "\r\nlast"
    lines = render_problems([problem_at(2, column, column + len(word))], text).split("\n")
    shown, pointer = lines[3], lines[4]
    start, end = pointer.index("^"), pointer.rindex("^") + 1
    assert cell_len(shown[: shown.rindex(word)]) == start
    assert cell_len(word) == end - start
    assert len(shown) < 200


def test_both_places_of_a_duplicate_are_shown_in_order() -> None:
    """F2: the first place is underlined with dashes, the second with carets."""
    found = render_problems([problem_at(3, 1, 4, label="again here", related=(1, 1, 4, "first here"))], "key\nx\nkey\n")
    assert found.splitlines()[2:] == [
        "    |",
        "  1 | key",
        "    | --- first here",
        "  3 | key",
        "    | ^^^ again here",
        "",
        "1 error in 1 file",
    ]


def test_twenty_problems_are_shown_and_all_are_counted() -> None:
    """F5: at most twenty problems are printed; the count names the rest."""
    problems = [problem_at(1, 1, 2)] * 30 + [problem_at(1, 1, 2, severity="warning")]
    found = render_problems(problems, "x")
    assert found.count("some-code") == 20
    assert found.endswith("... and 11 more\n\n30 errors, 1 warning in 1 file\n")


def test_nothing_is_printed_where_nothing_is_wrong() -> None:
    """No problems are no text."""
    assert render_problems([], "x") == ""


@settings(derandomize=True, max_examples=300, deadline=None)
@given(st.text(max_size=60), st.text(max_size=30), st.integers(1, 70), st.integers(0, 40))
def test_no_control_character_reaches_the_screen(text: str, message: str, column: int, length: int) -> None:
    """H27, H29: controls, direction marks and characters of no width are shown as escapes, wherever they come from."""
    problem = Problem("code", message, text, 1, column, column + length, hint=message, label=text)
    printed = render_problems([problem], text).replace("\n", "")
    assert not [each for each in printed if unicodedata.category(each) in {"Cc", "Cf", "Cs", "Zl", "Zp"}]


def test_escapes_are_shown_once() -> None:
    """What was made visible stays as it is."""
    assert show(show("a\x1b[2J\u202e\u200d")) == "a\\u001b[2J\\u202e\\u200d"


@pytest.mark.parametrize("character", ["a", "ä", "漢", "😀", "\u0301", "\uff57", "字", "é"])
def test_widths_are_those_of_the_terminal_library(character: str) -> None:
    """The width of a character is the one that rich measures."""
    assert width(character) == cell_len(character)
