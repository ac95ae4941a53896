"""Descriptions in OpenAPI as declarations: what is taken over, what isn't, and that the result loads."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest

from sagactl.errors import InvalidError, NotFoundError
from sagactl.tools.http.openapi_writing import Imported, import_openapi
from tests.tools.http.declaring import Project, project

LOOP = "#/components/schemas/Order within itself: there it is anything"
FOLDER = Path(__file__).parent / "descriptions"


def read(name: str, **given: Any) -> Imported:
    """Import one of the descriptions beside this file."""
    file = FOLDER / name
    return import_openapi(file.read_bytes(), file=str(file), stem=file.stem, **given)


def load(folder: Path, text: str) -> Project:
    """Return the project whose only plugin is *text*."""
    with project(folder, text) as made:
        return made


@pytest.mark.parametrize("name", ["shop.yaml", "ledger.json"])
def test_a_description_becomes_the_declarations_of_its_golden_file(name: str, tmp_path: Path) -> None:
    """What is made of a description is what a person would write, and all of it loads."""
    made = read(name)
    golden = FOLDER / f"{Path(name).stem}.golden.yaml"
    if os.environ.get("SAGACTL_REWRITE_GOLDEN"):
        golden.write_text(made.text, encoding="utf-8")
    assert made.text == golden.read_text(encoding="utf-8")
    loaded = load(tmp_path, made.text)
    assert not loaded.registry.broken
    assert set(made.tools) == set(loaded.registry.tools)


def test_what_is_left_out_is_listed_with_its_reason() -> None:
    """Nothing is dropped in silence: each operation and each part of one that isn't taken over is named."""
    left = {(each.where, each.why) for each in read("shop.yaml").left_out}
    assert left == {
        ("GET /orders", "its parameter filter is written in the style deepObject"),
        ("GET /orders", LOOP),
        ("POST /orders", LOOP),
        ("GET /orders/{orderId}", LOOP),
        ("POST /orders", "its callbacks: they call you"),
        ("POST /orders", "the pattern (a+)+$, which could take for ever"),
        ("PUT /orders/{orderId}/photo", "its body is image/png"),
        ("GET /session", "its parameter sid stands in a cookie"),
    }
    assert {(each.where, each.why) for each in read("ledger.json").left_out} == {
        ("webhooks", "they call you"),
        ("GET /entries", "a parameter of it is described elsewhere"),
        ("GET /entries/{entry-id}", "its answer, which is application/pdf"),
        ("POST /closing/{year}", "its path needs year, which isn't described"),
    }


def test_reading_tools_are_read_only_and_changing_ones_ask_for_their_undo(tmp_path: Path) -> None:
    """F4: a GET is read-only; a POST comes with the undo that the paths suggest, as a comment, and isn't idempotent."""
    made = read("shop.yaml")
    facts = load(tmp_path, made.text).registry.facts
    assert facts["corner_shop.get_order"].read_only
    assert not facts["corner_shop.create_order"].idempotent
    assert facts["corner_shop.change_order"].idempotent, "it says which header bears the key"
    assert facts["corner_shop.cancel_order"].idempotent, "a DELETE is, by its definition"
    assert facts["corner_shop.list_orders"].secrets == ("BEARER",)
    assert facts["corner_shop.get_health"].secrets == ()
    assert "# compensation: corner_shop.cancel_order\n" in made.text
    assert '# compensation_with: {orderId: "${{ output.id }}"}' in made.text


@pytest.mark.parametrize(
    ("answer", "proposed"),
    [
        ({"properties": {"token": {}, "id": {}}}, '{lead-id: "${{ output.id }}"}'),
        ({"properties": {"lead-id": {}, "id": {}}}, "{lead-id: \"${{ output['lead-id'] }}\"}"),
        ({"properties": {"token": {}}}, "{lead-id: }   # which part of the output is it? none has its name"),
        ({"type": "array"}, "{lead-id: }   # which part of the output is it? none has its name"),
        ({"type": "object"}, '{lead-id: "${{ output.id }}"}'),
        (None, '{lead-id: "${{ output.id }}"}'),
    ],
)
def test_an_undo_is_proposed_with_what_the_answer_has(answer: Any, proposed: str) -> None:
    """A proposal names no member that the schema beside it doesn't have: with it no saga would pass its check."""
    content = {} if answer is None else {"content": {"application/json": {"schema": answer}}}
    parameter = {"name": "lead-id", "in": "path", "required": True, "schema": {"type": "string"}}
    paths = {
        "/leads": {"post": {"responses": {"201": content}}},
        "/leads/{lead-id}": {"delete": {"parameters": [parameter], "responses": {"204": {}}}},
    }
    made = import_openapi(json.dumps({**BASE, "paths": paths}).encode(), file="x.json", stem="x")
    assert f"    # compensation_with: {proposed}\n" in made.text


def test_an_operation_that_no_tool_can_ask_is_listed() -> None:
    """What can't be taken over is listed, OPTIONS and TRACE as well, and said where just it is wanted."""
    paths = {"/a": {"get": {}, "options": {"operationId": "ask"}, "trace": {}}}
    raw = json.dumps({**BASE, "paths": paths}).encode()
    made = import_openapi(raw, file="x.json", stem="x")
    assert {(each.where, each.why) for each in made.left_out} == {
        ("OPTIONS /a", "a tool's request can't be OPTIONS"),
        ("TRACE /a", "a tool's request can't be TRACE"),
    }
    with pytest.raises(NotFoundError, match="OPTIONS /a: a tool's request can't be OPTIONS"):
        import_openapi(raw, file="x.json", stem="x", only=["ask"])


def test_only_some_operations_may_be_wanted() -> None:
    """`--only` takes operations by their id or by the name of the tool."""
    assert read("shop.yaml", only=["createOrder", "corner_shop.cancel_order"]).tools == (
        "corner_shop.create_order",
        "corner_shop.cancel_order",
    )
    for only in (["nosuch"], ["createOrder", "nosuch"]):
        with pytest.raises(NotFoundError, match="has no operation nosuch"):
            read("shop.yaml", only=only)


def test_a_server_is_asked_for_where_the_description_has_none() -> None:
    """A relative server can't be asked: the text has a place for it, and says so; `--server` fills it."""
    made = read("ledger.json")
    assert 'server: "https://api.example.com/api"' in made.text
    assert any("names no server" in note for note in made.notes)
    assert 'server: "https://ledger.example.org/x"' in read("ledger.json", server="https://ledger.example.org/x/").text
    with pytest.raises(InvalidError):
        read("ledger.json", server="ledger.example.org")


def test_what_an_importer_can_only_guess_is_said(tmp_path: Path) -> None:
    """A body of another kind, a reference to another file, a loop, a second server: each is named."""
    loop = {
        "type": "object",
        "properties": {"parent": {"$ref": "#/components/schemas/Node"}, "x": {"$ref": "y.json#/a"}},
    }
    body = {"content": {"application/json": {"schema": {"$ref": "#/components/schemas/Node"}}}}
    description = {
        **BASE,
        "servers": [{"url": "https://a.example.com"}, {"url": "https://b.example.com"}],
        "components": {"schemas": {"Node": loop}},
        "paths": {
            "/xml": {"post": {"requestBody": {"content": {"application/xml": {}}}}},
            "/node": {"post": {"requestBody": body}},
            "/far": {"post": {"requestBody": {"$ref": "other.yaml#/body"}}},
            "/answer": {"get": {"responses": {"200": {"$ref": "other.yaml#/answer"}}}},
            "/away": {"$ref": "other.yaml#/paths/away"},
        },
    }
    made = import_openapi(json.dumps(description).encode(), file="x.json", stem="x")
    assert {(each.where, each.why) for each in made.left_out} == {
        ("/away", "it is described elsewhere"),
        ("POST /xml", "its body, which is application/xml: the tool sends none"),
        ("POST /node", "#/components/schemas/Node within itself: there it is anything"),
        ("POST /node", "y.json#/a, which leads elsewhere or nowhere: it is anything"),
        ("POST /far", "its body is described elsewhere"),
        ("GET /answer", "its answer, which is described elsewhere"),
    }
    assert "    # sends no body: the description has one that is application/xml\n" in made.text
    assert any("names 2 servers, and this is the first" in note for note in made.notes)
    assert len(load(tmp_path, made.text).registry.tools) == 3


BASE = {"openapi": "3.0.0", "info": {"title": "t"}, "paths": {"/a": {"get": {"responses": {}}}}}
BAD = {
    "no-openapi": (b"swagger: '2.0'", "it is Swagger 2.0"),
    "list": (b"[1]", "it is no OpenAPI 3.0 or 3.1"),
    "broken-yaml": (b"openapi: [3", "in line"),
    "broken-json": (b'{"openapi": "3.0.0", "openapi": "3.0.1"}', "given twice"),
    "deep": (b"openapi: 3.0.0\nx: " + b"[" * 100_000, "nesting depth|levels deep"),
    "bomb": (
        b"openapi: 3.0.0\na: &a [x,x,x,x,x,x,x,x,x,x]\n"
        + b"".join(b"%c: &%c [%s]\n" % (c, c, b",".join([b"*%c" % (c - 1)] * 10)) for c in range(98, 106)),
        "more than 1000000 values",
    ),
    "no-text": (b"\xff\xfe", "can't decode"),
}


@pytest.mark.parametrize("name", BAD)
def test_what_is_no_description_is_an_error_in_bounded_time(name: str) -> None:
    """A file of others may be anything: it is one error, whatever is in it."""
    raw, said = BAD[name]
    with pytest.raises(InvalidError, match=said):
        import_openapi(raw, file="x.yaml", stem="x")


@pytest.mark.parametrize(
    "change",
    [
        {"servers": [{"url": "javascript:alert(1)"}]},
        {"info": {"title": "${{ secrets.X }}\n\x1b[2J"}},
        {"info": "x", "servers": "x", "security": [[]], "components": []},
        {
            "paths": {
                "/a/{b}/..": {"get": {"parameters": [{"name": "b", "in": "path", "schema": {}}]}},
                "/c": {"get": {}},
            }
        },
        {"paths": {"/a b": {"get": {}}, "/c": {"get": {"summary": "\u2028# ]: {\x07 ${{ args.x }}"}}}},
        {"paths": {"/c": {"get": {"parameters": [{"name": "a\n b", "in": "query", "schema": {"type": "string"}}]}}}},
        {"paths": {"/c": {"get": {"parameters": [{"name": 'a"]', "in": "query", "schema": {}}]}}, "/d": {"get": {}}}},
        {
            "paths": {
                "/c": {"post": {"requestBody": {"content": {"application/json": {"schema": {"$ref": "#/paths"}}}}}}
            }
        },
        {
            "paths": {
                "/c": {"get": {"responses": {"200": {"content": {"application/json": {"schema": {"$ref": "#"}}}}}}}
            }
        },
    ],
)
def test_no_text_of_a_description_becomes_more_than_text(change: dict[str, Any], tmp_path: Path) -> None:
    """Whatever stands in a description, what is made of it is a file that loads, and names no secret."""
    made = import_openapi(json.dumps({**BASE, **change}).encode(), file="x.json", stem="x")
    loaded = load(tmp_path, made.text)
    assert not loaded.registry.broken
    assert loaded.registry.tools
    assert all(not facts.secrets for facts in loaded.registry.facts.values())


def test_an_imported_tool_is_called(tmp_path: Path) -> None:
    """What was imported works: a form of the arguments that were given, to the path and with the key that they name."""
    from tests.tools.http.servers import always, say, serve

    with serve(always(say(200, b"fine", content_type="text/plain"))) as server:
        text = read("shop.yaml", server=server.url).text
        with project(tmp_path, text, secrets={"BEARER": "hush-hush"}) as made:
            answer = made.call("corner_shop.change_order", {"orderId": "ab12cd34", "note": "a&b"})
    assert answer.output == "fine", answer.failure
    (asked,) = server.asked
    assert (asked.line, asked.body) == ("PATCH /orders/ab12cd34 HTTP/1.1", b"note=a%26b")
    assert asked.headers["authorization"] == "Bearer hush-hush"
    assert asked.headers["idempotency-key"] == "run2345678abc/deposit/action"
