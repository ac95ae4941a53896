"""The saga log without a disk: for tests, of sagactl and of those who write sagas and tools for it.

It keeps the rules of the protocol, not durability: real encoded records in a real chain, fences, leases, keys and dead
letters, under one lock. What is read back went through the codec, so a value that the log would not give back as it
was shows here as well.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterator, Sequence
from dataclasses import field, replace
from functools import partial

from sagactl.core.alerting import AlertBook
from sagactl.core.canonical import Json, digest
from sagactl.core.counts import Counts
from sagactl.core.records import AT_REST, Holder, Record, Request, RunStatus
from sagactl.dataclass import dataclass
from sagactl.log.audit import WHOLE_LOG, Evidence, Letter, verify_run
from sagactl.log.base import (
    Batch,
    Captured,
    Creation,
    DeadLetter,
    Finding,
    Lease,
    NewRun,
    PruneFilter,
    RunFilter,
    RunRow,
    StoredRecord,
    Tombstone,
    Verification,
)
from sagactl.log.chain import Link, encode_all, follow, genesis_hash, link
from sagactl.log.codec import decode, decode_request, encode_request
from sagactl.log.definitions import check_definition, definition_lost
from sagactl.log.effects import CloseLetters, OpenLetter, row_effect
from sagactl.log.leases import Granted, LeaseClock, Standing, grant, judge, set_wall_clock
from sagactl.log.memory_counts import count_all
from sagactl.log.memory_outbox import MemoryOutbox
from sagactl.log.pruning import (
    ENDED,
    GENESIS,
    TOMBSTONES,
    bury,
    check_pruned_key,
    check_tombstones,
    digest_key,
    run_pruned,
)
from sagactl.log.rows import (
    FOUND_MAX,
    busy,
    check_new,
    claimed_record,
    created_record,
    cut_captured,
    first_row,
    key_taken,
    next_row,
    no_run,
    run_exists,
    shorten_id,
)


@dataclass(slots=True)
class _Run:
    row: RunRow
    key_is_explicit: bool
    links: list[Link]
    fence: int = 0
    granted: Granted | None = None
    requests: dict[str, str] = field(default_factory=dict)
    answered: set[str] = field(default_factory=set)
    captured: list[Captured] = field(default_factory=list)
    captured_bytes: int = 0
    alerts: AlertBook = field(default_factory=AlertBook)


class MemoryLog:
    """A log that ends with the process; `clock` gives UTC milliseconds, `lease_clock` what leases are measured with."""

    def __init__(self, *, clock: Callable[[], int] | None = None, lease_clock: LeaseClock | None = None) -> None:
        self._clock = set_wall_clock(lease_clock, clock)
        self._lock = threading.Lock()
        self._runs: dict[str, _Run] = {}
        self._definitions: dict[str, str] = {}
        self._letters: list[DeadLetter] = []
        self._asked: list[tuple[str, str]] = []
        self._tombstones: list[Tombstone] = []
        self.store_id = os.urandom(16).hex()
        self.outbox = MemoryOutbox(self._lock, self._oldest_first, self._follow)

    def create(self, new: NewRun, *, holder: Holder | None) -> Creation:
        """Create the run and, with a *holder*, claim it; see the protocol."""
        check_new(new)
        with self._lock:
            found = self._find_key(new)
            if found is not None:
                if found.input_digest != digest(new.input):
                    raise key_taken(new, found.run_id)
                return Creation(found.run_id, is_new=False, lease=None)
            for tombstone in self._tombstones:
                if tombstone.run_id == new.run_id:
                    raise run_pruned(tombstone)
                if new.key is not None and tombstone.key_digest == digest_key(new.saga, new.key):
                    check_pruned_key(new, tombstone)
            if new.run_id in self._runs:
                raise run_exists(new.run_id)
            return self._create(new, holder)

    def _find_key(self, new: NewRun) -> RunRow | None:
        for run in self._runs.values():
            is_kept = run.key_is_explicit or run.row.status is not RunStatus.ROLLED_BACK
            if new.key is not None and run.row.key == new.key and run.row.saga == new.saga and is_kept:
                return run.row
        return None

    def _create(self, new: NewRun, holder: Holder | None) -> Creation:
        at_ms = self._clock.wall_ms()
        records: list[Record] = [created_record(new, at_ms)]
        if holder is not None:
            records.append(claimed_record(at_ms, 1, holder, calls_ended=True))
        links = link(new.run_id, 0, genesis_hash(new.run_id), encode_all(records))
        row = first_row(new, at_ms, links[-1].seq, links[-1].hash)
        run = _Run(replace(row, holder=holder), new.key_is_explicit, links)
        if holder is not None:
            run.fence, run.granted = 1, grant(self._clock)
        self._definitions.setdefault(new.definition.digest, new.definition.text)
        self._runs[new.run_id] = run
        lease = None if holder is None else Lease(new.run_id, 1, holder)
        return Creation(new.run_id, is_new=True, lease=lease, records=tuple(records))

    def claim(self, run_id: str, *, holder: Holder) -> Lease:
        """Take the run over; see the protocol."""
        with self._lock:
            run = self._find(run_id)
            calls_ended = self._judge(run)
            run.fence += 1
            run.granted = grant(self._clock)
            at_ms = max(self._clock.wall_ms(), run.row.updated_at_ms)
            record = claimed_record(at_ms, run.fence, holder, calls_ended=calls_ended)
            run.links += link(run_id, run.row.seq, run.row.head, encode_all([record]))
            last = run.links[-1]
            run.row = replace(run.row, seq=last.seq, head=last.hash, updated_at_ms=last.at_ms, holder=holder)
            self._apply(run, record, last.seq)
            return Lease(run_id, run.fence, holder)

    def _judge(self, run: _Run) -> bool:
        """Tell whether the last driver's calls have ended for certain; raises BusyError while its lease is good."""
        if run.row.holder is None or run.granted is None:
            return True
        standing = judge(self._clock, run.row.holder, run.granted)
        if standing is Standing.GOOD:
            raise busy(run.row.run_id, run.row.holder)
        return standing is Standing.VOID

    def _find(self, run_id: str) -> _Run:
        if run_id not in self._runs:
            buried = [each for each in self._tombstones if each.run_id == run_id]
            raise run_pruned(buried[0]) if buried else no_run(run_id)
        return self._runs[run_id]

    def _holds(self, lease: Lease) -> bool:
        run = self._runs.get(lease.run_id)
        return run is not None and run.granted is not None and run.fence == lease.fence

    def renew(self, leases: Sequence[Lease]) -> list[Lease]:
        """Prolong leases; return those that are lost."""
        with self._lock:
            for lease in leases:
                if self._holds(lease):
                    self._runs[lease.run_id].granted = grant(self._clock)
            return [lease for lease in leases if not self._holds(lease)]

    def release(self, leases: Sequence[Lease]) -> None:
        """Give leases back."""
        with self._lock:
            for lease in leases:
                self._release(lease)

    def _release(self, lease: Lease) -> None:
        if self._holds(lease):
            run = self._runs[lease.run_id]
            run.granted = None
            run.row = replace(run.row, holder=None)

    def append(self, batches: Sequence[Batch]) -> list[Lease]:
        """Append all batches; return the leases that are lost."""
        encoded = [encode_all(batch.records) for batch in batches]
        with self._lock:
            refused = []
            for batch, columns in zip(batches, encoded, strict=True):
                run = self._runs.get(batch.lease.run_id)
                if run is None or not self._holds(batch.lease) or run.row.seq != batch.after_seq:
                    refused.append(batch.lease)
                    continue
                links = link(batch.lease.run_id, batch.after_seq, run.row.head, columns)
                self._append(run, batch, links)
                if batch.releases:
                    self._release(batch.lease)
            return refused

    def _append(self, run: _Run, batch: Batch, links: list[Link]) -> None:
        if links:
            last = links[-1]
            run.links += links
            run.row = next_row(run.row, batch.summary, last.at_ms, last.seq, last.hash)
            for placed in links:
                self._apply(run, decode(placed.encoded), placed.seq)
        for each in batch.captured:
            text, size = cut_captured(each.text, run.captured_bytes)
            if size > 0:
                run.captured.append(replace(each, text=text))
                run.captured_bytes += size
        run.answered.update(batch.answered)
        if batch.definition is not None:
            self._definitions.setdefault(batch.definition.digest, batch.definition.text)
            run.row = replace(run.row, definition=batch.definition.digest)

    def _apply(self, run: _Run, record: Record, seq: int) -> None:
        self._apply_to_letters(run.row, record, seq)
        has_letters = any(each.run_id == run.row.run_id and each.closed_at_ms is None for each in self._letters)
        run.alerts.take(seq, record, has_letters=has_letters)
        self.outbox.note(run.row, run.alerts)

    def _apply_to_letters(self, row: RunRow, record: Record, seq: int) -> None:
        is_open = [letter.run_id == row.run_id and letter.closed_at_ms is None for letter in self._letters]
        match row_effect(record):
            case OpenLetter(operation, reason, failure, at_ms):
                known = {letter.operation for letter, open_ in zip(self._letters, is_open, strict=True) if open_}
                if operation not in known:
                    self._letters.append(DeadLetter(row.run_id, row.saga, seq, operation, reason, failure, at_ms))
            case CloseLetters(operation, at_ms):
                self._letters = [
                    replace(letter, closed_at_ms=at_ms) if open_ and operation in {None, letter.operation} else letter
                    for letter, open_ in zip(self._letters, is_open, strict=True)
                ]

    def read(self, run_id: str, *, after_seq: int = 0) -> Iterator[StoredRecord]:
        """Yield the records in order, each verified."""
        with self._lock:
            found = self._follow(run_id, after_seq)
        yield from found

    def _follow(self, run_id: str, after_seq: int) -> list[StoredRecord]:
        links = self._find(run_id).links
        start = min(max(after_seq, 0), len(links))
        head = links[start - 1].hash if start > 0 else genesis_hash(run_id)
        return list(follow(run_id, start, head, links[start:]))

    def definition(self, digest: str) -> dict[str, Json]:
        """Return a definition by its digest."""
        with self._lock:
            body = check_definition(digest, self._definitions.get(digest))
        if body is None:
            raise definition_lost(digest)
        return body

    def row(self, run_id: str) -> RunRow:
        """Return the row of one run."""
        with self._lock:
            return self._find(run_id).row

    def _oldest_first(self) -> list[RunRow]:
        return [run.row for run in self._runs.values()]

    def _newest_first(self) -> list[RunRow]:
        return [run.row for run in reversed(self._runs.values())]

    def find(self, prefix: str) -> list[RunRow]:
        """Return the runs whose id begins with *prefix*."""
        with self._lock:
            return [row for row in self._newest_first() if row.run_id.startswith(prefix)][:FOUND_MAX]

    def shorten(self, run_ids: Sequence[str], *, length_min: int) -> dict[str, str]:
        """Return for each id the shortest prefix that means it."""
        with self._lock:
            known = sorted(self._runs)
        return {
            run_id: shorten_id(run_id, [each for each in known if each != run_id], length_min) for run_id in run_ids
        }

    def rows(self, which: RunFilter) -> tuple[list[RunRow], int]:
        """Return the rows that fit and how many do."""
        with self._lock:
            fitting = [row for row in self._newest_first() if _fits(row, which)]
        return (fitting[: which.limit] if which.limit > 0 else fitting), len(fitting)

    def unfinished(self) -> list[str]:
        """Return the ids of the runs that are not at rest."""
        with self._lock:
            return [run_id for run_id, run in self._runs.items() if run.row.status not in AT_REST]

    def prunable(self, which: PruneFilter) -> tuple[list[RunRow], int]:
        """Return the runs that may be deleted, oldest first, and how many there are."""
        with self._lock:
            ended = [row for row in self._oldest_first() if row.status in ENDED and which.saga in {None, row.saga}]
        rows = [row for row in ended[: max(0, len(ended) - which.keep)] if _is_old(row, which.ended_until_ms)]
        return rows[which.skip :][: which.limit or None], len(rows)

    def prune(self, run_ids: Sequence[str], *, pruned_by: str) -> list[Tombstone]:
        """Delete runs and leave tombstones; see the protocol."""
        with self._lock:
            before = len(self._tombstones)
            for run_id in run_ids:
                run = self._runs.get(run_id)
                if run is not None and run.row.status in ENDED and not self._is_needed(run):
                    self._bury(run, pruned_by)
            used = {run.row.definition for run in self._runs.values()}
            self._definitions = {name: body for name, body in self._definitions.items() if name in used}
            return self._tombstones[before:]

    def _is_needed(self, run: _Run) -> bool:
        if run.requests.keys() - run.answered:
            return True
        holder, granted = run.row.holder, run.granted
        return holder is not None and granted is not None and judge(self._clock, holder, granted) is Standing.GOOD

    def _bury(self, run: _Run, pruned_by: str) -> None:
        self._tombstones.append(
            bury(
                run.row,
                key_is_explicit=run.key_is_explicit,
                after=self._last_tombstone(),
                pruned_at_ms=self._clock.wall_ms(),
                pruned_by=pruned_by,
            )
        )
        run_id = run.row.run_id
        del self._runs[run_id]
        self._letters = [letter for letter in self._letters if letter.run_id != run_id]
        self._asked = [asked for asked in self._asked if asked[0] != run_id]
        self.outbox.forget(run_id)

    def _last_tombstone(self) -> tuple[int, str]:
        return (self._tombstones[-1].number, self._tombstones[-1].hash) if self._tombstones else (0, GENESIS)

    def pruned(self, prefix: str) -> list[Tombstone]:
        """Return the tombstones of runs whose id begins with *prefix*."""
        with self._lock:
            return [each for each in reversed(self._tombstones) if each.run_id.startswith(prefix)][:FOUND_MAX]

    def give_back(self) -> int:
        """Give nothing back: memory is given back by itself."""
        return 0

    def ask(self, run_id: str, request: Request) -> None:
        """Write down an operator's request."""
        with self._lock:
            run = self._find(run_id)
            if request.id not in run.requests:
                run.requests[request.id] = encode_request(request)
                self._asked.append((run_id, request.id))

    def requests(self, run_ids: Sequence[str]) -> list[tuple[str, Request]]:
        """Return the unanswered requests to these runs."""
        with self._lock:
            return [
                (run_id, decode_request(self._runs[run_id].requests[request_id]))
                for run_id, request_id in self._asked
                if run_id in run_ids and request_id not in self._runs[run_id].answered
            ]

    def dead_letters(self, *, run_id: str | None = None, is_open: bool = True) -> list[DeadLetter]:
        """Return dead letters, oldest first."""
        with self._lock:
            return [
                letter
                for letter in self._letters
                if run_id in {None, letter.run_id} and not (is_open and letter.closed_at_ms is not None)
            ]

    def captured(self, run_id: str) -> list[Captured]:
        """Return what the run's calls printed."""
        with self._lock:
            return list(self._runs[run_id].captured) if run_id in self._runs else []

    def count(self, now_ms: int) -> Counts:
        """Return how much of everything there is."""
        messages = self.outbox.messages(is_pending=False)
        with self._lock:
            links = [(name, each) for name, run in self._runs.items() for each in run.links]
            links.sort(key=lambda each: each[1].encoded.at_ms)
            records = [(name, decode(each.encoded)) for name, each in links]
            requests = sum(len(run.requests.keys() - run.answered) for run in self._runs.values())
            return count_all(
                rows=self._oldest_first(),
                letters=self._letters,
                messages=messages,
                requests=requests,
                records=records,
                now_ms=now_ms,
            )

    def holds(self, run_id: str, seq: int, head: str) -> bool:
        """Tell whether the log has this record, or the tombstone that covers it."""
        with self._lock:
            if run_id == TOMBSTONES:
                return any((each.number, each.hash) == (seq, head) for each in self._tombstones)
            if run_id in self._runs:
                return any((each.seq, each.hash) == (seq, head) for each in self._runs[run_id].links)
            buried = [each for each in self._tombstones if each.run_id == run_id]
            return any(each.seq > seq or (each.seq, each.head) == (seq, head) for each in buried)

    def verify(self, run_id: str | None = None) -> Verification:
        """Compute everything again and compare."""
        with self._lock:
            runs = {run_id: self._find(run_id)} if run_id is not None else dict(self._runs)
            findings = [
                Finding(WHOLE_LOG, None, definition_lost(name).message)
                for name, body in self._definitions.items()
                if check_definition(name, body) is None
            ]
            heads: dict[str, str] = {}
            lengths: dict[str, int] = {}
            for name, run in runs.items():
                lengths[name], heads[name], problems = verify_run(name, run.links, partial(self._evidence, name))
                findings += problems
            number, head = self._last_tombstone()
            wrong = check_tombstones(self._tombstones, self._last_tombstone) if run_id is None else None
            findings += [] if wrong is None else [Finding(WHOLE_LOG, None, wrong)]
        last, records = head if number else "", sum(lengths.values())
        return Verification(len(runs), records, heads, tuple(findings), number, last, lengths)

    def _evidence(self, run_id: str) -> Evidence:
        run = self._runs[run_id]
        letters = tuple(
            Letter(each.seq, each.operation, each.reason, each.failure, each.opened_at_ms, each.closed_at_ms)
            for each in self._letters
            if each.run_id == run_id
        )
        return Evidence(run.row, letters, run.fence, tuple(run.alerts.rows))

    def close(self) -> None:
        """Keep everything: who holds this log can go on reading it."""


def _is_old(row: RunRow, until_ms: int | None) -> bool:
    return until_ms is None or (row.updated_at_ms if row.ended_at_ms is None else row.ended_at_ms) <= until_ms


def _fits(row: RunRow, which: RunFilter) -> bool:
    return (
        which.saga in {None, row.saga}
        and (not which.statuses or row.status in which.statuses)
        and (which.since_ms is None or row.created_at_ms >= which.since_ms)
        and (which.until_ms is None or row.created_at_ms <= which.until_ms)
    )
