"""Verifying a database: what is read for `audit` to compare, and the checks that belong to no single run."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from functools import partial
from typing import Any, Final

from sagactl.errors import DamagedLogError, PrunedError
from sagactl.log.audit import WHOLE_LOG, Evidence, Letter, verify_run
from sagactl.log.base import Finding, Tombstone, Verification
from sagactl.log.chain import Link
from sagactl.log.definitions import check_definition, definition_lost
from sagactl.log.migrate import use_sqlite_utils
from sagactl.log.pruning import TOMBSTONES, check_tombstones
from sagactl.log.sqlite_open import holds
from sagactl.log.sqlite_outbox import read_alerts
from sagactl.log.sqlite_prune import list_tombstones, read_last
from sagactl.log.sqlite_read import PAGE_RECORDS, make_letter, read_row
from sagactl.log.sqlite_reading import Store

PROBLEMS_MAX: Final = 10
"""How many of the problems that SQLite finds are told."""


def verify_store(store: Store, run_id: str | None) -> Verification:
    """Verify one run of a database, or all of it; raises NotFoundError."""
    witness = store.witness()  # before anything else: the log only grows from here on
    if run_id is None:
        run_ids = store.read(_list_ids)
        findings = _check_database(store)
    else:
        run_ids = [store.read(lambda connection: read_row(connection, run_id)).run_id]
        findings = []
    heads: dict[str, str] = {}
    lengths: dict[str, int] = {}
    records = runs = 0
    for each in run_ids:
        try:
            run = _RunReader(store, each)
            count, head, problems = verify_run(each, run.links(), run.evidence)
        except PrunedError:
            if run_id is not None:
                raise
            continue  # while its records were read
        runs += 1
        records += count
        heads[each], lengths[each] = head, count
        findings += problems
    if witness is not None and witness.run_id and (run_id is None or run_id == witness.run_id):
        findings += _check_witness(store, witness.run_id, witness.seq, witness.hash)
    buried, tombstones_head = 0, ""
    if run_id is None:
        buried, tombstones_head = store.read(read_last)
        findings += _check_tombstones(store)
    head_of_tombstones = tombstones_head if buried else ""
    return Verification(runs, records, heads, tuple(findings), buried, head_of_tombstones, lengths)


def _check_tombstones(store: Store) -> list[Finding]:
    """Check the chain of tombstones, up to where it is when reading begins, and that none stands for a living run."""
    kept = [(0, "")]
    try:
        problem = check_tombstones(_read_tombstones(store, kept), lambda: kept[0])
    except DamagedLogError as error:
        problem = error.message
    problems = [] if problem is None else [problem]
    query = "SELECT run_id FROM tombstones JOIN runs USING (run_id) LIMIT ?"
    back = store.read(lambda connection: connection.execute(query, (PROBLEMS_MAX,)).fetchall())
    problems += [f"run {run_id} was pruned, and is there again" for (run_id,) in back]
    return [Finding(WHOLE_LOG, None, problem) for problem in problems]


def _read_tombstones(store: Store, kept: list[tuple[int, str]]) -> Iterator[Tombstone]:
    """Yield tombstones page by page, and with the last, empty one what is known of them at that moment."""
    number = 0
    while True:
        page, kept[0] = store.read(partial(_read_page_of_tombstones, after_number=number))
        if not page:
            return
        yield from page
        number = page[-1].number


def _read_page_of_tombstones(
    connection: sqlite3.Connection, after_number: int
) -> tuple[list[Tombstone], tuple[int, str]]:
    connection.execute("BEGIN")
    try:
        return list_tombstones(connection, after_number, PAGE_RECORDS), read_last(connection)
    finally:
        connection.execute("COMMIT")


class _RunReader:
    """Reads the records of a run page by page, and with the last page, in one look, all that sums them up."""

    def __init__(self, store: Store, run_id: str) -> None:
        self._store = store
        self._run_id = run_id
        self._evidence: Evidence | None = None

    def links(self) -> Iterator[Link]:
        """Yield the records, whatever their numbers."""
        after_seq: int | None = None
        while page := self._store.read(partial(self._read_page, after_seq=after_seq)):
            yield from page
            after_seq = page[-1].seq

    def evidence(self) -> Evidence:
        """Return what the records are compared with, as of the end of reading them."""
        assert self._evidence is not None, "it was read with the last page"
        return self._evidence

    def _read_page(self, connection: sqlite3.Connection, after_seq: int | None) -> list[Link]:
        connection.execute("BEGIN")  # the last page and the row must be of one moment, or a live run looks broken
        try:
            found = use_sqlite_utils(connection).query(
                f"SELECT {', '.join(Link._fields)} FROM records WHERE run_id = ? AND (? IS NULL OR seq > ?)"
                " ORDER BY seq LIMIT ?",
                [self._run_id, after_seq, after_seq, PAGE_RECORDS],
            )
            page = [Link(**row) for row in found]
            if not page:
                self._evidence = _read_evidence(connection, self._run_id)
        finally:
            connection.execute("COMMIT")
        return page


def _list_ids(connection: sqlite3.Connection) -> list[str]:
    found = use_sqlite_utils(connection).query("SELECT run_id FROM runs ORDER BY number")
    return [str(row["run_id"]) for row in found]


def _read_evidence(connection: sqlite3.Connection, run_id: str) -> Evidence:
    database = use_sqlite_utils(connection)
    letters = database.query(
        "SELECT run_id, '' AS saga, seq, step, item, direction, reason, failure, opened_at_ms, closed_at_ms"
        " FROM dead_letters WHERE run_id = ? ORDER BY seq",
        [run_id],
    )
    fences = [row["fence"] for row in database.query("SELECT fence FROM leases WHERE run_id = ?", [run_id])]
    found = [make_letter(tuple(row.values())) for row in letters]
    return Evidence(
        row=read_row(connection, run_id),
        letters=tuple(
            Letter(each.seq, each.operation, each.reason, each.failure, each.opened_at_ms, each.closed_at_ms)
            for each in found
        ),
        fence=fences[0] if fences else 0,
        alerts=read_alerts(connection, run_id),
    )


def _check_database(store: Store) -> list[Finding]:
    """Check what belongs to no single run."""
    problems = [
        f"SQLite: {problem}"
        for (problem,) in store.read(lambda connection: _ask_all(connection, f"PRAGMA quick_check({PROBLEMS_MAX})"))
        if problem != "ok"
    ]
    problems += [
        f"a row of {table} has no row of {parent}"
        for table, _, parent, _ in store.read(lambda connection: _ask_all(connection, "PRAGMA foreign_key_check"))
    ]
    problems += [
        definition_lost(digest_).message
        for digest_, body in store.read(lambda connection: _ask_all(connection, "SELECT digest, body FROM definitions"))
        if check_definition(digest_, body) is None
    ]
    return [Finding(WHOLE_LOG, None, problem) for problem in problems]


def _ask_all(connection: sqlite3.Connection, query: str) -> list[Any]:
    return connection.execute(query).fetchall()


def _check_witness(store: Store, run_id: str, seq: int, head: str) -> list[Finding]:
    if store.read(lambda connection: holds(connection, run_id, seq, head)):
        return []
    if run_id == TOMBSTONES:
        return [Finding(WHOLE_LOG, None, f"tombstone {seq} was durable, and is gone or another one")]
    return [Finding(run_id, seq, f"record {seq} was durable, and is gone or another one")]
