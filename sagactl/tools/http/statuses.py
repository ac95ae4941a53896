"""What the status of an answer means where a declaration doesn't say (E3).

The question is never whether the answer is an error, but whether the server may have done something. Whoever answers
400 or 422 has looked at the request and done nothing. Whoever answers 500, or 504 in place of somebody behind it, may
have done anything. 429 and 503 mostly mean that nothing was done; but a gateway may say so after it has passed the
request on, and a retry with the same key costs nothing where a wrong "no effect" would leave an effect behind: so they
are unknown too, and a declaration that knows its server says `unavailable: [429, 503]`. 409 to a request with a key
means that the first one with this key still runs. Redirects aren't followed: 303 tells of something done, 307 and 308
of nothing.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from sagactl.tools.http.declared import Meaning

RETRY_AFTER: Final = frozenset({408, 409, 425, 429, 503})
"""Statuses whose `Retry-After` is honoured."""

_REJECTED: Final = frozenset(
    {307, 308, 400, 401, 402, 403, 404, 405, 409, 410, 411, 412, 413, 414, 415, 417, 422, 426, 428, 431, 451}
)
_SUCCEEDED: Final = range(200, 300)
_REDIRECTS: Final = range(300, 400)
GONE: Final = frozenset({404, 410})


def judge_status(
    status: int, declared: Mapping[int, Meaning], *, has_key: bool, is_undo: bool, is_read_only: bool
) -> Meaning:
    """Return what *status* means.

    Args:
        status: Of the answer.
        declared: What the declaration says.
        has_key: Whether the request bore an idempotency key.
        is_undo: Whether it was a compensation: it finds nothing to undo where the thing is gone (E12).
        is_read_only: Whether the tool changes nothing.
    """
    if status in declared:
        return declared[status]
    if status in _SUCCEEDED or (is_undo and status in GONE):
        return Meaning.SUCCEEDED
    if status == 409 and has_key:
        return Meaning.UNKNOWN
    if status in _REJECTED or (is_read_only and status in _REDIRECTS):
        return Meaning.REJECTED
    return Meaning.UNKNOWN
