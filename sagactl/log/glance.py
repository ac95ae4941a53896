"""A quick look into a log for completion on the command line: ids, sagas and steps, straight from the tables.

It has a tenth of a second, so it imports nothing that it can do without, checks nothing, and changes nothing. Whatever
can't be read, there or at once, is left out: nobody acts on these words before a command has looked for itself.
"""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path
from typing import Any, Final, NamedTuple

BUSY_SECONDS: Final = 0.05
_LAST_CHARACTER: Final = "\U0010ffff"


class Glance(NamedTuple):
    """What is shown beside an id."""

    run_id: str
    saga: str
    status: str
    created_at_ms: int


def glance_runs(path: str, prefix: str, *, statuses: Sequence[str] = (), limit: int) -> list[Glance]:
    """Return runs whose id begins with *prefix*, newest first; with *statuses*, only those that stand so."""
    which = f" AND status IN ({', '.join('?' * len(statuses))})" if statuses else ""
    query = (
        f"SELECT run_id, saga, status, created_at_ms FROM runs WHERE run_id >= ? AND run_id < ?{which}"
        " ORDER BY number DESC LIMIT ?"
    )
    found = _ask(path, query, (prefix, prefix + _LAST_CHARACTER, *statuses, limit))
    return [Glance(*row) for row in found if row[0].isalnum()]


def glance_sagas(path: str) -> list[str]:
    """Return the names of the sagas that have runs."""
    return [str(name) for (name,) in _ask(path, "SELECT DISTINCT saga FROM runs ORDER BY saga", ())]


def glance_steps(path: str, prefix: str) -> list[str]:
    """Return the steps of the run whose id begins with *prefix*, in the order of its file; of the latest, without."""
    query = (
        "SELECT body FROM definitions WHERE digest = (SELECT definition FROM runs WHERE run_id >= ? AND run_id < ?"
        " ORDER BY number DESC LIMIT 1)"
    )
    found = _ask(path, query, (prefix, prefix + _LAST_CHARACTER))
    try:
        return [str(step["id"]) for (body,) in found for step in json.loads(body)["steps"]]
    except (ValueError, LookupError, TypeError):
        return []


def _ask(path: str, query: str, values: Sequence[object]) -> list[tuple[Any, ...]]:
    file = Path(path).expanduser()
    # Without content in its WAL a log is read as it lies there, and no other file is made beside it.
    wal = file.with_name(file.name + "-wal")
    quoted = str(file).replace("%", "%25").replace("?", "%3f").replace("#", "%23")
    try:
        is_at_rest = not wal.exists() or wal.stat().st_size == 0
        address = f"file:{quoted}?mode=ro" + ("&immutable=1" if is_at_rest else "")
        with closing(sqlite3.connect(address, uri=True, timeout=BUSY_SECONDS)) as connection:
            return connection.execute(query, values).fetchall()
    except (sqlite3.Error, OSError, UnicodeDecodeError):
        return []
