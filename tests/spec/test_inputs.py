"""The input of a run: defaults, everything that is wrong at once, formats, and no secret in a message."""

from __future__ import annotations

import time
from decimal import Decimal

import pytest

from sagactl.core.canonical import Json
from sagactl.spec.inputs import check_input

SCHEMA: dict[str, Json] = {
    "type": "object",
    "required": ["email"],
    "additionalProperties": False,
    "properties": {
        "email": {"type": "string", "format": "email"},
        "amount": {"type": "integer", "minimum": 1, "default": 100},
        "options": {"type": "object", "properties": {"color": {"default": "red"}}},
        "people": {"type": "array", "items": {"$ref": "#/$defs/person"}},
        "token": {"type": "string", "writeOnly": True, "maxLength": 4},
    },
    "$defs": {"person": {"type": "object", "properties": {"name": {"type": "string"}, "age": {"default": 18}}}},
}


def wrong(value: Json, schema: dict[str, Json] = SCHEMA) -> list[str]:
    """Return the messages about an input."""
    return [problem.message for problem in check_input(schema, value)[1]]


def test_defaults_are_filled_in_where_their_surroundings_are_there() -> None:
    """F1: the default of a missing property is taken, also within maps, lists and `$ref`s; nothing else is made up."""
    value: Json = {"email": "a@b.c", "options": {}, "people": [{"name": "x"}, {"age": 3}]}
    filled, problems = check_input(SCHEMA, value)
    assert problems == ()
    assert filled == {
        "email": "a@b.c",
        "amount": 100,
        "options": {"color": "red"},
        "people": [{"name": "x", "age": 18}, {"age": 3}],
    }
    assert value == {"email": "a@b.c", "options": {}, "people": [{"name": "x"}, {"age": 3}]}


def test_everything_that_is_wrong_is_told_at_once() -> None:
    """F5: missing, unknown and unfitting properties come together, with a suggestion."""
    _, problems = check_input(SCHEMA, {"emial": "a@b.c", "amount": 0})
    assert [(problem.message, problem.hint) for problem in problems] == [
        ("input.email is missing", None),
        ("the saga takes no input.emial", "did you mean email?"),
        ("input.amount is 0, less than 1", None),
    ]


@pytest.mark.parametrize("amount", [True, "5", Decimal("1.0"), Decimal("5.5"), None, [5]])
def test_a_whole_number_is_nothing_else(amount: Json) -> None:
    """F2: neither true nor text nor 1.0 passes for an integer."""
    [message] = wrong({"email": "a@b.c", "amount": amount})
    assert message.startswith("input.amount must be a whole number, not ")


@pytest.mark.parametrize(
    ("name", "right", "false"),
    [
        ("email", ["a@b", "ü@example.org"], ["a", "@b", "a b@c", "a@b\n"]),
        ("date", ["2026-02-28"], ["2026-02-29", "26-01-01", "2026-1-1"]),
        ("date-time", ["2026-01-01T00:00:00Z", "2026-01-01T00:00:00.5+02:00"], ["2026-01-01", "2026-01-01T25:00:00Z"]),
        ("uri", ["https://example.org/a?b=%20#c", "urn:x:y"], ["example.org", "http://a b", "/x"]),
        ("uuid", ["123e4567-e89b-12d3-a456-426614174000"], ["123e4567", "x23e4567-e89b-12d3-a456-426614174000"]),
        ("whatever", ["anything"], []),
    ],
)
def test_documented_formats_are_checked(name: str, right: list[str], false: list[str]) -> None:
    """F1: email, date, date-time, uri and uuid are asserted; other formats are notes."""
    schema: dict[str, Json] = {"properties": {"x": {"format": name}}}
    assert [wrong({"x": text}, schema) for text in right] == [[]] * len(right)
    assert [wrong({"x": text}, schema) for text in false] == [[f"input.x is no {name}"]] * len(false)


def test_no_message_quotes_a_secret() -> None:
    """E19: the value of a `writeOnly` property stands in no message."""
    messages = wrong({"email": "a@b", "token": "hunter2"}) + wrong({"email": "a@b", "token": 12345})
    assert len(messages) == 2
    assert not any("hunter2" in message or "12345" in message for message in messages)


def test_an_input_is_a_map_that_can_be_stored() -> None:
    """Limits: no other type, no endless nesting, no megabytes, and no mark of a secret, H03, H13."""
    deep: Json = {}
    for _ in range(200_000):
        deep = {"x": deep}
    started = time.process_time()
    assert wrong([1], {}) == ["the input must be a map of names and values"]
    assert "nested deeper" in wrong(deep, {})[0]
    assert "bytes" in wrong({"x": "a" * 1_100_000}, {})[0]
    assert "$secret" in wrong({"x": [{"$secret": "STRIPE"}]}, {})[0]
    assert time.process_time() - started < 2
    while isinstance(deep, dict) and deep:
        deep = deep.pop("x")


def test_a_hostile_text_is_matched_in_no_time() -> None:
    """H23: a pattern on a text that doesn't match answers at once."""
    schema: dict[str, Json] = {"properties": {"x": {"pattern": "^[a-z]+(-[a-z]+)*$"}}}
    started = time.process_time()
    assert wrong({"x": "a" * 4_000 + "!"}, schema) == ["input.x does not match the pattern ^[a-z]+(-[a-z]+)*$"]
    assert time.process_time() - started < 0.5


def test_text_that_looks_like_an_expression_is_just_text() -> None:
    """F3, H13: what comes in is data."""
    value: Json = {"email": "${{ secrets.STRIPE }}@x"}
    assert check_input({"properties": {"email": {"type": "string"}}}, value) == (value, ())


_MANY = [f"k{number}" for number in range(20_000)]
_COSTLY: dict[str, tuple[dict[str, Json], Json]] = {
    "choices": ({"anyOf": [{"type": "integer"}] * 20_000}, [1] * 3_000),
    "enum": ({"items": {"enum": list(range(90_000))}}, list(range(90_000, 190_000))),
    "required": ({"items": {"required": list(_MANY)}}, [{}] * 300_000),
    "dependent": ({"items": {"dependentRequired": {name: ["x"] for name in _MANY}}}, [{}] * 300_000),
    "patterns": ({"items": {"patternProperties": {f"^{name}$": {} for name in _MANY[:2_000]}}}, [{"x": 1}] * 100_000),
    "pattern": ({"items": {"pattern": "^[ab]*a[ab]*c$"}}, ["a" * 4_000] * 260),
    "unknown": (
        {"additionalProperties": False, "properties": {"k" * 40 + name: {} for name in _MANY}},
        {"k" * 40 + name + "x": 1 for name in _MANY[:15_000]},
    ),
}


@pytest.mark.parametrize("name", _COSTLY)
def test_a_large_schema_over_a_large_input_costs_little(name: str) -> None:
    """H21: what is large on both sides isn't multiplied: neither in time nor in what is told of it."""
    schema, value = _COSTLY[name]
    started = time.process_time()
    _, problems = check_input({"properties": {"a": schema}}, {"a": value})
    assert time.process_time() - started < 4
    assert len(problems) <= 1_000
    assert sum(len(problem.message) + len(problem.hint or "") for problem in problems) < 2_000_000
