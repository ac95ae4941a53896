"""Runs of other projects in the same log: their tools are not the ones here, even where they are called the same."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING

from sagactl.core.records import RunCreated
from sagactl.errors import DamagedLogError

if TYPE_CHECKING:
    from sagactl.log.base import Log


def find_other_project(log: Log, project: Path, run_id: str) -> str | None:
    """Return the folder of another project than *project* that the run was begun in, if it is still there.

    A project that was moved, or is mounted elsewhere, is not there any more under its old name: its runs go on here.
    Raises DamagedLogError.
    """
    first = next(iter(log.read(run_id)), None)
    name = first.record.project if first is not None and isinstance(first.record, RunCreated) else None
    if name is None or not Path(name).is_dir():
        return None
    return None if Path(name).resolve() == project.resolve() else name


def leave_out_others(log: Log, project: Path, run_ids: Iterable[str]) -> list[str]:
    """Return those of *run_ids* that *project* may carry on; of a damaged one whoever does so is told."""
    return [run_id for run_id in run_ids if not _is_of_other(log, project, run_id)]


def _is_of_other(log: Log, project: Path, run_id: str) -> bool:
    try:
        return find_other_project(log, project, run_id) is not None
    except DamagedLogError:
        return False
