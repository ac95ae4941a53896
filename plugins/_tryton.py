"""Tryton's REST API, as the tools of `tryton.py` use it: what each answer means, and nothing kept between calls.

A request either reached a decision of Tryton's, or nobody knows: 400, 404 and their like are `Rejected`, for its
transaction was rolled back; 429 and a server that isn't there are `Unavailable`; a wrong key is what `_reach.py` says.
Everything else (5xx, a lost connection, a redirect, an answer that can't be read) is an exception like any other, an
unknown outcome.
"""

from __future__ import annotations

import base64
import contextlib
import hashlib
import json
import os
import time
from collections.abc import Mapping, Sequence
from functools import lru_cache, partial
from typing import TYPE_CHECKING, Any, Final

from sagactl import CallContext, Rejected, Unavailable

from ._reach import Alarm, lack, refuse, seconds_for

if TYPE_CHECKING:
    import httpx

ANSWER_BYTES_MAX: Final = 1_048_576
"""How much of an answer is read; what is asked for here has some hundred bytes."""

CONNECT_SECONDS: Final = 5.0
RECORDS_MAX: Final = 50
"""How many records of one key are looked at: there is one, or two where a call came late."""

KEY: Final = "TRYTON_KEY"
"""The secret with the key of the REST API."""

ACTIVE_OR_NOT: Final = ("active", "in", [True, False])
UNAUTHORIZED: Final = {401: "unauthorized", 403: "forbidden"}
REJECTED: Final = frozenset({400, 404, 405, 410, 413, 415, 422})


class TrytonError(Exception):
    """Tryton answered in a way from which nobody knows what it did."""


def mark(key: str) -> str:
    """Return what stands in a record for the key of the operation that made it: short, and as hard to guess."""
    return f"sagactl-{hashlib.sha256(key.encode()).hexdigest()[:24]}"


class Tryton:
    """The server that a call talks to, with the time that the call has left."""

    def __init__(self, context: CallContext) -> None:
        self._context = context
        self._url = os.environ.get("TRYTON_URL", "").rstrip("/")
        if not self._url.startswith(("http://", "https://")):
            raise Unavailable("TRYTON_URL must be https://HOST/DATABASE", code="not_configured")

    def find(self, model: str, domain: Sequence[object], *fields: str) -> list[dict[str, Any]]:
        """Return the records of *model* that match, the oldest first.

        What was deactivated is left out in each list of the domain that doesn't mention it.
        """
        query = {"d": _pack(domain), "f": list(fields or ("id",)), "o": _pack([["id", "ASC"]]), "s": str(RECORDS_MAX)}
        found = self._ask("GET", model, query=query)
        if not isinstance(found, list) or not all(isinstance(each, dict) and "id" in each for each in found):
            raise TrytonError(f"not a list of {model}")
        return found

    def create(self, model: str, values: Mapping[str, object], *fields: str) -> dict[str, Any]:
        """Make a record, with what is nested in it, in one transaction; raises Rejected where Tryton refuses."""
        made = self._ask("POST", model, body=dict(values), query={"f": list(fields or ("id",))})
        if not isinstance(made, dict) or "id" not in made:
            raise TrytonError(f"not a {model}")
        return made

    def deactivate(self, model: str, record_id: int) -> None:
        """Hide a record that can't be deleted."""
        self._ask("PUT", f"{model}/{record_id}", body={"active": False}, query={"f": ["id"]})

    def delete(self, model: str, record_id: int) -> bool:
        """Delete a record and return True; False where it is gone already. Raises Rejected where it is needed."""
        try:
            self._ask("DELETE", f"{model}/{record_id}")
        except Rejected as refused:
            if refused.code == "not_found":
                return False
            raise
        return True

    def press(self, model: str, record_id: int, button: str) -> None:
        """Press a button of a record; raises Rejected where its state has none of that name."""
        self._ask("POST", f"{model}/{record_id}/{button}", body={}, query={"f": ["id"]})

    def _ask(
        self,
        method: str,
        path: str,
        *,
        body: object = None,
        query: Mapping[str, str | Sequence[str]] | None = None,
    ) -> Any:
        httpx, seconds = _import_httpx(), seconds_for(self._context)
        client = _client(os.getpid())
        request = client.build_request(
            method,
            f"{self._url}/rest/model/{path}",
            params=query,
            json=body,
            headers=self._write_headers(),
            timeout=httpx.Timeout(seconds, connect=min(seconds, CONNECT_SECONDS)),
        )
        with Alarm(time.monotonic() + seconds) as alarm:
            request.extensions["trace"] = partial(_keep, alarm)
            try:
                answer = client.send(request, stream=True)
            except (httpx.ConnectError, httpx.ConnectTimeout) as error:
                raise Unavailable(f"Tryton can't be reached: {error}", code="unreachable") from error
            with contextlib.closing(answer):
                content = self._read(answer)
        return self._understand(answer, content)

    def _write_headers(self) -> dict[str, str]:
        return {
            "Authorization": f"bearer {self._context.secrets[KEY]}",
            "Accept": "application/json",
            "Accept-Language": "en",
            "Connection": "close",  # a kept one may be closed by now: a request that dies on it would be in doubt
        }

    def _read(self, answer: httpx.Response) -> bytes:
        parts: list[bytes] = []
        for part in answer.iter_bytes():
            parts.append(part)
            if sum(map(len, parts)) > ANSWER_BYTES_MAX:
                raise TrytonError(f"an answer of more than {ANSWER_BYTES_MAX} bytes")
            if self._context.seconds_left() <= 0:
                raise TimeoutError("the answer took longer than the call has")
        return b"".join(parts)

    def _understand(self, answer: httpx.Response, content: bytes) -> Any:
        status = answer.status_code
        if status == 204:
            return None
        if 200 <= status < 300:
            return json.loads(content)
        message = _read_message(status, content)
        if status == 429:
            raise Unavailable(message, retry_after=_read_delay(answer), code="too_many_requests")
        if status in UNAUTHORIZED:
            refuse(self._context, message, UNAUTHORIZED[status])
        if status in REJECTED:
            raise Rejected(message, code="not_found" if status == 404 else "refused")
        raise TrytonError(message)


def _import_httpx() -> Any:
    try:
        import httpx
    except ImportError:
        lack("httpx")
    return httpx


@lru_cache(maxsize=1)
def _client(_process: int) -> httpx.Client:
    """Return what has read the certificates once; a forked process gets one of its own."""
    client: httpx.Client = _import_httpx().Client(follow_redirects=False)
    return client


def _keep(alarm: Alarm, event: str, about: Mapping[str, Any]) -> None:
    """Let *alarm* have a connection as soon as it is made, before TLS begins."""
    if event == "connection.connect_tcp.complete":
        alarm.keep(about["return_value"].get_extra_info("socket"))


def _pack(value: object) -> str:
    return base64.urlsafe_b64encode(json.dumps(value).encode()).decode()


def _read_message(status: int, content: bytes) -> str:
    """Return what Tryton says; where it isn't Tryton's JSON that answers, the status alone."""
    try:
        body = json.loads(content)
        message = str(body["message"]) if isinstance(body, dict) else ""
    except (ValueError, KeyError, RecursionError):
        message = ""
    return message or f"Tryton answered {status}"


def _read_delay(answer: httpx.Response) -> float | None:
    text = answer.headers.get("Retry-After", "")
    return float(text) if text.isascii() and text.isdigit() else None
