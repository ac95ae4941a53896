"""What comes back from an isolated call, as lines of JSON: written there, and read here as the text of a stranger.

A plugin is trusted code, but a process that has gone wrong may have written anything. So a reply is parsed strictly,
and the caller checks an output against its schema once more. Each of output, token and raw reply has a line of its own:
none of them lies deeper than it would in its record.
"""

from __future__ import annotations

from enum import StrEnum
from typing import Final, TypeVar, cast

from sagactl.core.answer import Answer, ProbeReply
from sagactl.core.canonical import Json, NotJsonError, canonical, parse
from sagactl.core.records import Failure, OutcomeKind, ProbeAnswer
from sagactl.core.saga import PAYLOAD_BYTES_MAX
from sagactl.tools.convert import RAW_BYTES_MAX, bound_line, keep_raw
from sagactl.tools.sealing import as_word

_WITHOUT_REASON: Final = frozenset({OutcomeKind.SUCCEEDED, OutcomeKind.PENDING})
AFTER_MS_MAX: Final = 2**53
"""No delay is longer, whatever a tool may ask for."""

_RAW_LENGTH_MAX: Final = 2 * RAW_BYTES_MAX
"""A text of just so many bytes is longer as JSON; only what can't have been bounded yet is."""
E = TypeVar("E", bound=StrEnum)


class BadReplyError(ValueError):
    """What came back can't be read as a reply."""


def write_answer(answer: Answer) -> bytes:
    """Spell the answer of a call."""
    return _spell(answer.kind, answer.failure, answer.after_ms, answer.output, answer.token, answer.raw)


def write_probe_reply(reply: ProbeReply) -> bytes:
    """Spell the answer of a probe."""
    return _spell(reply.answer, reply.failure, None, reply.output, None, None)


def _spell(kind: str, failure: Failure | None, after_ms: int | None, *parts: Json) -> bytes:
    reason: Json = None if failure is None else [failure.type, failure.message]
    return "\n".join(map(canonical, ([str(kind), reason, after_ms], *parts))).encode()


def read_answer(data: bytes) -> Answer:
    """Read the answer of a call; raises BadReplyError."""
    head, output, token, raw = _read(data)
    kind, failure, after_ms = _read_kind(OutcomeKind, head[0]), _read_failure(head[1]), head[2]
    if failure is None and kind not in _WITHOUT_REASON:
        raise BadReplyError(f"{kind} without a reason")
    if after_ms is not None and not _is_delay(after_ms):
        raise BadReplyError("a delay that is none")
    if len(canonical(token).encode()) > PAYLOAD_BYTES_MAX:
        raise BadReplyError("a token that is too large")
    raw = raw if len(canonical(raw)) <= _RAW_LENGTH_MAX else keep_raw(raw)
    return Answer(kind, output=output, failure=failure, after_ms=cast("int | None", after_ms), token=token, raw=raw)


def _is_delay(value: Json) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and 0 <= value <= AFTER_MS_MAX


def read_probe_reply(data: bytes) -> ProbeReply:
    """Read the answer of a probe; raises BadReplyError."""
    head, output, _, _ = _read(data)
    answer, failure = _read_kind(ProbeAnswer, head[0]), _read_failure(head[1])
    if failure is None and answer is ProbeAnswer.CANNOT_TELL:
        raise BadReplyError(f"{answer} without a reason")
    return ProbeReply(answer, output=output, failure=failure)


def _read(data: bytes) -> tuple[list[Json], Json, Json, Json]:
    try:
        head, output, token, raw = (parse(line) for line in data.decode().split("\n"))
    except (NotJsonError, ValueError) as error:
        raise BadReplyError(str(error)) from None
    if not isinstance(head, list) or len(head) != 3:
        raise BadReplyError("its head is none")
    return head, output, token, raw


def _read_kind(kinds: type[E], given: Json) -> E:
    try:
        return kinds(str(given))
    except ValueError as error:
        raise BadReplyError(str(error)) from None


def _read_failure(given: Json) -> Failure | None:
    match given:
        case None:
            return None
        case [str(word), str(message)]:
            return Failure(as_word(word), bound_line(message))
    raise BadReplyError("a reason that is none")
