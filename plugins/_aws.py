"""Talking to AWS with its own library: one try a request, and what its errors mean to a saga.

The library repeats nothing (`total_max_attempts=1`): sagactl does, and writes it down. Keys come from where boto3 looks
for them, so that roles of machines work and no key passes through a saga. A request ends with its call, whatever
answers; asking for the keys of a role is the library's own exchange, in which it bounds each wait and not the whole.
"""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any, Final, TypeVar

from sagactl import CallContext, Rejected, Unavailable

from ._reach import Alarm, lack, read_answer, refuse, seconds_for, was_never_sent

T = TypeVar("T")

CONNECT_SECONDS: Final = 10.0

BUSY: Final = frozenset(
    {
        *("Throttled", "Throttling", "ThrottlingException", "ThrottledException"),
        *("RequestThrottled", "RequestThrottledException"),
        *("RequestLimitExceeded", "TooManyRequestsException", "SlowDown", "BandwidthLimitExceeded"),
        *("EC2ThrottledException", "PriorRequestNotComplete", "KmsThrottled", "OverLimit"),
        *("InsufficientInstanceCapacity", "InsufficientHostCapacity", "InsufficientReservedInstanceCapacity"),
        *("ConditionalRequestConflict", "OperationAborted"),  # S3: another write to the same key came between
    }
)
"""Turned away before anything was done: worth another try."""

UNTRUSTED: Final = frozenset(
    {
        *(
            "AuthFailure",
            "UnauthorizedOperation",
            "AccessDenied",
            "AccessDeniedException",
            "MissingAuthenticationToken",
        ),
        *("InvalidClientTokenId", "UnrecognizedClientException", "InvalidAccessKeyId", "SignatureDoesNotMatch"),
        *("ExpiredToken", "ExpiredTokenException", "RequestExpired", "RequestTimeTooSkewed", "OptInRequired"),
        *("AuthorizationError", "AllAccessDisabled", "NotSignedUp"),
    }
)
"""The keys are wrong, or lack a right."""

DOUBTFUL: Final = frozenset({"RequestTimeout", "RequestTimeoutException", "IdempotentParameterMismatch"})
"""Errors of the 400s that don't say that nothing happened; the last: this key was used for something else."""

SESSION_SECONDS: Final = 300.0
"""After how long keys are looked for anew: they may have been changed, and a role is asked for again."""


class _Sessions:
    """Makes clients, one at a time; keeps what the library has read of the services, and for a while the keys."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._session: Any = None
        self._made_at = 0.0

    def make_client(self, service: str, config: Any) -> Any:
        with self._lock:
            if self._session is None or time.monotonic() - self._made_at > SESSION_SECONDS:
                self._renew()
            return self._session.create_client(service, config=config)

    def _renew(self) -> None:
        import botocore.session

        former, self._session = self._session, botocore.session.get_session()
        if former is not None:
            self._session.register_component("data_loader", former.get_component("data_loader"))
        self._made_at = time.monotonic()


SESSIONS: Final = _Sessions()


def ask(context: CallContext, service: str, region: str, request: Callable[[Any], T]) -> T:
    """Make one request; raises `Rejected` or `Unavailable` where it is certain that it had no effect."""
    with _judging(context):
        client = _connect(context, service, region)
        try:
            return request(client)
        finally:
            client.close()


def _connect(context: CallContext, service: str, region: str) -> Any:
    """Return a client whose requests end with the call, on a connection of its own."""
    from botocore.config import Config

    seconds = seconds_for(context)
    config = Config(
        region_name=region,
        connect_timeout=min(CONNECT_SECONDS, seconds),
        read_timeout=seconds,
        retries={"total_max_attempts": 1, "mode": "standard"},
        user_agent_extra="sagactl",
    )
    client = SESSIONS.make_client(service, config)
    session = client._endpoint.http_session  # noqa: SLF001 - the library has no other way to bound what is read
    client.meta.events.register("before-send", partial(_send, session, time.monotonic() + seconds))
    return client


def _send(session: Any, deadline: float, request: Any, **_: object) -> Any:
    """Send a request in the library's place, which reads an answer without end and takes half of one for the whole."""
    request.stream_output = True
    with Alarm(deadline) as alarm:
        makers = alarm.watch_pools(session._pool_classes_by_scheme)  # noqa: SLF001 - as above
        session._pool_classes_by_scheme = session._manager.pool_classes_by_scheme = makers  # noqa: SLF001
        return _exchange(session, deadline, request)


def _exchange(session: Any, deadline: float, request: Any) -> Any:
    answer = session.send(request)
    length = answer.headers.get("content-length", "")
    is_whole = request.method == "HEAD" or answer.status_code in {204, 304} or not length.isdecimal()
    whole = None if is_whole else int(length)
    with contextlib.closing(answer.raw):
        content = read_answer(answer.raw, deadline, decode=False, length=whole)
    answer._content = content  # noqa: SLF001 - what `answer.content` gives
    return answer


def expect(answer: dict[str, Any], *names: str) -> dict[str, Any]:
    """Return *answer*; raises LookupError where it lacks what AWS always says: the library takes anything for one."""
    missing = [name for name in names if not answer.get(name)]
    if missing:
        raise LookupError(f"AWS answered without {', '.join(missing)}")
    return answer


@contextlib.contextmanager
def _judging(context: CallContext) -> Iterator[None]:
    """Turn an error of AWS's into an outcome; what is left, 5xx and no or half an answer, leaves the call in doubt."""
    try:
        from botocore import exceptions
    except ImportError:
        lack("the library boto3")
    try:
        yield
    except exceptions.ClientError as error:
        _judge_answer(context, error)
    except (
        exceptions.NoCredentialsError,
        exceptions.PartialCredentialsError,
        exceptions.CredentialRetrievalError,
    ) as e:
        refuse(context, str(e), "no_credentials")
    except (exceptions.ParamValidationError, exceptions.InvalidRegionError, exceptions.UnknownEndpointError) as error:
        raise Rejected(" ".join(str(error).split()), code="bad_request") from None
    except (exceptions.EndpointConnectionError, exceptions.ConnectTimeoutError, exceptions.ProxyConnectionError) as e:
        raise Unavailable("AWS can't be reached", code="unreachable") from e
    except exceptions.SSLError as error:
        if was_never_sent(error):
            raise Unavailable("the certificate of AWS can't be trusted", code="bad_certificate") from error
        raise


def _judge_answer(context: CallContext, error: Any) -> None:
    """Say what an error that AWS has answered with comes to; raises in any case."""
    code, message = code_of(error), str(error.response.get("Error", {}).get("Message", ""))
    status = error.response.get("ResponseMetadata", {}).get("HTTPStatusCode", 500)
    if code in BUSY or status == 429:
        raise Unavailable(message, code=code) from None
    if code in UNTRUSTED or status in {401, 403}:
        refuse(context, message, code)
    if 400 <= status < 500 and code not in DOUBTFUL:
        raise Rejected(message, code=code) from None
    raise error


def code_of(error: Any) -> str:
    """Return the code of an error that AWS has answered with; of a request without a body it is the status."""
    return str(error.response.get("Error", {}).get("Code", "")) or "unknown"
