"""Posting to a URL, signed after the Standard Webhooks specification.

The receiver checks `webhook-signature`: `v1,` and the base64 of HMAC-SHA256 over id, timestamp and body, joined by full
stops, under the key that follows `whsec_` in the secret. The id is the same in each try, so it can tell that a message
comes again.

Nothing that answers is trusted: certificates are verified, redirects are not followed, of the answer no more than a
bounded part is read, and whatever happens ends after `LIMIT_SECONDS` (a host name that takes long to look up aside).
Certificates of one's own are named by SSL_CERT_FILE, as everywhere; proxies are not used.
"""

from __future__ import annotations

import base64
import binascii
import contextlib
import hashlib
import hmac
import socket
import threading
import time
from email.utils import parsedate_to_datetime
from typing import TYPE_CHECKING, Final
from urllib.parse import urlsplit

from sagactl.alerts.sending import SendError
from sagactl.alerts.settings import find_url_problem
from sagactl.secrets.masking import KNOWN

if TYPE_CHECKING:
    import ssl
    from http.client import HTTPConnection, HTTPResponse

LIMIT_SECONDS: Final = 10.0
GONE: Final = 410
"""By the specification: whoever answers so wants nothing more, now or later."""

ANSWER_BYTES_MAX: Final = 65_536
KEY_BYTES: Final = range(24, 65)
"""How long the key of a secret may be, by the specification."""

_PREFIX: Final = "whsec_"
_TEXT_LENGTH_MAX: Final = 80


def sign(secret: str, message_id: str, timestamp: int, body: bytes) -> str:
    """Return the value of `webhook-signature`; raises SendError where the secret is none."""
    signed = f"{message_id}.{timestamp}.".encode() + body
    mac = hmac.new(_read_key(secret), signed, hashlib.sha256).digest()
    return f"v1,{base64.b64encode(mac).decode()}"


def _read_key(secret: str) -> bytes:
    try:
        key = base64.b64decode(secret.removeprefix(_PREFIX), validate=True)
    except (binascii.Error, ValueError):
        raise SendError(f"the secret must be {_PREFIX} and base64") from None
    if len(key) not in KEY_BYTES:
        raise SendError(f"the key in the secret has {len(key)} bytes; it needs {KEY_BYTES[0]} to {KEY_BYTES[-1]}")
    return key


def post(
    url: str,
    body: bytes,
    *,
    message_id: str,
    secret: str,
    content_type: str = "application/json",
    limit_seconds: float = LIMIT_SECONDS,
) -> None:
    """Post *body*, signed; raises SendError unless the answer is a success."""
    problem = find_url_problem(url)
    if problem is not None:
        raise SendError(problem)
    timestamp = int(time.time())
    headers = {
        "content-type": content_type,
        "user-agent": "sagactl",
        "webhook-id": message_id,
        "webhook-timestamp": str(timestamp),
        "webhook-signature": sign(secret, message_id, timestamp, body),
        "connection": "close",
    }
    _judge(*_exchange(url, body, headers, limit_seconds))


def _exchange(url: str, body: bytes, headers: dict[str, str], limit_seconds: float) -> tuple[int, str | None, str]:
    """Return status, `Retry-After` and the beginning of the answer's text; raises SendError."""
    from http.client import HTTPException

    parts = urlsplit(url)
    line = _Line()
    is_late = line.is_late
    alarm = threading.Timer(limit_seconds, line.hang_up)
    alarm.daemon = True
    alarm.start()
    connection, context = _prepare(url, limit_seconds)
    try:
        _connect(connection, context, limit_seconds, line)
        path = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
        connection.request("POST", path, body=body, headers=headers)
        with connection.getresponse() as response:
            found = response.status, response.getheader("retry-after"), _read_text(response)
    except (OSError, HTTPException, ValueError) as error:
        if not isinstance(error, TimeoutError) and not is_late.is_set():
            raise SendError(f"not reached: {_name_error(error)}") from None
        is_late.set()
    finally:
        alarm.cancel()
        connection.close()
        line.close()
    if is_late.is_set():
        raise SendError(f"no answer within {limit_seconds:g} seconds")
    return found


class _Line:
    """A second descriptor of the connection of an exchange, which ends it whatever is wrapped around the first.

    Who sends a little now and then, of an answer or of the beginning of TLS, makes no single wait too long.
    """

    def __init__(self) -> None:
        self.is_late = threading.Event()
        self._kept: socket.socket | None = None

    def keep(self, made: socket.socket) -> None:
        self._kept = made.dup()
        if self.is_late.is_set():
            self.hang_up()

    def hang_up(self) -> None:
        self.is_late.set()
        if (kept := self._kept) is not None:
            with contextlib.suppress(OSError):
                kept.shutdown(socket.SHUT_RDWR)

    def close(self) -> None:
        if self._kept is not None:
            self._kept.close()


def _prepare(url: str, limit_seconds: float) -> tuple[HTTPConnection, ssl.SSLContext | None]:
    """Return what speaks to the receiver, not connected, and what TLS takes."""
    import http.client

    parts = urlsplit(url)
    assert parts.hostname is not None, "the url was checked"
    if parts.scheme != "https":
        return http.client.HTTPConnection(parts.hostname, parts.port, timeout=limit_seconds), None
    import ssl

    context = ssl.create_default_context()
    made = http.client.HTTPSConnection(parts.hostname, parts.port, timeout=limit_seconds, context=context)
    return made, context


def _connect(connection: HTTPConnection, context: ssl.SSLContext | None, limit_seconds: float, line: _Line) -> None:
    """Connect, in the library's place: it shows a connection to nobody before TLS has begun."""
    made = socket.create_connection((connection.host, connection.port), limit_seconds)
    connection.sock = made
    line.keep(made)
    made.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    if context is not None:
        connection.sock = context.wrap_socket(made, server_hostname=connection.host)


def _read_text(response: HTTPResponse) -> str:
    """Return a line of the answer, for a person to recognise it by."""
    content = response.read(ANSWER_BYTES_MAX)
    is_cut = len(content) == ANSWER_BYTES_MAX or bool(response.length)  # by us, or by who hung up
    text = KNOWN.mask_cut(content.decode("utf-8", "replace"), end=is_cut)  # before words of it are left out
    return KNOWN.shorten(" ".join(word for word in text.split() if word.isprintable()), _TEXT_LENGTH_MAX)


def _name_error(error: Exception) -> str:
    if isinstance(error, OSError) and error.strerror:
        return error.strerror
    return getattr(error, "verify_message", "") or type(error).__name__


def _judge(status: int, retry_after: str | None, text: str) -> None:
    if 200 <= status < 300:
        return
    if 300 <= status < 400:
        raise SendError(f"answered {status}: redirects are not followed")
    if status == GONE:
        raise SendError("answered 410: it takes no more messages, so this one is given up", is_final=True)
    said = f"answered {status}" + (f": {text}" if text else "")
    raise SendError(said, retry_after_ms=_read_retry_after(retry_after))


def _read_retry_after(value: str | None) -> int | None:
    if value is None:
        return None
    if value.isascii() and value.isdigit() and len(value) < 9:
        return int(value) * 1000
    try:
        moment = parsedate_to_datetime(value)
        return max(0, int((moment.timestamp() - time.time()) * 1000))
    except (ValueError, TypeError, OverflowError):
        return None
