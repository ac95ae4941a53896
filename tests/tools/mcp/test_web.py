"""Servers behind a URL: one made with the library, and bad ones; each is an outcome, bounded in time and memory."""

from __future__ import annotations

import resource
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from sagactl.core.records import OutcomeKind
from sagactl.tools.mcp.web import STREAM_BYTES_MAX
from tests.servers.start import find_free_port, is_listening, running
from tests.tools.http.test_bad_servers import make_certificate
from tests.tools.mcp.conftest import Bench, wait_until
from tests.tools.mcp.web_server import WebServer, serving

MEMORY_BYTES_MAX = 150_000_000


@pytest.fixture
def web() -> Iterator[WebServer]:
    """Yield a server."""
    with serving() as server:
        yield server


@pytest.fixture
def bench(tmp_path: Path, web: WebServer) -> Iterator[Bench]:
    """Yield a project whose server is that one."""
    made = Bench(tmp_path, tools="", url=web.url)
    yield made
    made.close()


def test_a_server_made_with_the_library_is_called(tmp_path: Path) -> None:
    """Both ends of the protocol's newest version: pinned, called, its structured output checked."""
    port, folder = find_free_port(), tmp_path / "lines"
    folder.mkdir()
    program = [sys.executable, str(Path(__file__).with_name("sdk_server.py")), str(port), str(folder)]
    (tmp_path / "project").mkdir()
    with running(program, is_ready=lambda: is_listening(port), log=tmp_path / "log"):
        bench = Bench(tmp_path / "project", tools="", url=f"http://127.0.0.1:{port}/mcp")
        assert bench.call(line="a").output == {"lines": 1}
        assert [file.name for file in folder.iterdir()] == ["a"]
        assert bench.call("test.shout", line="a").output == {"result": "A"}
        answer = bench.call("test.take", line="never")
        assert (answer.kind, answer.failure and answer.failure.type) == (OutcomeKind.UNKNOWN, "tool_error")
        bench.call("test.change")
        wait_until(lambda: bench.call("test.shout", line="a").kind is OutcomeKind.UNAVAILABLE)
        answer = bench.call("test.shout", line="a")
        assert answer.failure is not None
        assert answer.failure.type == "tool_changed", "it said so over a subscription"
        bench.close()


def test_headers_bear_the_secrets_of_the_settings(
    bench: Bench, web: WebServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """E19: a secret goes into a header, afresh for each call, and nothing is asked to be packed."""
    bench.configure("", url=web.url, headers={"Authorization": "Bearer ${{ secrets.token }}"})
    monkeypatch.setenv("SAGACTL_SECRET_TOKEN", "first-first")
    bench.call()
    monkeypatch.setenv("SAGACTL_SECRET_TOKEN", "second-second")
    bench.call()
    assert [each["authorization"] for each in web.headers] == ["Bearer first-first", "Bearer second-second"]
    assert web.headers[0]["accept-encoding"] == "identity"


def test_a_secret_that_is_not_there_is_no_call(bench: Bench, web: WebServer) -> None:
    """E19: a call that can't have its secret isn't made."""
    bench.configure("", url=web.url, headers={"Authorization": "Bearer ${{ secrets.token }}"})
    answer = bench.call()
    assert answer.kind is OutcomeKind.UNAVAILABLE
    assert not web.calls


IN_A_CALL = {
    "status 401": (OutcomeKind.REJECTED, "HTTP 401"),
    "status 307": (OutcomeKind.REJECTED, "redirect"),
    "status 500": (OutcomeKind.UNKNOWN, "HTTP 500"),
    "status 429": (OutcomeKind.UNKNOWN, "HTTP 429"),
    "json 401": (OutcomeKind.REJECTED, "HTTP 401"),
    "json 400": (OutcomeKind.REJECTED, "HTTP 400"),
    "json 500": (OutcomeKind.UNKNOWN, "HTTP 500"),
    "json 429": (OutcomeKind.UNKNOWN, "HTTP 429"),
    "error 401": (OutcomeKind.REJECTED, "HTTP 401: Unauthorized"),
    "error 500": (OutcomeKind.UNKNOWN, "Unauthorized"),
    "error 400 mine": (OutcomeKind.UNKNOWN, "Unauthorized"),
    "closes": (OutcomeKind.UNKNOWN, "complete"),
    "endless": (OutcomeKind.UNKNOWN, "more than 8388608 bytes"),
    "events": (OutcomeKind.UNKNOWN, ""),
    "news": (OutcomeKind.UNKNOWN, "nobody asked for"),
    "packed": (OutcomeKind.UNKNOWN, "compressed"),
    "garbage": (OutcomeKind.UNKNOWN, "JSON"),
}


@pytest.mark.parametrize("mode", IN_A_CALL)
def test_what_goes_wrong_on_the_way_is_an_outcome(bench: Bench, web: WebServer, mode: str) -> None:
    """E3: only a refusal says that nothing was done; memory is bounded, and the next call goes through."""
    assert bench.call().kind is OutcomeKind.SUCCEEDED
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    web.mode = mode
    answer = bench.call()
    kind, part = IN_A_CALL[mode]
    assert answer.kind is kind, answer
    assert answer.failure is not None
    assert part in answer.failure.message, answer.failure
    assert (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) * 1024 < MEMORY_BYTES_MAX
    web.mode = "good"
    assert bench.call().kind is OutcomeKind.SUCCEEDED


@pytest.mark.parametrize("mode", ["noise", "beside", "again"])
def test_a_flood_of_events_is_left(bench: Bench, web: WebServer, mode: str) -> None:
    """E3: events that are small, and each no message, end a call as soon as they are too many bytes.

    They come as the answer, in the stream beside it, or in one that goes on with the answer.
    """
    web.mode = mode
    answer = bench.call(seconds=30)
    assert (answer.kind, answer.failure and answer.failure.type) == (OutcomeKind.UNKNOWN, "server_lost"), answer
    assert answer.failure is not None
    assert f"more than {STREAM_BYTES_MAX} bytes of events" in answer.failure.message
    assert STREAM_BYTES_MAX < web.sent_bytes < STREAM_BYTES_MAX + 30_000_000
    web.mode = "good"
    assert bench.call().kind is OutcomeKind.SUCCEEDED


@pytest.mark.parametrize("mode", ["hangs", "drips"])
def test_the_deadline_is_that_of_the_whole_call(bench: Bench, web: WebServer, mode: str) -> None:
    """E14: neither silence nor a byte now and then outlasts the call's deadline."""
    assert bench.call().kind is OutcomeKind.SUCCEEDED
    web.mode = mode
    begun = time.monotonic()
    answer = bench.call(seconds=2.0)
    assert (answer.kind, answer.failure and answer.failure.type) == (OutcomeKind.UNKNOWN, "timeout")
    assert time.monotonic() - begun < 40


def test_a_lost_session_is_begun_anew(bench: Bench, web: WebServer) -> None:
    """A server that knows the session no more has done nothing: `unavailable`, and the next call begins another."""
    assert bench.call().kind is OutcomeKind.SUCCEEDED
    web.mode = "session"
    assert bench.call().kind is OutcomeKind.UNAVAILABLE
    sessions = web.sessions
    assert bench.call().kind is OutcomeKind.SUCCEEDED
    assert web.sessions == sessions + 1


def test_the_end_of_a_session_is_waited_for_briefly(bench: Bench, web: WebServer) -> None:
    """A server that doesn't hear of the end keeps no command from ending."""
    assert bench.call().kind is OutcomeKind.SUCCEEDED
    web.mode = "never ends"
    begun = time.monotonic()
    bench.close()
    assert time.monotonic() - begun < 40


@pytest.mark.parametrize(("mode", "code"), [("error 400 mine", -32001), ("error 500", -32001)])
def test_what_the_settings_say_of_an_error_holds_whatever_its_status(
    bench: Bench, web: WebServer, mode: str, code: int
) -> None:
    """E3: an error of the protocol is the server's own word, and the operator knows what it means."""
    bench.configure(f"[mcp.test.tools.put]\nunavailable = [{code}]\n", url=web.url)
    assert bench.call().kind is OutcomeKind.SUCCEEDED
    web.mode = mode
    assert bench.call().kind is OutcomeKind.UNAVAILABLE


def test_a_server_that_refuses_us_is_named_with_its_status(bench: Bench, web: WebServer) -> None:
    """A wrong token is told from a server that isn't there, by `tools pin` and by a call."""
    web.mode = "refuses 401"
    (look,) = bench.servers.look()
    assert (look.status, "HTTP 401" in (look.error or "")) == ("unreachable", True), look.error
    answer = bench.call()
    assert (answer.kind, answer.failure and "HTTP 401" in answer.failure.message) == (OutcomeKind.UNAVAILABLE, True)


def test_a_server_that_is_gone_was_not_reached(bench: Bench, web: WebServer) -> None:
    """A refused connection leaves no doubt, also where there was one before."""
    assert bench.call().kind is OutcomeKind.SUCCEEDED
    web.shutdown()
    web.server_close()
    answer = bench.call()
    assert (answer.kind, answer.failure and answer.failure.type) == (OutcomeKind.UNAVAILABLE, "server_unavailable")


@pytest.mark.parametrize(
    ("host", "is_expired", "is_trusted", "said"),
    [
        ("localhost", False, True, ""),
        ("localhost", True, True, "expired"),
        ("elsewhere.example.com", False, True, "mismatch"),
        ("localhost", False, False, "self-signed"),
    ],
)
def test_certificates_are_looked_at(host: str, is_expired: bool, is_trusted: bool, said: str, tmp_path: Path) -> None:
    """TLS verification is on; `ca_file` says who else may sign a server's certificate."""
    certificate = make_certificate(tmp_path, host, is_expired=is_expired)
    trusted = {"ca_file": certificate.name} if is_trusted else {}
    with serving(certificate) as server:
        bench = Bench(tmp_path, tools="", url=server.url, is_pinned=False, **trusted)
        (look,) = bench.servers.look()
        bench.close()
    assert (look.status, said in (look.error or "")) == ("unreachable" if said else "new", True), look.error
