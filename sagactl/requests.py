"""What is asked of runs, as it is written down: a request with an id, in the name of who asks (rule E22)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sagactl.core.records import Operation, Request, Resolution, Verb
from sagactl.identity import make_request_id, who_am_i

if TYPE_CHECKING:
    from sagactl.core.canonical import Json


def make_request(
    verb: Verb,
    *,
    reason: str | None,
    operation: Operation | None = None,
    resolution: Resolution | None = None,
    output: Json = None,
    past_pivot: bool = False,
    digest: str | None = None,
    replaces: str | None = None,
) -> Request:
    """Return a new request in the name of who is logged in."""
    who = who_am_i()
    return Request(make_request_id(), verb, who, reason, operation, resolution, output, past_pivot, digest, replaces)
