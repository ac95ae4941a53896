"""Which run is meant: a unique prefix of its id, `@latest`, or `@latest:SAGA`."""

from __future__ import annotations

import re
from collections.abc import Iterable

from sagactl.core.keys import RUN_ID
from sagactl.errors import NotFoundError, UsageError
from sagactl.log.base import Log, RunFilter, RunRow

SHORT_ID_LENGTH_MIN = 6

_PREFIX = re.compile(r"[0-9a-z]{1,13}", re.ASCII)


def select_run(log: Log, text: str, *, changes: bool = False) -> RunRow:
    """Return the run that *text* means; raises NotFoundError where none or several fit.

    A command that *changes* something takes no `@latest`: it never picks a run by itself.
    """
    if text.startswith("@"):
        return _select_latest(log, text, changes=changes)
    if not _PREFIX.fullmatch(text):
        raise NotFoundError(f"{text!r} is no run id", code="no-such-run", hint="sagactl list")
    if RUN_ID.fullmatch(text):
        return log.row(text)
    found = log.find(text)
    if not found and len(pruned := log.pruned(text)) == 1:
        return log.row(pruned[0].run_id)  # says that it was pruned
    if not found:
        raise NotFoundError(f"no run begins with {text}", code="no-such-run", hint="sagactl list")
    if len(found) > 1:
        listed = ", ".join(f"{row.run_id} ({row.saga})" for row in found[:5])
        raise NotFoundError(f"several runs begin with {text}: {listed}", code="ambiguous-run", hint="give more letters")
    return found[0]


def _select_latest(log: Log, text: str, *, changes: bool) -> RunRow:
    name, _, saga = text.partition(":")
    if name != "@latest":
        raise NotFoundError(f"{text!r} is no run", code="no-such-run", hint="@latest, @latest:SAGA, or an id")
    if changes:
        raise UsageError("a command that changes something takes the run's id", hint="sagactl list")
    rows, _ = log.rows(RunFilter(saga=saga or None, limit=1))
    if not rows:
        of_saga = f" of saga {saga}" if saga else ""
        raise NotFoundError(f"there is no run{of_saga} yet", code="no-such-run", hint="sagactl list")
    return rows[0]


def short_id(log: Log, run_id: str) -> str:
    """Return the shortest prefix, of at least 6 characters, that means this run."""
    return short_ids(log, [run_id])[run_id]


def short_ids(log: Log, run_ids: Iterable[str]) -> dict[str, str]:
    """Return the short id of each run."""
    return log.shorten(list(dict.fromkeys(run_ids)), length_min=SHORT_ID_LENGTH_MIN)
