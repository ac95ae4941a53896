"""What is no answer of Stripe, AWS or Tryton: cut off, too slow, too much, from a stranger; and libraries that lack."""

from __future__ import annotations

import contextlib
import socket
import ssl
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.alerts.receiver import CERTIFICATE
from tests.plugins.vendors import Deed, word
from tests.servers import aws, stripe

HEAD = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: 100000000\r\n\r\n"
Answer = Callable[[socket.socket], None]


def cut_off(connection: socket.socket) -> None:
    """Close in the middle of the answer."""
    connection.sendall(HEAD + b'{"id": "ch_1"')


def drip(connection: socket.socket) -> None:
    """Send a byte now and then."""
    connection.sendall(HEAD)
    for _ in range(2_000):
        connection.sendall(b" ")
        time.sleep(0.05)


def drip_head(connection: socket.socket) -> None:
    """Send headers without end, a byte now and then."""
    connection.sendall(b"HTTP/1.1 200 OK\r\nX-Slow: ")
    for _ in range(2_000):
        connection.sendall(b"x")
        time.sleep(0.05)


def drip_tls(connection: socket.socket) -> None:
    """Send the beginning of TLS, likewise: a record whose content never ends."""
    connection.sendall(b"\x16\x03\x03\x40\x00\x02\x00\x3f\xfc")
    for _ in range(2_000):
        connection.sendall(b"\x03")
        time.sleep(0.05)


def flood(connection: socket.socket) -> None:
    """Send 100 MB."""
    connection.sendall(HEAD)
    for _ in range(100):
        connection.sendall(b" " * 1_000_000)


def say_nothing(connection: socket.socket) -> None:
    """Close without a word."""


@contextlib.contextmanager
def serving(answer: Answer, *, tls: bool = False) -> Iterator[str]:
    """Answer every request in the same odd way; give the address."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]

        def serve() -> None:
            with contextlib.suppress(OSError):
                while True:
                    connection, _ = listener.accept()
                    with connection, contextlib.suppress(OSError):
                        _talk(connection, answer, tls=tls)

        thread = threading.Thread(target=serve, daemon=True)
        thread.start()
        yield f"{'https' if tls else 'http'}://127.0.0.1:{port}"
        with contextlib.suppress(OSError):
            listener.shutdown(socket.SHUT_RDWR)
        thread.join(5)


def _talk(connection: socket.socket, answer: Answer, *, tls: bool) -> None:
    if tls:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(CERTIFICATE)
        with context.wrap_socket(connection, server_side=True) as wrapped:
            wrapped.recv(65_536)
        return
    connection.recv(65_536)
    answer(connection)


def charging() -> Deed:
    """Return a charge."""
    environ = {"SAGACTL_SECRET_STRIPE_API_KEY": stripe.KEY}
    return Deed("stripe.charge", {"amount": 4_900, "currency": "eur", "source": "tok_visa"}, environ)


def sending() -> Deed:
    """Return a message, whose first request is the effect itself."""
    where = {"region": aws.REGION, "queue_url": "http://127.0.0.1/1/x.fifo"}
    return Deed("aws.send_message", {**where, "body": "x"})


def greeting() -> Deed:
    """Return a customer in Tryton, of whom the server is asked first."""
    return Deed("tryton.create_party", {"name": "Ada"}, {"SAGACTL_SECRET_TRYTON_KEY": "0123456789abcdef"})


@pytest.fixture(params=[charging, sending, greeting], ids=["stripe", "aws", "tryton"])
def act(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Callable[[str], Deed]:
    """Give what points an action at an address."""
    for name, value in aws.ENVIRON.items():
        monkeypatch.setenv(name, value)

    def point(address: str) -> Deed:
        monkeypatch.setenv("STRIPE_API_BASE", address)
        monkeypatch.setenv("AWS_ENDPOINT_URL", address)
        monkeypatch.setenv("TRYTON_URL", f"{address}/production")
        deed: Deed = request.param()
        deed.seconds = 4.0
        return deed

    return point


def babble(connection: socket.socket) -> None:
    """Say what is no JSON."""
    connection.sendall(b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: 6\r\n\r\n<html>")


@pytest.mark.parametrize("answer", [cut_off, say_nothing, flood, babble], ids=lambda each: each.__name__)
def test_half_an_answer_is_in_doubt(act: Callable[[str], Deed], answer: Answer) -> None:
    """E3: the effect may be there; it is neither taken for an answer nor waited for, nor kept whole in memory."""
    began = time.monotonic()
    with serving(answer) as address:
        assert act(address).act().kind.value == "unknown"
    assert time.monotonic() - began < 60


@pytest.mark.parametrize("answer", [drip, drip_head, drip_tls], ids=lambda each: each.__name__)
def test_an_answer_that_drips_is_given_up(act: Callable[[str], Deed], answer: Answer) -> None:
    """E14: a byte now and then doesn't hold up the call beyond its time, be it of a body, a header or of TLS."""
    with serving(answer) as address:
        began = time.monotonic()
        given = act(address if answer is not drip_tls else address.replace("http:", "https:")).act()
        assert time.monotonic() - began < 60  # it would take 100
    never_sent = answer is drip_tls and given.kind.value == "unavailable"
    assert given.kind.value == "unknown" or never_sent, given.failure


def test_a_stranger_gets_no_request(act: Callable[[str], Deed]) -> None:
    """E3: a certificate that can't be trusted ends the connection before anything is sent."""
    with serving(say_nothing, tls=True) as address:
        kind, code = word(act(address).act())
    assert kind == "unavailable"
    assert code in {"unreachable", "bad_certificate"}


@pytest.mark.parametrize(("library", "plugin"), [("stripe", charging), ("botocore", sending)])
def test_a_library_that_is_missing_is_named(
    library: str, plugin: Callable[[], Deed], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The plugin loads without it; a call says what to install, and has had no effect."""
    monkeypatch.setitem(sys.modules, library, None)
    answer = plugin().act()
    assert word(answer) == ("unavailable", "missing_library")
    assert answer.failure is not None
    assert "pip install 'sagactl[plugins]'" in answer.failure.message


def test_stripe_is_told_nothing_about_this_machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The library's telemetry is off: it writes no id into the configuration of the account."""
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    seen: list[bytes] = []
    with serving(lambda connection: seen.append(b"asked")) as address:
        monkeypatch.setenv("STRIPE_API_BASE", address)
        charging().act()
    assert seen
    assert list(tmp_path.iterdir()) == []
