"""What came back, as data: bodies read within bounds, the parts that a declaration names, and a line about the rest."""

from __future__ import annotations

import codecs
import re
import time
from http import HTTPStatus
from typing import TYPE_CHECKING, Final

from sagactl.core.canonical import Json, NotJsonError, parse
from sagactl.core.saga import INTERVAL_MS_MAX, PAYLOAD_BYTES_MAX
from sagactl.core.template import ExpressionError
from sagactl.secrets.masking import KNOWN
from sagactl.tools.convert import RAW_BYTES_MAX, bound_line
from sagactl.tools.http.declared import AnswerKind, Finding, Reply
from sagactl.tools.http.references import Missing, Scope, render

if TYPE_CHECKING:
    from sagactl.tools.http.transport import Received

SAID_LENGTH_MAX: Final = 200

_JSON_TYPE: Final = re.compile(r"(?:application|text)/(?:[a-z0-9!#$&^_.+-]+\+)?json", re.ASCII)
_PLAIN_TYPES: Final = frozenset({"", "text/plain", "application/octet-stream"})
_CHARSET: Final = re.compile(r"charset=\"?([A-Za-z0-9._-]{1,40})", re.ASCII)
_CHARSETS: Final = frozenset({"utf-8", "ascii", "iso8859-1", "iso8859-15", "cp1252", "utf-16"})
_TELLING: Final = ("message", "detail", "error_description", "error_message", "title", "error", "errors", "reason")
_DEPTH_MAX: Final = 4


class BadAnswerError(Exception):
    """The body is none that can be read as the declaration wants it."""


def read_body(received: Received, kind: AnswerKind) -> Json:
    """Return the body as data; raises BadAnswerError."""
    if kind is AnswerKind.NONE or not received.body:
        return None
    if kind is AnswerKind.TEXT:
        return _read_text(received)
    kind_of_body = content_type(received)
    if not _JSON_TYPE.fullmatch(kind_of_body) and kind_of_body not in _PLAIN_TYPES:
        raise BadAnswerError(f"the answer is {bound_line(kind_of_body, 60)} and no JSON")
    try:
        return parse(received.body)
    except (NotJsonError, UnicodeDecodeError) as error:
        raise BadAnswerError(f"the answer is no JSON that can be read: {error}") from None


def content_type(received: Received) -> str:
    """Return the media type of the body, without its parameters."""
    return (received.header("content-type") or "").partition(";")[0].strip().lower()


def _read_text(received: Received, bytes_max: int | None = None) -> str:
    found = _CHARSET.search(received.header("content-type") or "")
    try:
        name = codecs.lookup(found[1]).name if found else "utf-8"
    except LookupError:
        name = "utf-8"
    text = received.body[:bytes_max].decode(name if name in _CHARSETS else "utf-8", "replace")
    is_cut = bytes_max is not None and len(received.body) > bytes_max
    return KNOWN.mask_cut(text, end=True) if is_cut or received.trouble is not None else text


def read_raw(received: Received) -> Json:
    """Return what can be kept of a body that doesn't fit: as JSON, else the beginning of its text."""
    if received.trouble is None and len(received.body) <= PAYLOAD_BYTES_MAX:
        try:
            return read_body(received, AnswerKind.JSON)
        except BadAnswerError:
            pass
    return _read_text(received, RAW_BYTES_MAX)


def make_answer_scope(received: Received, body: Json, scope: Scope) -> dict[str, Json]:
    """Return what `output` and the conditions of a probe may refer to."""
    headers: dict[str, Json] = {name: received.header(name) for name, _ in received.headers}
    response: Json = {"status": received.status, "headers": headers, "body": body}
    return {**{root: scope[root] for root in ("args", "key", "forward_key")}, "response": response}


def pick_output(reply: Reply, body: Json, scope: Scope) -> Json:
    """Return the step's output; raises BadAnswerError where the answer hasn't what the declaration names."""
    if reply.output is None:
        return body
    try:
        value = render(reply.output, scope)
    except ExpressionError as error:
        raise BadAnswerError(f"{error} in the answer") from None
    return None if isinstance(value, Missing) else value


def fits(finding: Finding | None, status: int, scope: Scope) -> bool:
    """Tell whether an answer is the one that *finding* describes."""
    if finding is None or status not in finding.statuses:
        return False
    return finding.condition is None or finding.condition.holds(scope)


def say_answer(received: Received) -> str:
    """Return what the server said, on one line: status, its meaning, and what its body tells."""
    try:
        phrase = f" ({HTTPStatus(received.status).phrase})"
    except ValueError:
        phrase = ""
    said = _find_telling(read_raw(received), _DEPTH_MAX) if "html" not in content_type(received) else ""
    text = f"answered {received.status}{phrase}"
    return f"{text}: {bound_line(said, SAID_LENGTH_MAX)}" if said.strip() else text


def _find_telling(value: Json, depth_left: int) -> str:
    if isinstance(value, str):
        return value
    if isinstance(value, list) and value and depth_left:
        return _find_telling(value[0], depth_left - 1)
    if isinstance(value, dict) and depth_left:
        found = (_find_telling(value[name], depth_left - 1) for name in _TELLING if name in value)
        return next((each for each in found if each), "")
    return ""


def read_retry_after(received: Received) -> float | None:
    """Return the seconds after which the server wants to be asked again."""
    value = (received.header("retry-after") or "").strip()
    if value.isascii() and value.isdigit():
        return min(int(value[:9]), INTERVAL_MS_MAX // 1_000)
    from email.utils import parsedate_to_datetime

    try:
        moment = parsedate_to_datetime(value)
        return max(0.0, moment.timestamp() - time.time())
    except (ValueError, TypeError, OverflowError):
        return None
