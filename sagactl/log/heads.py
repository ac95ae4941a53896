"""Heads of a log to be kept elsewhere, and what a log is worth beside them (L7).

A head is one word: `sagactl-head-1:STORE:WHAT:NUMBER:HASH`, and with a key `:SIGNATURE` after it. WHAT is a run, whose
record NUMBER had HASH; or `tombstones`, of which the one with that number had it; or `all`, which stands last in a list
and says how many heads there were before it, with a hash over them, so that none can be taken out of the list.

Hashes cover all that came before them. So as long as the log holds the record of a head, nothing before that record
was cut off, rewritten or put back; and a log that lacks it was. That is all a head says, but it says it to whoever
trusts the place where it was kept. The signature (HMAC-SHA256) is for places that aren't trusted: who can change the
log and the kept heads, but hasn't the key, can't make them agree.

Events have the hash of each record as well (`documents.write_record_at`): a file of them is a list of heads. They name
their log beside it; a bare record doesn't.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from typing import Any, Final

from sagactl.dataclass import dataclass
from sagactl.errors import DamagedLogError, InvalidError, NotFoundError, PrunedError
from sagactl.log.audit import WHOLE_LOG
from sagactl.log.base import Finding, Log, Verification
from sagactl.log.pruning import TOMBSTONES

PREFIX: Final = "sagactl-head-1"
ALL: Final = "all"
RECORD_SCHEMA: Final = "sagactl.record/1"
HEADS_SCHEMA: Final = "sagactl.heads/1"
KEPT_BYTES_MAX: Final = 64 * 1024 * 1024
"""What a file of kept heads may have."""

_WORD: Final = re.compile(
    rf"{PREFIX}:(?P<store>[0-9a-f]{{32}}):(?P<what>[0-9a-z]{{1,64}}):(?P<number>[0-9]{{1,18}}):(?P<hash>[0-9a-f]{{64}})"
    r"(?::(?P<signature>[0-9a-f]{64}))?",
    re.ASCII,
)
_HINT: Final = "sagactl verify --head"


@dataclass(frozen=True, slots=True)
class Head:
    """What was the last of a chain when somebody looked."""

    store: str
    what: str
    number: int
    hash: str
    signature: str | None = None
    is_placed: bool = True
    """Whether it named its log itself, and wasn't taken for one of the log that it is compared with."""

    @property
    def text(self) -> str:
        """Return it as one word, without the signature."""
        return f"{PREFIX}:{self.store}:{self.what}:{self.number}:{self.hash}"

    def __str__(self) -> str:
        return self.text if self.signature is None else f"{self.text}:{self.signature}"


def sign(head: Head, key: bytes | None) -> Head:
    """Return *head* with its signature, or as it is without a key."""
    return head if key is None else replace(head, signature=_signature(head, key))


def _signature(head: Head, key: bytes) -> str:
    import hmac

    return hmac.new(key, head.text.encode(), hashlib.sha256).hexdigest()


def list_heads(store: str, verification: Verification, key: bytes | None, *, is_whole: bool) -> list[Head]:
    """Return the heads that *verification* found, signed; of the whole log with the one that counts them."""
    heads = [
        sign(Head(store, run_id, verification.lengths[run_id], hash_), key)
        for run_id, hash_ in verification.heads.items()
    ]
    if verification.tombstones_head:
        heads.append(sign(Head(store, TOMBSTONES, verification.tombstones, verification.tombstones_head), key))
    if is_whole:
        heads.append(sign(Head(store, ALL, len(heads), _digest(heads)), key))
    return heads


def _digest(heads: Iterable[Head]) -> str:
    return hashlib.sha256("".join(f"{head}\n" for head in heads).encode("ascii")).hexdigest()


def read_heads(text: str, store: str) -> list[Head]:
    """Return the heads in *text*: words, the document of `verify --head -o json`, or events; raises InvalidError.

    Of a run's events only the last count; records that don't name their log are taken for those of *store*.
    """
    if len(text) > KEPT_BYTES_MAX:
        raise _not_heads(f"they have more than {KEPT_BYTES_MAX} characters")
    heads = list(_read_lines(text, store))
    if not heads:
        raise _not_heads("there are none")
    return heads


def _read_lines(text: str, store: str) -> Iterator[Head]:
    events: dict[tuple[str, str], Head] = {}
    for number, line in enumerate(text.splitlines(), 1):
        word = line.strip()
        if word.startswith("{"):
            value = _read_json(word, number)
            if value.get("schema") == HEADS_SCHEMA:
                heads = value.get("heads")
                yield from (_read_word(each, number) for each in (heads if isinstance(heads, list) else [None]))
                continue
            head = _read_event(value, store, number)
            place = head.store, head.what
            if place not in events or events[place].number <= head.number:
                events[place] = head
        elif word:
            yield _read_word(word, number)
    yield from events.values()


def _read_json(word: str, number: int) -> dict[str, Any]:
    try:
        value = json.loads(word)
    except (ValueError, RecursionError):
        raise _not_heads(f"line {number} is no JSON") from None
    assert isinstance(value, dict), "it begins with a brace"
    return value


def _read_event(value: dict[str, Any], store: str, number: int) -> Head:
    """Return the head in a record, or in a CloudEvent that carries one."""
    data = value.get("data")
    record = data if isinstance(data, dict) else value
    run_id, seq, hash_ = (record.get(name) for name in ("run_id", "seq", "hash"))
    if record.get("schema") != RECORD_SCHEMA or type(seq) is not int:
        raise _not_heads(f"line {number} is no record of a run")
    named = value.get("store")
    head = _read_word(f"{PREFIX}:{store if named is None else named}:{run_id}:{seq}:{hash_}", number)
    return replace(head, is_placed=named is not None)


def _read_word(word: object, number: int) -> Head:
    found = _WORD.fullmatch(word) if isinstance(word, str) else None
    if found is None:
        raise _not_heads(f"line {number} is none")
    return Head(found["store"], found["what"], int(found["number"]), found["hash"], found["signature"])


def _not_heads(why: str) -> InvalidError:
    return InvalidError(f"these are no heads that sagactl wrote: {why}", code="invalid-head", hint=_HINT)


def compare(log: Log, heads: Sequence[Head], key: bytes | None) -> list[Finding]:
    """Return what speaks against the log, or against the heads themselves."""
    findings = [] if key is None else [_complain(head) for head in heads if not _is_signed(head, key)]
    if findings:
        return findings  # what somebody may have made up proves nothing
    ours = [head for head in heads if head.store == log.store_id]
    found = (_compare_one(log, ours, place) for place in range(len(ours)))
    return [*_name_others(heads, log.store_id), *(each for each in found if each is not None)]


def _name_others(heads: Sequence[Head], store: str) -> Iterator[Finding]:
    """Yield a finding for each other log that has heads here: what isn't compared must not look as if it held."""
    counts = Counter(head.store for head in heads)
    for other in sorted(counts.keys() - {store}):
        which = "the heads are" if counts[other] == len(heads) else f"{counts[other]:,} of {len(heads):,} heads are"
        problem = f"{which} those of another log (store {other[:8]}, this is {store[:8]}): compare them with that one"
        yield Finding(WHOLE_LOG, None, problem)


def _is_signed(head: Head, key: bytes) -> bool:
    import hmac

    return head.signature is not None and hmac.compare_digest(head.signature, _signature(head, key))


def _complain(head: Head) -> Finding:
    how = "has no signature" if head.signature is None else "has another signature than that of this project's key"
    is_run = head.what not in {ALL, TOMBSTONES}
    return Finding(head.what if is_run else WHOLE_LOG, head.number if is_run else None, f"the head {how}")


def _compare_one(log: Log, heads: Sequence[Head], place: int) -> Finding | None:
    head = heads[place]
    if head.what == ALL:
        before = heads[max(0, place - head.number) : place]
        if len(before) == head.number and _digest(before) == head.hash:
            return None
        return Finding(WHOLE_LOG, None, f"the kept heads are not the {head.number} that were written")
    if log.holds(head.what, head.number, head.hash):
        return None
    if head.what == TOMBSTONES:
        return Finding(WHOLE_LOG, None, f"tombstone {head.number} is gone or another: the log was set back")
    return Finding(head.what, head.number, _say_lost(log, head))


def _say_lost(log: Log, head: Head) -> str:
    if _has_run(log, head.what):
        return f"record {head.number} is gone or another: cut off, rewritten or set back"
    if head.is_placed:
        return "the run is gone: taken out, or the log was set back"
    return "the run is gone, or it is one of another log: the record doesn't say of which"


def _has_run(log: Log, run_id: str) -> bool:
    """Tell whether there is, or was, something of a run."""
    try:
        log.row(run_id)
    except (PrunedError, DamagedLogError):
        return True
    except NotFoundError:
        return False
    return True
