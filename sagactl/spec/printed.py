"""What a step's output can be where its arguments decide about that: of a command, what of stdout is read, and how."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Final

from sagactl.core.canonical import Json
from sagactl.written.positions import MapNode, Node, Scalar

if TYPE_CHECKING:
    from sagactl.core.saga import ToolFacts

_COMMANDS: Final = "shell."
_ARGUMENT: Final = "output"
TEXT: Final[Mapping[str, Json]] = {"type": "string", "description": "What a command printed, as text."}
_READ_AS: Final[Mapping[str, Mapping[str, Json]]] = {"text": TEXT, "none": {"type": "null"}}


def output_schema(facts: ToolFacts, arguments: Node | None) -> Mapping[str, Json]:
    """Return the schema of what *facts* gives when it is called with *arguments*."""
    if not facts.name.startswith(_COMMANDS):
        return facts.output_schema
    written = arguments.find(_ARGUMENT) if isinstance(arguments, MapNode) else None
    if written is None:
        return TEXT
    word = written.node.value if isinstance(written.node, Scalar) else None
    return _READ_AS.get(str(word), facts.output_schema)


def hint_about(schema: Json) -> str | None:
    """Return what to write where an expression looks into a text that could be read as JSON."""
    return "write output: json in the with of that command, if it prints JSON" if schema == TEXT else None
