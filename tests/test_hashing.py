"""SHA-256 is SHA-256, wherever it comes from."""

from __future__ import annotations

import hashlib

from sagactl.hashing import sha256


def test_hash_is_that_of_hashlib() -> None:
    """The same hash as `hashlib` gives, of nothing, of a little and of much, at once or by parts."""
    for data in (b"", b"a", bytes(range(256)) * 5_000):
        assert sha256(data).hexdigest() == hashlib.sha256(data).hexdigest()
    summed = sha256(b"")
    summed.update(b"one")
    summed.update(b"two")
    assert summed.hexdigest() == hashlib.sha256(b"onetwo").hexdigest()
