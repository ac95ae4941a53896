"""E16: what became of a tool that a run has pinned, in what it differs, and whether the run can go on with it."""

from __future__ import annotations

from dataclasses import replace
from decimal import Decimal
from typing import Any

import pytest

from sagactl.core.canonical import Json
from sagactl.core.pinned import (
    CHANGES_MAX,
    NOT_AS_PINNED,
    NOT_CALLABLE,
    PATH_LENGTH_MAX,
    VALUE_LENGTH_MAX,
    Misfit,
    compare_facts,
    compare_schemas,
    describe_change,
    describe_misfit,
    find_misfit,
    is_of_machine,
    is_of_pins,
)
from sagactl.core.records import ToolChange
from sagactl.core.saga import ToolFacts

PINNED = ToolFacts(
    "bank.pay",
    "1",
    "bank",
    null_safe=True,
    late_safe=True,
    key_retention_ms=5_000,
    probe="bank.look",
    compensation="bank.refund",
    compensation_with={"id": "${{ output.id }}"},
    arguments_schema={
        "type": "object",
        "properties": {"amount": {"type": "integer", "description": "In cents."}, "description": {"type": "string"}},
        "required": ["amount"],
        "allOf": [{"minProperties": 1}],
    },
    output_schema={"type": "object", "properties": {"id": {"type": "string", "enum": ["a", "b"]}}},
)


def edit(path: str, value: Json, schema: str = "arguments_schema") -> ToolFacts:
    """Return the tool with another value at a place of a schema."""
    from copy import deepcopy

    changed: Any = deepcopy(dict(getattr(PINNED, schema)))
    *way, last = path.split("/")
    found = changed
    for name in way:
        found = found[int(name) if isinstance(found, list) else name]
    found[last] = value
    return replace(PINNED, **{schema: changed})


@pytest.mark.parametrize(
    ("present", "words"),
    [
        (replace(PINNED, idempotent=False), "idempotent was true, is false"),
        (replace(PINNED, null_safe=False), "null_safe was true, is false"),
        (replace(PINNED, late_safe=False), "late_safe was true, is false"),
        (replace(PINNED, read_only=True), "read_only was false, is true"),
        (replace(PINNED, probe=None), 'probe is gone, was "bank.look"'),
        (replace(PINNED, key_retention_ms=4_999), "key_retention_ms was 5000, is 4999"),
        (edit("properties/amount/type", "string"), 'arguments.properties.amount.type was "integer", is "string"'),
        (edit("properties/card", {"type": "string"}), 'arguments.properties.card is new: {"type":"string"}'),
        (edit("properties/description", {}), 'arguments.properties.description.type is gone, was "string"'),
        (edit("required", []), 'arguments.required was ["amount"], is []'),
        (edit("allOf/0/minProperties", 2), "arguments.allOf[0].minProperties was 1, is 2"),
        (edit("allOf", []), 'arguments.allOf was [{"minProperties":1}], is []'),
        (edit("properties", True), "arguments.properties was "),
        (edit("properties/id/enum", ["a"], "output_schema"), 'output.properties.id.enum was ["a","b"], is ["a"]'),
        (replace(PINNED, output_schema={}), 'output.type is gone, was "object"'),
    ],
)
def test_a_change_that_a_run_would_be_wrong_about_holds_it_up(present: ToolFacts, words: str) -> None:
    """E16: another shape, or a promise taken back; each is named by its place, with both values."""
    misfit = find_misfit(PINNED, present)
    assert misfit is not None
    assert describe_change(misfit.changes[0]).startswith(words)
    assert misfit.changes[0].breaks


@pytest.mark.parametrize(
    "present",
    [
        PINNED,
        replace(PINNED, version="2", plugin="other"),
        replace(PINNED, key_retention_ms=5_001),
        replace(PINNED, key_retention_ms=None),
        replace(PINNED, compensation="bank.undo", compensation_with=None, pending_max_ms=7, secrets=("K",)),
        edit("properties/amount/description", "In whole cents."),
        edit("description", "What it takes."),
        replace(PINNED, output_schema={**PINNED.output_schema, "title": "A payment"}),
    ],
)
def test_what_takes_nothing_back_lets_a_run_go_on(present: ToolFacts) -> None:
    """E16: a release, words, a longer retention, a new promise, and what the definition says itself: the pair."""
    assert find_misfit(PINNED, present) is None
    assert find_misfit(replace(PINNED, null_safe=False), replace(present, null_safe=True)) is None


def test_what_breaks_is_told_first_and_the_rest_beside_it() -> None:
    """E16: whoever looks sees all that changed."""
    present = replace(edit("properties/amount/description", "x"), version="2", idempotent=False, secrets=("K",))
    found = compare_facts(PINNED, present)
    assert [(each.fact, each.path, each.breaks) for each in found] == [
        ("idempotent", "", True),
        ("version", "", False),
        ("arguments", "properties.amount.description", False),
        ("secrets", "", False),
    ]
    assert describe_change(found[3]) == 'secrets was [], is ["K"]'


def test_a_schema_is_compared_place_by_place_whatever_it_is() -> None:
    """E16: schemas that are plain true, data that looks like schemas, and lists of other lengths."""
    assert compare_schemas("x", True, True) == ()
    assert compare_schemas("x", True, {}) == (ToolChange("x", "", True, {}),)
    assert compare_schemas("x", {"const": {"type": 1}}, {"const": {"type": 2}}) == (
        ToolChange("x", "const", {"type": 1}, {"type": 2}),
    )
    same: dict[str, Json] = {"default": {"description": "a"}, "enum": [{"title": "b"}]}
    assert compare_schemas("x", same, dict(same)) == ()
    assert [each.breaks for each in compare_schemas("x", same, {**same, "default": {"description": "b"}})] == [True]
    assert compare_schemas("x", {"$defs": {"title": {"type": "string"}}}, {"$defs": {}}) == (
        ToolChange("x", "$defs.title", {"type": "string"}, None),
    )
    assert compare_schemas("x", {"multipleOf": Decimal("0.1")}, {"multipleOf": Decimal("0.2")}) == (
        ToolChange("x", "multipleOf", Decimal("0.1"), Decimal("0.2")),
    )


def test_what_is_kept_of_changes_is_bounded() -> None:
    """E16: so many changes, values and paths of that length; a value that is cut is kept as text."""
    names = [f"{'p' * 300}{number}" for number in range(CHANGES_MAX + 5)]
    many = replace(PINNED, arguments_schema={"properties": {name: {"const": "v" * 500} for name in names}})
    found = compare_facts(PINNED, many)
    assert len(found) == CHANGES_MAX
    assert all(len(change.path) <= PATH_LENGTH_MAX for change in found)
    new = [change.after for change in found if change.before is None]
    assert new
    assert all(isinstance(value, str) and len(value) == VALUE_LENGTH_MAX and value.endswith("...") for value in new)


def test_a_run_says_what_it_misses_and_the_first_change() -> None:
    """E16: one line for logs and lists; all changes stand beside it."""
    gone = describe_misfit("bank.pay", Misfit("is given by no plugin"))
    assert (gone.type, gone.message) == ("missing_tool", "the tool bank.pay is given by no plugin")
    first = find_misfit(PINNED, replace(PINNED, idempotent=False))
    assert first is not None
    assert describe_misfit("bank.pay", first).message == (
        "the tool bank.pay is not what the run was begun with: idempotent was true, is false"
    )
    both = find_misfit(PINNED, replace(PINNED, idempotent=False, version="2"))
    assert both is not None
    assert describe_misfit("bank.pay", both).message.endswith("is false and 1 more")


def test_what_a_run_says_tells_whom_to_ask() -> None:
    """E16, E19: a tool that can't be called here, a pin that is old, and a tool that is another are told apart."""
    here = describe_misfit("shop.buy", Misfit(f"{NOT_CALLABLE}: no library")).message
    pins = describe_misfit("shop.buy", Misfit(f"{NOT_AS_PINNED}: its words")).message
    other = describe_misfit("shop.buy", Misfit("is not what the run was begun with")).message
    assert [is_of_machine(each) for each in (here, pins, other, "")] == [True, False, False, False]
    assert [is_of_pins(each) for each in (here, pins, other, "")] == [False, True, False, False]
