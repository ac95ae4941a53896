"""SHA-256 without OpenSSL: `hashlib` loads it at once, which takes a twentieth of a short command and 3 MiB.

The interpreter has the function built in, under a name that differs between releases; where it doesn't, `hashlib` has
it. For what is hashed here, a few hundred bytes at a time, the one built in is also the faster one.
"""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from typing import Final, Protocol


class Hash(Protocol):
    """A hash of what it was given so far."""

    def update(self, data: bytes, /) -> None:
        """Add *data*."""
        ...

    def digest(self) -> bytes:
        """Return the hash."""
        ...

    def hexdigest(self) -> str:
        """Return the hash in hexadecimal."""
        ...


def _find_sha256() -> Callable[[bytes], Hash]:
    for name in ("_sha2", "_sha256", "hashlib"):
        try:
            found: Callable[[bytes], Hash] = import_module(name).sha256
        except (ImportError, AttributeError):
            continue
        return found
    raise ImportError("this Python has no SHA-256")


sha256: Final = _find_sha256()
"""Return a hash of bytes, with `hexdigest()` as in `hashlib`."""
