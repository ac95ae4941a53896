"""A private module with a mistake of its own, which is imported when it is first needed."""

from __future__ import annotations

from functools import partial

from sagactl import CallContext

from ._shop import note, put

WORD = "deep"
remember = partial(note, word=WORD)


def put_once(context: CallContext) -> None:
    """Remember the key, and put a thing there after that: a crash in between has the key and no effect."""
    is_known = remember(context)
    if not is_known:
        put(context, context.idempotency_key)
