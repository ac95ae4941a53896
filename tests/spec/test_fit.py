"""Values against schemas, with and without holes; jsonschema is the judge of what fits."""

from __future__ import annotations

from decimal import Decimal
from typing import Any, cast

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from jsonschema import Draft202012Validator
from jsonschema.validators import extend

from sagactl.core.canonical import Json
from sagactl.spec.fit import Budget, Hole, Open, TooComplexError, find_misfits

TYPES = Draft202012Validator.TYPE_CHECKER.redefine(
    "integer", lambda _, value: isinstance(value, int) and not isinstance(value, bool)
)
Judge: Any = cast("Any", extend)(Draft202012Validator, type_checker=TYPES)
"""jsonschema, but for 1.0, which is no integer to sagactl."""

NAMES = st.sampled_from(["a", "b", "c"])
VALUES = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-3, 5)
    | st.sampled_from([Decimal("0.5"), Decimal("1.0"), "", "a", "ab", "漢字x"]),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(NAMES, inner, max_size=3),
    max_leaves=6,
)
COUNTS = st.integers(0, 3)
KINDS = st.sampled_from(["null", "boolean", "integer", "number", "string", "array", "object"])


def keywords(inner: st.SearchStrategy[Any]) -> st.SearchStrategy[dict[str, Any]]:
    """Return schemas that combine a few keywords, with *inner* as parts."""
    schemas, named = st.lists(inner, min_size=1, max_size=2), st.dictionaries(NAMES, inner, max_size=2)
    names = st.lists(NAMES, unique=True, max_size=2)
    optional: dict[str, st.SearchStrategy[Any]] = {
        "type": KINDS | st.lists(KINDS, min_size=1, max_size=2, unique=True),
        "enum": st.lists(VALUES, min_size=1, max_size=3),
        "const": VALUES,
        **dict.fromkeys(["minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum"], st.integers(-2, 4)),
        "multipleOf": st.sampled_from([1, 2, 3]),
        **dict.fromkeys(["minLength", "maxLength", "minItems", "maxItems", "minProperties", "maxProperties"], COUNTS),
        "pattern": st.sampled_from(["^a", "b$", "^$"]),
        "uniqueItems": st.booleans(),
        **dict.fromkeys(
            ["items", "additionalProperties", "not", "if", "then", "else", "contains", "propertyNames"], inner
        ),
        **dict.fromkeys(["allOf", "anyOf", "oneOf", "prefixItems"], schemas),
        **dict.fromkeys(["properties", "dependentSchemas"], named),
        "patternProperties": st.dictionaries(st.sampled_from(["^a", "[bc]"]), inner, max_size=2),
        "required": names,
        "dependentRequired": st.dictionaries(NAMES, names, max_size=2),
        **dict.fromkeys(["minContains", "maxContains"], COUNTS),
    }
    picked = st.lists(st.sampled_from(sorted(optional)), unique=True, max_size=3)
    return picked.flatmap(lambda keys: st.fixed_dictionaries({key: optional[key] for key in keys}))


SCHEMAS: st.SearchStrategy[Any] = st.recursive(st.booleans() | st.just({}), keywords, max_leaves=5).filter(
    lambda schema: isinstance(schema, dict)
)


@settings(derandomize=True, max_examples=1_500, deadline=None, suppress_health_check=list(HealthCheck))
@given(SCHEMAS, VALUES)
def test_what_fits_is_what_jsonschema_lets_pass(schema: dict[str, Any], value: Json) -> None:
    """F5: for every keyword that sagactl knows, it agrees with the reference about whole values."""
    assert (find_misfits(value, schema) == []) is bool(Judge(schema).is_valid(value))


@settings(derandomize=True, max_examples=500, deadline=None, suppress_health_check=list(HealthCheck))
@given(SCHEMAS, VALUES)
def test_a_hole_never_makes_a_value_that_fits_a_misfit(schema: dict[str, Any], value: Json) -> None:
    """F5: what isn't known yet is given the benefit of the doubt, wherever it lies."""
    if not Judge(schema).is_valid(value):
        return
    assert find_misfits(Hole(), schema) == []
    if isinstance(value, dict):
        for name in value:
            holed = {**value, name: Hole()}
            assert find_misfits(cast("Open", holed), schema) == []


def messages(value: Any, schema: dict[str, Any]) -> list[str]:
    """Return what is wrong, each with its place."""
    return [f"{'.'.join(map(str, misfit.path))} {misfit.message}" for misfit in find_misfits(value, schema)]


def test_all_misfits_are_told_not_only_the_first() -> None:
    """F5: one check tells everything, with the place of each."""
    schema: dict[str, Json] = {
        "type": "object",
        "required": ["a", "z"],
        "additionalProperties": False,
        "properties": {"a": {"type": "integer", "minimum": 3}, "l": {"type": "array", "items": {"type": "string"}}},
    }
    assert messages({"a": 1, "l": ["x", 1, None], "o": 1}, schema) == [
        "z is missing",
        "a is 1, less than 3",
        "l.1 must be text, not 1",
        "l.2 must be text, not null",
        "o is not known",
    ]


def test_numbers_are_exact_and_never_booleans() -> None:
    """F2: true is not 1, 1.0 is no integer, and a decimal of any length is compared exactly."""
    assert messages(True, {"type": "integer"}) == [" must be a whole number, not true"]
    assert messages(Decimal("1.0"), {"type": "integer"}) == [" must be a whole number, not 1.0"]
    assert messages(1, {"enum": [True]}) == [" must be one of true"]
    assert messages(2**70 + 1, {"maximum": 2**70}) == [f" is {2**70 + 1}, more than {2**70}"]
    assert messages(Decimal("0.3"), {"multipleOf": Decimal("0.1")}) == []
    assert messages([1, Decimal("1.0")], {"uniqueItems": True}) == [" has an item twice"]
    assert messages([1, True], {"uniqueItems": True}) == []


def test_no_message_quotes_a_secret() -> None:
    """E19: what a `writeOnly` property holds is in no message, however it fails."""
    secret = "hunter2"
    parts: list[dict[str, Any]] = [
        *(
            {"type": "integer"},
            {"enum": ["a"]},
            {"const": "b"},
            {"pattern": "^x"},
            {"maxLength": 2},
            {"format": "email"},
        ),
        *({"not": {}}, {"anyOf": [{"type": "null"}]}, {"allOf": [{"type": "null"}]}, {"$ref": "#/$defs/n"}),
    ]
    for part in parts:
        schema: dict[str, Any] = {"properties": {"p": {"writeOnly": True, **part}}, "$defs": {"n": {"type": "null"}}}
        found = messages({"p": secret}, schema)
        assert found
        assert all(secret not in message for message in found)
    deeper: dict[str, Json] = {"properties": {"p": {"writeOnly": True, "properties": {"x": {"maximum": 1}}}}}
    assert messages({"p": {"x": 777}}, deeper) == ["p.x is more than 1"]


@pytest.mark.parametrize(
    "schema",
    [
        {"$ref": "#"},
        {"$ref": "#/$defs/a", "$defs": {"a": {"$ref": "#/$defs/b"}, "b": {"$ref": "#/$defs/a"}}},
        {"$defs": {str(n): {"allOf": [{"$ref": f"#/$defs/{n + 1}"}] * 2} for n in range(40)}, "$ref": "#/$defs/0"},
    ],
)
def test_a_schema_without_end_is_an_error_and_no_hang(schema: dict[str, Json]) -> None:
    """Limits: a schema that unfolds for ever ends at a limit."""
    with pytest.raises(TooComplexError):
        find_misfits(1, schema, budget=Budget(50_000))


def test_a_schema_may_contain_itself() -> None:
    """F5: a recursive schema checks a tree of any depth that is allowed."""
    schema: dict[str, Json] = {"properties": {"next": {"$ref": "#"}, "n": {"type": "integer"}}}
    value: Json = {"n": "x"}
    for _ in range(40):
        value = {"n": 1, "next": value}
    assert len(messages(value, schema)) == 1


def test_the_form_that_was_meant_explains_what_is_wrong() -> None:
    """F5: of several forms, the one whose type is right says why it doesn't fit."""
    nullable: dict[str, Json] = {"anyOf": [{"type": "integer", "maximum": 3}, {"type": "null"}]}
    assert messages(7, nullable) == [" is 7, more than 3"]
    assert messages("x", nullable) == [" has none of the 2 forms that are allowed"]
    needed: dict[str, Json] = {"anyOf": [{"required": ["argv"]}, {"required": ["script"]}]}
    assert messages({}, needed) == [" must hold argv or script"]
