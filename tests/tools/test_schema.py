"""Annotations as schemas, and values bound to annotations."""

from __future__ import annotations

import enum
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import date, datetime
from decimal import Decimal
from typing import Annotated, Any, Literal, NewType, NotRequired, Optional, Required, TypedDict, Union

import pytest

from sagactl import CallContext, Pending, Secret, tool
from sagactl.core.canonical import Json
from sagactl.errors import PluginError
from sagactl.tools.schema import UnsupportedTypeError, build_schema
from tests.tools.building import call, describe

Cents = NewType("Cents", int)


class Colour(enum.Enum):
    """Two colours."""

    RED = "red"
    BLUE = "blue"


class Level(enum.IntEnum):
    """Two levels."""

    LOW = 1
    HIGH = 2


class Address(TypedDict):
    """With a part that may be left out."""

    street: str
    zip: NotRequired[str]


class Sparse(TypedDict, total=False):
    """With a part that may not."""

    id: Required[int]
    note: str


@dataclass
class Item:
    """An item of an order."""

    name: str
    price: Decimal
    tags: list[str] = field(default_factory=list)


class Node(TypedDict):
    """Something that contains itself."""

    children: list[Node]


CORPUS: list[tuple[Any, Json]] = [
    (Any, {}),
    (None, {"type": "null"}),
    (bool, {"type": "boolean"}),
    (int, {"type": "integer"}),
    (float, {"type": "number"}),
    (Decimal, {"type": "number"}),
    (str, {"type": "string"}),
    (list, {"type": "array"}),
    (dict, {"type": "object"}),
    (datetime, {"type": "string", "format": "date-time"}),
    (date, {"type": "string", "format": "date"}),
    (Cents, {"type": "integer"}),
    (Colour, {"type": "string", "enum": ["red", "blue"]}),
    (Level, {"enum": [1, 2]}),
    (Literal["a", "b"], {"type": "string", "enum": ["a", "b"]}),
    (Literal[1, "b"] | None, {"enum": [1, "b", None]}),
    (Optional[int], {"type": ["integer", "null"]}),  # noqa: UP045 - the old spelling counts too
    (int | str, {"type": ["integer", "string"]}),
    (Union[int, list[int]], {"anyOf": [{"type": "integer"}, {"type": "array", "items": {"type": "integer"}}]}),  # noqa: UP007
    (list[str] | None, {"type": ["array", "null"], "items": {"type": "string"}}),
    (Literal["a"] | None, {"type": ["string", "null"], "enum": ["a", None]}),
    (Any | None, {}),
    (list[int], {"type": "array", "items": {"type": "integer"}}),
    (Sequence[int], {"type": "array", "items": {"type": "integer"}}),
    (set[int], {"type": "array", "items": {"type": "integer"}, "uniqueItems": True}),
    (tuple[int, ...], {"type": "array", "items": {"type": "integer"}}),
    (
        tuple[int, str],
        {"type": "array", "prefixItems": [{"type": "integer"}, {"type": "string"}], "items": False, "minItems": 2},
    ),
    (dict[str, int], {"type": "object", "additionalProperties": {"type": "integer"}}),
    (Mapping[str, Any], {"type": "object"}),
    (Annotated[int, {"minimum": 1}, "Cents."], {"type": "integer", "minimum": 1, "description": "Cents."}),
    (Annotated[str, {"writeOnly": True}], {"type": "string", "writeOnly": True}),
    (Secret, {"type": "string", "writeOnly": True}),
    (Secret | None, {"type": ["string", "null"], "writeOnly": True}),
    (dict[str, Secret], {"type": "object", "additionalProperties": {"type": "string", "writeOnly": True}}),
    (list[Secret], {"type": "array", "items": {"type": "string", "writeOnly": True}}),
    (Annotated[float, {"maximum": 0.1}], {"type": "number", "maximum": Decimal("0.1")}),
    (
        Address,
        {
            "type": "object",
            "properties": {"street": {"type": "string"}, "zip": {"type": "string"}},
            "required": ["street"],
            "additionalProperties": False,
        },
    ),
    (
        Sparse,
        {
            "type": "object",
            "properties": {"id": {"type": "integer"}, "note": {"type": "string"}},
            "required": ["id"],
            "additionalProperties": False,
        },
    ),
    (
        Item,
        {
            "type": "object",
            "properties": {
                "name": {"type": "string"},
                "price": {"type": "number"},
                "tags": {"type": "array", "items": {"type": "string"}},
            },
            "required": ["name", "price"],
            "additionalProperties": False,
        },
    ),
]


@pytest.mark.parametrize(("hint", "schema"), CORPUS, ids=[str(hint) for hint, _ in CORPUS])
def test_annotation_gives_schema(hint: object, schema: Json) -> None:
    """A parameter's annotation is its JSON Schema."""
    assert build_schema(hint, closed=True) == schema


def test_outputs_are_open() -> None:
    """An output may have more properties than its type names."""
    assert "additionalProperties" not in build_schema(Address, closed=False)


@pytest.mark.parametrize("hint", [bytes, complex, dict[int, str], Callable[[], int], Node, object()])
def test_annotation_without_json_form_is_refused(hint: object) -> None:
    """Bytes, functions, keys that are no strings and types that contain themselves have no schema."""
    with pytest.raises(UnsupportedTypeError):
        build_schema(hint, closed=True)


def test_parameters_give_arguments_schema() -> None:
    """Arguments are closed, defaults aren't required, `Args:` describes them; the context is none."""

    @tool("shop.order")
    def order(item: str, context: CallContext, count: int = 1, *, gift: bool | None = None) -> Address | Pending:
        """Order something nice.

        More words.

        Args:
            item: What to order,
                in words.
            count (int): How many.
            gift: Whether to wrap it.
            context: The call.

        Returns:
            count: not this one.
        """
        raise NotImplementedError

    described = describe(order)
    assert described.description == "Order something nice."
    assert described.facts.arguments_schema == {
        "type": "object",
        "properties": {
            "item": {"type": "string", "description": "What to order, in words."},
            "count": {"type": "integer", "description": "How many.", "default": 1},
            "gift": {"type": ["boolean", "null"], "description": "Whether to wrap it."},
        },
        "required": ["item"],
        "additionalProperties": False,
    }
    assert described.facts.output_schema == build_schema(Address, closed=False)


def test_any_more_arguments_open_the_schema() -> None:
    """A tool with `**more` takes arguments that it doesn't name."""

    @tool("shop.order")
    def order(item: str, **more: object) -> dict[str, object]:
        return {"item": item, **more}

    assert "additionalProperties" not in describe(order).facts.arguments_schema
    assert call(order, {"item": "tea", "colour": "green"}).output == {"item": "tea", "colour": "green"}


def test_schemas_given_outright_win() -> None:
    """A schema that `@tool` is given counts, and the annotations don't."""
    outright = {"type": "object", "properties": {"n": {"type": "integer", "maximum": 3}}}

    @tool("shop.order", arguments_schema=outright, output_schema={"type": "string"})
    def order(n):  # type: ignore[no-untyped-def]  # on purpose
        return "x" * n

    assert describe(order).facts.arguments_schema == outright
    assert call(order, {"n": 2}).output == "xx"


def _positional(item: str, /) -> None:
    """Take an argument that can't be named."""


def _variable(*items: str) -> None:
    """Take any number of them."""


def _bytes(item: bytes) -> None:
    """Take bytes."""


def _unresolved(item: Missing) -> None:  # type: ignore[name-defined]  # noqa: F821 - on purpose
    """Take something that doesn't exist."""


@pytest.mark.parametrize("function", [_positional, _variable, _bytes, _unresolved])
def test_function_that_cannot_be_a_tool_is_refused_by_name(function: Callable[..., object]) -> None:
    """An error in a plugin names plugin, file, line and tool."""
    with pytest.raises(PluginError, match=r"plugin test \(.*building\.py:1\): tool 'shop\.order'"):
        describe(tool("shop.order")(function))


@pytest.mark.parametrize(
    "facts",
    [
        {"name": "order"},
        {"name": "Shop.order"},
        {"name": "shop.order\n"},
        {"compensation": "nothing"},
        {"probe": "../x"},
        {"read_only": True, "compensation": "shop.cancel"},
        {"compensation_with": {"id": 1}},
        {"compensation": "shop.cancel", "compensation_with": {"id": object()}},
        {"key_retention": "soon"},
        {"key_retention": "0s"},
        {"output_schema": {"type": "strnig"}},
        {"arguments_schema": {"$ref": "https://example.com/schema.json"}},
    ],
)
def test_declaration_that_cannot_be_meant_is_refused(facts: dict[str, Any]) -> None:
    """Names, pairs, durations and schemas of `@tool` are checked when the plugin is loaded."""
    with pytest.raises(PluginError):
        describe(tool(**{"name": "shop.order", **facts})(lambda: None))


def test_key_retention_is_a_duration() -> None:
    """E6: `key_retention` says how long the target remembers a key."""
    assert describe(tool("a.b", key_retention="24h")(lambda: None)).facts.key_retention_ms == 86_400_000
    assert describe(tool("a.b", key_retention="1.5s")(lambda: None)).facts.key_retention_ms == 1_500


def test_decorated_function_stays_itself() -> None:
    """`@tool` changes nothing about calling the function."""

    @tool("shop.double")
    def double(n: int) -> int:
        return 2 * n

    assert double(4) == 8
    assert double.__name__ == "double"


def test_tool_without_a_name_says_so() -> None:
    """`@tool` without parentheses is answered with how it is written."""
    with pytest.raises(TypeError, match="needs a name"):
        tool(lambda: None)  # type: ignore[arg-type]  # the mistake itself


def test_arguments_become_what_annotations_say() -> None:
    """Floats come only where annotated, decimals stay exact, and other annotated types are built."""
    seen: dict[str, Any] = {}

    @tool("shop.order")
    def order(  # noqa: PLR0917 - one of each kind
        item: Item,
        ratio: float,
        price: Decimal,
        anything: Any,
        colour: Colour,
        pair: tuple[int, float],
        days: set[date],
        at: datetime | None,
        table: dict[str, float],
        either: int | list[Item],
    ) -> None:
        seen.update(locals())

    tenth = Decimal("0.1")
    answer = call(
        order,
        {
            "item": {"name": "tea", "price": tenth},
            "ratio": 2,
            "price": 3,
            "anything": tenth,
            "colour": "blue",
            "pair": [1, tenth],
            "days": ["2026-01-31"],
            "at": "2026-01-31T10:00:00Z",
            "table": {"a": tenth},
            "either": [{"name": "cup", "price": 1}],
        },
    )
    assert answer.failure is None
    assert seen["item"] == Item("tea", tenth)
    assert type(seen["ratio"]) is float
    assert type(seen["price"]) is Decimal
    assert seen["anything"] is tenth
    assert seen["colour"] is Colour.BLUE
    assert seen["pair"] == (1, 0.1)
    assert seen["days"] == {date(2026, 1, 31)}
    assert seen["at"] == datetime.fromisoformat("2026-01-31T10:00:00+00:00")
    assert seen["table"] == {"a": 0.1}
    assert seen["either"] == [Item("cup", Decimal(1))]
