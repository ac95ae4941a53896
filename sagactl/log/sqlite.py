"""The saga log in SQLite: the default, one file for all runs of a project.

What it promises
----------------
* *Durable when it returns.* WAL mode with `synchronous=FULL`: each commit is synced, as honestly as the device does
  it. Settings are read back on every open (`sqlite_open`).
* *One writer at a time*, by `BEGIN IMMEDIATE` inside the gate (`gate`), so no transaction fails half-way because
  another one came first, and no write ever meets a checkpoint.
* *One commit for all who ask at once* (`group_commit`); one caller alone commits on its own thread.
* *Fences are checked where they count*: in the transaction that writes. `(run_id, seq)` is unique besides, so two
  drivers can't both append whatever happens.
* *Trouble is a StorageError* and leaves the log usable; after a commit that raised, it says whether the records are
  there (`sqlite_store`).

How it is divided
-----------------
This module has the protocol's methods and no SQL. `sqlite_write` and `sqlite_read` have the statements, as plain
functions over a connection, `sqlite_prune` those that delete; `sqlite_store` the transactions; `chain` and `codec` what
a record is; `pruning` what remains of a run; `effects` what records do to dead letters; `sqlite_outbox` what goes out;
`leases` what a lease is worth; `verify` the audit. `memory` is the same log without a disk.

What is deliberately not done: no pool of connections (one writer, and reads are short), no cache of rows (the row is
read in the transaction that checks it), no statement by an ORM or by sqlite-utils on the way of an append.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

from sagactl.core.canonical import Json
from sagactl.core.records import Holder, Request
from sagactl.errors import StorageError
from sagactl.log import sqlite_prune, sqlite_read, sqlite_write
from sagactl.log.base import (
    Batch,
    Captured,
    Creation,
    DeadLetter,
    Lease,
    NewRun,
    PruneFilter,
    RunFilter,
    RunRow,
    StoredRecord,
    Tombstone,
    Verification,
)
from sagactl.log.checkpoint import Checkpointer
from sagactl.log.group_commit import GroupCommit
from sagactl.log.leases import LeaseClock, set_wall_clock
from sagactl.log.rows import check_new
from sagactl.log.sqlite_open import BUSY_MS, Connect, connect_plainly, holds, read_store_id
from sagactl.log.sqlite_reading import ReadingStore, Store
from sagactl.log.sqlite_store import Work, WritingStore
from sagactl.log.sqlite_write import EncodedBatch, Head

if TYPE_CHECKING:
    from sagactl.core.counts import Counts
    from sagactl.log.sqlite_outbox import SqliteOutbox

T = TypeVar("T")


class SqliteLog:
    """A log in the file at *path*; see the essay above. Safe to use from several threads, not across a fork.

    `clock` gives UTC milliseconds for the records that the log writes itself, `lease_clock` measures leases; `busy_ms`
    is how long other writers are waited for; what isn't `is_lasting` will be thrown away (see `far_witness`); what
    `passes_witnesses` is a copy that isn't accepted yet (see `restored`). `connect` and `checkpointer` are seams for
    tests.
    """

    def __init__(
        self,
        path: Path,
        *,
        read_only: bool = False,
        clock: Callable[[], int] | None = None,
        lease_clock: LeaseClock | None = None,
        busy_ms: int = BUSY_MS,
        connect: Connect = connect_plainly,
        checkpointer: Checkpointer | None = None,
        is_lasting: bool = True,
        passes_witnesses: bool = False,
    ) -> None:
        self.path = path
        self._clock = set_wall_clock(lease_clock, clock)
        self._writer: WritingStore | None = None
        self._store: Store
        if read_only:
            self._store = ReadingStore(path, busy_ms=busy_ms, connect=connect, is_lasting=is_lasting)
        else:
            self._writer = WritingStore(
                path,
                busy_ms=busy_ms,
                connect=connect,
                checkpointer=checkpointer,
                is_lasting=is_lasting,
                passes_witnesses=passes_witnesses,
            )
            self._store = self._writer
        self._appending: GroupCommit[Sequence[EncodedBatch], list[Lease]] = GroupCommit(self._append_groups)
        self._heads: dict[str, Head] = {}
        """Where the runs stood that were appended to last: checked by each append that relies on it."""

    def _write(self, work: Work[T]) -> T:
        if self._writer is None:
            raise StorageError(f"the log {self.path} was opened only to read", code="read-only")
        return self._writer.write(work)

    @property
    def store_id(self) -> str:
        """Return the id that the log was given when it was made."""
        return self._store.read(read_store_id)

    @property
    def outbox(self) -> SqliteOutbox:
        """Return what goes out of this log."""
        from sagactl.log.sqlite_outbox import SqliteOutbox

        return SqliteOutbox(self._store, self._write, self._clock.is_dead)

    def create(self, new: NewRun, *, holder: Holder | None) -> Creation:
        """Create the run and, with a *holder*, claim it; see the protocol."""
        check_new(new)
        return self._write(lambda connection: sqlite_write.create_run(connection, new, holder, self._clock))

    def claim(self, run_id: str, *, holder: Holder) -> Lease:
        """Take the run over; see the protocol."""
        return self._write(lambda connection: sqlite_write.claim_run(connection, run_id, holder, self._clock))

    def renew(self, leases: Sequence[Lease]) -> list[Lease]:
        """Prolong leases; return those that are lost."""
        return self._write(lambda connection: sqlite_write.renew_leases(connection, leases, self._clock))

    def release(self, leases: Sequence[Lease]) -> None:
        """Give leases back."""
        self._write(lambda connection: sqlite_write.release_leases(connection, leases))
        for lease in leases:
            self._heads.pop(lease.run_id, None)

    def append(self, batches: Sequence[Batch]) -> list[Lease]:
        """Append all batches durably, together with what other threads append; return the leases that are lost."""
        return self._appending.submit([sqlite_write.encode_batch(batch) for batch in batches])

    def _append_groups(self, groups: Sequence[Sequence[EncodedBatch]]) -> list[list[Lease]]:
        batches = [encoded for group in groups for encoded in group]
        heads = iter(self._write(lambda connection: sqlite_write.append_batches(connection, batches, self._heads)))
        return [
            [encoded.batch.lease for encoded in group if not self._note_head(encoded.batch, next(heads))]
            for group in groups
        ]

    def _note_head(self, batch: Batch, head: Head | None) -> bool:
        """Remember where a run stands now; return False where the lease was lost."""
        if head is None or batch.releases:
            self._heads.pop(batch.lease.run_id, None)
        else:
            self._heads[batch.lease.run_id] = head
        return head is not None

    def read(self, run_id: str, *, after_seq: int = 0) -> Iterator[StoredRecord]:
        """Yield the records in order, each verified."""
        return sqlite_read.read_records(self._store, run_id, after_seq)

    def definition(self, digest: str) -> dict[str, Json]:
        """Return a definition by its digest."""
        return self._store.read(lambda connection: sqlite_read.read_definition_body(connection, digest))

    def row(self, run_id: str) -> RunRow:
        """Return the row of one run."""
        return self._store.read(lambda connection: sqlite_read.read_row(connection, run_id))

    def find(self, prefix: str) -> list[RunRow]:
        """Return the runs whose id begins with *prefix*."""
        return self._store.read(lambda connection: sqlite_read.find_rows(connection, prefix))

    def shorten(self, run_ids: Sequence[str], *, length_min: int) -> dict[str, str]:
        """Return for each id the shortest prefix that means it."""
        return self._store.read(lambda connection: sqlite_read.shorten_ids(connection, run_ids, length_min))

    def rows(self, which: RunFilter) -> tuple[list[RunRow], int]:
        """Return the rows that fit and how many do."""
        return self._store.read(lambda connection: sqlite_read.list_rows(connection, which))

    def unfinished(self) -> list[str]:
        """Return the ids of the runs that are not at rest."""
        return self._store.read(sqlite_read.list_unfinished)

    def prunable(self, which: PruneFilter) -> tuple[list[RunRow], int]:
        """Return the runs that may be deleted, oldest first, and how many there are."""
        return self._store.read(lambda connection: sqlite_prune.list_prunable(connection, which))

    def prune(self, run_ids: Sequence[str], *, pruned_by: str) -> list[Tombstone]:
        """Delete runs and leave tombstones; see the protocol."""
        return self._write(lambda connection: sqlite_prune.prune_runs(connection, run_ids, pruned_by, self._clock))

    def pruned(self, prefix: str) -> list[Tombstone]:
        """Return the tombstones of runs whose id begins with *prefix*."""
        return self._store.read(lambda connection: sqlite_prune.find_tombstones(connection, prefix))

    def give_back(self) -> int:
        """Give free pages back; what the file still has of them goes with the last of it."""
        given = self._write(sqlite_prune.give_back)
        if given == 0 and self._writer is not None:
            self._writer.checkpoint()
        return given

    def ask(self, run_id: str, request: Request) -> None:
        """Write down an operator's request."""
        self._write(lambda connection: sqlite_write.ask_run(connection, run_id, request, self._clock))

    def requests(self, run_ids: Sequence[str]) -> list[tuple[str, Request]]:
        """Return the unanswered requests to these runs."""
        return self._store.read(lambda connection: sqlite_read.list_requests(connection, run_ids))

    def dead_letters(self, *, run_id: str | None = None, is_open: bool = True) -> list[DeadLetter]:
        """Return dead letters, oldest first."""
        return self._store.read(lambda connection: sqlite_read.list_dead_letters(connection, run_id, is_open=is_open))

    def captured(self, run_id: str) -> list[Captured]:
        """Return what the run's calls printed."""
        return self._store.read(lambda connection: sqlite_read.list_captured(connection, run_id))

    def count(self, now_ms: int) -> Counts:
        """Return how much of everything there is."""
        from sagactl.log.sqlite_counts import count_all

        return self._store.read(lambda connection: count_all(connection, self.path, now_ms))

    def holds(self, run_id: str, seq: int, head: str) -> bool:
        """Tell whether the log has this record, or the tombstone that covers it."""
        return self._store.read(lambda connection: holds(connection, run_id, seq, head))

    def verify(self, run_id: str | None = None) -> Verification:
        """Compute everything again and compare; see `verify`."""
        from sagactl.log.verify import verify_store

        return verify_store(self._store, run_id)

    def close(self) -> None:
        """Release files and connections."""
        self._store.close()
