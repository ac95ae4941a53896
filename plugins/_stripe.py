"""Talking to Stripe with its own library: one request at a time, and what its errors mean to a saga.

The library doesn't repeat anything (`max_network_retries=0`): sagactl does, and writes it down. Each request has a
connection of its own: one that was kept may be closed by now, and a charge that dies on it would be in doubt.
"""

from __future__ import annotations

import contextlib
import os
import re
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, Final, NoReturn, Protocol, TypeVar, cast
from urllib.parse import urlsplit

from sagactl import CallContext, Rejected, Unavailable

from ._reach import Alarm, lack, name_effect, read_answer, refuse, seconds_for, was_never_sent

if TYPE_CHECKING:
    from stripe import StripeClient, StripeError

T = TypeVar("T")


class ReadPage(Protocol):
    """How the objects of one kind are listed."""

    def __call__(self, api: Any, params: dict[str, Any]) -> Any:
        """Return one page."""
        ...


API_KEY: Final = "STRIPE_API_KEY"
KEY_LENGTH_MAX: Final = 255
"""Stripe's limit for an idempotency key."""

METADATA_KEY: Final = "sagactl_key"
HALF_HIDDEN: Final = re.compile(r"[\w-]*\*{2,}[\w*-]*", re.ASCII)
LOOPBACK: Final = frozenset({"localhost", "127.0.0.1", "::1"})
CONNECT_SECONDS: Final = 10.0
PAGE: Final = 100
PAGES_MAX: Final = 100
"""How many pages of a list are read while an effect is looked for."""

CLOCK_SKEW_SECONDS: Final = 3_600
"""How much Stripe's clock may be behind that of the machine that began the action."""


def ask(context: CallContext, request: Callable[[StripeClient], T]) -> T:
    """Make one request; raises `Rejected` or `Unavailable` where it is certain that it had no effect."""
    with _judging(context):
        return request(_connect(context))


def under_key(context: CallContext, part: str = "") -> Any:
    """Return the option that makes a request one of this operation, or of *part* of it, however often it is made."""
    return {"idempotency_key": name_effect(f"{context.idempotency_key}{part}", KEY_LENGTH_MAX)}


def mark(context: CallContext) -> dict[str, str]:
    """Return the metadata by which the effect of this operation is found again."""
    return {METADATA_KEY: name_effect(context.idempotency_key, KEY_LENGTH_MAX), "sagactl_run": context.run_id}


def find_marked(context: CallContext, read_page: ReadPage) -> list[Any]:
    """Return all objects that the action has made, the latest first; raises LookupError where there are too many.

    Stripe's search would find them by their metadata in one request, but lags behind by up to a minute, and longer in
    an outage: "not found" would be no proof. Its lists are up to date, so they are read back to when the action began.
    """
    key = name_effect(context.forward_key, KEY_LENGTH_MAX)
    since = int(context.begun_at.timestamp()) - CLOCK_SKEW_SECONDS
    made = list_all(context, read_page, created={"gte": since})
    return [each for each in made if _read_mark(each) == key]


def list_all(context: CallContext, read_page: ReadPage, **only: Any) -> list[Any]:
    """Return a list of Stripe's to its end, the latest first; raises LookupError where it is too long."""
    found: list[Any] = []
    after: dict[str, str] = {}
    for _ in range(PAGES_MAX):
        page = ask(context, partial(read_page, params={"limit": PAGE, **only, **after}))
        found += page.data
        if not page.has_more:
            return found
        after = {"starting_after": page.data[-1].id}
    raise LookupError(f"more than {PAGE * PAGES_MAX} objects: look for {METADATA_KEY} in Stripe's own pages")


def _read_mark(thing: Any) -> object:
    metadata = getattr(thing, "metadata", None)
    return getattr(metadata, METADATA_KEY, None)


def _connect(context: CallContext) -> StripeClient:
    import stripe

    stripe.enable_telemetry = False
    seconds = seconds_for(context)
    session = cast("Any", _Session(time.monotonic() + seconds))
    base = os.environ.get("STRIPE_API_BASE")
    if base and not _keeps_secrets(base):
        refuse(context, "STRIPE_API_BASE must begin with https://, unless it is on this machine", "bad_setting")
    return stripe.StripeClient(
        context.secrets[API_KEY],
        base_addresses={"api": base} if base else None,
        max_network_retries=0,
        http_client=stripe.RequestsClient(timeout=(min(CONNECT_SECONDS, seconds), seconds), session=session),
    )


def _keeps_secrets(address: str) -> bool:
    """Tell whether a key that is sent to *address* can't be read on the way."""
    parts = urlsplit(address)
    return parts.scheme == "https" or (parts.scheme == "http" and parts.hostname in LOOPBACK)


@dataclass(frozen=True)
class _Session:
    """The connection of one request: its answer is bounded in time and size, and no redirect is followed."""

    deadline: float

    def request(self, method: str, url: str, **rest: Any) -> Any:
        import requests

        with Alarm(self.deadline) as alarm, requests.Session() as session:
            for scheme in ("https://", "http://"):
                session.mount(scheme, _watch(alarm, requests.adapters.HTTPAdapter()))
            with session.request(method, url, stream=True, allow_redirects=False, **rest) as answer:
                content = read_answer(answer.raw, self.deadline, decode=True)
                answer._content = content  # noqa: SLF001 - what `answer.content` gives
            return answer

    def close(self) -> None:
        """Do nothing: each request has closed its own."""


def _watch(alarm: Alarm, adapter: Any) -> Any:
    """Let *alarm* keep each connection that is made for a request, straight or through a proxy."""
    find = adapter.get_connection_with_tls_context
    adapter.get_connection_with_tls_context = lambda *args, **more: alarm.watch_pool(find(*args, **more))
    return adapter


@contextlib.contextmanager
def _judging(context: CallContext) -> Iterator[None]:
    """Turn an error of Stripe's into an outcome; what is left as it is leaves the call in doubt.

    Left are: no or half an answer, 5xx (Stripe keeps it under the key, so the probe must tell), 409 (a request with
    this key is under way, which may have been ours), and a key that was used with other parameters: they are the same
    in every try, so somebody else has used the key, and what they did with it is for the probe or a person to see.
    """
    try:
        import stripe
    except ImportError:
        lack("the library stripe")
    try:
        yield
    except stripe.CardError as error:
        raise Rejected(_message(error), code=_read_decline(error)) from None
    except stripe.RateLimitError as error:  # also `lock_timeout`: turned away before it was worked on
        after = _read_seconds(error.headers)
        raise Unavailable(_message(error), retry_after=after, code=error.code or "rate_limit") from None
    except (stripe.AuthenticationError, stripe.PermissionError) as error:
        refuse(context, _message(error), "authentication" if error.http_status == 401 else "permission")
    except stripe.IdempotencyError:
        raise
    except stripe.InvalidRequestError as error:
        _reject_request(error)
    except stripe.APIConnectionError as error:
        if was_never_sent(error):
            raise Unavailable("Stripe can't be reached", code="unreachable") from None
        raise


def _reject_request(error: StripeError) -> NoReturn:
    raise Rejected(_message(error), code=error.code or "invalid_request") from None


def _message(error: StripeError) -> str:
    """Return what Stripe says, without what it leaves legible of a key: its ends, around stars."""
    return HALF_HIDDEN.sub("***", error.user_message or "no message")


def _read_decline(error: StripeError) -> str:
    body = error.json_body if isinstance(error.json_body, Mapping) else {}
    found = body.get("error")
    decline = found.get("decline_code") if isinstance(found, Mapping) else None
    return str(decline or error.code or "card_declined")


def _read_seconds(headers: Mapping[str, str] | None) -> float | None:
    text = (headers or {}).get("Retry-After") or (headers or {}).get("retry-after") or ""
    return float(text) if text.isdecimal() else None
