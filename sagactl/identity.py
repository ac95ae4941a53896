"""What is made up once and then known by: ids of runs and requests, who asks, and keys that callers choose."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from random import SystemRandom
from typing import Final

from sagactl.core.keys import RUN_ALPHABET
from sagactl.errors import InvalidError, check_argument

RUN_ID_LENGTH: Final = 13
REQUEST_ID_BYTES: Final = 12
KEY_LENGTH_MAX: Final = 255

_SYSTEM: Final = SystemRandom()


def make_run_id(choose: Callable[[Sequence[str]], str] = _SYSTEM.choice) -> str:
    """Return a new run id: 13 random characters without look-alikes, some 63 bits."""
    return "".join(choose(RUN_ALPHABET) for _ in range(RUN_ID_LENGTH))


def make_request_id() -> str:
    """Return a new id for an operator's request."""
    return _SYSTEM.randbytes(REQUEST_ID_BYTES).hex()


def check_key(key: str, name: str) -> None:
    """Raise InvalidError unless *key* is 1 to `KEY_LENGTH_MAX` printable characters."""
    check_argument(key, str, f"{name} of 1 to {KEY_LENGTH_MAX} printable characters", hint="give a text")
    if not (0 < len(key) <= KEY_LENGTH_MAX and key.isprintable()):
        message = f"{name} takes 1 to {KEY_LENGTH_MAX} printable characters, and this has {len(key)}"
        raise InvalidError(message, code="bad-key")


def who_am_i() -> str:
    """Return who is recorded for what is asked here: the user that the process belongs to.

    It is no proof: whoever can write to the log can write any name into it.
    """
    try:
        import pwd

        return pwd.getpwuid(os.getuid()).pw_name
    except (KeyError, OSError, ImportError, AttributeError):
        return f"uid {os.getuid()}" if hasattr(os, "getuid") else "unknown"
