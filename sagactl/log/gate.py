"""The gate: a lock file beside the log that every write and every checkpoint passes, and a witness kept in it.

Why a gate
----------
SQLite 3.7.0 to 3.51.2 can corrupt a database in WAL mode when one connection writes while another one runs a
checkpoint that lets the WAL begin anew (fixed in 3.51.3, 3.50.7 and 3.44.6; many systems have older ones and no way
to another). So nothing of ours does both at once: each write transaction and each checkpoint holds this lock, alone.
SQLite lets in one writer at a time anyway, so nothing is lost by it. On the contrary: who waits for the lock waits
for nothing else, a checkpoint can't be starved by writers, and a writer can't meet one half-way.

The lock is `flock`: it belongs to the open file, so two logs of one process exclude each other as two processes do,
and the kernel drops it with the process. Waiting is asking again and again up to a limit, since a process that was
stopped while it held the lock must end in an error and not in a hang.

The witness
-----------
A log whose `-wal` was deleted, or that was replaced by an older copy, looks sound to SQLite: the chain is whole, only
shorter. Every effect since then would happen again. So after each commit the gate takes down the id of the store and
the last record that was appended: run, sequence, hash. It is written after the commit, so whatever a crash leaves,
the log is at least as far as the witness says; where it isn't, it lost something that was durable. The witness needs
no sync: an older one only sees less. It is no protection against someone who can write to the folder.

A run that is pruned takes its records away, the one that the witness names perhaps among them. So its tombstone counts
for them (`sqlite_open.holds`), and after the commit the witness names the newest tombstone instead: whatever has that
one has all that was written before it.
"""

from __future__ import annotations

import errno
import fcntl
import os
import time
from contextlib import suppress
from pathlib import Path
from typing import Final, NamedTuple

from sagactl.log.file_system import file_error, make_private_file, refuse_odd_file
from sagactl.log.sqlite_errors import locked_error

GATE_SUFFIX: Final = "-gate"
_HEAD: Final = "sagactl-gate-1"
_SIZE: Final = 512
"""One sector: written whole or not at all."""
_QUICK_SECONDS: Final = 0.001
_SLOW_SECONDS: Final = 0.01
_QUICK_FOR_SECONDS: Final = 1.0


def find_gate(path: Path) -> Path:
    """Return where the gate of the log at *path* is."""
    return path.with_name(path.name + GATE_SUFFIX)


class Witness(NamedTuple):
    """What the log held when it was written last; `run_id` is empty in a log without runs."""

    store_id: str
    run_id: str = ""
    seq: int = 0
    hash: str = ""


def spell_witness(witness: Witness) -> bytes | None:
    """Return a witness as one sector, or None where a run has an id that no release of ours makes."""
    store_id, run_id, seq, head = witness
    text = f"{_HEAD} {store_id} {run_id} {seq} {head}" if run_id else f"{_HEAD} {store_id}"
    if not text.isascii() or len(text) >= _SIZE or (run_id and not run_id.isalnum()):
        return None
    return text.encode("ascii").ljust(_SIZE - 1) + b"\n"


def parse_witness(line: bytes) -> Witness | None:
    """Return the witness that *line* spells, or None."""
    words = line.decode("ascii", "replace").split()
    if len(words) == 2 and words[0] == _HEAD:
        return Witness(words[1])
    if len(words) == 5 and words[0] == _HEAD and words[3].isdecimal():
        return Witness(words[1], words[2], int(words[3]), words[4])
    return None


class Gate:
    """The lock and the witness of the log at *path*; not safe for several threads at once.

    One that *passes the witness* is only the lock: what was seen of the log is neither told nor changed.
    """

    def __init__(
        self, path: Path, *, timeout_seconds: float, is_read_only: bool = False, passes_witness: bool = False
    ) -> None:
        self.path = find_gate(path)
        self._passes_witness = passes_witness
        self._log = path
        self._timeout_seconds = timeout_seconds
        self._is_read_only = is_read_only
        self._descriptor = self._open()

    def _open(self) -> int | None:
        if not self._is_read_only:
            make_private_file(self.path)
        if not self.path.is_symlink():
            refuse_odd_file(self.path)  # a pipe would keep us waiting
        flags = os.O_RDONLY if self._is_read_only else os.O_RDWR
        try:
            return os.open(self.path, flags | os.O_NOFOLLOW | os.O_CLOEXEC)
        except OSError as error:
            if self._is_read_only:
                return None  # a copy of a log, on a disk that can't be written: nobody else writes either
            raise file_error("open", self.path, error) from error

    def enter(self, *, is_shared: bool = False) -> None:
        """Take the lock; raises StorageError when others keep it for too long."""
        if self._descriptor is None:
            return
        how = (fcntl.LOCK_SH if is_shared else fcntl.LOCK_EX) | fcntl.LOCK_NB
        started = time.monotonic()
        while not self._try(how):
            waited = time.monotonic() - started
            if waited > self._timeout_seconds:
                raise locked_error(self._log)
            time.sleep(_QUICK_SECONDS if waited < _QUICK_FOR_SECONDS else _SLOW_SECONDS)

    def _try(self, how: int) -> bool:
        assert self._descriptor is not None
        try:
            fcntl.flock(self._descriptor, how)
        except BlockingIOError:
            return False
        if os.fstat(self._descriptor).st_nlink > 0 or self._is_read_only:
            return True
        os.close(self._descriptor)  # the file was deleted: who comes now locks another one
        self._descriptor = self._open()
        return self._try(how)

    def leave(self) -> None:
        """Give the lock back."""
        if self._descriptor is not None:
            fcntl.flock(self._descriptor, fcntl.LOCK_UN)

    def read_witness(self) -> Witness | None:
        """Return the witness, or None where there is none that can be read."""
        if self._descriptor is None or self._passes_witness:
            return None
        return parse_witness(os.pread(self._descriptor, _SIZE, 0))

    def write_witness(self, witness: Witness) -> None:
        """Take down what the log holds; the lock is held. Where it fails, an older witness stays, which still holds."""
        if not self._passes_witness:
            with suppress(OSError):
                self._write(witness)

    def replace_witness(self, witness: Witness) -> None:
        """Let *witness* be what the log is compared with, whatever was seen of it; raises StorageError."""
        try:
            self._write(witness)
        except OSError as error:
            raise file_error("write", self.path, error) from error

    def _write(self, witness: Witness) -> None:
        assert self._descriptor is not None, "only who may write to the log takes down what it holds"
        line = spell_witness(witness)
        if line is not None and os.pwrite(self._descriptor, line, 0) < len(line):
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    def close(self) -> None:
        """Close the file, and with it the lock."""
        if self._descriptor is not None:
            os.close(self._descriptor)
            self._descriptor = None
