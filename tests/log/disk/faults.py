"""Errors of a disk at a chosen operation, once or from then on, and a run that meets them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import NamedTuple

import apsw

from tests.log.disk.vfs import Kind


class Fault(NamedTuple):
    """What goes wrong: with which operations, with which error, and whether a part of a write is done first."""

    name: str
    kinds: frozenset[Kind]
    error: int
    is_short: bool = False


FAULTS = (
    Fault("read", frozenset({Kind.READ}), apsw.SQLITE_IOERR_READ),
    Fault("write", frozenset({Kind.WRITE, Kind.TRUNCATE}), apsw.SQLITE_IOERR_WRITE),
    Fault("full", frozenset({Kind.WRITE, Kind.CREATE}), apsw.SQLITE_FULL),
    Fault("short", frozenset({Kind.WRITE}), apsw.SQLITE_FULL, is_short=True),
    Fault("sync", frozenset({Kind.SYNC, Kind.SYNC_FOLDER}), apsw.SQLITE_IOERR_FSYNC),
    Fault("read-only", frozenset({Kind.WRITE, Kind.CREATE, Kind.DELETE, Kind.TRUNCATE}), apsw.SQLITE_READONLY),
    Fault("delete", frozenset({Kind.DELETE}), apsw.SQLITE_IOERR_DELETE),
    Fault("busy", frozenset({Kind.LOCK}), apsw.SQLITE_BUSY),
)


@dataclass
class Breaker:
    """A watcher that lets the *number*th operation of a fault's kinds fail, alone or with all that follow."""

    fault: Fault
    number: int
    for_ever: bool
    measure: Callable[[], int]
    """Counts what must not grow after the first failure."""
    count: int = 0
    fired: int = 0
    seen: list[str] = field(default_factory=list)
    at_fire: int = 0
    is_over: bool = False

    def see(self, kind: Kind, name: str, *, offset: int = 0, data: bytes = b"", size: int = 0) -> bytes:
        """Let an operation pass, or fail."""
        if self.is_over or kind not in self.fault.kinds:
            return data
        self.count += 1
        if self.count < self.number or (self.fired and not self.for_ever):
            return data
        self.fired += 1
        if self.fired == 1:
            self.seen.append(f"{kind} of {name}")
            self.at_fire = self.measure()
        if self.fault.is_short and data:
            return data[: len(data) // 2]
        raise apsw.exception_for(self.fault.error)
