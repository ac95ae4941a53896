"""Checks of the log and of where it lies: file system, permissions, space, settings, runs that wait for somebody."""

from __future__ import annotations

import os
import shlex
import shutil
import stat
from collections.abc import Generator, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Final

from sagactl.app import Project
from sagactl.core.records import RunStatus
from sagactl.doctor.check import Check, count, fail, ok, warn
from sagactl.doctor.machine import check_clock
from sagactl.errors import NotFoundError, SagactlError, StorageError

if TYPE_CHECKING:
    from sagactl.log.base import Log, RunRow

FREE_BYTES_LOW: Final = 1 << 30
FREE_BYTES_NONE: Final = 100 << 20
LOG_BYTES_LARGE: Final = 1 << 30
NEWEST_LOOKED_AT: Final = 100
"""Runs whose last record is compared with the clock."""

UNDRIVEN_MAX: Final = 1_000
_PEOPLE: Final = frozenset({"approval", "paused"})


def check_store(project: Project) -> Iterator[Check]:
    """Look at the log of a project, from its place to its runs."""
    if "://" in project.config.log:
        yield fail("log", "it is not a file: this release keeps logs in files", "sagactl config", blocks_log=True)
        return
    path = Path(project.config.log).expanduser().absolute()
    yield from _check_place(path)
    log = yield from _open(project, path)
    if log is None:
        yield check_clock(None)
        return
    yield _check_size(log, path)
    yield from _check_runs(log)
    yield from _check_alerts(log)
    from sagactl.log.base import RunFilter

    rows, _ = log.rows(RunFilter(limit=NEWEST_LOOKED_AT))
    yield check_clock(max((row.updated_at_ms for row in rows), default=None))


def _check_place(path: Path) -> Iterator[Check]:
    from sagactl.log.file_system import find_mount, refuse_network

    folder = next(each for each in path.parents if each.exists())
    try:
        refuse_network(folder)
        mount = find_mount(folder)
        yield ok("file system", "local" if mount is None else f"local ({mount[1]})")
    except StorageError as error:
        yield fail("file system", error.message, error.hint)
    free = shutil.disk_usage(folder).free
    text = f"{free // (1 << 20):,} MiB free"
    if free < FREE_BYTES_NONE:  # pruning needs room itself, and gives back what ended runs take at most
        yield fail("disk", f"{text}: runs will stop", f"free space on the disk of {folder}")
    elif free < FREE_BYTES_LOW:
        hint = f"free space on the disk of {folder}; what ended runs take: sagactl prune --older-than 30d --dry-run"
        yield warn("disk", text, hint)
    else:
        yield ok("disk", text)
    yield _check_modes(path)


def _check_modes(path: Path) -> Check:
    """Others must not read the log: it has inputs and outputs."""
    from sagactl.log.file_system import MOUNT_IT

    closed = _find_closed(path)
    if closed is not None:
        is_mounted_so = os.statvfs(closed).f_flag & os.ST_RDONLY
        hint = MOUNT_IT if is_mounted_so else f"make it writable for you: chmod u+w {shlex.quote(str(closed))}"
        return fail("permissions", f"{closed} can't be written: no run can begin or go on", hint)
    if not path.exists():
        return ok("permissions", "nothing there yet")
    # The folder may be somebody else's choice (--log); the files are ours.
    for each in (path, *(path.with_name(path.name + suffix) for suffix in ("-wal", "-shm", "-gate"))):
        if each.exists() and stat.S_IMODE(each.stat().st_mode) & 0o077:
            return warn("permissions", f"others may read {each}", f"chmod 600 {each}")
    mode = stat.S_IMODE(path.parent.stat().st_mode)
    if mode & 0o077 and path.parent.name == ".sagactl":
        return warn("permissions", f"others may look into {path.parent} ({mode:o})", f"chmod 700 {path.parent}")
    return ok("permissions", "the log is yours alone")


def _find_closed(path: Path) -> Path | None:
    """Return what can't be written and must be: the log, or the folder that its files are, or will be, made in."""
    folder = next(each for each in path.parents if each.exists())
    return next((each for each in (path, folder) if each.exists() and not os.access(each, os.W_OK)), None)


def _open(project: Project, path: Path) -> Generator[Check, None, Log | None]:
    """Open the log as a driver would, so that its settings are made and read back; return it, or None."""
    try:
        project.log(read_only=True)
    except NotFoundError as error:
        yield _tell_missing(path, error)
        return None
    except SagactlError as error:
        yield fail("log", error.message, error.hint, blocks_log=True)
        return None
    try:
        log = project.log() if os.access(path, os.W_OK) else project.log(read_only=True)
    except SagactlError as error:
        yield fail("log", error.message, error.hint, blocks_log=True)
        return None
    yield ok("log", f"{path}: it opens, and its settings hold")
    yield from _check_witness(path, log.store_id)
    return log


def _tell_missing(path: Path, error: NotFoundError) -> Check:
    """Tell a log that isn't made yet from one that was kept here and is gone."""
    from sagactl.log.far_witness import find_kept

    return ok("log", f"none yet at {path}") if find_kept(path) is None else warn("log", error.message, error.hint)


def _check_witness(path: Path, store_id: str) -> Iterator[Check]:
    """Warn where nothing can be taken down far from the log: a copy of its whole folder would not be noticed."""
    from sagactl.log.far_witness import FarWitness

    hindrance = FarWitness(path, store_id).find_hindrance()
    if hindrance is not None:
        text = f"no copy of the log's folder that is put back would be noticed: {hindrance}"
        yield warn("witness", text, "sagactl help storage")


def _check_size(log: Log, path: Path) -> Check:
    from sagactl.log.base import PruneFilter
    from sagactl.log.checkpoint import WAL_BYTES_MAX, Checkpointer

    wal_bytes = Checkpointer(path).wal_bytes()
    _, ended = log.prunable(PruneFilter(limit=1))
    size = path.stat().st_size
    text = f"{(size + wal_bytes) / (1 << 20):,.1f} MiB, {count(ended, 'ended run')}"
    if wal_bytes > WAL_BYTES_MAX:
        hint = "end what reads the log for long; the next run shortens it"
        return warn("size", f"{text}; the WAL has {wal_bytes // (1 << 20):,} MiB", hint)
    if size > LOG_BYTES_LARGE:
        return warn("size", text, "sagactl prune --older-than 30d --dry-run")
    return ok("size", text)


def _check_runs(log: Log) -> Iterator[Check]:
    from sagactl.log.base import RunFilter

    statuses = (RunStatus.RUNNING, RunStatus.WAITING, RunStatus.ROLLING_BACK)
    rows, total = log.rows(RunFilter(statuses=statuses, limit=UNDRIVEN_MAX))
    left = [row for row in rows if not _is_driven(row) and row.waiting_for not in _PEOPLE]
    asked = sum(row.waiting_for in _PEOPLE for row in rows)
    if left:
        yield warn(
            "unfinished", f"{len(left):,} of {count(total, 'unfinished run')} without a driver", "sagactl resume --all"
        )
    else:
        yield ok("unfinished", f"{count(total, 'unfinished run')}, {asked:,} of them waiting for a person")
    _, stuck = log.rows(RunFilter(statuses=(RunStatus.STUCK,), limit=1))
    letters = len(log.dead_letters())
    if stuck or letters:
        text = f"{count(stuck, 'stuck run')}, {count(letters, 'dead letter')}: a person must decide"
        yield warn("stuck", text, "sagactl dlq list")
    else:
        yield ok("stuck", "no run is stuck")


def _check_alerts(log: Log) -> Iterator[Check]:
    """Warn of alerts that no channel took: nobody was told of what still stands."""
    from sagactl.core.outbox import is_unheard

    unheard = sum(is_unheard(message) for message in log.outbox.messages(is_pending=False))
    if unheard:
        text = f"{count(unheard, 'alert')} given up: nobody was told of what still stands"
        yield warn("outbox", text, "sagactl outbox list --all")


def _is_driven(row: RunRow) -> bool:
    from sagactl.log.holder import is_dead

    return row.holder is not None and not is_dead(row.holder)
