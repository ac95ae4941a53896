"""The parts of a check: arguments, looks at the world, the check file, what is noted."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from sagactl.conformance.arguments import guess_arguments, list_misfits, list_oddities
from sagactl.conformance.book import Book
from sagactl.conformance.check_file import REJECTS_MAX, STEPS_MAX, read_check_file
from sagactl.conformance.looks import compare, describe, find_left, index_look, weigh
from sagactl.conformance.report import Verdict
from sagactl.conformance.rules import MEANINGS, Rule
from sagactl.core.canonical import Json
from sagactl.errors import InvalidError

SCHEMA: dict[str, Json] = {
    "type": "object",
    "required": ["size", "name"],
    "additionalProperties": False,
    "properties": {
        "size": {"type": "integer", "default": 3},
        "name": {"type": "string", "examples": ["ada"]},
        "more": {"type": "string"},
    },
}


def test_arguments_are_made_of_what_the_schema_says() -> None:
    """Without a check file: examples, defaults, choices and constants of what is required, and nothing made up."""
    assert guess_arguments(SCHEMA) == {"size": 3, "name": "ada"}
    assert guess_arguments({"examples": [{"a": 1}], "required": ["b"]}) == {"a": 1}
    assert guess_arguments({"required": ["a"], "properties": {"a": {"enum": ["x", "y"]}}}) == {"a": "x"}
    assert guess_arguments({"required": ["a"], "properties": {"a": {"const": 7}}}) == {"a": 7}
    assert guess_arguments({"required": ["a"], "properties": {"a": {"type": "string"}}}) == (
        "nothing says what a may be"
    )
    assert guess_arguments({}) == {}


def test_arguments_that_must_not_be_taken() -> None:
    """What the schema must refuse: each required one left out, each of another type, one that isn't known."""
    misfits = dict(list_misfits(SCHEMA, {"size": 3, "name": "ada"}))
    assert misfits == {
        "without size": {"name": "ada"},
        "without name": {"size": 3},
        "with size of another type": {"size": "no number", "name": "ada"},
        "with name of another type": {"size": 3, "name": []},
        "with an argument that it doesn't know": {"size": 3, "name": "ada", "no_such_argument": 1},
    }
    assert [arguments for _, arguments in list_oddities({"a": "x"})] == [{}, {"a": []}]


def _look(**more: Json) -> Any:
    return index_look({"effects": {"put": 1}, "files": [{"path": "a", "content": "1"}], "paths": {"a": True}, **more})


def test_a_look_is_compared_entry_by_entry() -> None:
    """Files by what is in them, ledgers by count, lists item by item: one more of the same is a change."""
    before = _look(shop={"things": [{"n": 1}], "total": 5})
    after = _look(shop={"things": [{"n": 1}, {"n": 1}], "total": 9})
    changes = compare(before, after)
    assert changes == {'shop.things[] {"n":1}': (1, 2), "shop.total": (5, 9)}
    assert weigh(changes) == 1 + 4
    assert describe(changes) == 'shop.things[] {"n":1} from 1 to 2, shop.total from 5 to 9'
    assert compare(before, before) == {}
    assert compare(_look(shop=True), _look(shop=1))  # in JSON these are two values


def test_what_an_undo_leaves_behind_itself_is_not_left_of_the_action() -> None:
    """A mark that refuses late calls may stay; what the action has changed must be as before."""
    before, acted = _look(), _look(shop={"thing": "there"})
    undone = _look(shop={"mark": "closed"})
    changes = compare(before, acted)
    assert find_left(changes, before, undone) == {}
    assert find_left(changes, before, acted) == {"shop.thing": (None, "there")}


WRONG: dict[str, tuple[Json, str]] = {
    "no map": ([], "f must be a map"),
    "unknown key": ({"toolz": {}}, "toolz is no key"),
    "unknown key of a tool": ({"tools": {"a.b": {"args": {}}}}, "tools.a.b.args is no key"),
    "arguments": ({"tools": {"a.b": {"with": []}}}, "tools.a.b.with must be a map"),
    "expression": ({"tools": {"a.b": {"with": {"x": "${{ "}}}}, "tools.a.b.with has a bad expression"),
    "unknown rule": ({"tools": {"a.b": {"excused": {"luck": "x"}}}}, "tools.a.b.excused.luck is no key"),
    "reason": ({"tools": {"a.b": {"excused": {"late": ""}}}}, "tools.a.b.excused.late must be a text"),
    "step": ({"set_up": [{"id": "No", "tool": "a.b"}]}, "set_up[0].id must be a name"),
    "no tool": ({"observe": [{}]}, "observe[0].tool must be a text"),
    "file elsewhere": ({"files": {"../x": "y"}}, "files.../x must lie in the world's own folder"),
    "file at the root": ({"files": {"/x": "y"}}, "files./x must lie in the world's own folder"),
    "too many steps": ({"set_up": [{"tool": "a.b"}] * (STEPS_MAX + 1)}, f"must be a list of at most {STEPS_MAX}"),
    "too many rejects": ({"tools": {"a.b": {"rejects": [{}] * (REJECTS_MAX + 1)}}}, f"at most {REJECTS_MAX}"),
}


@pytest.mark.parametrize("name", WRONG)
def test_a_wrong_check_file_is_refused_with_its_place(name: str) -> None:
    """A check file is read strictly: what is wrong is named with its place, and nothing is called."""
    value, message = WRONG[name]
    with pytest.raises(InvalidError) as caught:
        read_check_file(value, file="f", folder=Path("/"))
    assert message in caught.value.message
    assert caught.value.code == "invalid-check-file"


def test_the_gravest_finding_about_a_rule_counts() -> None:
    """A rule holds only where nothing else was seen; an excuse speaks for what is broken or untried."""
    book = Book()
    book.hold(Rule.LATE)
    book.leave(Rule.LATE, "unseen")
    book.breach(Rule.UNDO, "left")
    book.hold(Rule.UNDO)
    book.hold(Rule.PROBE)
    found = book.finish({Rule.UNDO: "It can't.", Rule.PROBE: "It can't."})
    assert list(found) == [Rule.PROBE, Rule.UNDO, Rule.LATE]
    assert (found[Rule.UNDO].verdict, found[Rule.UNDO].seen) == (Verdict.EXCUSED, "left. It can't.")
    assert found[Rule.LATE].verdict is Verdict.UNTRIED
    assert "it holds" in found[Rule.PROBE].seen


def test_what_to_change_is_said_in_the_words_of_where_it_stands() -> None:
    """A tool that is declared has no `context` to look at: it is told of `${{ … }}`, and one in Python is not."""
    for meaning in MEANINGS.values():
        assert "${{" not in meaning.change_in("plugins/crm.py")
        for file in ("plugins/crm.yaml", "plugins/mcp.lock.json"):
            assert not [word for word in ("context.", "raise ", "CannotTell") if word in meaning.change_in(file)]
    assert "${{ forward_key }}" in MEANINGS[Rule.PROBE].change_in("plugins/crm.yaml")
