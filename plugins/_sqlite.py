"""SQLite files, for the plugins beside this file: opened only where they are, and bound to the call's time."""

from __future__ import annotations

import contextlib
import sqlite3
from collections.abc import Iterator
from typing import Final, Literal

from sagactl import CallContext, Rejected

BUSY_SECONDS_MAX: Final = 5.0
STEPS_BETWEEN_LOOKS: Final = 10_000
"""Instructions of the database between two looks at whether the call is over."""

FORBIDDEN: Final = {
    sqlite3.SQLITE_TRANSACTION: "BEGIN, COMMIT and ROLLBACK: a change is one transaction as it is",
    sqlite3.SQLITE_SAVEPOINT: "SAVEPOINT: a change is one transaction as it is",
    sqlite3.SQLITE_ATTACH: "ATTACH: a change concerns one file",
    sqlite3.SQLITE_DETACH: "DETACH: a change concerns one file",
    sqlite3.SQLITE_PRAGMA: "PRAGMA: most do nothing within a transaction, or can't be undone",
}

OF_SQLITE_ITSELF: Final = {"quick_check"}
"""What ALTER TABLE asks within."""


@contextlib.contextmanager
def open_file(context: CallContext, database: str, mode: Literal["ro", "rw"]) -> Iterator[sqlite3.Connection]:
    """Open a database that is there; none is made, and a call that is over ends what it runs."""
    path = context.project / database
    if not path.is_file():
        raise Rejected(f"no database {database}", code="no_database")
    wait_seconds = min(BUSY_SECONDS_MAX, context.seconds_left())
    connection = sqlite3.connect(f"{path.absolute().as_uri()}?mode={mode}", uri=True, timeout=wait_seconds)
    connection.isolation_level = None  # transactions are ours alone
    connection.set_progress_handler(
        lambda: context.cancelled.is_set() or context.seconds_left() <= 0, STEPS_BETWEEN_LOOKS
    )
    try:
        yield connection
    finally:
        connection.close()


@contextlib.contextmanager
def within_transaction(connection: sqlite3.Connection) -> Iterator[list[str]]:
    """Let statements neither end the transaction nor leave the file; gives the list of what was refused."""
    refused: list[str] = []

    def allow(action: int, name: str | None, *_: str | None) -> int:
        if action in FORBIDDEN and name not in OF_SQLITE_ITSELF:
            refused.append(FORBIDDEN[action])
            return sqlite3.SQLITE_DENY
        return sqlite3.SQLITE_OK

    connection.set_authorizer(allow)
    try:
        yield refused
    finally:
        connection.set_authorizer(None)
