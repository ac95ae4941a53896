"""The memory that a driver and an isolated call share: the request going in, the reply coming out.

It is a file in memory, handed over as the child's standard input, mapped there at once, and then closed. So while the
tool runs, no descriptor leads to it: nothing that a tool prints, closes or writes by number reaches it, and what it
forks and leaves behind holds nothing open. Its size is fixed (and sealed where the kernel can), so a reply is bounded
however it was made. Secrets go in this way: they are never on a command line, in an environment, or on a disk.

Only the standard library: the child maps it before it knows where the rest of the program is.
"""

from __future__ import annotations

import mmap
import os

REPLY_BYTES_MAX = 4 * 1_048_576
"""An output, a token or a raw reply has 1 MiB at most; what is more never was a reply."""

_LENGTH_BYTES = 8
_NAME = "sagactl-call"


class Area:
    """The mapped memory: length and text of the request, whether the tool was entered, length and text of the reply."""

    def __init__(self, memory: mmap.mmap) -> None:
        self._memory = memory
        size = int.from_bytes(memory[:_LENGTH_BYTES], "big")
        self._mark = _LENGTH_BYTES + size
        self._reply = self._mark + 1 + _LENGTH_BYTES

    @property
    def request(self) -> bytes:
        """What the child is asked."""
        return self._memory[_LENGTH_BYTES : self._mark]

    @property
    def was_entered(self) -> bool:
        """Tell whether the tool's function was entered: until then nothing can have happened."""
        return self._memory[self._mark] != 0

    def note_entry(self) -> None:
        """Say that the tool's function is entered now."""
        self._memory[self._mark] = 1

    def write_reply(self, data: bytes) -> None:
        """Hand the reply back; its length comes last, so half of one is none. Raises ValueError for too much."""
        if len(data) > REPLY_BYTES_MAX:
            raise ValueError(f"a reply of {len(data)} bytes")
        self._memory[self._reply : self._reply + len(data)] = data
        self._memory[self._mark + 1 : self._reply] = len(data).to_bytes(_LENGTH_BYTES, "big")

    def read_reply(self) -> bytes:
        """Return the reply; nothing where there is none."""
        size = int.from_bytes(self._memory[self._mark + 1 : self._reply], "big")
        return self._memory[self._reply : self._reply + size] if size <= REPLY_BYTES_MAX else b"?"

    def close(self) -> None:
        """Give the memory back."""
        self._memory.close()


def make_area(request: bytes) -> tuple[Area, int]:
    """Return new shared memory with *request*, and a descriptor of it, which is the caller's to close."""
    size = _LENGTH_BYTES + len(request) + 1 + _LENGTH_BYTES + REPLY_BYTES_MAX
    descriptor = _open_memory()
    try:
        os.ftruncate(descriptor, size)
        _seal(descriptor)
        memory = mmap.mmap(descriptor, size)
    except BaseException:
        os.close(descriptor)
        raise
    memory[: _LENGTH_BYTES + len(request)] = len(request).to_bytes(_LENGTH_BYTES, "big") + request
    return Area(memory), descriptor


def take_area(descriptor: int) -> Area:
    """Map the memory behind *descriptor*, and let that number lead nowhere."""
    memory = mmap.mmap(descriptor, os.fstat(descriptor).st_size)
    nowhere = os.open(os.devnull, os.O_RDONLY)
    os.dup2(nowhere, descriptor)
    os.close(nowhere)
    return Area(memory)


def _open_memory() -> int:
    if hasattr(os, "memfd_create"):
        return os.memfd_create(_NAME, os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
    from tempfile import TemporaryFile

    with TemporaryFile() as file:
        return os.dup(file.fileno())


def _seal(descriptor: int) -> None:
    import fcntl

    if hasattr(fcntl, "F_ADD_SEALS"):
        fcntl.fcntl(descriptor, fcntl.F_ADD_SEALS, fcntl.F_SEAL_GROW | fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_SEAL)
