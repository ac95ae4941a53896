"""Definitions as the log keeps them: once each, under the digest of their canonical JSON."""

from __future__ import annotations

from sagactl.core.canonical import Json, digest, parse_trusted
from sagactl.errors import DamagedLogError


def check_definition(definition: str, text: object) -> dict[str, Json] | None:
    """Return the definition that *text* spells if its digest is *definition*."""
    if not isinstance(text, str):
        return None
    try:
        body = parse_trusted(text)
    except (ValueError, RecursionError):
        return None
    return body if isinstance(body, dict) and digest(body) == definition else None


def definition_lost(definition: str) -> DamagedLogError:
    """Return the error for a definition that is not there any more."""
    message = f"the definition {definition[:12]} is gone or not what was written"
    return DamagedLogError(message, hint="sagactl verify")
