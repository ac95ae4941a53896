"""The last thing done to an answer: whatever it says of a secret is masked, here and nowhere later (E19)."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import Final

from sagactl.core.answer import Answer, ProbeReply
from sagactl.core.records import Failure
from sagactl.secrets.masking import KNOWN

TYPE_LENGTH_MAX: Final = 64

_NOT_WORD: Final = re.compile(r"[^A-Za-z0-9_.-]+", re.ASCII)


def seal(answer: Answer, printed: str = "") -> Answer:
    """Return *answer* fit to be kept: whatever it says of a secret is masked, here and nowhere later (E19)."""
    if not KNOWN.is_active:
        return replace(answer, printed=printed) if printed else answer
    return replace(
        answer,
        output=KNOWN.mask_json(answer.output),
        failure=_mask_failure(answer.failure),
        token=KNOWN.mask_json(answer.token),
        raw=KNOWN.mask_json(answer.raw),
        printed=printed,  # masked where it was captured
    )


def seal_reply(reply: ProbeReply) -> ProbeReply:
    """Return the reply of a probe, likewise."""
    if not KNOWN.is_active:
        return reply
    failure = _mask_failure(reply.failure)
    return replace(reply, output=KNOWN.mask_json(reply.output), failure=failure)


def _mask_failure(failure: Failure | None) -> Failure | None:
    return None if failure is None else Failure(as_word(failure.type), KNOWN.mask(failure.message))


def as_word(text: str) -> str:
    """Return *text* as a word for programs: masked, of few characters and not many."""
    return _NOT_WORD.sub("_", KNOWN.mask(text))[:TYPE_LENGTH_MAX] or "error"
