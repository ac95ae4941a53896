"""Verifying a project's log beside heads that were kept elsewhere, with the project's key where it has one."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Final

from sagactl.config import Config
from sagactl.errors import DamagedLogError, InvalidError
from sagactl.log.base import Log, Verification
from sagactl.log.heads import ALL, Head, compare, list_heads, read_heads

if TYPE_CHECKING:
    from sagactl.secrets.sources import Source

KEY_BYTES_MIN: Final = 16


def export_heads(config: Config, log: Log, run_id: str | None) -> list[Head]:
    """Return the heads of one run, or of the whole log, signed where the project has a key.

    Raises DamagedLogError where the log isn't sound: a head of it would vouch for the damage. Raises InvalidError or
    SecretError where the key can't be used.
    """
    key = read_key(config)
    found = log.verify(run_id)
    if found.findings:
        first = found.findings[0]
        message = f"the log isn't sound, so no head of it is given: {first.problem}"
        raise DamagedLogError(message, hint="sagactl verify")
    return list_heads(log.store_id, found, key, is_whole=run_id is None)


def compare_heads(config: Config, log: Log, run_id: str | None, kept: str) -> tuple[Verification, int]:
    """Verify one run, or the whole log, and the text *kept* beside it; return what is wrong and how many heads it has.

    Raises InvalidError where *kept* holds no heads, or its key can't be used.
    """
    from dataclasses import replace

    key, heads = read_key(config), read_heads(kept, log.store_id)
    found = log.verify(run_id)
    return replace(found, findings=(*found.findings, *compare(log, heads, key))), sum(
        head.what != ALL for head in heads
    )


def read_key(config: Config) -> bytes | None:
    """Return the key that heads are signed with, or None; raises InvalidError, SecretError."""
    if config.verify is None:
        return None
    from sagactl.secrets.masking import KNOWN
    from sagactl.secrets.sources import read_value

    value = read_value(_find_source(config), os.environ)
    KNOWN.add(value)
    key = value.encode()
    if len(key) < KEY_BYTES_MIN:
        message = f"verify: the key has {len(key)} bytes; a signature needs {KEY_BYTES_MIN} or more"
        raise InvalidError(message, code="invalid-config", hint="openssl rand -hex 32")
    return key


def _find_source(config: Config) -> Source:
    from sagactl.secrets.sources import read_sources

    table, hint = config.verify or {}, 'key = {env = "SAGACTL_HEAD_KEY"}'
    if set(table) != {"key"}:
        wrong = ", ".join(sorted(set(table) - {"key"}))
        message = f"verify: unknown setting {wrong}" if wrong else "verify: key is missing"
        raise InvalidError(message, code="invalid-config", hint=hint)
    return read_sources(table, "verify", config.project)["key"]
