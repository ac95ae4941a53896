"""Servers that repeat their credentials in what is no answer: no part of a secret is told, stored or pinned (E19)."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from sagactl.core.records import OutcomeKind
from tests.tools.mcp.conftest import Bench
from tests.tools.mcp.web_server import TOOL, WebServer, serving

SECRET = "lt_0123456789-ABCDEFGHIJKLMNOPQRSTUVWXYZ-abcdefghijklmnopqrstuvwxyz_END"
PIECES = {SECRET[place : place + 4] for place in range(len(SECRET) - 3)}
HEADERS = {"Authorization": "Bearer ${{ secrets.lt }}"}


@pytest.fixture(autouse=True)
def have_secret(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the secret be one that can be had."""
    monkeypatch.setenv("SAGACTL_SECRET_LT", SECRET)


@pytest.fixture
def web(tmp_path: Path) -> Iterator[tuple[WebServer, Bench]]:
    """Yield a server behind a URL that is sent the secret, and its project."""
    with serving() as server:
        bench = Bench(tmp_path, tools="", url=server.url, headers=HEADERS)
        yield server, bench
        bench.close()


def assert_untold(*texts: object) -> None:
    """Fail where a part of the secret is told, or a library quotes what it got."""
    told = {piece for piece in PIECES | {"input_value", "pydantic"} for text in texts if piece in str(text)}
    assert not told, texts


@pytest.mark.parametrize("mode", ["echoes", "echoes a result", "echoes a piece"])
def test_an_answer_to_a_call_is_not_quoted(web: tuple[WebServer, Bench], mode: str) -> None:
    """E19: neither by the library, which cuts it in the middle, nor by a server that cut it itself."""
    server, bench = web
    server.mode = mode
    answer = bench.call()
    assert server.calls
    assert answer.kind is OutcomeKind.UNKNOWN
    assert answer.failure is not None
    assert_untold(answer)


def test_an_answer_to_the_greeting_is_not_quoted(web: tuple[WebServer, Bench]) -> None:
    """E19: what `tools pin` and `doctor` show, and a call that isn't made."""
    server, bench = web
    server.mode = "echoes at once"
    (look,) = bench.servers.look()
    assert look.status == "unreachable"
    assert_untold(look, bench.call())


def test_a_program_is_not_quoted(bench: Bench) -> None:
    """E19: the same over stdin and stdout; the places that don't fit are named."""
    bench.configure(env={"S": "${{ secrets.lt }}"})
    bench.mode("echoes")
    answer = bench.call()
    assert answer.failure is not None
    assert answer.failure.type == "bad_answer"
    assert "not of the protocol (content: list_type)" in answer.failure.message
    assert_untold(answer)


def test_what_is_pinned_holds_no_secret(web: tuple[WebServer, Bench], monkeypatch: pytest.MonkeyPatch) -> None:
    """E19: a description or schema that repeats a header is pinned without it, and stays what was pinned."""
    _, bench = web
    monkeypatch.setitem(TOOL, "description", f"{'x' * 19_980}{SECRET}")
    monkeypatch.setitem(TOOL, "inputSchema", {"type": "object", "properties": {"a": {"default": f"Bearer {SECRET}"}}})
    bench.servers.pin(bench.servers.look())
    assert_untold((bench.folder / "plugins" / "mcp.lock.json").read_text())
    bench.close()
    assert [look.status for look in bench.servers.look()] == ["same"]
