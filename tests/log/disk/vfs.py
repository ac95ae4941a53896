"""A file system between SQLite and the disk that tells a watcher of every operation before it is done.

The watcher may note it, or raise instead of letting it happen. Syncs are not passed on: what would be durable is the
matter of `images`, and tests are quicker without.
"""

from __future__ import annotations

import itertools
from enum import StrEnum
from pathlib import Path
from typing import Any, Protocol

import apsw

from tests.log.disk.apsw_connection import Connection

_numbers = itertools.count()


class Kind(StrEnum):
    """What SQLite does with a file."""

    CREATE = "create"
    READ = "read"
    WRITE = "write"
    TRUNCATE = "truncate"
    SYNC = "sync"
    DELETE = "delete"
    SYNC_FOLDER = "sync folder"
    LOCK = "lock"


class Watcher(Protocol):
    """Is told of each operation before it is done."""

    def see(self, kind: Kind, name: str, *, offset: int = 0, data: bytes = b"", size: int = 0) -> bytes:
        """Return what to write in fact; raises instead where the operation is to fail."""
        ...


class WatchedFiles(apsw.VFS):
    """The system's files, watched; a `connect` for the log."""

    def __init__(self, watcher: Watcher) -> None:
        self.name = f"watched{next(_numbers)}"
        self.watcher = watcher
        super().__init__(self.name, base="")

    def connect(self, uri: str, timeout_seconds: float) -> Any:
        """Connect as the log does."""
        return Connection(f"{uri}&vfs={self.name}", timeout_seconds)

    def xOpen(self, name: Any, flags: list[int]) -> apsw.VFSFile:  # noqa: N802
        return _WatchedFile(self.watcher, name, flags)

    def xDelete(self, filename: str, syncdir: bool) -> None:  # noqa: N802
        name = Path(filename).name
        self.watcher.see(Kind.DELETE, name)
        super().xDelete(filename, False)
        if syncdir:
            self.watcher.see(Kind.SYNC_FOLDER, "")


class _WatchedFile(apsw.VFSFile):
    def __init__(self, watcher: Watcher, path: Any, flags: list[int]) -> None:
        place = path.filename() if isinstance(path, apsw.URIFilename) else path
        self._name = Path(place).name if place else ""
        self._watcher = watcher
        self._is_new = bool(place) and not Path(place).exists()
        self._has_new_entry = False
        if self._is_new:
            watcher.see(Kind.CREATE, self._name)
            self._has_new_entry = True
        super().__init__("", path, flags)

    def xRead(self, amount: int, offset: int) -> bytes:  # noqa: N802
        self._watcher.see(Kind.READ, self._name, offset=offset, size=amount)
        return super().xRead(amount, offset)

    def xWrite(self, data: bytes, offset: int) -> None:  # noqa: N802
        written = self._watcher.see(Kind.WRITE, self._name, offset=offset, data=bytes(data))
        super().xWrite(written, offset)
        if len(written) < len(data):
            raise apsw.exception_for(apsw.SQLITE_FULL)

    def xTruncate(self, newsize: int) -> None:  # noqa: N802
        self._watcher.see(Kind.TRUNCATE, self._name, size=newsize)
        super().xTruncate(newsize)

    def xSync(self, flags: int) -> None:  # noqa: N802
        self._watcher.see(Kind.SYNC, self._name)
        if self._has_new_entry:  # as SQLite's own does with a journal that it has made
            self._watcher.see(Kind.SYNC_FOLDER, "")
            self._has_new_entry = False

    def xLock(self, level: int) -> None:  # noqa: N802
        self._watcher.see(Kind.LOCK, self._name)
        super().xLock(level)
