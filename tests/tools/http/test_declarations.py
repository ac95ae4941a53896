"""Files of declarations: what they mean, and every problem of a wrong one at its place."""

from __future__ import annotations

import json
import os
import re
from pathlib import Path

import pytest

from sagactl.tools.http.files import find_files
from sagactl.tools.http.reading import FILE_KEYS, read_file
from sagactl.tools.http.reading_tool import TOOL_KEYS
from sagactl.tools.validate import compile_schema
from sagactl.written.document import read_document
from tests.cli.project import ROOT
from tests.tools.http.declaring import one_tool, project

FOLDER = Path(__file__).parent / "problems"
PAGE = (ROOT / "sagactl" / "help" / "http.md").read_text(encoding="utf-8")


@pytest.mark.parametrize("name", sorted(path.stem for path in FOLDER.glob("*.yaml")))
def test_each_problem_is_shown_at_its_place(name: str) -> None:
    """Every problem of a file is told at once, each with line, caret and what to do."""
    from sagactl.written.report import render_problems

    declared = read_file((FOLDER / f"{name}.yaml").read_bytes(), file=f"plugins/{name}.yaml")
    parts = [
        f"{', '.join(each.names) or 'the file'}\n\n{render_problems(each.problems, each.source_text)}"
        for each in declared.broken
    ]
    printed = "\n".join(parts)
    golden = FOLDER / f"{name}.txt"
    if os.environ.get("SAGACTL_REWRITE_GOLDEN"):
        golden.write_text(printed, encoding="utf-8")
    assert printed == golden.read_text(encoding="utf-8")


def test_a_wrong_tool_breaks_only_itself(tmp_path: Path) -> None:
    """As with plugins: one slip doesn't take the other tools of its file away."""
    with project(tmp_path, (FOLDER / "tools.yaml").read_text(encoding="utf-8")) as made:
        assert made.registry.names() == ["shop.good"]
        broken = {name for each in made.registry.broken for name in each.tools}
    text = (FOLDER / "tools.yaml").read_text(encoding="utf-8")
    assert broken == set(re.findall(r"^  ([\w.]+):", text, re.MULTILINE)) - {"shop.good"}


def test_the_facts_are_those_that_the_method_and_the_words_have_it(tmp_path: Path) -> None:
    """RFC 9110: GET is read-only, PUT and DELETE are idempotent, POST is where its author says so."""
    text = """
server: https://shop.example.com
tools:
  shop.get: {request: GET /a}
  shop.put: {request: PUT /a}
  shop.delete: {request: DELETE /a}
  shop.post: {request: POST /a}
  shop.said: {request: POST /a, idempotent: true, null_safe: true, late_safe: true, key_retention: 24h}
  shop.keyed: {request: POST /a, key: {header: X-Key}}
  shop.placed: {request: POST /a, json: {id: "${{ key }}"}}
  shop.not: {request: DELETE /a, idempotent: false}
  shop.asking: {request: POST /search, done: {}}
"""
    with project(tmp_path, text) as made:
        facts = made.registry.facts
    assert {name for name, each in facts.items() if each.read_only} == {"shop.get", "shop.asking"}
    assert {name for name, each in facts.items() if not each.idempotent} == {"shop.post", "shop.not"}
    said = facts["shop.said"]
    assert (said.null_safe, said.late_safe, said.key_retention_ms) == (True, True, 86_400_000)


def test_arguments_are_what_the_request_refers_to_unless_they_are_described(tmp_path: Path) -> None:
    """A declaration of a few lines has a schema too: closed, and all of it required."""
    text = """
server: https://shop.example.com
tools:
  shop.derived: {request: "POST /a/${{ args.id }}", json: {x: "${{ args.x.y }}"}, optional: [x]}
  shop.whole: {request: POST /a, json: "${{ args }}"}
  shop.safe: {request: POST /undo, json: {id: "${{ args.id }}", of: "${{ forward_key }}"}, null_safe: true}
  shop.described: {request: POST /a, arguments: {a: {type: string}, b: {default: 1}, c: {}}, optional: [c]}
"""
    with project(tmp_path, text) as made:
        schemas = {name: each.arguments_schema for name, each in made.registry.facts.items()}
    assert schemas["shop.derived"] == {
        "type": "object",
        "properties": {"id": {}, "x": {}},
        "required": ["id"],
        "additionalProperties": False,
    }
    assert "required" not in schemas["shop.safe"], "E7: it is called without the output that its arguments come from"
    assert schemas["shop.whole"] == {"type": "object"}
    assert schemas["shop.described"]["required"] == ["a"]


def test_the_version_follows_what_was_declared(tmp_path: Path) -> None:
    """E16: a tool whose declaration changed is another version, and so are all tools of a file that moved."""
    versions = []
    hosts = ("https://a.example.com", "https://b.example.com")
    for server, line in ((hosts[0], "GET /x"), (hosts[0], "GET /y"), (hosts[1], "GET /x")):
        with project(tmp_path, one_tool(server, f"request: {line}")) as made:
            versions.append(made.registry.facts["shop.buy"].version)
    assert len(set(versions)) == 3
    with project(tmp_path, "# moved down\n" + one_tool("https://a.example.com", "request: GET /x")) as made:
        assert made.registry.facts["shop.buy"].version == versions[0]
        place = made.registry.tool("shop.buy").place
    assert (Path(place.file).name, place.line) == ("shop.yaml", 4)


def test_only_files_of_declarations_are_read(tmp_path: Path) -> None:
    """`*.check.yaml` belongs to `tools check`; what begins with `_` or `.` is private, and other files are others'."""
    for name in ("b.yaml", "a.yaml", "a.check.yaml", "_c.yaml", ".d.yaml", "e.yml", "f.py"):
        (tmp_path / name).write_text("")
    assert [file.name for file in find_files(tmp_path)] == ["a.yaml", "b.yaml"]
    assert find_files(tmp_path / "nosuch") == []


def test_the_schema_for_editors_has_the_keys_that_there_are() -> None:
    """`sagactl schema --declarations` knows every key, and takes what loads."""
    schema = json.loads((ROOT / "sagactl" / "tools" / "http" / "schema.json").read_text(encoding="utf-8"))
    assert set(schema["properties"]) == set(FILE_KEYS)
    assert set(schema["$defs"]["tool"]["properties"]) == set(TOOL_KEYS)
    check = compile_schema(schema)
    examples = [PAGE.split("```yaml\n")[1].split("```")[0].encode()]
    examples += [file.read_bytes() for file in (FOLDER.parent / "descriptions").glob("*.golden.yaml")]
    assert [check(read_document(each, file="x.yaml")) for each in examples] == [None] * 3
    for name in ("file", "list"):
        assert check(read_document((FOLDER / f"{name}.yaml").read_bytes(), file="x.yaml")) is not None


def test_the_page_has_every_key_and_its_example_loads(tmp_path: Path) -> None:
    """`sagactl help http` names every key of a file and of a tool, and what it shows can be copied."""
    for key in (*FILE_KEYS, *TOOL_KEYS):
        assert f"`{key}`" in PAGE, key
    example = PAGE.split("```yaml\n")[1].split("```")[0]
    with project(tmp_path, example) as made:
        assert not made.registry.broken
        assert made.registry.names() == ["leads.create", "leads.delete", "leads.find"]
