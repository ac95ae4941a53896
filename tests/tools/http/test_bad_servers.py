"""What bad servers do to a call: an outcome with a clear message, in bounded time and memory, and nothing else."""

from __future__ import annotations

import socket
import threading
import time
import tracemalloc
import zlib
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from functools import cache
from pathlib import Path
from typing import NamedTuple

import pytest

from sagactl.core.records import OutcomeKind
from tests.servers.start import DEAD_PORT
from tests.tools.http.declaring import one_tool, project
from tests.tools.http.servers import Asked, always, say, say_json, serve

SECONDS = 1.2
"""What a call may take that has to run out of it."""

ENOUGH_SECONDS = 60.0
"""What a call may take that ends by itself, and long before: time is then no reason for its end."""

TRIES = 3
"""How often time is measured anew: others on the machine can make a call slow, and never a slow one fast."""

POST = 'request: POST /orders\narguments: {what: {type: string}}\njson: {what: "${{ args.what }}"}\n'
MIB = 1_048_576
HEAD = b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\n"


def drip(connection: socket.socket, _: Asked) -> None:
    """Send a byte of the head now and then: no single wait is long, and all of them would never end."""
    for byte in HEAD * 100:
        connection.sendall(bytes([byte]))
        time.sleep(0.05)


def never(_: socket.socket, __: Asked) -> None:
    """Say nothing, and keep the connection."""
    time.sleep(ENOUGH_SECONDS)


def endless(connection: socket.socket, _: Asked) -> None:
    """Send a body that doesn't end."""
    connection.sendall(HEAD + b"transfer-encoding: chunked\r\n\r\n")
    while True:
        connection.sendall(b"10000\r\n" + b"x" * 65_536 + b"\r\n")


def large(connection: socket.socket, _: Asked) -> None:
    """Announce 100 MB and send them."""
    connection.sendall(HEAD + b"content-length: 104857600\r\n\r\n")
    for _each in range(100):
        connection.sendall(b"x" * MIB)


def bomb(connection: socket.socket, _: Asked) -> None:
    """Send 200 MB as gzip in 200 kB."""
    connection.sendall(say(200, pack_bomb(), content_type="application/json", content_encoding="gzip"))


@cache
def pack_bomb() -> bytes:
    """Return 200 MB as gzip."""
    packer = zlib.compressobj(1, zlib.DEFLATED, 31)
    return b"".join(packer.compress(bytes(MIB)) for _each in range(200)) + packer.flush()


def flood_of_1xx(connection: socket.socket, _: Asked) -> None:
    """Say again and again that an answer is on its way."""
    while True:
        connection.sendall(b"HTTP/1.1 102 Processing\r\nx-more: " + b"x" * 1_000 + b"\r\n\r\n")


def huge_headers(connection: socket.socket, _: Asked) -> None:
    """Send headers without end."""
    connection.sendall(HEAD)
    while True:
        connection.sendall(b"x-more: " + b"x" * 60_000 + b"\r\n")


def hang_up(connection: socket.socket, _: Asked) -> None:
    """Close before anything is said."""
    connection.shutdown(socket.SHUT_RDWR)


def hang_up_in_body(connection: socket.socket, _: Asked) -> None:
    """Close within the body."""
    connection.sendall(HEAD + b'content-length: 100\r\n\r\n{"id": ')
    connection.shutdown(socket.SHUT_RDWR)


def raw(answer: bytes) -> Callable[[socket.socket, Asked], None]:
    """Send *answer* and close."""

    def send(connection: socket.socket, _: Asked) -> None:
        connection.sendall(answer)
        connection.shutdown(socket.SHUT_RDWR)

    return send


class Case(NamedTuple):
    """A bad server, and what a call to it comes to."""

    act: Callable[[socket.socket, Asked], None]
    code: str
    said: str
    kind: OutcomeKind = OutcomeKind.UNKNOWN


JSON = {"content_type": "application/json"}
CASES = {
    "slow": Case(drip, "timeout", "no whole answer within "),
    "never": Case(never, "timeout", "no whole answer within "),
    "endless": Case(endless, "answer_too_large", "larger than 4194304 bytes"),
    "100-mb": Case(large, "answer_too_large", "larger than 4194304 bytes"),
    "gzip-bomb": Case(bomb, "answer_too_large", "larger than 4194304 bytes"),
    "1xx-flood": Case(flood_of_1xx, "answer_too_large", "sends more than is read"),
    "huge-headers": Case(huge_headers, "bad_answer", "broke the rules of HTTP"),
    "hangs-up": Case(hang_up, "bad_answer", "closed the connection before its answer was whole"),
    "hangs-up-in-body": Case(hang_up_in_body, "bad_answer", "closed the connection before its answer was whole"),
    "no-http": Case(raw(b"220 mail.example.com ESMTP\r\n\r\n"), "bad_answer", "broke the rules of HTTP"),
    "bad-chunks": Case(
        raw(HEAD + b"transfer-encoding: chunked\r\n\r\nzz\r\n{}\r\n0\r\n\r\n"), "bad_answer", "broke the rules of HTTP"
    ),
    "broken-json": Case(raw(say(200, b'{"id": ', **JSON)), "bad_answer", "no JSON that can be read"),
    "deep-json": Case(raw(say(200, b"[" * 100_000, **JSON)), "bad_answer", "nested deeper than 64 levels"),
    "long-number": Case(raw(say(200, b"9" * 5_000, **JSON)), "bad_answer", "no JSON that can be read"),
    "html": Case(raw(say(200, b"<p>Log in", content_type="text/html")), "bad_answer", "is text/html and no JSON"),
    "not-gzip": Case(raw(say(200, b"{}", content_encoding="gzip", **JSON)), "bad_answer", "compressed, and isn't"),
    "brotli": Case(raw(say(200, b"{}", content_encoding="br", **JSON)), "bad_answer", "wasn't asked for: br"),
    "redirect": Case(
        raw(say(302, location="http://169.254.169.254/latest?token=hush")),
        "http_302",
        "http://169.254.169.254/latest: redirects are not followed",
    ),
    "moved": Case(raw(say(308, location="/v2")), "http_308", "redirects are not followed", OutcomeKind.REJECTED),
    "error": Case(raw(say_json(500, {"error": {"message": "no disk"}})), "http_500", "Internal Server Error): no disk"),
}


def warm_up(folder: Path) -> None:
    """Call a server of its own, as imports are not what is measured.

    Not the server that is tried: one that closes after each answer may close a kept connection just as the next request
    goes out on it, and that request is rightly in doubt.
    """
    with serve(always(say_json(200, {}))) as server, project(folder, one_tool(server.url, POST)) as made:
        assert made.call("shop.buy", {"what": "x"}).kind is OutcomeKind.SUCCEEDED


@pytest.mark.parametrize("name", CASES)
def test_a_bad_server_makes_a_clear_outcome_in_bounded_time_and_memory(name: str, tmp_path: Path) -> None:
    """E3, E14: whatever a server does, the call ends by its deadline, keeps little, and says what happened."""
    case = CASES[name]
    pack_bomb()
    warm_up(tmp_path)
    seconds = SECONDS if case.code == "timeout" else ENOUGH_SECONDS
    for _ in range(TRIES):
        took_seconds = _try(case, tmp_path, seconds)
        if took_seconds < SECONDS + 0.5:
            break
    assert took_seconds < SECONDS + 0.5


def _try(case: Case, folder: Path, seconds: float) -> float:
    """Make one call, check all of it but the time, and return that."""
    with serve(case.act) as server, project(folder, one_tool(server.url, POST)) as made:
        tracemalloc.start()
        begun = time.monotonic()
        answer = made.call("shop.buy", {"what": "a book"}, seconds_left=seconds)
        took_seconds, peak = time.monotonic() - begun, tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
    assert len(server.asked) == 1, "it was asked, and only once"
    assert answer.failure is not None
    assert (answer.kind, answer.failure.type) == (case.kind, case.code), answer.failure
    assert case.said in answer.failure.message
    assert "hush" not in answer.failure.message
    assert peak < 24 * MIB
    return took_seconds


def test_a_body_that_nobody_wants_is_not_read(tmp_path: Path) -> None:
    """E3: where the declaration says `answer: none`, the status alone decides, however much comes behind it."""
    with serve(large) as server, project(tmp_path, one_tool(server.url, POST + "answer: none")) as made:
        answer = made.call("shop.buy", {"what": "x"})
    assert answer.kind is OutcomeKind.SUCCEEDED
    assert answer.output is None


def test_a_rejection_stays_one_though_its_body_breaks_off(tmp_path: Path) -> None:
    """E3: the status says that nothing was done; that the rest is missing doesn't change it."""
    act = raw(b"HTTP/1.1 422 No\r\ncontent-length: 100\r\n\r\nhalf")
    with serve(act) as server, project(tmp_path, one_tool(server.url, POST)) as made:
        answer = made.call("shop.buy", {"what": "x"})
    assert answer.kind is OutcomeKind.REJECTED


def test_a_cancelled_call_ends_at_once(tmp_path: Path) -> None:
    """E17: a call that waits for its server ends soon after it is cancelled, and is in doubt."""
    cancelled = threading.Event()

    def cancel(connection: socket.socket, asked: Asked) -> None:
        cancelled.set()
        never(connection, asked)

    with serve(cancel) as server, project(tmp_path, one_tool(server.url, POST)) as made:
        begun = time.monotonic()
        answer = made.call("shop.buy", {"what": "x"}, cancelled=cancelled, seconds_left=ENOUGH_SECONDS)
        took_seconds = time.monotonic() - begun
    assert answer.failure is not None
    assert (answer.kind, answer.failure.type) == (OutcomeKind.UNKNOWN, "cancelled")
    assert took_seconds < ENOUGH_SECONDS / 4


def test_nothing_was_sent_where_nobody_listens(tmp_path: Path) -> None:
    """E3: a refused connection is certainly no effect, so it may be tried again without doubt."""
    with project(tmp_path, one_tool(f"http://127.0.0.1:{DEAD_PORT}", POST)) as made:
        answer = made.call("shop.buy", {"what": "x"})
    assert answer.failure is not None
    assert (answer.kind, answer.failure.type) == (OutcomeKind.UNAVAILABLE, "unreachable")
    assert "nothing was sent" in answer.failure.message


@pytest.mark.parametrize("error", [OSError("no such host"), UnicodeError("bad label")])
def test_a_host_that_cannot_be_found_is_no_effect(error: Exception, tmp_path: Path) -> None:
    """E3: a name that leads nowhere is certainly no effect."""

    def resolve(_: str, __: int) -> list[str]:
        raise error

    with project(tmp_path, one_tool("http://shop.example.com", POST), resolve=resolve) as made:
        answer = made.call("shop.buy", {"what": "x"})
    assert answer.failure is not None
    assert (answer.kind, answer.failure.type) == (OutcomeKind.UNAVAILABLE, "unreachable")


def test_a_slow_look_up_ends_with_the_call(tmp_path: Path) -> None:
    """E14: a name that takes for ever to look up doesn't outlast the call, and nothing was sent."""
    is_over = threading.Event()

    def resolve(_: str, __: int) -> list[str]:
        is_over.wait(ENOUGH_SECONDS)
        return []

    with project(tmp_path, one_tool("http://shop.example.com", POST), resolve=resolve) as made:
        begun = time.monotonic()
        answer = made.call("shop.buy", {"what": "x"}, seconds_left=0.8)
        took_seconds = time.monotonic() - begun
        is_over.set()
    assert answer.kind is OutcomeKind.UNAVAILABLE
    assert took_seconds < ENOUGH_SECONDS / 4


def make_certificate(folder: Path, host: str, *, is_expired: bool = False) -> Path:
    """Write a certificate for *host* with its key, signed by itself."""
    from cryptography import x509
    from cryptography.hazmat.primitives import hashes, serialization
    from cryptography.hazmat.primitives.asymmetric import ec

    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, host)])
    now = datetime.now(UTC)
    begins, ends = (now - timedelta(days=9), now - timedelta(days=2)) if is_expired else (now, now + timedelta(days=1))
    certificate = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(begins - timedelta(hours=1))
        .not_valid_after(ends)
        .add_extension(x509.SubjectAlternativeName([x509.DNSName(host)]), critical=False)
        .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
        .sign(key, hashes.SHA256())
    )
    file = folder / f"{host}-{is_expired}.pem"
    pem = serialization.Encoding.PEM
    written = key.private_bytes(pem, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
    file.write_bytes(certificate.public_bytes(pem) + written)
    return file


@pytest.mark.parametrize(
    ("host", "is_expired", "is_trusted", "said"),
    [
        ("localhost", True, True, "certificate has expired"),
        ("elsewhere.example.com", False, True, "Hostname mismatch"),
        ("localhost", False, False, "self-signed certificate"),
    ],
)
def test_a_certificate_that_is_not_good_ends_the_call_before_it_begins(
    host: str, is_expired: bool, is_trusted: bool, said: str, tmp_path: Path
) -> None:
    """TLS verification is on: expired, of another host, of nobody that is trusted: nothing is sent."""
    certificate = make_certificate(tmp_path, host, is_expired=is_expired)
    settings = {"ca": str(certificate)} if is_trusted else {}
    with serve(lambda _, __: None, certificate=certificate) as server:
        text = one_tool(f"https://localhost:{server.port}", POST)
        with project(tmp_path, text, settings=settings) as made:
            answer = made.call("shop.buy", {"what": "x"})
    assert answer.failure is not None
    assert (answer.kind, answer.failure.type) == (OutcomeKind.UNAVAILABLE, "bad_certificate")
    assert said in answer.failure.message
    assert not server.asked


def test_a_certificate_of_ones_own_is_trusted_by_a_setting(tmp_path: Path) -> None:
    """`[http] ca` names certificates that are trusted besides the system's."""
    certificate = make_certificate(tmp_path, "localhost")
    with serve(raw(say_json(200, {"id": 7})), certificate=certificate) as server:
        text = one_tool(f"https://localhost:{server.port}", POST)
        with project(tmp_path, text, settings={"ca": certificate.name}) as made:
            answer = made.call("shop.buy", {"what": "x"})
    assert answer.output == {"id": 7}
    assert server.asked[0].headers["host"] == f"localhost:{server.port}"


def test_a_server_that_speaks_no_tls_is_said_so(tmp_path: Path) -> None:
    """A plain server behind `https` is no effect, and the message says that TLS failed."""
    with serve(never) as server, project(tmp_path, one_tool(f"https://localhost:{server.port}", POST)) as made:
        answer = made.call("shop.buy", {"what": "x"}, seconds_left=1.0)
    assert answer.kind is OutcomeKind.UNAVAILABLE
