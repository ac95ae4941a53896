"""Does the log still say what was written? Everything that can be computed again is, and compared.

What is noticed
---------------
For each run: a record that was changed, removed, added, moved or swapped, by the chain; records that this release
can't read or would have spelled otherwise; a first record that isn't the run's creation, or a second creation; a row
that doesn't end where the records end, or tells of another saga, definition, input or key; dead letters, alerts and
leases that don't follow from the records; a definition whose digest is another. For the database as a whole: damaged
pages (SQLite's own check), rows without their run, tombstones of pruned runs that were changed, removed or added (see
`pruning`), and, by the witness (see `gate`), a log that is behind what was durable.

What can't be noticed from within
---------------------------------
Whoever can write to the log can also compute hashes. Three changes leave a log in which everything fits together:

* cutting the last records of a run and setting its row, lease and dead letters back to match;
* removing a run altogether, or all of them, or the last tombstones with what is known of their number;
* changing a record and computing the hashes from there to the end, and the row, anew.

They are noticed only against a head kept elsewhere: `heads` names the last hash of each run. Keep them where the
log's writer can't change them, and compare: as long as a run isn't at its end, its old head must still be the hash of
the record with that number. The witness in the gate's file is such a head, of the run that was written last, but it
lies beside the log. So the chain finds accidents for certain, and people only if they were careless.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from typing import Final

from sagactl.core.alerting import AlertBook, AlertRow
from sagactl.core.canonical import digest
from sagactl.core.records import (
    Disposition,
    DriverClaimed,
    Ended,
    Failure,
    Operation,
    Operator,
    Record,
    RunCreated,
    RunStatus,
    Verb,
)
from sagactl.dataclass import dataclass
from sagactl.errors import DamagedLogError
from sagactl.log.base import Finding, RunRow
from sagactl.log.chain import Link, follow, genesis_hash
from sagactl.log.codec import encode
from sagactl.log.effects import CloseLetters, OpenLetter, row_effect

WHOLE_LOG: Final = ""
"""What stands for the run in findings about the database as a whole."""


_ENDED: Final = frozenset({RunStatus.SUCCEEDED, RunStatus.ROLLED_BACK, RunStatus.TERMINATED})


@dataclass(frozen=True, slots=True)
class Letter:
    """A dead letter as it must be by the records, or as it lies in the table."""

    seq: int
    operation: Operation
    reason: str
    failure: Failure | None
    opened_at_ms: int
    closed_at_ms: int | None


@dataclass(frozen=True, slots=True)
class Evidence:
    """What is compared with the records of a run."""

    row: RunRow
    letters: tuple[Letter, ...]
    fence: int
    """The fence of the lease table, 0 where nobody ever claimed the run."""
    alerts: tuple[AlertRow, ...]
    """The run's messages in the outbox, in order; how far they were delivered is no matter of the records."""


class Folding:
    """Goes through the records of one run and remembers what its tables must say."""

    def __init__(self) -> None:
        self.created: RunCreated | None = None
        self.definition = ""
        self.fence = 0
        self.seq = 0
        self.head = ""
        self.ended: RunStatus | None = None
        self.open: dict[Operation, Letter] = {}
        self.closed: list[Letter] = []
        self.alerts = AlertBook()

    def take(self, seq: int, head: str, record: Record) -> str | None:
        """Take a record in; return what is wrong with its place."""
        self.seq, self.head = seq, head
        if isinstance(record, RunCreated):
            if self.created is not None:
                return "the run is created a second time"
            self.created = record
            self.definition = record.definition
        elif self.created is None:
            return "the first record is not the run's creation"
        if isinstance(record, DriverClaimed):
            if record.fence <= self.fence:
                return f"fence {record.fence} follows {self.fence}"
            self.fence = record.fence
        if isinstance(record, Ended):
            self.ended = record.status
        elif isinstance(record, Operator) and _turns_back(record):
            self.ended = None
        elif isinstance(record, Operator) and _binds(record):
            if record.request.replaces != self.definition or record.request.digest is None:
                return "it binds the run to another definition than the one that it was bound to"
            self.definition = record.request.digest
        self._apply(seq, record)
        self.alerts.take(seq, record, has_letters=bool(self.open))
        return None

    def _apply(self, seq: int, record: Record) -> None:
        match row_effect(record):
            case OpenLetter(operation, reason, failure, at_ms):
                self.open.setdefault(operation, Letter(seq, operation, reason, failure, at_ms, None))
            case CloseLetters(operation, at_ms):
                for name in list(self.open) if operation is None else [operation]:
                    letter = self.open.pop(name, None)
                    if letter is not None:
                        self.closed.append(replace(letter, closed_at_ms=at_ms))

    def letters(self) -> tuple[Letter, ...]:
        """Return the dead letters by the records, in order."""
        return tuple(sorted([*self.open.values(), *self.closed], key=lambda letter: letter.seq))


def _turns_back(record: Operator) -> bool:
    """Tell whether an ended run goes on with this record."""
    return record.disposition is Disposition.ACCEPTED and record.request.verb in {Verb.CANCEL, Verb.ROLLBACK}


def _binds(record: Operator) -> bool:
    """Tell whether the record binds the run to another definition (E16)."""
    return record.disposition is Disposition.ACCEPTED and record.request.verb is Verb.REBIND


def verify_run(
    run_id: str, links: Iterable[Link], read_evidence: Callable[[], Evidence]
) -> tuple[int, str, list[Finding]]:
    """Return how many sound records the run has, its head, and what is wrong, the first bad record only."""
    folding = Folding()
    problem = _fold_all(run_id, links, folding)
    if problem is not None:
        return folding.seq, folding.head, [Finding(run_id, folding.seq + 1, problem)]
    if folding.created is None:
        return 0, "", [Finding(run_id, None, "the run has no records")]
    problems = _compare(folding, folding.created, read_evidence())
    return folding.seq, folding.head, [Finding(run_id, seq, problem) for seq, problem in problems]


def _fold_all(run_id: str, links: Iterable[Link], folding: Folding) -> str | None:
    """Fold the records up to the first bad one, and say what is wrong with it."""
    spelled: list[Link] = []

    def note(found: Iterable[Link]) -> Iterator[Link]:
        for each in found:
            spelled[:] = [each]
            yield each

    try:
        for stored in follow(run_id, 0, genesis_hash(run_id), note(links)):
            if encode(stored.record) != spelled[0].encoded:
                return "it is spelled in another way than sagactl does"
            before = folding.seq, folding.head
            problem = folding.take(stored.seq, stored.hash, stored.record)
            if problem is not None:
                folding.seq, folding.head = before
                return problem
    except DamagedLogError as error:
        return error.message.partition(": ")[2] or error.message
    return None


def _compare(folding: Folding, created: RunCreated, evidence: Evidence) -> list[tuple[int | None, str]]:
    row = evidence.row
    problems: list[tuple[int | None, str]] = []
    if row.seq > folding.seq:
        problems.append((folding.seq + 1, f"records {folding.seq + 1} to {row.seq} are missing"))
    elif row.seq < folding.seq:
        problems.append((row.seq + 1, f"the run's row ends at record {row.seq}, the records go on"))
    elif row.head != folding.head:
        problems.append((folding.seq, "the run's row has another head than the records"))
    facts = (
        ("id", row.run_id, created.run_id),
        ("saga", row.saga, created.saga),
        ("definition", row.definition, folding.definition),
        ("key", row.key, created.run_key),
        ("input", row.input_digest, digest(created.input)),
        ("creation", row.created_at_ms, created.at_ms),
    )
    problems += [(1, f"the run's row has another {name} than the records") for name, is_, was in facts if is_ != was]
    if row.status is not folding.ended and (folding.ended is not None or row.status in _ENDED):
        problems.append((None, f"the run's row says {row.status}, the records {folding.ended or 'that it goes on'}"))
    if evidence.fence != folding.fence:
        problems.append((None, f"the lease has fence {evidence.fence}, the records {folding.fence}"))
    if evidence.letters != folding.letters():
        problems.append((None, "the dead letters are not those of the records"))
    if sorted(evidence.alerts, key=_place_of) != sorted(folding.alerts.rows, key=_place_of):
        problems.append((None, "the alerts are not those of the records"))
    return problems


def _place_of(row: AlertRow) -> tuple[int, str, str]:
    return row.seq, row.reason, row.step
