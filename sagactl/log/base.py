"""What the engine needs of a saga log: the protocol, and the plain values that cross it.

A log keeps, for each run, an append-only hash-chained list of records (L1), a lease with a growing fence (C1), and one
row that sums the run up. Every method that writes is one durable transaction: when it returns, a power cut can't undo
it; when it raises StorageError, nobody knows whether it took effect until the log was read again (E18).

All implementations pass the one suite in `tests/log/contract.py`.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import field
from typing import TYPE_CHECKING, Final, Protocol, overload

from sagactl.core.canonical import Json
from sagactl.core.records import (
    NO_ORIGIN,
    Cause,
    Direction,
    Failure,
    Holder,
    Operation,
    Origin,
    Record,
    Request,
    RunStatus,
)
from sagactl.dataclass import dataclass

if TYPE_CHECKING:
    from sagactl.core.counts import Counts
    from sagactl.core.definition import Snapshot
    from sagactl.core.outbox import Outbox
    from sagactl.core.summary import Summary

LEASE_MS: Final = 15_000
HEARTBEAT_MS: Final = 5_000
CAPTURED_BYTES_MAX: Final = 1_048_576
"""What one run may keep of the text that its tools print."""


@dataclass(frozen=True, slots=True)
class NewRun:
    """Everything that the first record and the row of a run are made of.

    `key` is what makes a second `run` the same run; an explicit one stays taken for ever, one that the saga's
    `run_key` made becomes free again when the run was rolled back (E8).
    """

    run_id: str
    saga: str
    definition: Snapshot
    input: Json
    requested_by: str
    key: str | None = None
    key_is_explicit: bool = False
    deadline_ms: int | None = None
    origin: Origin = NO_ORIGIN
    project: str | None = None


@dataclass(frozen=True, slots=True)
class Lease:
    """The right to drive a run, until it is renewed no more or somebody else claimed with a higher fence."""

    run_id: str
    fence: int
    holder: Holder


@dataclass(frozen=True, slots=True)
class Creation:
    """What `create` did: a new run (with its lease), or the one that has the key already."""

    run_id: str
    is_new: bool
    lease: Lease | None
    records: tuple[Record, ...] = ()
    """The first records of a new run."""


@dataclass(frozen=True, slots=True)
class Captured:
    """What a call printed."""

    operation: Operation
    attempt: int
    text: str


@dataclass(frozen=True, slots=True)
class Batch:
    """Records of one run to be appended together, right after the record `after_seq`, under a lease."""

    lease: Lease
    after_seq: int
    records: tuple[Record, ...]
    summary: Summary
    captured: tuple[Captured, ...] = ()
    answered: tuple[str, ...] = ()
    """Ids of the requests that these records answer."""
    releases: bool = False
    """Give the lease back in the same transaction: the run rests after these records."""
    definition: Snapshot | None = None
    """What the run is bound to from here on, where one of the records says so (E16)."""


@dataclass(frozen=True, slots=True)
class StoredRecord:
    """A record as it lies in the log; `hash` chains it to all before it."""

    run_id: str
    seq: int
    record: Record
    hash: str


@dataclass(frozen=True, slots=True)
class RunRow:
    """The row of a run."""

    run_id: str
    saga: str
    definition: str
    status: RunStatus
    direction: Direction
    cause: Cause | None
    failure: Failure | None
    failed_step: str | None
    waiting_for: str | None
    waiting_until_ms: int | None
    key: str | None
    input_digest: str
    created_at_ms: int
    updated_at_ms: int
    ended_at_ms: int | None
    steps_total: int
    steps_done: int
    dead_letters: int
    seq: int
    head: str
    holder: Holder | None = None
    """Who drives it by the lease table; may be a dead process."""


@dataclass(frozen=True, slots=True)
class RunFilter:
    """Which runs `list` gives: newest first, at most `limit` (0: all)."""

    saga: str | None = None
    statuses: tuple[RunStatus, ...] = ()
    since_ms: int | None = None
    until_ms: int | None = None
    limit: int = 20


@dataclass(frozen=True, slots=True)
class Runs(Sequence[RunRow]):
    """Rows of runs, a sequence; `total` is how many fit, of which these are the first where there was a limit."""

    rows: tuple[RunRow, ...] = ()
    total: int = 0

    def __len__(self) -> int:
        return len(self.rows)

    def __iter__(self) -> Iterator[RunRow]:
        return iter(self.rows)

    @overload
    def __getitem__(self, index: int) -> RunRow: ...
    @overload
    def __getitem__(self, index: slice) -> Sequence[RunRow]: ...
    def __getitem__(self, index: int | slice) -> RunRow | Sequence[RunRow]:
        return self.rows[index]


@dataclass(frozen=True, slots=True)
class PruneFilter:
    """Which runs may be deleted: ended ones, oldest first, at most `limit` (0: all), after the first `skip` of them.

    `keep` leaves the newest ended ones, of `saga` where that is given.
    """

    saga: str | None = None
    ended_until_ms: int | None = None
    keep: int = 0
    limit: int = 0
    skip: int = 0


@dataclass(frozen=True, slots=True)
class Tombstone:
    """What remains of a run that was deleted; `hash` chains it to the one before (see `pruning`)."""

    number: int
    run_id: str
    saga: str
    status: RunStatus
    key_digest: str | None
    """The digest of a key that stays taken, never the key itself."""
    input_digest: str
    seq: int
    head: str
    created_at_ms: int
    ended_at_ms: int
    pruned_at_ms: int
    pruned_by: str
    hash: str = ""


@dataclass(frozen=True, slots=True)
class DeadLetter:
    """An operation that waits for a person; the row of the decision record `seq`."""

    run_id: str
    saga: str
    seq: int
    operation: Operation
    reason: str
    failure: Failure | None
    opened_at_ms: int
    closed_at_ms: int | None = None


@dataclass(frozen=True, slots=True)
class Finding:
    """Something `verify` noticed; `seq` is the first record that is wrong, None where the run as a whole is."""

    run_id: str
    seq: int | None
    problem: str


@dataclass(frozen=True, slots=True)
class Verification:
    """What `verify` found, and what it read: an empty log is told from a sound one."""

    runs: int
    records: int
    heads: dict[str, str] = field(default_factory=dict)
    findings: tuple[Finding, ...] = ()
    tombstones: int = 0
    tombstones_head: str = ""
    lengths: dict[str, int] = field(default_factory=dict)
    """Which record of each run its head is the hash of."""


class Log(Protocol):
    """The saga log."""

    @property
    def store_id(self) -> str:
        """The id that this log was given when it was made."""
        ...

    @property
    def outbox(self) -> Outbox:
        """What goes out: alerts with their deliveries, and how far each target of events has come."""
        ...

    def create(self, new: NewRun, *, holder: Holder | None) -> Creation:
        """Create the run and, with a *holder*, claim it in the same transaction.

        The records `run created` and `driver claimed` (fence 1) are in the log when this returns. Where the key is
        taken, that run is returned if its input is the same; RefusedError otherwise. Raises PrunedError where the run
        that has it was pruned.
        """
        ...

    def claim(self, run_id: str, *, holder: Holder) -> Lease:
        """Take the run over: a higher fence and a record `driver claimed`, in one transaction.

        Raises BusyError, naming the holder, while another driver's lease is good; a lease of this host whose process
        is dead is void at once. Raises NotFoundError.
        """
        ...

    def renew(self, leases: Sequence[Lease]) -> list[Lease]:
        """Prolong the leases that still hold and return those that are lost."""
        ...

    def release(self, leases: Sequence[Lease]) -> None:
        """Give leases back; those already lost are passed over."""
        ...

    def append(self, batches: Sequence[Batch]) -> list[Lease]:
        """Append all batches in one durable transaction; return the leases whose batches were refused.

        A batch is refused when its fence is no longer the run's or `after_seq` is not its last record; the others go
        through. Safe to call from several threads: what comes in during a commit shares the next one.
        """
        ...

    def read(self, run_id: str, *, after_seq: int = 0) -> Iterator[StoredRecord]:
        """Yield the records in order; raises DamagedLogError at the first gap or broken link, NotFoundError."""
        ...

    def definition(self, digest: str) -> dict[str, Json]:
        """Return a definition by its digest; raises DamagedLogError where it is gone or altered."""
        ...

    def row(self, run_id: str) -> RunRow:
        """Return the row of one run by its whole id; raises NotFoundError."""
        ...

    def find(self, prefix: str) -> list[RunRow]:
        """Return the runs whose id begins with *prefix*, newest first, at most 10."""
        ...

    def shorten(self, run_ids: Sequence[str], *, length_min: int) -> dict[str, str]:
        """Return for each id its shortest prefix of at least *length_min* characters that no other id begins with."""
        ...

    def rows(self, which: RunFilter) -> tuple[list[RunRow], int]:
        """Return the rows that fit and how many fit without the limit."""
        ...

    def unfinished(self) -> list[str]:
        """Return the ids of all runs that are not at rest, oldest first."""
        ...

    def prunable(self, which: PruneFilter) -> tuple[list[RunRow], int]:
        """Return the ended runs that may be deleted, oldest first, and how many there are without limit and skip."""
        ...

    def prune(self, run_ids: Sequence[str], *, pruned_by: str) -> list[Tombstone]:
        """Delete whole runs in one durable transaction, and leave a tombstone of each.

        Runs that haven't ended, that somebody drives or has asked something of, or that are gone, are passed over.
        From then on their ids raise PrunedError, and so does a `create` with a key that they hold (E8).
        """
        ...

    def pruned(self, prefix: str) -> list[Tombstone]:
        """Return the tombstones of runs whose id begins with *prefix*, newest first, at most 10."""
        ...

    def give_back(self) -> int:
        """Give a bounded amount of free space back to the file system; return its bytes, 0 where none is left."""
        ...

    def ask(self, run_id: str, request: Request) -> None:
        """Write down an operator's request; the same id twice is once."""
        ...

    def requests(self, run_ids: Sequence[str]) -> list[tuple[str, Request]]:
        """Return the unanswered requests to these runs, oldest first."""
        ...

    def dead_letters(self, *, run_id: str | None = None, is_open: bool = True) -> list[DeadLetter]:
        """Return dead letters, oldest first; only open ones unless asked for all."""
        ...

    def captured(self, run_id: str) -> list[Captured]:
        """Return what the run's calls printed, in order, as far as it was kept."""
        ...

    def count(self, now_ms: int) -> Counts:
        """Return how much of everything there is; costs the same however many records there are."""
        ...

    def holds(self, run_id: str, seq: int, head: str) -> bool:
        """Tell whether record *seq* of the run has the hash *head*, or, once it was pruned, its tombstone covers it.

        For the run `tombstones` *seq* is the number of a tombstone.
        """
        ...

    def verify(self, run_id: str | None = None) -> Verification:
        """Recompute every hash of one run or all, and compare rows, leases, dead letters and alerts with them."""
        ...

    def close(self) -> None:
        """Release what the log holds open."""
        ...
