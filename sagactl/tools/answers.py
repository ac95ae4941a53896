"""What a tool returned or raised, read as its answer.

The one question that matters is whether something may have happened. Only `Rejected` and `Unavailable` say that
nothing did, because the author of the tool says so. Everything else that goes wrong once the function was entered is
`unknown`: other exceptions, `sys.exit`, running out of memory, a reply that doesn't fit its schema or is too large.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from datetime import timedelta
from pathlib import Path
from types import TracebackType
from typing import Final, cast

from sagactl.core.answer import Answer, ProbeReply
from sagactl.core.canonical import Json, NotJsonError, canonical
from sagactl.core.records import Failure, OutcomeKind, ProbeAnswer
from sagactl.core.saga import INTERVAL_MS_MAX, PAYLOAD_BYTES_MAX, ToolFacts
from sagactl.errors import SecretError
from sagactl.tools.api import CannotTell, Done, NotDone, Pending, Rejected, Seconds, Unavailable
from sagactl.tools.convert import bound_line, describe_object, keep_raw, write_json
from sagactl.tools.describe import Tool
from sagactl.tools.kind import Answered, Unsure
from sagactl.tools.sealing import as_word
from sagactl.tools.validate import compile_schema

_WORD_BREAK: Final = re.compile(r"(?<=[a-z0-9])(?=[A-Z])")


class BadOutputError(Unsure):
    """What came is nothing that can be recorded, so what happened is unknown."""

    def __init__(self, message: str) -> None:
        super().__init__(message, code="bad_output")


def answer_result(facts: ToolFacts, result: object) -> Answer:
    """Return the answer that a tool gave by returning *result*."""
    if isinstance(result, Pending):
        return _answer_pending(facts, result)
    try:
        output = _check_size(result)
    except BadOutputError as error:
        return _answer_misfit(str(error), result)
    problem = compile_schema(facts.output_schema)(output)
    return Answer(OutcomeKind.SUCCEEDED, output=output) if problem is None else _answer_misfit(problem, output)


def answer_exception(tool: Tool, error: BaseException) -> Answer:
    """Return the answer that a tool gave by raising *error*, whatever that is."""
    if isinstance(error, Answered):
        return error.answer
    if isinstance(error, Pending):
        return _answer_pending(tool.facts, error)
    if isinstance(error, Rejected):
        return Answer(OutcomeKind.REJECTED, failure=_read_failure(error, error.code))
    if isinstance(error, Unavailable):
        failure = _read_failure(error, error.code)
        return Answer(OutcomeKind.UNAVAILABLE, failure=failure, after_ms=_read_ms(error.retry_after))
    if isinstance(error, Unsure):
        failure, after_ms = Failure(error.code, bound_line(str(error))), _read_ms(error.retry_after)
        return Answer(OutcomeKind.UNKNOWN, failure=failure, after_ms=after_ms, raw=error.raw)
    where = locate(error.__traceback__, tool.place.file)
    message = bound_line(f"{read_message(error) or 'no message'} ({where})")
    return Answer(OutcomeKind.UNKNOWN, failure=Failure(as_word(type(error).__name__), message))


def answer_unready(error: BaseException) -> Answer:
    """Answer for a call that was never entered: nothing happened, and the same arguments would fail again."""
    message = bound_line(read_message(error) or type(error).__name__)
    if isinstance(error, SecretError):
        return Answer(OutcomeKind.UNAVAILABLE, failure=Failure(error.code.replace("-", "_"), message))
    if isinstance(error, MemoryError) or not isinstance(error, Exception):
        return Answer(OutcomeKind.UNAVAILABLE, failure=Failure(as_word(type(error).__name__), message))
    return Answer(OutcomeKind.REJECTED, failure=Failure("bad_arguments", message))


def read_reply(result: object, actions: Sequence[ToolFacts]) -> ProbeReply:
    """Return what a probe replied; raises BadOutputError for no reply, or an output that fits none of *actions*."""
    answer, content = _read_probe_answer(result)
    if answer is ProbeAnswer.CANNOT_TELL:
        reason = bound_line(str(content)) if content else "the probe could not tell"
        return ProbeReply(answer, failure=Failure("cannot_tell", reason))
    if answer is ProbeAnswer.NOT_DONE:
        return ProbeReply(answer)
    output = _check_size(content)
    problems = [problem for facts in actions if (problem := compile_schema(facts.output_schema)(output)) is not None]
    if problems and len(problems) == len(actions):
        raise BadOutputError(f"done, but with an output that does not fit: {problems[0]}")
    return ProbeReply(answer, output=output)


def _read_probe_answer(result: object) -> tuple[ProbeAnswer, object]:
    match result:
        case Done():
            return ProbeAnswer.DONE, result.output
        case NotDone():
            return ProbeAnswer.NOT_DONE, None
        case CannotTell():
            return ProbeAnswer.CANNOT_TELL, result.reason
        case None:
            return ProbeAnswer.CANNOT_TELL, "the probe returned nothing"
        case Mapping() if result.get("answer") in set(ProbeAnswer) and result.keys() <= {"answer", "output", "reason"}:
            answer = ProbeAnswer(result["answer"])
            return answer, result.get("reason" if answer is ProbeAnswer.CANNOT_TELL else "output")
    raise BadOutputError(f"a probe answers Done, NotDone or CannotTell, not {describe_object(result, length_max=60)}")


def _answer_pending(facts: ToolFacts, pending: Pending) -> Answer:
    after_ms = _read_ms(pending.after, facts.pending_max_ms or INTERVAL_MS_MAX)
    try:
        token = _check_size(pending.token)
    except BadOutputError as error:
        return _answer_misfit(f"a token: {error}", pending.token)
    if after_ms is None:
        return _answer_misfit(f"Pending(after={describe_object(pending.after, length_max=60)})", pending.token)
    return Answer(OutcomeKind.PENDING, after_ms=after_ms, token=token)


def _answer_misfit(problem: str, result: object) -> Answer:
    failure = Failure("bad_output", bound_line(f"the tool returned what can't be taken: {problem}"))
    return Answer(OutcomeKind.UNKNOWN, failure=failure, raw=keep_raw(result))


def _check_size(result: object) -> Json:
    try:
        output = write_json(result)
        size = len(canonical(output).encode())
    except NotJsonError as error:
        raise BadOutputError(str(error)) from None
    if size > PAYLOAD_BYTES_MAX:
        raise BadOutputError(f"{size} bytes, more than the {PAYLOAD_BYTES_MAX} that an output may have")
    return output


def _read_failure(error: Rejected | Unavailable, code: str | None) -> Failure:
    word = as_word(str(code)) if code else _WORD_BREAK.sub("_", type(error).__name__).lower()
    return Failure(word, bound_line(read_message(error)) or word)


def read_message(error: BaseException) -> str:
    """Return the text of an exception, whatever its `__str__` does."""
    try:
        return str(error)
    except BaseException as worse:  # foreign code
        return f"its message raised {type(worse).__name__}"


def locate(traceback: TracebackType | None, file: str) -> str:
    """Return `file:line` of the last frame in the tool's own folder, or of the last one at all."""
    folder, found, last = str(Path(file).parent), "", ""
    while traceback is not None:
        name = traceback.tb_frame.f_code.co_filename
        last = f"{Path(name).name}:{traceback.tb_lineno}"
        found = last if str(Path(name).parent) == folder else found
        traceback = traceback.tb_next
    return found or last or Path(file).name


def _read_ms(given: Seconds | None, ms_max: int = INTERVAL_MS_MAX) -> int | None:
    """Return a delay in milliseconds within *ms_max*; None for what is no delay."""
    seconds = given.total_seconds() if isinstance(given, timedelta) else given
    try:
        number = float(cast("float", seconds))
    except (TypeError, ValueError, OverflowError):
        return None
    return None if math.isnan(number) else int(max(0.0, min(number * 1_000, ms_max)))
