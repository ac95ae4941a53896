"""Reading YAML: what is refused, where it is, and how long that takes."""

from __future__ import annotations

import time
import tracemalloc
from itertools import pairwise

import pytest
import yaml

from sagactl.written.findings import Findings
from sagactl.written.positions import ListNode, MapNode, Node, Scalar, plain_value, read_yaml
from sagactl.written.problem import Problem
from sagactl.written.source import Source, decode


def read(text: str | bytes) -> tuple[Node | None, list[Problem]]:
    """Return the node of a text and its problems."""
    source, unreadable = decode(text, "x.yaml")
    findings = Findings(source)
    assert unreadable is None
    return read_yaml(source, findings), list(findings.sorted())


def codes(text: str) -> list[tuple[str, int, int]]:
    """Return code, line and column of each problem."""
    return [(problem.code, problem.line, problem.column) for problem in read(text)[1]]


@pytest.fixture(params=["libyaml", "python"])
def parser(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """Run a test with libyaml's parser and with PyYAML's own."""
    if request.param == "python":
        monkeypatch.setattr(yaml, "__with_libyaml__", False)
    return str(request.param)


SAMPLE = "a: 'ä' # 😀\r\nb: {c: [1, \"x\\ty\"], d: 漢字}\ne: |\n  block\n  text\nf:\n- plain words\n"


@pytest.mark.usefixtures("parser")
def test_every_key_and_value_knows_its_characters() -> None:
    """F5: spans hold the very characters of keys and values, also behind wide characters and CRLF."""
    source = Source("x", SAMPLE)
    found: list[str] = []

    def walk(node: Node) -> None:
        if isinstance(node, MapNode):
            for entry in node.entries:
                found.append(SAMPLE[entry.key_span.start : entry.key_span.end])
                walk(entry.node)
        elif isinstance(node, ListNode):
            for item in node.items:
                walk(item)
        elif isinstance(node, Scalar):
            found.append(SAMPLE[node.span.start : node.span.end].partition("\n")[0])

    node = read_yaml(source, Findings(source))
    assert node is not None
    walk(node)
    assert found == ["a", "'ä'", "b", "c", "1", '"x\\ty"', "d", "漢字", "e", "|", "f", "plain words"]


@pytest.mark.usefixtures("parser")
def test_a_key_given_twice_is_an_error_with_both_places() -> None:
    """F2: duplicate keys are errors that show both lines, at every level, H05."""
    _, problems = read('a: 1\nb:\n  c: 1\n  d: 2\n  c: 3\n"a": 2\n')
    assert [(each.code, each.line, each.related) for each in problems] == [
        ("duplicate-key", 5, (3, 3, 4, "first here")),
        ("duplicate-key", 6, (1, 1, 2, "first here")),
    ]


@pytest.mark.usefixtures("parser")
@pytest.mark.parametrize(
    ("text", "code"),
    [
        ("a: &x 1\n", "alias"),
        ("a: *x\n", "alias"),
        ("a: !!str 1\n", "tag"),
        ("a: ! x\n", "tag"),
        ("a: !custom [1]\n", "tag"),
        ("<<: {a: 1}\n", "merge-key"),
        ("1: a\n", "bad-key"),
        ("true: a\n", "bad-key"),
        ("~: a\n", "bad-key"),
        ("? [a]\n: b\n", "bad-key"),
        ("? {a: b}\n: b\n", "bad-key"),
        ("a: 1\n---\nb: 1\n", "several-documents"),
        ("a: 1\n...\n---\nb: 1\n", "several-documents"),
        ("", "empty-file"),
        ("---\n---\n", "several-documents"),
        ("a: {b: ${{ input.x }}}\n", "unquoted-expression"),
        ("a: [${{ input.x }}]\n", "unquoted-expression"),
        ("a: ${{ x ? y : z }}\n", "unquoted-expression"),
        ("a: [1\n", "yaml-syntax"),
        ("a: 'x\n", "yaml-syntax"),
        ("a: b: c\n", "yaml-syntax"),
        ("\ta: b\n", "yaml-syntax"),
    ],
)
def test_what_yaml_offers_beyond_json_is_refused(text: str, code: str) -> None:
    """F2: no anchors, aliases, tags, merge keys, keys that are no text, second documents, unquoted expressions."""
    assert code in [found for found, _, _ in codes(text)]


@pytest.mark.usefixtures("parser")
def test_words_that_were_booleans_are_plain_keys() -> None:
    """F2: `on:` and `no:` are keys like any other, H07."""
    node, problems = read("on: push\nno: 1\nyes: 2\n012: 3\n")
    assert not problems
    assert node is not None
    assert plain_value(node) == {"on": "push", "no": 1, "yes": 2, "012": 3}


def test_the_quoted_line_is_proposed_for_an_unquoted_expression() -> None:
    """F2: the hint shows the line as it must be, with quotes that fit the expression."""
    hints = {
        "  with: {to: ${{ input.email }}, n: 1}": '  with: {to: "${{ input.email }}", n: 1}',
        "- [a, hi ${{ input['x'] }} you]": "- [a, \"hi ${{ input['x'] }} you\"]",
        'a: {to: ${{ x == "b" }}}': "a: {to: '${{ x == \"b\" }}'}",
        "a: ${{ x ? 1 : 2 }} # why": 'a: "${{ x ? 1 : 2 }}" # why',
    }
    for line, wanted in hints.items():
        [problem] = read(f"x:\n{line}\n" if not line.startswith("a") else line)[1]
        assert problem.hint == f"write it as: {wanted.strip()}"


def test_braces_without_a_dollar_sign_are_told_how_an_expression_is_written() -> None:
    """F2: `{{ x }}` is a map as a key to YAML; the hint says what was meant."""
    [problem] = read("a: {{ input.x }}\n")[1]
    assert (problem.code, problem.hint) == ("bad-key", 'an expression is written "${{ ... }}"')


@pytest.mark.usefixtures("parser")
@pytest.mark.parametrize("opening", ["[", "{a: ", "- ", "? ", "[{a: ", "[\n"])
def test_deep_nesting_ends_at_the_limit_without_recursion(opening: str) -> None:
    """F2: a hundred thousand openings are one problem with the depth limit, in under a second, H03."""
    started = time.process_time()
    found = [code for code, _, _ in codes(opening * 100_000)]
    assert found == ["too-deep"]
    assert time.process_time() - started < 3


def test_sixty_four_levels_are_allowed_and_no_more() -> None:
    """Limits: lists and maps nest to 64 levels."""
    assert codes("[" * 64 + "]" * 64) == []
    assert codes("[" * 65 + "]" * 65) == [("too-deep", 1, 65)]


def test_an_alias_bomb_is_refused_before_it_grows() -> None:
    """Limits: nine levels of nine aliases cost neither time nor memory, H01."""
    names = "abcdefghi"
    lines = [f"{name}: &{name} [{', '.join(['*' + before] * 9)}]" for before, name in pairwise(names)]
    bomb = "a: &a [x, x]\n" + "\n".join(lines)
    tracemalloc.start()
    started = time.process_time()
    found = {code for code, _, _ in codes(bomb)}
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert found == {"alias"}
    assert "limit" in read(bomb)[1][0].message
    assert time.process_time() - started < 0.5
    assert peak < 5_000_000


@pytest.mark.parametrize(
    ("raw", "code", "place"),
    [
        (b"a: \xff\n", "bad-encoding", (1, 4)),
        ("ä: ü\n".encode() + b"b: \xc3", "bad-encoding", (2, 4)),
        ("a: b".encode("utf-16"), "bad-encoding", (1, 1)),
        (b"a: \x00", "bad-character", (1, 4)),
        ("a: 1\nb: \u2028".encode(), "bad-character", (2, 4)),
        ("a: \ufeff".encode(), "bad-character", (1, 4)),
        ("a: \x9b".encode(), "bad-character", (1, 4)),
        ("a: \ud800", "bad-character", (1, 4)),
        (b"#" * (1 << 20) + b"#", "file-too-large", (1, 1)),
    ],
)
def test_what_is_no_text_is_told_with_its_place(raw: bytes | str, code: str, place: tuple[int, int]) -> None:
    """F2: bad UTF-8, NUL, marks and controls are clear errors where they stand."""
    source, unreadable = decode(raw, "x.yaml")
    assert unreadable is not None
    assert unreadable.code == code
    assert source.place(unreadable.span.start) == place


@pytest.mark.usefixtures("parser")
def test_a_byte_order_mark_at_the_start_is_no_part_of_the_text() -> None:
    """F2: a UTF-8 mark at the start is passed over, and columns are those of an editor."""
    node, problems = read("\ufeffa: 1\na: 2\n".encode())
    assert node is not None
    assert [(each.code, each.related) for each in problems] == [("duplicate-key", (1, 1, 2, "first here"))]
