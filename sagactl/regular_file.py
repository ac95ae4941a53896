"""Reading files that others may have put where we look: a pipe would keep us waiting, a device would never end.

What is open already was given on purpose: a pipe among it is read within bounds (`read_given`).
"""

from __future__ import annotations

import errno
import os
import stat
import time
from pathlib import Path

_PIECE_BYTES = 65_536


def read_regular(file: Path, bytes_max: int) -> bytes:
    """Return what a regular file of at most *bytes_max* bytes holds; raises OSError for any other, with the reason."""
    data = read_beginning(file, bytes_max + 1)
    if len(data) > bytes_max:
        raise OSError(errno.EFBIG, f"it has more than {bytes_max:,} bytes", str(file))
    return data


def read_beginning(file: Path, size: int) -> bytes:
    """Return the first *size* bytes of a regular file, all where there are fewer; raises OSError for what is none."""
    descriptor = os.open(file, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    try:
        mode = os.fstat(descriptor).st_mode
        if stat.S_ISDIR(mode):
            raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), str(file))
        if not stat.S_ISREG(mode):
            raise OSError(errno.EINVAL, "it is no regular file", str(file))
        return _read(descriptor, size)
    finally:
        os.close(descriptor)


def read_given(file: Path, bytes_max: int, *, seconds_max: float) -> bytes:
    """Return what a regular file holds, or what comes by one that is open already, be it a pipe: stdin, `<(command)`.

    Raises OSError, with the reason, for what is none, or doesn't come to its end within the bounds.
    """
    number = find_descriptor(file)
    if number is None:
        return read_regular(file, bytes_max)
    deadline = time.monotonic() + seconds_max
    descriptor = os.dup(number)
    try:
        if stat.S_ISDIR(os.fstat(descriptor).st_mode):
            raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), str(file))
        data = bytearray()
        while part := _read_next(descriptor, deadline):
            data += part
            if len(data) > bytes_max:
                raise OSError(errno.EFBIG, f"it has more than {bytes_max:,} bytes", str(file))
    except TimeoutError:
        raise TimeoutError(errno.ETIMEDOUT, f"it has not ended within {seconds_max:g} seconds", str(file)) from None
    finally:
        os.close(descriptor)
    return bytes(data)


def find_descriptor(file: Path) -> int | None:
    """Return the number of what is open already where *file* stands for that: `-`, `/dev/stdin`, `/dev/fd/63`."""
    text = str(file)
    if text in {"-", "/dev/stdin"}:
        return 0
    number = text.removeprefix("/dev/fd/").removeprefix("/proc/self/fd/")
    return int(number) if number != text and number.isascii() and number.isdigit() and len(number) < 9 else None


def _read_next(descriptor: int, deadline: float) -> bytes:
    """Return what comes next, nothing at the end; raises TimeoutError."""
    import select

    poll = select.poll()
    poll.register(descriptor, select.POLLIN)
    if not poll.poll(max(0.0, deadline - time.monotonic()) * 1_000) or time.monotonic() > deadline:
        raise TimeoutError
    return os.read(descriptor, _PIECE_BYTES)


def _read(descriptor: int, size: int) -> bytes:
    parts = []
    while size > 0 and (part := os.read(descriptor, size)):
        parts.append(part)
        size -= len(part)
    return b"".join(parts)
