"""Tools that aren't written in Python are held to the same rules: requests declared in YAML, tools of an MCP server."""

from __future__ import annotations

import json
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from tests.cli.project import Project
from tests.conformance.project import broken_of, check, verdicts_of

SERVER = Path(__file__).parents[1] / "tools" / "mcp" / "server.py"

SHOP = """
server: http://127.0.0.1:PORT
tools:
  shop.order:
    request: POST /orders
    json: {article: "${{ args.article }}"}
    arguments: {article: {type: string, minLength: 1}}
    key: {header: Idempotency-Key}
    compensation: shop.cancel
    probe: shop.find
  shop.cancel:
    request: DELETE /orders/by-key/${{ forward_key }}
    null_safe: true
  shop.find:
    request: GET /orders/by-key/${{ forward_key }}
    done: {status: 200}
    not_done: {status: 404}
  shop.list:
    request: GET /orders
"""
CHECK = """
safe_tools: ["shop.*"]
observe: [shop.list]
tools:
  shop.order:
    with: {article: "${{ run.id }}"}
    rejects: [{article: sold-out}]
"""


class Shop(ThreadingHTTPServer):
    """Orders by key; one that is careless makes a new order whatever key comes."""

    def __init__(self, *, is_careless: bool) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.is_careless = is_careless
        self.orders: dict[str, dict[str, Any]] = {}
        self.lock = threading.Lock()


class Handler(BaseHTTPRequestHandler):
    """The three requests of the shop."""

    server: Shop

    def do_POST(self) -> None:
        """Take an order."""
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        key = self.headers["Idempotency-Key"].strip('"')
        if body["article"] == "sold-out":
            self._answer(422, {"error": "sold out"})
            return
        with self.server.lock:
            if self.server.is_careless:
                key = f"{key}#{len(self.server.orders)}"
            order = self.server.orders.setdefault(key, {"article": body["article"]})
        self._answer(201, order)

    def do_GET(self) -> None:
        """Show all orders, or one."""
        if self.path == "/orders":
            self._answer(200, {"orders": [list(pair) for pair in sorted(self.server.orders.items(), key=str)]})
            return
        found = [order for key, order in self.server.orders.items() if key.split("#")[0] == self._key()]
        self._answer(200 if found else 404, found[0] if found else {})

    def do_DELETE(self) -> None:
        """Forget an order."""
        with self.server.lock:
            found = self.server.orders.pop(self._key(), None)
        self._answer(200 if found else 404, {"gone": True})

    def _key(self) -> str:
        from urllib.parse import unquote

        return unquote(self.path.removeprefix("/orders/by-key/"))

    def _answer(self, status: int, body: dict[str, Any]) -> None:
        text = json.dumps(body).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(text)))
        self.end_headers()
        self.wfile.write(text)

    def log_message(self, *_: object) -> None:
        """Say nothing."""


@contextmanager
def _shop(folder: Path, *, is_careless: bool) -> Iterator[Project]:
    server = Shop(is_careless=is_careless)
    thread = threading.Thread(target=server.serve_forever, args=(0.05,), daemon=True)
    thread.start()
    try:
        (folder / "plugins").mkdir()
        (folder / "plugins" / "shop.yaml").write_text(SHOP.replace("PORT", str(server.server_address[1])))
        (folder / "plugins" / "shop.check.yaml").write_text(CHECK)
        yield Project(folder)
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


@pytest.mark.parametrize("is_careless", [False, True])
def test_requests_are_held_to_the_rules(tmp_path: Path, *, is_careless: bool) -> None:
    """Tools declared in YAML pass against a server that heeds keys, and are found out on one that doesn't."""
    with _shop(tmp_path, is_careless=is_careless) as project:
        result = check(project, "shop.order", "-o", "json")
    found = broken_of(result.json).get("shop.order", set())
    if is_careless:
        assert result.code == 1
        assert {"same-key", "at-once", "undo"} <= found
    else:
        assert (result.code, found) == (0, set()), result.out
        assert verdicts_of(result.json)["shop.order"]["probe"] == "holds"


MCP = """
[mcp.test]
command = [PYTHON, "-S", "-I", SERVER]
cwd = "room"

[mcp.test.tools.put]
compensation = "test.take"
compensation_with = {line = "${{ args.line }}"}
probe = "test.was_put"

[mcp.test.tools.take]
idempotent = true
null_safe = true
gone = ["ENOENT"]

[mcp.test.tools.look]
read_only = true

[mcp.test.tools.was_put]
tool = "look"
with = {line = "${{ args.line }}"}
found = "${{ output.found }}"
done_output = {lines = 1}
"""
MCP_CHECK = """
safe_tools: ["test.*"]
observe: [{tool: test.look, with: {line: "${{ run.id }}"}}]
tools:
  test.put:
    with: {line: "${{ run.id }}"}
    excused: {other-key: Its server shows one line at a time.}
"""


def test_tools_of_a_server_are_held_to_the_rules(tmp_path: Path) -> None:
    """Tools of an MCP server are called through it; what they don't promise isn't asked of them."""
    pytest.importorskip("mcp", reason="needs the extra `mcp`")
    (tmp_path / "room").mkdir()
    (tmp_path / "plugins").mkdir()
    settings = MCP.replace("PYTHON", json.dumps(sys.executable)).replace("SERVER", json.dumps(str(SERVER)))
    (tmp_path / "sagactl.toml").write_text(settings)
    (tmp_path / "plugins" / "test.check.yaml").write_text(MCP_CHECK)
    project = Project(tmp_path)
    assert project.run("tools", "pin").code == 0
    result = check(project, "test.put", "-o", "json")
    assert (result.code, broken_of(result.json)) == (0, {}), result.out
    found = verdicts_of(result.json)["test.put"]
    assert {found[rule] for rule in ("succeeds", "probe", "undo", "undo-twice", "undo-lost-output")} == {"holds"}
    assert found["same-key"] == "not_promised"  # nothing bears the key
