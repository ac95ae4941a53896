"""How much of everything there is in a log, and since when: what `sagactl metrics` shows, whatever keeps the log."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import field
from typing import Final, NamedTuple

from sagactl.dataclass import dataclass

RECENT_RECORDS_MAX: Final = 20_000
"""How many of the latest records are looked at for calls: what is counted costs the same however long the log is."""

RECENT_MS: Final = 3_600_000
"""How old these may be."""

NO_OUTCOME: Final = "none"
"""What stands for the outcome of a call that is under way, or that its driver's death has taken."""

_PENDING: Final = "pending"


class Group(NamedTuple):
    """Things that are alike: what tells them from others, how many there are, since when there is the oldest."""

    labels: tuple[str, ...]
    total: int
    since_ms: int | None = None


class Trace(NamedTuple):
    """What is looked at of a record: `word` is the tool of an intent, and the kind of an outcome."""

    at_ms: int
    type: str
    run_id: str
    step: str | None
    item: int | None
    direction: str | None
    attempt: int | None
    word: str | None


@dataclass(frozen=True, slots=True)
class Recent:
    """Calls of the latest records: by tool, direction and outcome, and those of them that were retries."""

    calls: tuple[Group, ...] = ()
    retries: tuple[Group, ...] = ()
    records: int = 0
    since_ms: int | None = None


@dataclass(frozen=True, slots=True)
class Counts:
    """What there is in a log."""

    runs: tuple[Group, ...] = ()
    """By saga and status; since when: the oldest was created."""
    letters: tuple[Group, ...] = ()
    """Open dead letters, by saga, direction and reason."""
    alerts: tuple[Group, ...] = ()
    """Open alerts, by reason."""
    pending: Group = Group((), 0)
    """Messages of the outbox that some channel has not got yet."""
    requests: Group = Group((), 0)
    """Requests of operators that no driver has answered."""
    recent: Recent = field(default_factory=Recent)
    file_bytes: Mapping[str, int] = field(default_factory=dict)


def count_recent(newest_first: Iterable[Trace]) -> Recent:
    """Count the calls among records; a call counts once, by its attempt, however often it was asked while pending."""
    outcomes: dict[tuple[object, ...], str] = {}
    counted: set[tuple[object, ...]] = set()
    calls: Counter[tuple[str, ...]] = Counter()
    retries: Counter[tuple[str, ...]] = Counter()
    records, since_ms = 0, None
    for trace in newest_first:
        records += 1
        since_ms = trace.at_ms if since_ms is None else min(since_ms, trace.at_ms)
        call = (trace.run_id, trace.step, trace.item, trace.direction, trace.attempt)
        if trace.type == "outcome" and trace.word is not None:
            outcomes.setdefault(call, trace.word)
        elif trace.type == "intent" and trace.word is not None and call not in counted:
            counted.add(call)
            outcome = outcomes.get(call, NO_OUTCOME)
            direction = trace.direction or ""
            calls[trace.word, direction, NO_OUTCOME if outcome == _PENDING else outcome] += 1
            retries[trace.word, direction] += (trace.attempt or 1) > 1
    return Recent(group(calls), group(retries), records, since_ms)


def group(counter: Mapping[tuple[str, ...], int]) -> tuple[Group, ...]:
    """Return the groups in the order of their labels."""
    return tuple(Group(labels, count) for labels, count in sorted(counter.items()))
