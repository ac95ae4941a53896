"""SQLite files, for the plugins beside this file: opened only where they are, and bound to the call's time."""

from __future__ import annotations

import contextlib
import sqlite3
from collections.abc import Iterator
from pathlib import Path
from typing import Final, Literal

from sagactl import CallContext, Rejected, Unavailable

BUSY_SECONDS_MAX: Final = 5.0
STEPS_BETWEEN_LOOKS: Final = 10_000
"""Instructions of the database between two looks at whether the call is over."""

STATE_FOLDER: Final = ".sagactl"
OF_A_LOG: Final = 0x53_41_47_41
"""The `application_id` of a log of sagactl, wherever it lies and under however many names."""

FORBIDDEN: Final = {
    sqlite3.SQLITE_TRANSACTION: "BEGIN, COMMIT and ROLLBACK: a change is one transaction as it is",
    sqlite3.SQLITE_SAVEPOINT: "SAVEPOINT: a change is one transaction as it is",
    sqlite3.SQLITE_ATTACH: "ATTACH: a change concerns one file",
    sqlite3.SQLITE_DETACH: "DETACH: a change concerns one file",
    sqlite3.SQLITE_PRAGMA: "PRAGMA: most do nothing within a transaction, or can't be undone",
}

PRIMARY: Final = 0xFF
"""What of an error's code is its primary one."""

OF_SQLITE_ITSELF: Final = {"quick_check"}
"""What ALTER TABLE asks within."""


@contextlib.contextmanager
def open_file(
    context: CallContext, database: str, mode: Literal["ro", "rw"], *, within_project: bool = False
) -> Iterator[sqlite3.Connection]:
    """Open a database that is there; none is made, and a call that is over ends what it runs.

    What sagactl itself lives by is refused: who writes into a log decides what has happened.
    """
    path = _find(context, database, within_project=within_project)
    wait_seconds = min(BUSY_SECONDS_MAX, context.seconds_left())
    connection = sqlite3.connect(f"{path.as_uri()}?mode={mode}", uri=True, timeout=wait_seconds)
    connection.isolation_level = None  # transactions are ours alone
    connection.set_progress_handler(
        lambda: context.cancelled.is_set() or context.seconds_left() <= 0, STEPS_BETWEEN_LOOKS
    )
    try:
        _refuse_log(connection, database)
        yield connection
    finally:
        connection.close()


def _find(context: CallContext, database: str, *, within_project: bool) -> Path:
    """Return the file itself, whatever links lead to it."""
    root = context.project.resolve()
    try:
        path = (root / database).resolve()
        is_there = path.is_file()
    except (OSError, ValueError):  # a loop of links, a zero byte
        raise Rejected(f"no database {database!r:.200}", code="no_database") from None
    if within_project and not path.is_relative_to(root):
        raise Rejected(f"{database!r:.200} leads out of the project's folder", code="outside")
    if path.is_relative_to(root) and str(path.relative_to(root)).casefold().split("/")[0] == STATE_FOLDER:
        raise Rejected(f"{STATE_FOLDER} is what sagactl itself lives by", code="reserved")
    if not is_there:
        raise Rejected(f"no database {database!r:.200}", code="no_database")
    return path


def _refuse_log(connection: sqlite3.Connection, database: str) -> None:
    # asked of SQLite, since this process may have the log open: closing a file of one's own would end SQLite's locks
    try:
        (found,) = connection.execute("PRAGMA application_id").fetchone()
    except sqlite3.Error as error:
        if getattr(error, "sqlite_errorcode", 0) & PRIMARY in {sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED}:
            raise Unavailable(f"the database is busy: {error}", code="busy") from None
        return  # it is no database, or can't be read: what comes next says so
    if found == OF_A_LOG:
        raise Rejected(f"{database!r:.200} is a log of sagactl", code="reserved")


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
