"""The schema with tools says what an editor can tell early, and nothing that `validate` wouldn't say."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import yaml
from jsonschema import Draft202012Validator
from referencing import Registry

from sagactl.core.canonical import canonical
from sagactl.core.saga import ToolFacts
from sagactl.spec.file_schema import read_file_schema
from sagactl.spec.tool_schema import add_tools

ARGUMENTS: dict[str, Any] = {
    "type": "object",
    "additionalProperties": False,
    "required": ["amount"],
    "properties": {
        "amount": {"type": "integer", "minimum": 1},
        "to": {"$ref": "#/$defs/address"},
        "lines": {
            "type": "array",
            "items": {"type": "object", "properties": {"n": {"type": "integer"}}},
            "minItems": 1,
        },
        "kind": {"oneOf": [{"const": "a"}, {"type": "integer"}]},
    },
    "if": {"properties": {"amount": {"minimum": 100}}},
    "then": {"required": ["to"]},
    "$defs": {"address": {"type": "object", "properties": {"zip": {"type": "string"}}, "required": ["zip"]}},
}


def _validator() -> Draft202012Validator:
    tools = {"bank.pay": ToolFacts("bank.pay", arguments_schema=ARGUMENTS), "bank.look": ToolFacts("bank.look")}
    schema = json.loads(canonical(add_tools(read_file_schema(), tools)))
    Draft202012Validator.check_schema(schema)
    return Draft202012Validator(schema, registry=Registry())


VALIDATOR = _validator()


def _is_right(step: dict[str, Any]) -> bool:
    return VALIDATOR.is_valid({"saga": "s", "steps": [{"id": "a", **step}]})


@pytest.mark.parametrize(
    "arguments",
    [
        {"amount": 3},
        {"amount": "${{ input.amount }}"},
        {"amount": 3, "to": {"zip": "1"}, "lines": [{"n": 1}, "${{ input.line }}"], "kind": "a"},
        {"amount": 300, "to": "${{ input.to }}", "lines": "${{ input.lines }}", "kind": "${{ input.kind }}"},
        {"amount": 300},  # the condition is left to `validate`
    ],
)
def test_right_arguments_have_no_squiggle(arguments: dict[str, Any]) -> None:
    """F3: wherever a value stands, an expression may stand."""
    assert _is_right({"tool": "bank.pay", "with": arguments})


@pytest.mark.parametrize(
    "step",
    [
        {"tool": "bank.pay"},
        {"tool": "bank.pay", "with": {}},
        {"tool": "bank.pay", "with": {"amount": "3"}},
        {"tool": "bank.pay", "with": {"amount": 3, "nothing": 1}},
        {"tool": "bank.pay", "with": {"amount": 3, "to": {}}},
        {"tool": "bank.pay", "with": {"amount": 3, "lines": [{"n": "x"}]}},
        {"tool": "bank.nothing"},
        {"tool": "bank.look", "compensate": {"tool": "bank.pay", "with": {"amount": 0}}},
    ],
)
def test_wrong_arguments_are_seen_in_the_editor(step: dict[str, Any]) -> None:
    """F5: missing, unknown and ill-typed arguments, also of an undo, and tools that aren't there."""
    assert not _is_right(step)


def test_an_undo_may_leave_its_arguments_to_the_pair() -> None:
    """F1: `compensate: {tool: …}` without `with` may get its arguments from the action's tool."""
    assert _is_right({"tool": "bank.look", "compensate": {"tool": "bank.pay"}})


def test_the_sagas_that_ship_are_right_by_the_schema_with_all_their_tools(tmp_path: Path) -> None:
    """What `validate` takes, the editor takes; `schema --write` puts it where the first line of a saga looks."""
    from tests.cli.project import Project

    project = Project.make(tmp_path)
    written = project.run("schema", "--write", "-o", "json")
    assert (written.code, written.json["schema"]) == (0, "sagactl.schema/1")
    path = tmp_path / ".sagactl" / "schema.json"
    assert written.json["path"] == str(path)
    assert (path.parent / ".gitignore").read_text() == "*\n"
    assert path.parent.stat().st_mode & 0o777 == 0o700
    schema = json.loads(path.read_text())
    assert json.loads(project.run("schema", "--tools").out) == schema
    validator = Draft202012Validator(schema, registry=Registry())
    for saga in sorted((tmp_path / "sagas").iterdir()):
        problems = [error.message for error in validator.iter_errors(yaml.safe_load(saga.read_text()))]
        assert problems == [], saga.name
