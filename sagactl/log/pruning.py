"""What remains of a run that was deleted: a tombstone, in a chain of its own.

A pruned run leaves no record behind, but three promises outlive it. Its key stays taken where it was (E8): the same
customer isn't charged again because last year's run was cleared away. Its id still means that run. And that it is gone
must be told from "somebody deleted it": the tombstone has its last hash, so a head that was kept elsewhere can still be
compared, and each tombstone's hash covers the one before, as records do. How many there are, and the last hash, stand
apart from them, so one that is cut off at the end is missed as well.

Keys are kept as digests: what was pruned is gone, the address of a customer in a key as well. The digest is that of
saga and key together.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import fields, replace
from typing import Final

from sagactl.core.canonical import digest
from sagactl.core.records import RunStatus
from sagactl.dataclass import dataclass
from sagactl.errors import PrunedError, RefusedError
from sagactl.log.base import Log, NewRun, PruneFilter, RunRow, Tombstone

TOMBSTONES: Final = "tombstones"
"""What stands for the chain of tombstones where others have a run id: in the witness, in marks and findings."""

GENESIS: Final = "sagactl.tombstones/1"
ENDED: Final = (RunStatus.SUCCEEDED, RunStatus.ROLLED_BACK, RunStatus.TERMINATED)
"""What may be pruned: nothing is under way, and no person has to decide."""

PRUNED_RUNS_MAX: Final = 100
"""Runs that are deleted in one transaction."""

PRUNED_RECORDS_MAX: Final = 20_000
"""Their records; a run with more goes in a transaction of its own."""


def digest_key(saga: str, key: str) -> str:
    """Return what is kept of a key."""
    return digest([saga, key])


def hash_tombstone(previous_hash: str, tombstone: Tombstone) -> str:
    """Return the hash of a tombstone and the hash before it."""
    values = [getattr(tombstone, each.name) for each in fields(tombstone) if each.name != "hash"]
    return digest([previous_hash, *(value.value if isinstance(value, RunStatus) else value for value in values)])


def bury(row: RunRow, *, key_is_explicit: bool, after: tuple[int, str], pruned_at_ms: int, pruned_by: str) -> Tombstone:
    """Return the tombstone of a run, chained to number and hash of the last one."""
    is_taken = row.key is not None and (key_is_explicit or row.status is not RunStatus.ROLLED_BACK)
    tombstone = Tombstone(
        number=after[0] + 1,
        run_id=row.run_id,
        saga=row.saga,
        status=row.status,
        key_digest=digest_key(row.saga, row.key) if is_taken and row.key is not None else None,
        input_digest=row.input_digest,
        seq=row.seq,
        head=row.head,
        created_at_ms=row.created_at_ms,
        ended_at_ms=row.updated_at_ms if row.ended_at_ms is None else row.ended_at_ms,
        pruned_at_ms=pruned_at_ms,
        pruned_by=pruned_by,
    )
    return replace(tombstone, hash=hash_tombstone(after[1], tombstone))


def check_tombstones(tombstones: Iterable[Tombstone], read_kept: Callable[[], tuple[int, str]]) -> str | None:
    """Return what is wrong first, or None; *read_kept* gives, after the last one, what the log knows of that one."""
    number, head = 0, GENESIS
    for each in tombstones:
        number += 1
        if each.number != number:
            return f"tombstone {number} is missing"
        head = hash_tombstone(head, each)
        if head != each.hash:
            return f"the tombstone of run {each.run_id} is not what was written"
    kept = read_kept()
    return None if (number, head) == kept else f"tombstones are missing or added: there were {kept[0]}, not {number}"


def split_runs(rows: Iterable[RunRow]) -> Iterator[list[str]]:
    """Yield the ids of runs in portions that one transaction may delete."""
    portion: list[str] = []
    records = 0
    for row in rows:
        if portion and (len(portion) == PRUNED_RUNS_MAX or records + row.seq > PRUNED_RECORDS_MAX):
            yield portion
            portion, records = [], 0
        portion.append(row.run_id)
        records += row.seq
    if portion:
        yield portion


@dataclass(frozen=True, slots=True)
class Pruned:
    """What a pruning came to."""

    runs: int
    records: int
    bytes_given_back: int


def prune_all(log: Log, which: PruneFilter, *, pruned_by: str) -> Pruned:
    """Delete all runs that *which* means, transaction by transaction, and give their space back.

    Runs that end meanwhile are left for the next time. An interrupt between two transactions leaves a good log.
    """
    _, total = log.prunable(replace(which, limit=1))
    seen = skipped = records = 0
    while seen < total:
        rows, _ = log.prunable(replace(which, limit=min(total - seen, PRUNED_RUNS_MAX), skip=skipped))
        if not rows:
            break
        for portion in split_runs(rows):
            buried = log.prune(portion, pruned_by=pruned_by)
            skipped += len(portion) - len(buried)
            records += sum(each.seq for each in buried)
        seen += len(rows)
    given_back = 0
    while given := log.give_back():
        given_back += given
    return Pruned(seen - skipped, records, given_back)


def run_pruned(tombstone: Tombstone) -> PrunedError:
    """Return the error for a run that is gone."""
    message = f"run {tombstone.run_id} of {tombstone.saga} ended as {tombstone.status} and was pruned"
    return PrunedError(message, run_id=tombstone.run_id, status=tombstone.status.value, hint="sagactl list")


def check_pruned_key(new: NewRun, tombstone: Tombstone) -> None:
    """Raise PrunedError for a key that a pruned run holds, or RefusedError where its input was another (E8)."""
    if tombstone.input_digest == digest(new.input):
        raise run_pruned(tombstone)
    raise RefusedError(
        f"the key {new.key!r} of saga {new.saga} belongs to run {tombstone.run_id}, which had another input and was"
        f" pruned",
        code="key-taken",
        hint="give another --idempotency-key",
    )
