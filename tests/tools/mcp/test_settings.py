"""What the settings say of servers and their tools, what servers say of themselves, and what becomes of both."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path
from typing import Any

import pytest

from sagactl.core.canonical import Json
from sagactl.core.saga import ToolFacts
from sagactl.errors import InvalidError
from sagactl.tools.api import declarations_of
from sagactl.tools.mcp.describe import describe_server
from sagactl.tools.mcp.lock import Pin, PinnedServer, compare_pins, read_lock, write_lock
from sagactl.tools.mcp.names import name_tool
from sagactl.tools.mcp.servers import McpServers
from sagactl.tools.mcp.settings import BadServerError, Server, read_servers
from sagactl.tools.plugin import BrokenPlugin
from sagactl.tools.registry import Registry, collect_tools
from sagactl.tools.shell.processes import Processes

TOOL: dict[str, Json] = {"type": "object", "properties": {"line": {"type": "string"}}, "required": ["line"]}

WRONG: dict[str, tuple[dict[str, Any], str]] = {
    "neither": ({}, "command"),
    "both": ({"command": ["a"], "url": "https://a"}, "command"),
    "unknown": ({"command": ["a"], "comand": 1}, "comand is unknown"),
    "words": ({"command": "a b"}, "command must be a list"),
    "password in the url": ({"url": "https://a:b@c/"}, "headers"),
    "no url": ({"url": "file:///etc/passwd"}, "https://"),
    "headers of a program": ({"command": ["a"], "headers": {"A": "b"}}, "goes with url"),
    "variables of a url": ({"url": "https://a/", "env": {"A": "b"}}, "goes with command"),
    "a header that breaks out": ({"url": "https://a/", "headers": {"A": "b\r\nC: d"}}, "line breaks"),
    "an expression": ({"command": ["a"], "env": {"A": "${{ input.a }}"}}, "no other expression"),
    "a duration": ({"command": ["a"], "connect_timeout": "soon"}, "connect_timeout"),
    "an unknown claim": ({"command": ["a"], "tools": {"t": {"idempotnt": True}}}, "tools.t.idempotnt is unknown"),
    "a place": ({"command": ["a"], "tools": {"t": {"key": "x"}}}, "argument"),
    "a mark": ({"command": ["a"], "tools": {"t": {"rejected": [""]}}}, "tools.t.rejected"),
    "CEL": ({"command": ["a"], "tools": {"t": {"with": {"a": "${{ args.a + 1 }}"}}}}, "alone"),
    "a hint": ({"command": ["a"], "tools": {"t": {"overrule": ["openWorld"]}}}, "overrule"),
}


def read_one(table: dict[str, Any]) -> Server | BadServerError:
    """Read the settings of one server."""
    ((_, found),) = read_servers({"s": table})
    return found


@pytest.mark.parametrize("case", WRONG)
def test_what_is_wrong_in_the_settings_is_named(case: str) -> None:
    """A slip in the settings of a server is an error with its key, and no server of that name."""
    table, part = WRONG[case]
    found = read_one(table)
    assert isinstance(found, BadServerError)
    assert part in str(found)


def test_a_bad_server_breaks_no_other(tmp_path: Path) -> None:
    """What can't be taken is told, and the others are there."""
    table = {"good": {"command": ["a"]}, "bad": {"command": 7}, "Bad": {"command": ["a"]}}
    servers = McpServers(table, project=tmp_path, processes=Processes(tmp_path, lambda: "boot"), resolve=str)
    broken = {each.name: each.message for each in servers.load() if isinstance(each, BrokenPlugin)}
    assert broken.keys() == {"good", "bad", "Bad"}
    assert "aren't pinned" in broken["good"]


def test_secrets_are_named_for_all_tools_of_a_server() -> None:
    """E19: a run whose next call needs a server's secret waits for it."""
    server = read_one({"url": "https://a/", "headers": {"A": "Bearer ${{ secrets.token }}", "B": "${{secrets.b}}"}})
    assert isinstance(server, Server)
    assert server.secrets == ("b", "token")
    assert server.headers["A"].fill(lambda name: f"<{name}>") == "Bearer <token>"


NAMES = {
    "write_file": "s.write_file",
    "createIssue": "s.create_issue",
    "Get HTTP page": "s.get_http_page",
    "2fa": "s.t2fa",
    "repo.create": "s.repo.create",
    "..": "s.t",
}


@pytest.mark.parametrize("tool", NAMES)
def test_names_of_servers_become_names_of_tools(tool: str) -> None:
    """Whatever a server calls its tools, sagas have a name for them."""
    assert name_tool("s", tool) == NAMES[tool]


def describe(tools: dict[str, Any], *pins: Pin) -> Registry:
    """Return the tools of a server with these settings and pins."""
    server = read_one({"command": ["a"], "tools": tools})
    assert isinstance(server, Server), server
    pinned = PinnedServer("test 1", {pin.tool: pin for pin in pins})
    connection: Any = None
    parts = list(describe_server(server, pinned, connection, place="sagactl.toml", lock="lock"))
    return collect_tools(None, entry_points=(), declared=parts)


def facts(tools: dict[str, Any], *pins: Pin) -> ToolFacts:
    """Return the facts of the one tool `put`."""
    return describe(tools, *(pins or (Pin("put", input=TOOL),))).facts_of("s.put")


def test_a_tool_nobody_says_anything_of_is_careful() -> None:
    """Without a word of the operator a tool changes things and can't be repeated, whatever its hints say."""
    hints: dict[str, Json] = {"readOnlyHint": True, "idempotentHint": True}
    found = facts({}, Pin("put", input=TOOL, annotations=hints))
    assert (found.read_only, found.idempotent, found.null_safe, found.probe) == (False, False, False, None)


CONTRADICTED: dict[str, tuple[dict[str, Any], dict[str, Json], bool]] = {
    "reads, but destroys": ({"read_only": True}, {"destructiveHint": True}, False),
    "reads, but doesn't only": ({"read_only": True}, {"readOnlyHint": False}, False),
    "reads, overruled": ({"read_only": True, "overrule": ["readOnlyHint"]}, {"readOnlyHint": False}, True),
    "reads, and says nothing": ({"read_only": True}, {}, True),
    "repeats, but doesn't": ({"idempotent": True}, {"idempotentHint": False}, False),
    "repeats, overruled": ({"idempotent": True, "overrule": ["idempotentHint"]}, {"idempotentHint": False}, True),
    "repeats by its key": ({"key": {"argument": "line"}}, {"idempotentHint": False}, True),
}


@pytest.mark.parametrize("case", CONTRADICTED)
def test_hints_make_a_tool_more_careful_never_less(case: str) -> None:
    """A claim that the server contradicts makes the tool unusable, unless the operator overrules the hint."""
    table, hints, is_usable = CONTRADICTED[case]
    registry = describe({"put": table}, Pin("put", input=TOOL, annotations=hints))
    assert ("s.put" in registry.tools) is is_usable
    assert bool(registry.broken) is not is_usable


def test_the_key_is_none_of_a_sagas_arguments() -> None:
    """E8: the argument in which the key goes is filled in, and the tool can then be repeated."""
    found = facts({"put": {"key": {"argument": "line"}}})
    assert found.idempotent
    assert found.arguments_schema["properties"] == {}
    assert found.arguments_schema["required"] == []


def test_an_argument_for_the_key_must_be_there() -> None:
    """A server that doesn't know the argument would pass the key over."""
    assert (
        "takes no argument" in describe({"put": {"key": {"argument": "id"}}}, Pin("put", input=TOOL)).broken[0].message
    )


def test_secret_arguments_take_secrets() -> None:
    """E19: what the operator says is secret is marked so, and a saga may give it a secret."""
    properties = facts({"put": {"secret_arguments": ["line"]}}).arguments_schema["properties"]
    assert properties == {"line": {"type": "string", "writeOnly": True}}


def test_an_older_schema_is_read_as_what_it_meant() -> None:
    """A list of items of draft 7 is a prefix now; its address names nothing here."""
    old: dict[str, Json] = {
        "$schema": "http://json-schema.org/draft-07/schema#",
        "type": "object",
        "properties": {"pair": {"type": "array", "items": [{"type": "string"}], "additionalItems": False}},
    }
    schema = facts({}, Pin("put", input=old)).arguments_schema
    assert schema["properties"] == {"pair": {"type": "array", "prefixItems": [{"type": "string"}], "items": False}}
    assert "$schema" not in schema


def test_a_schema_that_cannot_be_taken_breaks_one_tool() -> None:
    """A schema that reaches outside is refused; the other tools of the server are there."""
    bad: dict[str, Json] = {"type": "object", "properties": {"a": {"$ref": "https://evil.example/"}}}
    registry = describe({}, Pin("bad", input=bad), Pin("put", input=TOOL))
    assert "s.put" in registry.tools
    assert [each.tools for each in registry.broken] == [("s.bad",)]


def test_two_tools_of_one_name_need_another() -> None:
    """Where the rule gives two tools one name, the operator gives one of them another."""
    pins = (Pin("putLine", input=TOOL), Pin("put_line", input=TOOL))
    assert [each.tools for each in describe({}, *pins).broken] == [("s.put_line",)]
    registry = describe({"putLine": {"name": "s.put"}}, *pins)
    assert {"s.put", "s.put_line"} <= set(registry.names())


def test_a_tool_that_is_not_pinned_is_told() -> None:
    """A table about a tool that the server doesn't have isn't passed over."""
    assert "isn't pinned" in describe({"nosuch": {}}, Pin("put", input=TOOL)).broken[0].message


def test_the_version_of_a_tool_is_its_pin_and_what_is_said_of_it() -> None:
    """What a run was checked against shows in the version."""
    versions = {
        facts({}).version,
        facts({"put": {"rejected": ["no"]}}).version,
        facts({}, Pin("put", "Else", input=TOOL)).version,
    }
    assert len(versions) == 3


def test_pins_come_back_as_they_were_written(tmp_path: Path) -> None:
    """Numbers in schemas are exact, and words of any script stay readable."""
    from decimal import Decimal

    schema: dict[str, Json] = {"type": "number", "multipleOf": Decimal("0.1"), "default": None, "title": "Größe"}
    lock = {"s": PinnedServer("v", {"put": Pin("put", "Zeile", schema, {"a": 10**18}, {"readOnlyHint": True})})}
    file = tmp_path / "lock"
    file.write_text(write_lock(lock), encoding="utf-8")
    assert read_lock(file) == lock
    assert "Größe" in file.read_text(encoding="utf-8")


@pytest.mark.parametrize("text", ["", "{}", "[]", '{"schema": "sagactl.mcp_lock/2", "servers": {}}', "{", "\x00"])
def test_a_file_that_is_none_of_ours_is_refused(tmp_path: Path, text: str) -> None:
    """A damaged file of pins is an error that names it."""
    (tmp_path / "lock").write_text(text)
    with pytest.raises(InvalidError, match="lock"):
        read_lock(tmp_path / "lock")


def test_no_difference_goes_unnoticed() -> None:
    """Null where there was nothing, true where there was one: each is a change."""
    one = Pin("put", input={"default": None, "a": 1})
    assert compare_pins(one, Pin("put", input={"a": 1}))
    assert compare_pins(one, Pin("put", input={"default": None, "a": True}))
    assert compare_pins(one, None)[0].fact == "tool"
    assert not compare_pins(one, one)


def test_a_long_text_is_shown_where_it_parts() -> None:
    """A change far down in a long description is what is shown of it."""
    (change,) = compare_pins(Pin("put", "a" * 5_000 + "old"), Pin("put", "a" * 5_000 + "new"))
    assert (str(change.before)[-3:], str(change.after)[-3:]) == ("old", "new")
    assert len(str(change.before)) < 200


def test_declarations_carry_a_guard() -> None:
    """H33: the engine asks before an intent."""
    server = read_one({"command": ["a"]})
    assert isinstance(server, Server)
    connection: Any = None
    pinned = PinnedServer("", {"put": Pin("put", input=TOOL)})
    (loaded,) = describe_server(server, pinned, connection, place="", lock="")
    assert not isinstance(loaded, BrokenPlugin)
    assert [one.guard is not None for function in loaded.functions for one in declarations_of(function)] == [True]


def known_keys(table: dict[str, Any]) -> set[str]:
    """Return the keys that may stand beside those of a table, by what is said of one that may not."""
    found = read_one(table)
    assert isinstance(found, BadServerError)
    return set(str(found).partition("known are ")[2].split(", "))


def test_the_manual_has_every_key() -> None:
    """`sagactl help mcp` tells all that may stand in the settings, and its example can be taken."""
    page = (Path(__file__).parents[3] / "sagactl" / "help" / "mcp.md").read_text()
    told = {name for row in re.findall(r"^\| (`[^|]*) \|", page, re.MULTILINE) for name in re.findall(r"`(\w+)`", row)}
    assert known_keys({"command": ["a"], "?": 1}) | known_keys({"command": ["a"], "tools": {"t": {"?": 1}}}) == told
    (example,) = re.findall(r"```toml\n(.*?)```", page, re.DOTALL)
    assert all(isinstance(found, Server) for _, found in read_servers(tomllib.loads(example)["mcp"]))
