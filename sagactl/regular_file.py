"""Reading files that others may have put where we look: a pipe would keep us waiting, a device would never end."""

from __future__ import annotations

import errno
import os
import stat
from pathlib import Path


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


def _read(descriptor: int, size: int) -> bytes:
    parts = []
    while size > 0 and (part := os.read(descriptor, size)):
        parts.append(part)
        size -= len(part)
    return b"".join(parts)
