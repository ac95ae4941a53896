"""The hash chain of a run: each record's hash covers the record before it, and so all before it.

The encoding under the hash is injective: every text stands with its length before it, numbers have no separator in
them, and an absent part has a spelling that no present one has. So no two different records share what is hashed,
however odd their text. The chain of each run begins with its own id; a record can't be moved into another run.

What a chain can't tell, `verify` says in its essay.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Final, NamedTuple

from sagactl.core.records import Record
from sagactl.errors import DamagedLogError
from sagactl.hashing import sha256
from sagactl.log.base import StoredRecord
from sagactl.log.codec import Encoded, decode, encode

_DOMAIN: Final = "sagactl.record/1"


class Link(NamedTuple):
    """An encoded record at its place in the chain; the order of columns is that of the table."""

    run_id: str
    seq: int
    at_ms: int
    type: str
    step: str | None
    item: int | None
    attempt: int | None
    body: str
    hash: str

    @property
    def encoded(self) -> Encoded:
        """Return the record without its place."""
        return Encoded._make(self[2:8])


def genesis_hash(run_id: str) -> str:
    """Return what the first record of a run is chained to."""
    return sha256(f"sagactl.run/1:{run_id}".encode("utf-8", "surrogatepass")).hexdigest()


def chain_hash(  # noqa: PLR0917 - the columns in their order
    previous_hash: str,
    run_id: str,
    seq: int,
    at_ms: int,
    type: str,  # noqa: A002 - the name of the column
    step: str | None,
    item: int | None,
    attempt: int | None,
    body: str,
) -> str:
    """Return the SHA-256 of a record and the hash before it, in hexadecimal."""
    place = "-" if step is None else f"{len(step)}:{step}"
    text = (
        f"{_DOMAIN};{len(previous_hash)}:{previous_hash};{len(run_id)}:{run_id};{seq};{at_ms};{len(type)}:{type};"
        f"{place};{item};{attempt};{len(body)}:{body}"
    )
    return sha256(text.encode("utf-8", "surrogatepass")).hexdigest()


def link(run_id: str, after_seq: int, head: str, encoded: Iterable[Encoded]) -> list[Link]:
    """Chain encoded records to the record *after_seq*, whose hash is *head*."""
    links = []
    for seq, columns in enumerate(encoded, after_seq + 1):
        head = chain_hash(head, run_id, seq, *columns)
        links.append(Link(run_id, seq, *columns, head))
    return links


def encode_all(records: Sequence[Record]) -> tuple[Encoded, ...]:
    """Encode records in order."""
    return tuple([encode(record) for record in records])


def follow(run_id: str, after_seq: int, head: str, links: Iterable[Link]) -> Iterator[StoredRecord]:
    """Yield the records of *links*, which go on after *after_seq*; raises DamagedLogError at the first bad one."""
    seq = after_seq
    for found in links:
        seq += 1
        if found.seq != seq:
            raise damaged(run_id, seq, f"record {seq} is missing")
        head_found = chain_hash(head, run_id, *found[1:8])
        if head_found != found.hash:
            raise damaged(run_id, seq, f"record {seq} is not what was written")
        head = head_found
        try:
            record = decode(found.encoded)
        except DamagedLogError as error:
            raise damaged(run_id, seq, f"record {seq}: {error.message}") from error
        yield StoredRecord(run_id, seq, record, head)


def damaged(run_id: str, seq: int | None, problem: str) -> DamagedLogError:
    """Return the error that says what is wrong with a run's log."""
    where = "" if seq is None else f" at record {seq}"
    message = f"the log of run {run_id} is damaged{where}: {problem}"
    return DamagedLogError(message, hint=f"sagactl verify {run_id}")
