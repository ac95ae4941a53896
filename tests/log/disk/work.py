"""What a log goes through in its life, step by step: what the power is cut in, and what errors meet."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

from sagactl.core.records import RunStatus
from sagactl.log.base import Lease
from sagactl.log.checkpoint import Checkpointer
from sagactl.log.sqlite import SqliteLog
from tests.log.samples import OTHER, Time, add, answered, dead, ended, intent, outcome, request, start

Connect = Callable[[str, float], Any]
Step = Callable[[SqliteLog], object]


def open_log(path: Path, connect: Connect | None = None, *, time: Time | None = None) -> SqliteLog:
    """Open a log whose checkpoints come early."""
    more: dict[str, Any] = {} if connect is None else {"connect": connect}
    checkpointer = Checkpointer(path, checkpoint_bytes=64 * 1024, wal_bytes_max=256 * 1024, look_commits=1)
    return SqliteLog(path, lease_clock=(time or Time()).clock(), checkpointer=checkpointer, **more)


def _report(lease: list[Lease], size: int) -> Step:
    return lambda log: add(log, lease[0], outcome(output="x" * size), intent())


def chain(run_id: str, calls: int) -> Iterator[Step]:
    """Yield the steps of a run that makes *calls* calls and succeeds."""
    lease: list[Lease] = []
    yield lambda log: lease.append(start(log, run_id, key=f"key of {run_id}"))
    yield lambda log: add(log, lease[0], intent())
    for number in range(calls):
        yield _report(lease, 600 * (number % 4))
    yield lambda log: log.renew(lease)
    yield lambda log: add(log, lease[0], outcome(), ended(), status=RunStatus.SUCCEEDED)
    yield lambda log: log.release(lease)


def trouble(run_id: str) -> Iterator[Step]:
    """Yield the steps of a run that gives an operation up, is taken over, and waits for a person."""
    lease: list[Lease] = []
    yield lambda log: lease.append(start(log, run_id))
    yield lambda log: add(log, lease[0], intent())
    yield lambda log: add(log, lease[0], outcome(), dead())
    yield lambda log: log.release(lease)
    yield lambda log: log.ask(run_id, request("q1"))
    yield lambda log: lease.append(log.claim(run_id, holder=OTHER))
    yield lambda log: add(log, lease[1], answered("q1"), intent(2))


def prune(run_id: str) -> Iterator[Step]:
    """Yield the steps that delete a run and give its space back."""
    yield lambda log: log.prune([run_id], pruned_by="ada")
    yield lambda log: log.give_back()


def life(_: SqliteLog) -> list[Step]:
    """Return the whole life of a log: two runs, trouble, pruning, a third run."""
    return [*chain("run1", 8), *trouble("run2"), *prune("run1"), *chain("run3", 3)]


def carry_on(run_id: str) -> Iterator[Step]:
    """Yield the steps of whoever takes a run over."""
    lease: list[Lease] = []
    yield lambda log: lease.append(log.claim(run_id, holder=OTHER))
    yield lambda log: add(log, lease[0], outcome(output="x" * 900), intent(3))
    yield lambda log: log.release(lease)


def afterlife(log: SqliteLog) -> Iterator[Step]:
    """Yield what is done with whatever a crash left: each run that isn't at its end is taken over and goes on."""
    for run_id in log.unfinished():
        yield from carry_on(run_id)
    yield from chain("run4", 2)


def go_through(
    path: Path,
    steps: Callable[[SqliteLog], Iterable[Step]],
    connect: Connect | None,
    after: Callable[[SqliteLog], None],
) -> None:
    """Open a log, do *steps* with it and close it; *after* is called after the opening and each step."""
    time = Time()
    time.pass_ms(60_000 if steps is afterlife else 0)
    with closing(open_log(path, connect, time=time)) as log:
        after(log)
        for step in steps(log):
            step(log)
            after(log)
