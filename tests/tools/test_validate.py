"""Checking values: two ways with one verdict, nothing fetched, nothing slow, nothing secret quoted."""

from __future__ import annotations

import http.server
import random
import threading
import time
from collections.abc import Iterator
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sagactl.core.canonical import Json
from sagactl.schemas.formats import FORMATS
from sagactl.schemas.patterns import PATTERN_TEXT_MAX, UnsafePatternError, compile_pattern, matches
from sagactl.tools.simple import compile_simple
from sagactl.tools.validate import InvalidSchemaError, compile_schema, compile_with_library

SCHEMAS: list[dict[str, Json]] = [
    {},
    {"type": "integer"},
    {"type": "number", "minimum": 1, "maximum": Decimal("2.5")},
    {"type": ["string", "null"]},
    {"exclusiveMinimum": 0, "exclusiveMaximum": 3},
    {"enum": [1, "a", None, [1], {"a": True}]},
    {"const": 1},
    {"const": False},
    {"type": "string", "minLength": 2, "maxLength": 3},
    {"type": "string", "pattern": "^a+$"},
    {"type": "array", "items": {"type": "integer"}, "minItems": 1, "maxItems": 2},
    {"type": "object", "properties": {"a": {"type": "integer"}}, "required": ["a"], "additionalProperties": False},
    {"type": "object", "additionalProperties": {"type": "string"}},
    {"type": "object", "properties": {"a": {}}, "additionalProperties": True, "description": "open"},
    {"anyOf": [{"type": "integer"}, {"type": "array", "items": {"const": 1}}]},
    {"properties": {"k": {"type": "string", "writeOnly": True}}, "required": ["k"]},
    {"type": "string", "format": "unheard-of"},
]
SCHEMAS += [{"type": "string", "format": name} for name in FORMATS]
VALUES: list[Json] = [
    None,
    True,
    False,
    0,
    1,
    2,
    2**70,
    Decimal("1.0"),
    Decimal("2.5"),
    Decimal("1e400"),
    "",
    "a",
    "aa",
    "aaaa",
    "\U0001f600\U0001f600",
    "a\n",
    [],
    [1],
    [True],
    [1, "x", 3],
    {},
    {"a": 1},
    {"a": True},
    {"a": 1, "b": 2},
    {"k": "s"},
    {"k": 3},
    {"k": {"$secret": "KEY"}},
    {"k": {"$secret": "KEY", "x": 1}},
    "ada@example.com",
    "not an address@",
    "2026-01-31",
    "2026-02-30",
    "20260131",
    "2026-01-31T10:00:00Z",
    "2026-01-31T10:00:00",
    "2026-01-31T25:00:00Z",
    "6ba7b810-9dad-11d1-80b4-00c04fd430c8",
    "10.0.0.1",
    "10.0.0.256",
    "::1",
]


@pytest.mark.parametrize("schema", SCHEMAS, ids=str)
def test_quick_check_and_library_agree(schema: dict[str, Json]) -> None:
    """The quick check takes exactly the values that the library takes."""
    simple = compile_simple(schema)
    assert simple is not None
    library = compile_with_library(schema)
    for value in VALUES:
        assert (simple(value, "") is None) == (library(value) is None), value


SCALARS = st.none() | st.booleans() | st.integers(-5, 5) | st.decimals(-5, 5, places=1) | st.text("ab", max_size=4)
ANY_VALUE = st.recursive(
    SCALARS, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from("abk"), inner, max_size=3)
)


@settings(max_examples=150, deadline=None)
@given(value=ANY_VALUE, number=st.integers(0, len(SCHEMAS) - 1))
def test_quick_check_and_library_agree_on_anything(value: Json, number: int) -> None:
    """Whatever the value, the two ways to check come to the same verdict."""
    simple = compile_simple(SCHEMAS[number])
    assert simple is not None
    assert (simple(value, "") is None) == (compile_with_library(SCHEMAS[number])(value) is None)


@pytest.mark.parametrize(
    ("schema", "value", "problem"),
    [
        ({"type": "integer"}, True, "must be an integer, not true"),
        ({"type": "integer"}, Decimal("1.0"), "must be an integer, not 1.0"),
        ({"type": "string"}, {"a": 1}, "must be a string, not an object"),
        ({"properties": {"a": {"items": {"minimum": 1}}}}, {"a": [1, 0]}, "a[1]: must be at least 1, not 0"),
        ({"enum": ["ok", "no"]}, "yes", 'must be one of "ok", "no", not "yes"'),
        ({"required": ["a"]}, {}, "`a` is missing"),
        ({"additionalProperties": False, "properties": {"a": {}}}, {"b": 1}, "`b` is no known property; it takes `a`"),
        ({"multipleOf": 5}, 7, "must be a multiple of 5, not 7"),
        ({"oneOf": [{"type": "string"}]}, 7, "must satisfy `oneOf` of its schema, not 7"),
        ({"type": "array", "uniqueItems": True}, [1, 1], "must not hold the same item twice, not a list of 2"),
    ],
)
def test_problem_names_place_and_value(schema: dict[str, Json], value: Json, problem: str) -> None:
    """F5: what is wrong is said in one line that names the place, what is wanted, and the value."""
    assert compile_schema(schema)(value) == problem


def test_problems_are_bounded_and_on_one_line() -> None:
    """H27: a value with control characters or of any length makes a short line of printable text."""
    problem = compile_schema({"type": "integer"})("\x1b[2J\n\u202e" + "x" * 1_000_000)
    assert problem is not None
    assert problem.isprintable()
    assert len(problem) < 200


@pytest.mark.parametrize("extra", [{}, {"dependentRequired": {}}], ids=["quick", "library"])
def test_secrets_are_never_quoted(extra: dict[str, Json]) -> None:
    """E19: no message quotes what stands in a property marked `writeOnly`, and a reference to a secret passes."""
    secret: Json = {"type": "object", "writeOnly": True, "properties": {"pin": {"type": "integer"}}}
    schema: dict[str, Json] = {"properties": {"key": {"type": "string", "maxLength": 3, "writeOnly": True}}, **extra}
    verdict = compile_schema(schema)
    assert "hunter2" not in str(verdict({"key": "hunter2"}))
    assert verdict({"key": {"$secret": "KEY"}}) is None
    assert "hunter2" not in str(compile_schema({"properties": {"card": secret}, **extra})({"card": {"pin": "hunter2"}}))


def test_numbers_are_exact() -> None:
    """F2: integers of any size and decimals are compared and divided without rounding."""
    assert compile_schema({"maximum": 2**70})(2**70 + 1) is not None
    tenth = compile_schema({"multipleOf": Decimal("0.1")})
    assert tenth(Decimal("0.3")) is None
    assert tenth(10**40) is None
    assert tenth(Decimal("0.35")) is not None


@pytest.fixture
def listener() -> Iterator[tuple[int, list[str]]]:
    """Give a port of this machine, and what was asked for there."""
    asked: list[str] = []

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            asked.append(self.path)
            self.send_error(404)

    with http.server.HTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield server.server_address[1], asked
        server.shutdown()
        thread.join()


def test_no_reference_is_ever_fetched(listener: tuple[int, list[str]], tmp_path: Path) -> None:
    """H21: a `$ref` to an address or a file is refused, also where it hides, and nobody is asked for it."""
    port, asked = listener
    file = tmp_path / "schema.json"
    file.write_text('{"type": "string"}')
    for target in (f"http://127.0.0.1:{port}/x.json", file.as_uri(), "x.json", ""):
        hidden: list[dict[str, Any]] = [
            {"$ref": target},
            {"properties": {"default": {"items": {"$ref": target}}}},
            {"anyOf": [{"not": {"$dynamicRef": target}}]},
            {"$defs": {"enum": {"$ref": target}}},
        ]
        for schema in hidden:
            with pytest.raises(InvalidSchemaError, match="refers to"):
                compile_schema(schema)
    # Even past that check the library has no way to fetch anything.
    verdict = compile_with_library({"properties": {"a": {"$ref": f"http://127.0.0.1:{port}/y.json"}}})
    assert "can't be applied" in str(verdict({"a": 1}))
    assert asked == []


def test_local_references_are_followed() -> None:
    """A `$ref` within the schema works, and a dangling one is a problem and no crash."""
    point: dict[str, Json] = {"$defs": {"cents": {"type": "integer"}}, "properties": {"a": {"$ref": "#/$defs/cents"}}}
    assert compile_schema(point)({"a": 1}) is None
    assert compile_schema(point)({"a": "1"}) == 'a: must be an integer, not "1"'
    assert "can't be applied" in str(compile_schema({"$ref": "#/$defs/missing"})(1))


def test_schema_that_contains_itself_without_end_is_a_problem() -> None:
    """A schema that refers to itself alone is answered, not recursed into for ever."""
    assert "without end" in str(compile_schema({"$ref": "#"})(1))


def test_schema_that_unfolds_without_bound_is_refused() -> None:
    """A few references that double at each level are refused before they are followed."""
    parts: dict[str, Any] = {f"p{n}": {"allOf": [{"$ref": f"#/$defs/p{n + 1}"}] * 2} for n in range(30)}
    with pytest.raises(InvalidSchemaError, match="unfolds"):
        compile_schema({"$defs": {**parts, "p30": {}}, "$ref": "#/$defs/p0"})


@pytest.mark.parametrize(
    "schema",
    [
        {"type": "strnig"},
        {"type": []},
        {"minLength": -1},
        {"minimum": "1"},
        {"properties": []},
        {"required": "a"},
        {"items": 3},
        {"enum": 3},
        {"pattern": 3},
        {"additionalProperties": 1},
        {"default": float("nan")},
        {"pattern": "["},
    ],
)
def test_malformed_schema_is_refused(schema: dict[str, Any]) -> None:
    """What is no JSON Schema is refused when the tool is registered, not when it is called."""
    with pytest.raises(InvalidSchemaError):
        compile_schema(schema)


def test_equal_schemas_are_compiled_once() -> None:
    """A schema is compiled once, however often it is read back from a snapshot."""
    assert compile_schema({"type": "integer", "minimum": 77}) is compile_schema({"minimum": 77, "type": "integer"})


SLOW = [
    "^(a+)+$",
    "^(a|aa)+$",
    "^(a?a?)*$",
    "^(.*)*$",
    "(x+x+)+y",
    "^(a+){40}$",
    "(a?){30}a{30}",
    "^a*a*a*b$",
    "^ab.*ab.*ab.*ab$",
    "^((a*)|b)*c$",
    "^(?:[^a]+|a)*$",
    "^(\\w+\\s?)*$",
    "(?i)a",
    "(?i:a)b",
    "^(?=(a+)+$)",
    "(a{0,20}a*b)*x$",
    "^(,(ab|a)(c|bc))*$",
    "^(,(a*)?)*$",
    "a?" * 30 + "b",
    "[",
    "a" * 2_000,
]
QUICK = [
    "",
    "foo",
    "^[a-z][a-z0-9_]*$",
    "^[^@\\s]+@[^@\\s]+\\.[^@\\s]+$",
    "^[0-9]+(,[0-9]+)*$",
    "^([a-z]+\\.)*[a-z]+$",
    "^\\d{1,3}(\\.\\d{1,3}){3}$",
    "^[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}$",
    "^(foo|bar)-[a-z]+$",
    "^(https?://)?[\\w.-]+(/.*)?$",
    "^[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?(\\.[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?)*$",
    "^\\s*(-?\\d+(\\.\\d+)?)\\s*$",
    "^(?=.*\\d)(?=.*[a-z]).{8,}$",
    "a*b",
]


@pytest.mark.parametrize("pattern", SLOW)
def test_slow_pattern_is_refused(pattern: str) -> None:
    """H23: a pattern that a text could keep busy for ever is refused at load."""
    with pytest.raises(UnsafePatternError):
        compile_pattern(pattern)
    with pytest.raises(InvalidSchemaError):
        compile_schema({"properties": {"a": {"pattern": pattern}}})
    with pytest.raises(InvalidSchemaError):
        compile_schema({"patternProperties": {pattern: {}}})


@pytest.mark.parametrize("pattern", QUICK)
def test_usual_pattern_is_taken_and_quick(pattern: str) -> None:
    """H23: usual patterns pass, and no text of any length takes long."""
    compiled = compile_pattern(pattern)
    for part in ("a", "a@", "1.", "a.", "-", "aA1 ", "0,", "\n"):
        started = time.process_time()
        matches(compiled, (part * 5_000)[: PATTERN_TEXT_MAX - 1] + "!")
        matches(compiled, part * 500_000)
        assert time.process_time() - started < 0.5


def test_random_pattern_that_is_taken_is_quick() -> None:
    """H23: of random patterns, many of them nasty, each that passes answers quickly on texts that almost match."""
    chance = random.Random(5)
    atoms = ["a", "b", ".", "[ab]", "[^a]", "\\w", "(a|b)", "(a|ab)", "(?:a+)", "(b?)", "-", "a{1,3}"]
    repeats = ["", "*", "+", "?", "{2}", "{0,20}"]
    texts = [(part * PATTERN_TEXT_MAX)[: PATTERN_TEXT_MAX - 1] + "!" for part in ("a", "ab", "b", "-a")]
    taken = 0
    for _ in range(800):
        core = "".join(chance.choice(atoms) + chance.choice(repeats) for _ in range(chance.randint(1, 5)))
        pattern = chance.choice(["", "^"]) + chance.choice([core, f"({core}){chance.choice(repeats)}"])
        try:
            compiled = compile_pattern(pattern + chance.choice(["", "$", "x$"]))
        except UnsafePatternError:
            continue
        taken += 1
        for text in texts:
            started = time.process_time()
            matches(compiled, text)
            assert time.process_time() - started < 1, pattern
    assert taken > 200
