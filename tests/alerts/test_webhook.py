"""Webhooks against real servers: signed so that others can check it, and unharmed by whatever answers."""

from __future__ import annotations

import contextlib
import socket
import threading
import time
from collections.abc import Iterator
from email.utils import formatdate
from http.server import BaseHTTPRequestHandler

import pytest
from standardwebhooks.webhooks import Webhook

from sagactl.alerts.sending import DELAY_MS_MAX, SendError, delay_ms
from sagactl.alerts.webhook import ANSWER_BYTES_MAX, post, sign
from tests.alerts.receiver import CERTIFICATE, SECRET, Answer, Receiver, answer, receiving
from tests.servers.start import DEAD_PORT

BODY = '{"says": "stuck — now"}'.encode()


@pytest.fixture
def receiver() -> Iterator[Receiver]:
    """Return a server that takes everything."""
    with receiving() as found:
        yield found


def send(url: str, *, secret: str = SECRET, limit_seconds: float = 5) -> None:
    """Post the body of this test."""
    post(url, BODY, message_id="alert_run1_4_stuck", secret=secret, limit_seconds=limit_seconds)


def test_a_signature_is_what_another_implementation_expects(receiver: Receiver) -> None:
    """Standard Webhooks: the reference library takes id, timestamp and signature, and refuses another body."""
    send(receiver.url)
    (found,) = receiver.posts
    assert found.path == "/hook?for=sagactl"
    assert (found.id, found.headers["content-type"]) == ("alert_run1_4_stuck", "application/json")
    webhook = Webhook(SECRET)
    assert webhook.verify(found.body, found.headers) == {"says": "stuck — now"}
    with pytest.raises(Exception, match="signature"):
        webhook.verify(found.body.replace(b"stuck", b"fine!"), found.headers)


def test_the_specification_has_this_signature() -> None:
    """The example of the specification's reference is signed as it says."""
    body = b'{"test": 2432232314}'
    secret = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"
    expected = "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE="
    assert sign(secret, "msg_p5jXN8AQM9LWM0D4loKWxJek", 1614265330, body) == expected


@pytest.mark.parametrize("secret", ["", "whsec_", "whsec_!!", "whsec_c2hvcnQ=", "plain", "whsec_" + "QUFB" * 40])
def test_a_secret_that_is_none_is_said_so_without_it(receiver: Receiver, secret: str) -> None:
    """A wrong secret sends nothing, and isn't repeated in the error."""
    with pytest.raises(SendError) as caught:
        send(receiver.url, secret=secret)
    assert receiver.posts == []
    assert not secret or secret not in str(caught.value)


@pytest.mark.parametrize(
    ("respond", "message", "retry_after_ms"),
    [
        (answer(500, b"out \x1b[2J\nof order"), "answered 500: out of order", None),
        (answer(429, retry_after="7"), "answered 429", 7_000),
        (answer(503, retry_after="soon"), "answered 503", None),
        (answer(503, retry_after="99999999999999"), "answered 503", None),
        (answer(301, location="/elsewhere"), "answered 301: redirects are not followed", None),
        (answer(307, location="/elsewhere"), "answered 307: redirects are not followed", None),
    ],
)
def test_only_a_success_counts(receiver: Receiver, respond: Answer, message: str, retry_after_ms: int | None) -> None:
    """Whatever else is answered is a failed try; a redirect isn't followed, and Retry-After is heard."""
    receiver.answer = respond
    with pytest.raises(SendError) as caught:
        send(receiver.url)
    assert (str(caught.value), caught.value.retry_after_ms) == (message, retry_after_ms)
    assert len(receiver.posts) == 1


def test_a_date_is_a_time_to_wait_as_well(receiver: Receiver) -> None:
    """Retry-After may be a date."""
    receiver.answer = answer(429, retry_after=formatdate(time.time() + 100, usegmt=True))
    with pytest.raises(SendError) as caught:
        send(receiver.url)
    assert caught.value.retry_after_ms is not None
    assert 90_000 < caught.value.retry_after_ms < 101_000


def test_delays_grow_up_to_an_hour() -> None:
    """Each try waits twice as long, or as long as was asked for, and never more than an hour."""
    assert [delay_ms(attempts) for attempts in (1, 2, 3, 12)] == [1_000, 2_000, 4_000, 2_048_000]
    assert delay_ms(13) == delay_ms(99) == DELAY_MS_MAX
    assert (delay_ms(1, 30_000), delay_ms(9, 30_000), delay_ms(1, 10**12)) == (30_000, 256_000, DELAY_MS_MAX)


def _hang(handler: BaseHTTPRequestHandler) -> None:
    time.sleep(60)


def _drip(handler: BaseHTTPRequestHandler) -> None:
    handler.wfile.write(b"HTTP/1.1 200 OK\r\n")
    for number in range(1_200):
        handler.wfile.write(f"x-{number}: y\r\n".encode())
        time.sleep(0.05)


@pytest.mark.parametrize("respond", [_hang, _drip])
def test_what_hangs_or_drips_is_left(receiver: Receiver, respond: Answer) -> None:
    """An exchange ends in time, also where a little comes every moment."""
    receiver.answer = respond
    began = time.monotonic()
    with pytest.raises(SendError, match=r"no answer within 0\.5 seconds"):
        send(receiver.url, limit_seconds=0.5)
    assert time.monotonic() - began < 40


def test_a_beginning_of_tls_that_drips_is_left() -> None:
    """No byte of an answer is needed to hold an exchange up: who never gets done with TLS is left as well."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        thread = threading.Thread(target=_drip_tls, args=[listener], daemon=True)
        thread.start()
        began = time.monotonic()
        with pytest.raises(SendError, match=r"no answer within 0\.5 seconds"):
            send(f"https://127.0.0.1:{listener.getsockname()[1]}/hook", limit_seconds=0.5)
        assert time.monotonic() - began < 40
        thread.join(60)


def _drip_tls(listener: socket.socket) -> None:
    connection, _ = listener.accept()
    with connection, contextlib.suppress(OSError):
        connection.sendall(b"\x16\x03\x03\x40\x00\x02\x00\x3f\xfc")
        for _ in range(1_200):
            connection.sendall(b"\x03")
            time.sleep(0.05)


def test_a_large_answer_is_not_read_to_its_end(receiver: Receiver) -> None:
    """Of an answer only a bounded part is read, whatever its length."""
    receiver.answer = answer(200, b"x" * (ANSWER_BYTES_MAX * 100))
    send(receiver.url)
    assert len(receiver.posts) == 1


def test_a_port_that_nobody_listens_at() -> None:
    """A receiver that is down is a failed try."""
    with pytest.raises(SendError, match="not reached: Connection refused"):
        send(f"http://127.0.0.1:{DEAD_PORT}/")


def test_something_that_speaks_no_http() -> None:
    """Whatever else answers there is a failed try."""
    with socket.create_server(("127.0.0.1", 0)) as server:

        def speak() -> None:
            connection, _ = server.accept()
            with connection:
                connection.recv(65_536)
                connection.sendall(b"220 mail.example.com ESMTP\r\n")

        threading.Thread(target=speak, daemon=True).start()
        with pytest.raises(SendError, match="not reached"):
            send(f"http://127.0.0.1:{server.getsockname()[1]}/")


def test_certificates_are_verified(monkeypatch: pytest.MonkeyPatch) -> None:
    """A certificate that nobody vouches for sends nothing; one's own is named by SSL_CERT_FILE."""
    with receiving(tls=True) as receiver:
        url = f"https://localhost:{receiver.port}/hook"
        with pytest.raises(SendError, match="self-signed certificate"):
            send(url)
        assert receiver.posts == []
        monkeypatch.setenv("SSL_CERT_FILE", str(CERTIFICATE))
        send(url)
        assert len(receiver.posts) == 1


@pytest.mark.parametrize(
    "url",
    [
        "http://example.com/hook",
        "ftp://127.0.0.1/",
        "https://user:pass@example.com/",
        "https://:443/",
        "https://exa mple.com/",
        "https://[::1/",
        "https://example.com:99999/",
        "https://example.com/\r\nx-header: 1",
    ],
)
def test_urls_that_are_not_used(url: str) -> None:
    """Nothing is sent in the clear to another machine, nor to what is no URL; the text isn't repeated."""
    with pytest.raises(SendError) as caught:
        send(url)
    assert url not in str(caught.value)
