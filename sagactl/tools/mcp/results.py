"""What a server's answer to a call means: an output, or one of the ways to fail."""

from __future__ import annotations

import base64
import binascii
from collections.abc import Sequence
from typing import Any, Final

from sagactl.core.canonical import Json, NotJsonError, parse
from sagactl.hashing import sha256
from sagactl.tools.convert import bound_line
from sagactl.tools.mcp.settings import Marks

_QUOTING: Final = ("Failed to parse JSON response", "Failed to parse SSE message")
"""How messages of the library begin that quote the answer after it."""

MISFITS_MAX: Final = 3
"""Places of an answer that are named."""

TEXT_LENGTH_MAX: Final = 400
"""Of an error's text in a message."""


def read_output(result: Any, how: str) -> Json | object:
    """Return the output that *result* stands for.

    `auto`: its structured content; else its text, as JSON where it is a whole object or list; with pictures or other
    content, a list of all of it, in which bytes are told by size and digest. `text` and `json` insist.
    """
    if how == "text":
        return join_texts(result.content)
    if how == "json":
        return parse(join_texts(result.content))
    if result.structured_content is not None:
        structured: object = result.structured_content
        return structured
    if any(each.type != "text" for each in result.content):
        return {"content": [describe_content(each) for each in result.content]}
    return _read_text(join_texts(result.content))


def _read_text(text: str) -> Json:
    if not text.lstrip().startswith(("{", "[")):
        return text
    try:
        return parse(text)
    except NotJsonError:
        return text


def join_texts(content: Sequence[Any]) -> str:
    """Return the texts of a result, a line break between them."""
    return "\n".join(each.text for each in content if each.type == "text")


def describe_content(each: Any) -> dict[str, Json]:
    """Return one piece of content; what it holds of bytes is told by size and digest and not kept."""
    if each.type == "text":
        return {"type": "text", "text": each.text}
    if each.type in {"image", "audio"}:
        return {"type": each.type, "mime_type": each.mime_type, **_digest(each.data)}
    if each.type == "resource":
        resource = each.resource
        about: dict[str, Json] = {"type": "resource", "uri": str(resource.uri), "mime_type": resource.mime_type}
        return {**about, "text": resource.text} if hasattr(resource, "text") else {**about, **_digest(resource.blob)}
    return {"type": each.type, "uri": str(getattr(each, "uri", ""))}


def _digest(text: str) -> dict[str, Json]:
    try:
        data = base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError):
        data = text.encode(errors="replace")
    return {"bytes": len(data), "sha256": sha256(data).hexdigest()}


def has_mark(marks: Marks, text: str, code: int = 0) -> bool:
    """Tell whether an error bears one of the operator's marks."""
    return any(mark == code if isinstance(mark, int) else mark in text for mark in marks)


def explain(error: BaseException) -> str:
    """Return what an error of the library says, without what it quotes: it cuts that where no secret is known by."""
    misfits = getattr(error, "errors", None)
    if not callable(misfits):
        return strip_quote(str(error)) or type(error).__name__
    found = misfits(include_url=False, include_context=False, include_input=False)
    places = [f"{'.'.join(map(str, each['loc'])) or 'it'}: {each['type']}" for each in found[:MISFITS_MAX]]
    more = f"; {len(found) - MISFITS_MAX} more" if len(found) > MISFITS_MAX else ""
    return bound_line(f"not of the protocol ({'; '.join(places)}{more})", TEXT_LENGTH_MAX)


def strip_quote(message: str) -> str:
    """Return a message of the library without the answer that it quotes."""
    return next((beginning for beginning in _QUOTING if message.startswith(beginning)), message)


def shorten(text: str) -> str:
    """Return a server's own words fit for a message."""
    return bound_line(text.strip() or "without a word", TEXT_LENGTH_MAX)
