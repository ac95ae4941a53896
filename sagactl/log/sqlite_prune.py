"""Deleting ended runs from the database, what is kept of them, and giving the space back.

A transaction deletes some hundred runs at most, so other writers wait for a moment only. What is deleted is overwritten
(`secure_delete`). The space is given back in portions too, by `incremental_vacuum` inside the gate: a `VACUUM` would
copy the whole log under an exclusive lock, and needs as much space again, at the very moment when there is none.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import fields
from typing import Final

from sagactl.core.records import Holder, definition_in
from sagactl.errors import DamagedLogError
from sagactl.log.base import NewRun, PruneFilter, RunRow, Tombstone
from sagactl.log.codec import Encoded, decode
from sagactl.log.leases import Granted, LeaseClock, Standing, judge
from sagactl.log.pruning import ENDED, GENESIS, TOMBSTONES, bury, check_pruned_key, digest_key
from sagactl.log.rows import FOUND_MAX, is_unicode
from sagactl.log.sqlite_read import LAST_CHARACTER, SELECT_ROW, make_row, make_tombstone, missing_run
from sagactl.log.sqlite_store import Mark

GIVEN_BACK_PAGES: Final = 1_000
"""Pages that are given back in one transaction."""

_COLUMNS: Final = ", ".join(each.name for each in fields(Tombstone))
_ENDED: Final = "status IN ({})".format(", ".join(f"'{status.value}'" for status in ENDED))


def list_prunable(connection: sqlite3.Connection, which: PruneFilter) -> tuple[list[RunRow], int]:
    """Return the runs that may be deleted, oldest first, and how many there are."""
    of_saga, saga = ("", []) if which.saga is None else (" AND saga = ?", [which.saga])
    condition = f"{_ENDED}{of_saga}"
    values: list[object] = [*saga]
    if which.ended_until_ms is not None:
        condition += " AND coalesce(ended_at_ms, updated_at_ms) <= ?"
        values.append(which.ended_until_ms)
    if which.keep > 0:
        kept = f"SELECT number FROM runs WHERE {_ENDED}{of_saga} ORDER BY number DESC LIMIT ?"
        condition += f" AND number NOT IN ({kept})"
        values += [*saga, which.keep]
    (total,) = connection.execute(f"SELECT count(*) FROM runs WHERE {condition}", values).fetchone()
    limit = which.limit if which.limit > 0 else -1
    chosen = f"SELECT number FROM runs WHERE {condition} ORDER BY number LIMIT ? OFFSET ?"
    found = connection.execute(
        f"{SELECT_ROW} WHERE runs.number IN ({chosen}) ORDER BY runs.number",
        (*values, limit, which.skip),
    )
    return [make_row(row) for row in found.fetchall()], total


def prune_runs(
    connection: sqlite3.Connection, run_ids: Sequence[str], pruned_by: str, clock: LeaseClock
) -> tuple[list[Tombstone], Mark | None]:
    """Delete runs and write their tombstones; those that must stay are passed over."""
    last = read_last(connection)
    buried: list[Tombstone] = []
    definitions: set[str] = set()
    for run_id in run_ids:
        found = connection.execute(f"{SELECT_ROW} WHERE runs.run_id = ? AND {_ENDED}", (run_id,)).fetchone()
        if found is None or _is_needed(connection, run_id, clock):
            continue
        row = make_row(found)
        (explicit,) = connection.execute("SELECT key_is_explicit FROM runs WHERE run_id = ?", (run_id,)).fetchone()
        tombstone = bury(
            row, key_is_explicit=bool(explicit), after=last, pruned_at_ms=clock.wall_ms(), pruned_by=pruned_by
        )
        _insert(connection, tombstone)
        definitions |= _list_definitions(connection, run_id, row.definition)
        connection.execute("DELETE FROM runs WHERE run_id = ?", (run_id,))
        last = tombstone.number, tombstone.hash
        buried.append(tombstone)
    if not buried:
        return [], None
    connection.execute("INSERT OR REPLACE INTO meta VALUES (?, ?)", (TOMBSTONES, f"{last[0]} {last[1]}"))
    for digest in definitions:
        connection.execute(
            "DELETE FROM definitions WHERE digest = ? AND NOT EXISTS (SELECT 1 FROM runs WHERE definition = ?)",
            (digest, digest),
        )
    return buried, Mark(TOMBSTONES, *last)


def _list_definitions(connection: sqlite3.Connection, run_id: str, last: str) -> set[str]:
    """Return every definition that a run was ever bound to, the *last* one included (E16)."""
    records = connection.execute(
        "SELECT at_ms, type, step, item, attempt, body FROM records"
        " WHERE run_id = ? AND type IN ('run_created', 'operator')",
        (run_id,),
    )
    found = {last}
    for columns in records.fetchall():
        with suppress(DamagedLogError):  # what can't be read binds the run to nothing
            found.add(definition_in(decode(Encoded._make(columns))) or last)
    return found


def _is_needed(connection: sqlite3.Connection, run_id: str, clock: LeaseClock) -> bool:
    """Tell whether somebody drives an ended run, to undo it say, or has asked for that."""
    asked = connection.execute("SELECT 1 FROM requests WHERE run_id = ? AND is_answered = 0", (run_id,)).fetchone()
    lease = connection.execute(
        "SELECT host, pid, started, boot_id, granted_boot_id, granted_boot_ms, granted_wall_ms FROM leases"
        " WHERE run_id = ? AND host IS NOT NULL",
        (run_id,),
    ).fetchone()
    is_driven = lease is not None and judge(clock, Holder(*lease[:4]), Granted(*lease[4:])) is Standing.GOOD
    return asked is not None or is_driven


def _insert(connection: sqlite3.Connection, tombstone: Tombstone) -> None:
    marks = ", ".join("?" * len(fields(tombstone)))
    values = [getattr(tombstone, each.name) for each in fields(tombstone)]
    connection.execute(f"INSERT INTO tombstones ({_COLUMNS}) VALUES ({marks})", values)


def read_last(connection: sqlite3.Connection) -> tuple[int, str]:
    """Return number and hash of the last tombstone, as they stand apart from the tombstones."""
    found = connection.execute("SELECT value FROM meta WHERE name = ?", (TOMBSTONES,)).fetchone()
    number, _, head = (f"0 {GENESIS}" if found is None else str(found[0])).partition(" ")
    return int(number) if number.isdecimal() else -1, head


def list_tombstones(connection: sqlite3.Connection, after_number: int, limit: int) -> list[Tombstone]:
    """Return a page of tombstones as they lie in the table; raises DamagedLogError."""
    query = f"SELECT {_COLUMNS} FROM tombstones WHERE number > ? ORDER BY number LIMIT ?"
    return [make_tombstone(row) for row in connection.execute(query, (after_number, limit)).fetchall()]


def find_tombstones(connection: sqlite3.Connection, prefix: str) -> list[Tombstone]:
    """Return the tombstones of runs whose id begins with *prefix*, newest first."""
    if not is_unicode(prefix):
        return []
    query = f"SELECT {_COLUMNS} FROM tombstones WHERE run_id >= ? AND run_id < ? ORDER BY number DESC LIMIT ?"
    found = connection.execute(query, (prefix, prefix + LAST_CHARACTER, FOUND_MAX))
    return [make_tombstone(row) for row in found.fetchall()]


def refuse_pruned(connection: sqlite3.Connection, new: NewRun) -> None:
    """Raise PrunedError or RefusedError where a pruned run has the id or holds the key of *new*."""
    if new.key is not None:
        found = connection.execute(
            f"SELECT {_COLUMNS} FROM tombstones WHERE key_digest = ?", (digest_key(new.saga, new.key),)
        ).fetchone()
        if found is not None:
            check_pruned_key(new, make_tombstone(found))
    if connection.execute("SELECT 1 FROM tombstones WHERE run_id = ?", (new.run_id,)).fetchone() is not None:
        raise missing_run(connection, new.run_id)


def give_back(connection: sqlite3.Connection) -> tuple[int, Mark | None]:
    """Give pages back to the file system; return their bytes."""
    (free,) = connection.execute("PRAGMA freelist_count").fetchone()
    if free == 0:
        return 0, None
    connection.execute(f"PRAGMA incremental_vacuum({GIVEN_BACK_PAGES})").fetchall()
    (left,) = connection.execute("PRAGMA freelist_count").fetchone()
    (page_bytes,) = connection.execute("PRAGMA page_size").fetchone()
    return (free - left) * page_bytes, None
